"""Whole stores of records: verified, merged, exported."""
