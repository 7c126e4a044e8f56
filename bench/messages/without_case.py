"""Errors that no case provokes, each with the reason."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, str]] = {}
"""Name of a site -> why it has no case."""
