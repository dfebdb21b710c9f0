"""The command line: each file holds one verb or a few related verbs."""
