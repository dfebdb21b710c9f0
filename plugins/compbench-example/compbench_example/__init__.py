"""A compbench plugin."""
