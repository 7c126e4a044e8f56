"""Which units are in the subsample."""
