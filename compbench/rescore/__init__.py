"""Scores without training: of kept or foreign samples and weights."""
