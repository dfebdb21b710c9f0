"""The metrics that score samples, and the judges that they use."""
