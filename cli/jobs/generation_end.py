"""How the generations of a job whose table grows have ended: with all outputs, missed, or not yet.

Outputs are judged by what they record of themselves: other settings of the job since then do not
begin a finished generation again.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from streammc.cli.jobs.growing import of_generation
from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.job_record import DONE, MISSED
from streammc.errors import StreammcError
from streammc.trace.local_path import is_address

UNFINISHED: Final = "not finished"
_FROM_DRAWS: Final = ("scores", "predictions")
_MADE: Final = ("rows", *_FROM_DRAWS, "report")


def with_local_run(job: JobFile) -> JobFile:
    """Return a job with the local folder of its run, in place of an address."""
    from streammc.trace.places import run_folder

    run = job.outputs.run
    run = str(run_folder(run)) if is_address(run) else run
    return replace(job, outputs=replace(job.outputs, run=run))


def generation_end(job: JobFile) -> str | None:
    """Return ``done`` or ``missed`` for the outputs of a generation; ``None`` if some are to do.

    ``job`` has the number of the generation in its paths: see ``growing.of_generation``.
    """
    from streammc.trace.run_directory import RunDirectory

    outputs = job.outputs
    if not RunDirectory.exists(outputs.run):
        return None
    try:
        run = RunDirectory.open(outputs.run, verify=False)
        end = _run_end(run)
        if end != DONE:
            return end
        for name in _MADE:
            path = getattr(outputs, name)
            if path is not None and not _is_made(path, name, run):
                return None
    except StreammcError:
        return None  # its stage says what is wrong
    return DONE


def _run_end(run: Any) -> str | None:
    """Return how a run has ended, by its own plan and rule; ``None`` if it goes on."""
    kept = run.attributes.get("summary")
    if not kept or not run.finished() or kept["sampling"]["draws"] != run.committed_draws:
        return None
    rule = (run.attributes.get("stopping") or {}).get("rule")
    stop = kept.get("stop")
    if rule is None:
        return DONE
    if stop is None or stop["rule"] != rule:
        return None
    return DONE if stop["passed"] else MISSED


def _is_made(path: str, name: str, run: Any) -> bool:
    """Return whether an output is there as a whole, and of all draws of its run."""
    if not os.path.lexists(path):
        return False
    try:
        text = Path(f"{path.rstrip(os.sep)}.config.json").read_text(encoding="utf-8")
        receipt = json.loads(text)
        asked, result = receipt["asked"], receipt["result"]
        if result is not None and name in _FROM_DRAWS:
            return bool(asked["committed draws"] == run.committed_draws)
        if result is not None and name == "report":
            return bool(result["made_from"]["draws"] == run.digest())
    except (OSError, ValueError, KeyError, TypeError):
        return True  # not of a job: its stage would refuse it
    return result is not None


def earlier_generation(job: JobFile, *, appended: bool) -> dict[str, Any] | None:
    """Return generation, run and outcome of the generation before that of a job, if not ``done``.

    Parameters
    ----------
    job
        The job as its file has it.
    appended
        Whether files that are to be appended have been.
    """
    from streammc.stores.format.generations import generations
    from streammc.stores.store import open_store
    from streammc.trace.run_directory import RunDirectory

    place = str(job.source.store or job.outputs.store)
    if job.source.append is None or not os.path.lexists(place):
        return None
    number = len(generations(open_store(place).attributes)) - appended
    run = with_local_run(of_generation(job, number)).outputs.run
    if number < 1 or not RunDirectory.exists(run):
        return None
    end = _run_end(RunDirectory.open(run, verify=False)) or UNFINISHED
    found = {"generation": number, "run": os.path.abspath(run), "outcome": end}
    return None if end == DONE else found


def earlier_text(found: Mapping[str, Any]) -> str:
    """Return what is to be said of an earlier generation that is not done."""
    number, run = found["generation"], found["run"]
    if found["outcome"] == MISSED:
        return (
            f"expected generation {number} to meet its stopping rule, found {run!r} without: it "
            "has no predictions, and the next generation goes on from it"
        )
    return (
        f"expected the run of generation {number} to be finished, found {run!r} partial, and rows "
        f"appended since: finish it with 'streammc resume {shlex.quote(run)}', or delete it"
    )
