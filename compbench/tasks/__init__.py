"""The tasks.  One file per family defines the factors, the holdout, the budgets and the scores."""
