"""What scores and transforms learn from a training set: moments, percentiles and subspaces, streamed and shared."""
