"""Templates of plugins."""
