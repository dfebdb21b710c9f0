"""Many runs: grids, the pool, and the executors that work through them."""
