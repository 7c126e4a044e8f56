"""Measured tables in the pages of ``docs/``: a script writes between its own two marks."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
MEASUREMENTS = DOCS / "measurements"
FOLDERS = (MEASUREMENTS, DOCS / "explanation", DOCS / "how-to")
"""Folders of pages with measured tables."""


def machine() -> str:
    """Return the processor, the cores and the date."""
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores, {datetime.date.today()}"


def short(value: float) -> str:
    """Return three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


def publish(page: str, name: str, lines: Iterable[str]) -> None:
    """Put the lines between ``<!-- name -->`` and ``<!-- /name -->`` of the page that has them.

    The page may be in any of ``FOLDERS``; pages of one name have different marks.
    """
    path, before, _, after = _parts(page, name)
    text = [f"{before}<!-- {name} -->", "", *lines, "", f"<!-- /{name} -->{after}"]
    path.write_text("\n".join(text))


def published(page: str, name: str) -> list[str]:
    """Return the lines that a page has between the marks."""
    return _parts(page, name)[2].strip().splitlines()


def _parts(page: str, name: str) -> tuple[Path, str, str, str]:
    """Return the path of a page, and its text before, between and after the marks."""
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    pages = [folder / page for folder in FOLDERS if (folder / page).exists()]
    marked = [path for path in pages if first in (text := path.read_text()) and last in text]
    if len(marked) != 1:
        places = ", ".join(str(path) for path in marked or pages) or "no page"
        raise SystemExit(
            f"expected the marks {first.strip()} and {last} in one page {page} of "
            f"{', '.join(folder.name for folder in FOLDERS)}, found {places}: "
            "put them into one page"
        )
    (path,) = marked
    before, _, rest = path.read_text().partition(first)
    between, _, after = rest.partition(last)
    return path, before, between, after
