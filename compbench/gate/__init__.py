"""Did it get worse or slower?  Two commits compared in exact facts, scores and speed."""
