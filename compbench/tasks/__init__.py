"""Tasks, one file a family: which combinations are held out, and how a sampler is scored."""
