"""Who is best, how sure is that, and what does it cost?  Boards made of records."""
