"""Leaderboards: records -> tables, statistics, the page."""
