"""Gates: what a method must keep before its numbers count."""
