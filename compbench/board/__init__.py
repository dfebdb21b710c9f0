"""Which method is best, how certain is that, and what does it cost?  Boards are made from records."""
