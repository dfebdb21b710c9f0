"""Regressions in score or speed."""
