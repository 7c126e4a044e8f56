"""What was found out about changes that no test had caught: ``mutations.py`` reads it.

A change is named as ``Mutation.key`` names it.
"""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {}
"""Changes without any effect on a result, with the reason."""
TESTS: Final[dict[str, str]] = {}
"""Changes that a test was written for, with the test, as ``path::name``."""
