"""Where x comes from: official files, their download and readers, and the embedded renderers."""
