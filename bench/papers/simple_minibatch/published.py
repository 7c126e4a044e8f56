"""What Chen et al. 2016 print in figures and text."""

from __future__ import annotations

CHEN = "Chen, Seita, Pan, Jiang and Canny 2016, A Simple Minibatch Acceptance Test for MCMC"

VIOLATIONS = 75
"""Of 10,000 decisions at m = 200: std(Delta') of at least 1.2."""
FULL_SETS = 8
"""Of 10,000 decisions of adaptive sampling: those that took all 10,000 rows."""
LIMIT = 1.2
VIOLATION_SIZES = (50, 100, 150, 200, 250, 300)
CHECKPOINTS = (700, 1000, 1500)
"""Iterations after which the third panel of the logistic figure evaluates."""
