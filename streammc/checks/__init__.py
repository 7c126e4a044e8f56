"""Checks of a fitted model on the rows it was fitted to: scores and replicated responses."""
