"""compbench's own methods, one file each; they come through the same entry points as a stranger's."""
