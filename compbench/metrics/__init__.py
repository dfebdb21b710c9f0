"""Metrics, one file a family: plain functions on arrays."""
