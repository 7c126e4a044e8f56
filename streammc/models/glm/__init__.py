"""Regressions: one linear predictor, and a scale or shape parameter where the family has one."""
