"""The plan of a subsample: certainty rows, units, blocks, and the tails of the perturbed target."""
