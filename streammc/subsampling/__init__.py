"""Draws of the units of a subsample: designs, probabilities, certainty rows, look-ahead."""
