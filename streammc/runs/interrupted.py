"""What an interrupted run says of the draws that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streammc.diagnostics.summary import summarize
from streammc.trace.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray as xr


def part_summary(run: RunDirectory, tree: xr.DataTree) -> dict[str, Any]:
    """Return the summary of a run that was stopped: ``parameters`` and ``warnings``.

    There is no audit, and no cost, before the last draw. ``sampling`` counts draws and
    warm-up iterations of each chain.

    Parameters
    ----------
    run
        The run.
    tree
        Its committed draws, from ``open_run``.
    """
    done, warmed = run.committed_draws, run.committed_warmup
    found = f"{done} of {run.draws} draws"
    if not done:
        found = f"{warmed} of {run.warmup} warm-up iterations and no draw"
    line = (
        f"interrupted: each chain has {found}, not audited; sample again with the same arguments "
        f"and path={str(run.path)!r} to go on from there"
    )
    return {
        "finished": False,
        "parameters": summarize(tree) if done else {},
        "audit": None,
        "sampling": {"chains": run.chains, "draws": done, "warmup": warmed},
        "warnings": [line],
    }
