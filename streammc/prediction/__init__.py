"""Predictions of a run for the rows of a store, and their scores."""
