"""compbench: methods for compositional generation, compared under one protocol."""

__version__ = "0.1.0"
