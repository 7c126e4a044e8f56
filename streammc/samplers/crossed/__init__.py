"""Collapsed Gibbs sampling of models whose factors cross."""
