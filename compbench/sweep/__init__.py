"""Many runs: grids, executors and the local pool."""
