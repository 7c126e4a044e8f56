"""A sum over all units, estimated from the few that are in the subsample."""
