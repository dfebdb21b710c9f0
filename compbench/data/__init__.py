"""What is a sample?  Renderers, readers of official files, and silos of examples."""
