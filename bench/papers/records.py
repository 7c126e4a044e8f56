"""What a bench of a paper says on the way, and how it keeps results."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime
from typing import Any


def log(line: str) -> None:
    """Say on stderr where we are."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Return JSON without infinities and NaN."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
