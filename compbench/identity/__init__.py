"""What the code of a run means: hashes of definitions, commits, defaults."""
