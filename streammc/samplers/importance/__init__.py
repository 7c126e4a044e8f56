"""Draws of an approximation, weighed by the exact posterior in one full pass: ``laplace``."""
