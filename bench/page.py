"""Measured tables in the pages of ``docs/``: a script writes between its own two marks."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from pathlib import Path

EXPLANATION = Path(__file__).resolve().parents[1] / "docs" / "explanation"


def machine() -> str:
    """Return the processor, the cores and the date."""
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores, {datetime.date.today()}"


def short(value: float) -> str:
    """Return three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


def publish(page: str, name: str, lines: Iterable[str]) -> None:
    """Put the lines between ``<!-- name -->`` and ``<!-- /name -->`` of the page."""
    path = EXPLANATION / page
    before, _, rest = path.read_text().partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise SystemExit(f"{path} has no marks <!-- {name} --> and <!-- /{name} -->")
    path.write_text("\n".join([f"{before}<!-- {name} -->", "", *lines, "", f"{end}{after}"]))
