"""Cases: runs."""

CASES = r"""
"""
