"""Run the cases of every area."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest.mock import patch

from bad_inputs.inputs import make_inputs, names
from bad_inputs.outcome import Outcome, run_case

AREAS: Final = (
    "command_line", "tables", "formulas", "stores", "addresses", "arrays", "priors", "models",
    "samplers", "control_variates", "sampling", "runs", "predictions", "checks", "jobs", "reports",
)  # fmt: skip


def cases_of(area: str) -> list[str]:
    """Return the cases of an area, one a line of its text; a line that begins with # is none."""
    text: str = import_module(f"bad_inputs.cases_{area}").CASES
    return [line for line in text.strip().splitlines() if line and not line.startswith("#")]


def run_areas(only: Sequence[str] | None = None) -> dict[str, list[Outcome]]:
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
                found[area].append(_without(folder, run_case(case, at_hand)))
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
