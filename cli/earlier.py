"""Control variates of an earlier generation of a store, brought up to date by a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interruption
from streammc.errors import ConfigError


def of_earlier_generation(path: str, dataset: Any, model: Any) -> Any:
    """Return the control variates at ``path`` if they are of an earlier generation, or ``None``.

    Parameters
    ----------
    path
        Their path; there may be nothing, or something else.
    dataset
        The data set as it is, at its temperature.
    model
        Its model, with default priors that are still to be scaled with the data.

    Raises
    ------
    IdentityError
        If they are of another model.
    """
    from streammc.control_variates.appended import generation_of
    from streammc.control_variates.expansion import ControlVariates
    from streammc.trace.kinds import CONTROL_VARIATES, found_at

    found = found_at(path)
    if found is None or found.kind != CONTROL_VARIATES:
        return None
    kept = ControlVariates.open(path)
    before = generation_of(kept, dataset)
    if before is None:
        return None
    kept.require(before, model, f"control variates {path!r}")
    return kept


def updated(kept: Any, dataset: Any, model: Any, scheduler: Any, progress: Progress) -> Any:
    """Return control variates of a data set from those of an earlier generation.

    The default priors of ``model`` are still to be scaled with the data.
    """
    from streammc.control_variates.appended import update

    return update(
        kept,
        dataset,
        model,
        scheduler=scheduler,
        progress=progress.of("pass"),
        phases=progress,
    )


def note_update(output: Output, cv: Any) -> None:
    """Print how control variates of an earlier generation were used, if they were."""
    from streammc.control_variates.appended import update_text

    if cv.certificate.update is not None:
        output.note(f"control variates: {update_text(cv.certificate.update)}")


def control_variates_of(run: str) -> str:
    """Return the path of the control variates of a run.

    Raises
    ------
    MissingError, StoreError
        If there is no run.
    ConfigError
        If the run made no pass.
    """
    from streammc.control_variates.expansion import ControlVariates
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    path = str(RunDirectory.open(run, verify=False).path / CONTROL_VARIATES)
    if ControlVariates.open(path).certificate.decrement is None:
        raise ConfigError(
            f"expected a run with control variates at {run!r}, found one of a sampler that makes "
            "no pass: leave out --start-from"
        )
    return path


def current(
    output: Output,
    interruption: Interruption,
    kept: Any,
    job: Any,
    model: Any,
) -> Any:
    """Return control variates for the store of a job: those given, or these brought up to date.

    A run that exists keeps the ones that it has, so that the same command resumes it.

    Parameters
    ----------
    output, interruption
        Where to print, and the signals of the command.
    kept
        Control variates that were given, with the nodes of the model settled.
    job
        The job.
    model
        Its model, with default priors that are still to be scaled with the data.
    """
    from streammc.control_variates.appended import generation_of
    from streammc.control_variates.expansion import ControlVariates
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    dataset = job.tempered
    if kept.fingerprint == dataset.fingerprint or generation_of(kept, dataset) is None:
        return kept
    own = Path(job.path) / CONTROL_VARIATES
    if RunDirectory.exists(job.path) and not job.overwrite and os.path.lexists(own):
        there = ControlVariates.open(own)
        of_run = RunDirectory.open(job.path, verify=False).identity["control_variates"]
        source = (there.certificate.update or {}).get("earlier")
        if source == kept.digest() and of_run == there.digest():
            return there
    with Progress(output, interruption) as progress:
        found = updated(kept, dataset, model, job.scheduler, progress)
    note_update(output, found)
    return found
