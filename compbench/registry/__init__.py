"""What is installed, and is it the same code?  Entry points, hashes of meaning, and what a request resolves to."""
