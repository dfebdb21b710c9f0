"""A compbench plugin to start from."""
