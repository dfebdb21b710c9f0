"""compbench's own methods, one file each; they use the same entry points as third-party plugins."""
