"""One run: from a request to a record."""
