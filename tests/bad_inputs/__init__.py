"""Every error message of the command line and of the public Python functions.

Each case is one line: a command, or Python code, as a user would write it. The line that is
listed is the line that runs: ``tests/bench/test_messages.py`` runs them all.
"""
