"""Records as tables, and for trackers."""
