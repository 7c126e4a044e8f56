"""Every error message of the command line and of the public Python functions.

Each case is one line: a command, or Python code, as a user would write it. The line that is
listed is the line that runs. ``python -m bench.messages`` runs them all and checks every
message; with ``--write`` it renews ``docs/reference/messages.md`` and its tables.
"""
