"""Cases: formulas."""

CASES = r"""
"""
