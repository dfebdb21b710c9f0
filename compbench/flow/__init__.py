"""Everything between noise and data, as pure functions: paths, compositions, solvers, networks, training."""
