"""Boards: a pure, byte-stable function of records."""
