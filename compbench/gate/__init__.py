"""Did it get worse or slower?  The gate compares two commits in exact facts, scores and speed."""
