"""Cases: tables."""

CASES = r"""
"""
