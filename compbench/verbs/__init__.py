"""What each verb of the command line does; `compbench.cli` gathers them.  Heavy imports stay inside the functions."""
