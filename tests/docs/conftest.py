"""The modules of ``docs/site``, which MkDocs loads from their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[2] / "docs" / "site"


@pytest.fixture(autouse=True)
def site_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the site importable by their names."""
    monkeypatch.syspath_prepend(str(SITE))
