"""Simulated stores with known parameters."""
