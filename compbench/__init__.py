"""compbench: methods for compositional generation, compared under one protocol."""

__version__ = "0.2.0"
