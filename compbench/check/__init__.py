"""The contract of a plugin, and pytest's door to it."""
