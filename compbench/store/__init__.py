"""Records on disk: reading, writing, verifying, submitting, exporting."""
