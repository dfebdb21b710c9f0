"""The mathematics between noise and data: paths, compositions, solvers, particles, networks and training."""
