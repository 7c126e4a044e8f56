"""Compiled arithmetic used by all other packages."""
