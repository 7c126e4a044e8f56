"""A real data set for the demo."""
