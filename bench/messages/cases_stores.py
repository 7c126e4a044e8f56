"""Cases: stores."""

CASES = r"""
"""
