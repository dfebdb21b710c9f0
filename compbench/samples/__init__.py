"""Samples as files: kept by a run, or made elsewhere."""
