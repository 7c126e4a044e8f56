"""Run the cases of every area, and find the errors that none of them provokes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest.mock import patch

from bench.messages.inputs import make_inputs, names
from bench.messages.outcome import Outcome, run_case
from bench.messages.parts import missing_parts
from bench.messages.sites import Site, all_sites
from bench.messages.without_case import REASONS

AREAS: Final = (
    "command_line", "tables", "formulas", "stores", "addresses", "arrays", "priors", "models",
    "samplers", "control_variates", "sampling", "runs", "predictions", "checks", "jobs", "reports",
)  # fmt: skip


def cases_of(area: str) -> list[str]:
    """Return the cases of an area, one a line of its text; a line that begins with # is none."""
    text: str = import_module(f"bench.messages.cases_{area}").CASES
    return [line for line in text.strip().splitlines() if line and not line.startswith("#")]


def run_areas(
    only: Sequence[str] | None = None, progress: Callable[[str, float], None] | None = None
) -> dict[str, list[Outcome]]:
    """Run the cases of all areas, or of some, in a folder that is removed afterwards."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("STREAMMC_")}
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        patch.dict(os.environ, clean, clear=True),
        patch("sys.path", [folder, *sys.path]),
    ):
        make_inputs()
        at_hand, known = names(), set(os.listdir())
        found: dict[str, list[Outcome]] = {}
        for area in only or AREAS:
            found[area] = []
            for case in cases_of(area):
                before = time.perf_counter()
                found[area].append(_without(folder, run_case(case, at_hand)))
                if progress:
                    progress(case, time.perf_counter() - before)
                _remove({*os.listdir()} - known)
        return found


def _remove(left: set[str]) -> None:
    """Remove what a case has made, so that the next one finds the same inputs."""
    for name in left:
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            os.unlink(name)


def _without(folder: str, outcome: Outcome) -> Outcome:
    """Return an outcome whose message does not name the temporary folder."""
    real = str(Path(folder).resolve())
    return outcome._replace(message=outcome.message.replace(real, "/data").replace(folder, "/data"))


def uncovered(outcomes: Iterable[Outcome], sites: Sequence[Site] | None = None) -> list[str]:
    """Return the sites that need a case, and the reasons that are not needed."""
    lines = {line for outcome in outcomes for line in outcome.lines}
    sites = all_sites() if sites is None else sites
    problems = []
    for site in sites:
        provoked = any(site.holds(*line) for line in lines)
        reason = REASONS.get(site.name)
        if not provoked and reason is None:
            problems.append(f"no case: {site.path}:{site.first} {site.function}: {site.text}")
        elif not provoked and site.message.startswith("expected"):
            # A value in braces may be what was found, such as the words of the system.
            lacks = missing_parts(site.message.replace("{}", "'{}'"))
            problems += [f"{site.path}:{site.first}: {each}" for each in lacks]
    known = {site.name for site in sites}
    problems += [f"no such error any more: {name}" for name in REASONS if name not in known]
    return problems
