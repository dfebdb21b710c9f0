"""Runs, models and tasks from Python."""
