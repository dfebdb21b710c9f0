"""The data: renderers, readers of official files, and silos of examples."""
