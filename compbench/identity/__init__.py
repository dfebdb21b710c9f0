"""What a run is: its settings resolved, what its code means, and where that comes from."""
