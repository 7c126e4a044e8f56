"""Gaussian mixtures, and the mean of Gaussian observations."""
