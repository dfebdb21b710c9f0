"""Grids of runs and the pools that work through them."""
