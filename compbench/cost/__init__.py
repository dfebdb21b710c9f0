"""What fits and samples take: counted in runs, and measured apart from them."""
