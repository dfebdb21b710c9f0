"""How does a run go?  From a request to a record, and the processes in between."""
