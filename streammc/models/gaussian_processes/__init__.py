"""Gaussian processes, whose likelihood is no product over rows."""
