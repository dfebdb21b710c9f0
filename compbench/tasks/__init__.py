"""What is asked?  A file a family: lattice, holdout, budgets, and how answers are scored."""
