"""Cases: command_line."""

CASES = r"""
"""
