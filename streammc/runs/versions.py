"""Versions of the programs that made the draws of a run, recorded with it.

Draws have the same bits under the same versions on the same kind of processor. A run that another
version, or another processor, goes on with says from which iteration on.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from streammc.trace.run_directory import RunDirectory

VERSIONS: Final = "versions"
"""Attribute of a run: a mapping for each set of versions, with its first ``iteration``."""
_ITERATION: Final = "iteration"


def versions() -> dict[str, str]:
    """Return the versions and the kind of processor that the bits of a draw depend on."""
    import llvmlite.binding  # type: ignore[import-untyped]
    import numba
    import numpy
    import scipy

    return {
        "streammc": str(import_module("streammc").__version__),
        "Python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "processor": f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}",
    }


def record_versions(run: RunDirectory) -> None:
    """Add the versions of this process to a locked run with iterations to come, if they differ."""
    kept = recorded_versions(run.attributes)
    now = versions()
    if not run.next_length or (kept and {**kept[-1], _ITERATION: 0} == {_ITERATION: 0, **now}):
        return
    first = run.committed_warmup + run.committed_draws
    run.set_attributes({VERSIONS: [*kept, {_ITERATION: first, **now}]})


def recorded_versions(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the versions of a run in their order; none of a run of streammc 0.1.0 or earlier."""
    found = attributes.get(VERSIONS)
    return [dict(each) for each in found] if isinstance(found, list) else []


def versions_text(attributes: Mapping[str, Any]) -> str | None:
    """Return the versions of a run as text; ``None`` if it does not say them."""
    lines = []
    for each in recorded_versions(attributes):
        words = ", ".join(f"{name} {text}" for name, text in each.items() if name != _ITERATION)
        since = f"from iteration {each[_ITERATION]:,} on: " if each[_ITERATION] else ""
        lines.append(f"{since}{words}")
    return "; ".join(lines) or None
