"""Execution of a job: checks before any row is read, then sampling until done or interrupted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.configuration import write_json
from streammc.cli.output import Output
from streammc.cli.progress import Progress
from streammc.cli.signals import Interrupted, Interruption
from streammc.errors import AccessError, ConfigError, OutputError, StorageIOError

if TYPE_CHECKING:
    from streammc.samplers.common.sampler import RunRequest

_STATISTICS: Final = 10
"""Statistics of a draw, for the estimate of the bytes on disk."""
CONFIGURATION: Final = "config.json"


@dataclass(frozen=True)
class Job:
    """Resolved settings of a sampling command; :func:`execute` makes its ``RunRequest``."""

    dataset: Any
    model: Any
    sampler: Any
    """``None`` for ``auto``."""
    control_variates: Any
    """``None`` to compute them."""
    path: str
    draws: int
    warmup: int
    chains: int
    seed: int | None
    """``None`` for the seed of the run at ``path``."""
    audit: bool | str = "auto"
    scheduler: Any = None
    chains_on: str = "here"
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the sampler that ``auto`` takes."""
    settings: Mapping[str, Any] | None = None
    """Resolved settings of the command, recorded with the run."""
    temperature: float | str = 1.0
    overwrite: bool = False
    stopping: Any = None
    """Rule that extends the run beyond ``draws``, a ``StopRule``."""

    @property
    def tempered(self) -> Any:
        """The data set at the final temperature of the run."""
        from streammc.likelihood.temperature import Schedule
        from streammc.runs.identity import heated

        return heated(self.dataset, Schedule.parse(self.temperature), self.sampler)

    def request(self, progress: Any = None, stop: Callable[[], bool] | None = None) -> RunRequest:
        """Return the request of the run; ``progress`` and ``stop`` are those of ``RunRequest``."""
        from streammc.samplers.common.sampler import RunRequest, never

        return RunRequest(
            self.dataset,
            self.model,
            self.sampler,
            self.control_variates,
            draws=self.draws,
            warmup=self.warmup,
            chains=self.chains,
            seed=self.seed,
            path=self.path,
            audit=self.audit,
            progress=progress,
            stop=never if stop is None else stop,
            scheduler=self.scheduler,
            chains_on=self.chains_on,
            attributes={"settings": dict(self.settings or {})},
            sampler_options=self.sampler_options,
            temperature=self.temperature,
            overwrite=self.overwrite,
            stopping=self.stopping,
        )

    @property
    def disk_bytes(self) -> int:
        """Estimated bytes on disk of draws, warm-up and control variates."""
        d = int(self.model.dim(self.dataset.n_features))
        draws = self.draws if self.stopping is None else max(self.draws, self.stopping.draws)
        iterations = self.chains * (draws + self.warmup)
        return run_bytes(d, iterations)


def run_bytes(dim: int, iterations: int) -> int:
    """Return the estimated bytes on disk of a run with ``iterations`` of all chains."""
    return 8 * (iterations * (dim + _STATISTICS) + 4 * dim * dim + 60_000) + 2**18


def check_job(job: Job) -> None:
    """Check a job before any row is read: output, temperature, subsample sizes and disk space.

    Raises
    ------
    ConfigError
        If a subsample size exceeds the rows, or the sampler does not allow the temperature.
    OutputError
        If the output path has something other than a run.
    StorageIOError
        If the draws do not fit the disk.
    """
    from streammc.runs.identity import asked_schedule

    check_place(job.path)
    asked_schedule(job.temperature, job.sampler)
    check_sizes(job.dataset, job.sampler, job.sampler_options)
    folder = Path(os.path.abspath(job.path))
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if job.disk_bytes > free:
        raise StorageIOError(
            f"expected {job.disk_bytes / 1e9:.3g} GB of free disk for {job.chains} chains of "
            f"{job.draws} draws, found {free / 1e9:.3g} GB at {str(folder)!r}: ask for fewer draws"
        )


def check_sizes(dataset: Any, sampler: Any, options: Mapping[str, Any]) -> None:
    """Refuse a subsample, units or blocks that the rows of a data set are too few for.

    Parameters
    ----------
    dataset
        The data set, of groups where the model is mixed.
    sampler
        The sampler; ``None`` for an automatic choice.
    options
        The options of an automatic choice.

    Raises
    ------
    ConfigError
        If one is larger than the rows allow.
    """
    from streammc.likelihood.unit_words import in_units, unit_name

    n = dataset.n_rows
    m, b, blocks = (
        getattr(sampler, name, options.get(name))
        for name in ("subsample_size", "unit_rows", "n_blocks")
    )
    b = b or 1
    for name, value in (("--subsample-size", m), ("--unit-rows", b)):
        if value is not None and value > n:
            text = f"expected {name} of at most {n}, the rows, found {value}: give a smaller number"
            raise ConfigError(in_units(text, unit_name(dataset)))
    if m is not None and blocks is not None and blocks > -(-m // b):
        raise ConfigError(
            f"expected --n-blocks of at most {-(-m // b)} units, found {blocks}: give fewer blocks"
        )


def check_place(path: str) -> None:
    """Refuse a path at which a run cannot be created or continued."""
    from streammc.stores.format.partial import refuse_existing
    from streammc.trace.run_directory import RunDirectory

    if not os.path.lexists(path):
        place = Path(os.path.abspath(path))
        refuse_existing(place)
        folder = next(parent for parent in place.parents if parent.exists())
        if not folder.is_dir():
            raise OutputError(
                f"expected to create {path!r}, found a file at {str(folder)!r}"
                ": choose another output"
            )
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise OutputError(
                f"expected to create {path!r}, found a read-only file system at {str(folder)!r}"
                ": choose another output"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise AccessError(
                f"expected to create {path!r}, found no permission to write in {str(folder)!r}"
                ": change its permissions, or choose another output"
            )
        return
    if RunDirectory.exists(path):
        return
    if not os.path.isdir(path):
        raise OutputError(
            f"expected a directory for the run at {path!r}, found a file: choose another output"
        )
    if os.listdir(path) and not os.path.isdir(os.path.join(path, "checkpoint")):
        raise OutputError(
            f"expected a new or empty directory, or a run, found other files in {path!r}: "
            "choose another output"
        )


def execute(output: Output, interruption: Interruption, job: Job) -> dict[str, Any]:
    """Start, resume or extend the run of a job; return its summary.

    Raises
    ------
    Interrupted
        If a signal came; draws committed before it are kept.
    """
    from streammc.runs.job import run_job
    from streammc.trace.places import can_continue
    from streammc.trace.run_directory import RunDirectory

    check_job(job)
    try:
        with Progress(output, interruption) as progress:
            progress.reads(job.dataset)
            report = run_job(job.request(progress, interruption.requested))
    finally:
        if RunDirectory.exists(job.path) and can_continue(Path(job.path)):
            record_settings(job)
    if not report.finished:
        assert interruption.signum is not None
        raise Interrupted(interruption.signum)
    if not report.changed:
        committed = RunDirectory.open(job.path, verify=False).committed_draws
        fewer = job.stopping is None and job.draws < committed
        asked = f", {job.draws} asked for" if fewer else ""
        output.note(f"{job.path} has {committed} draws per chain{asked}: nothing to do")
    return report.summary


def settings_of_run(run: Any) -> dict[str, Any]:
    """Return the recorded settings of a run, with its present draws, seed and stopping rule."""
    from streammc.diagnostics.stopping import StopRule
    from streammc.runs.job import STOPPING

    settings = {**run.attributes["settings"], "draws": run.draws, "seed": run.identity["seed"]}
    settings.pop("stop", None)
    if stopping := run.attributes.get(STOPPING):
        rule = StopRule.parse(stopping["rule"])
        settings |= {"draws": stopping["draws"], "stop": rule and rule.text()}
    return settings


def record_settings(job: Job) -> None:
    """Write the settings recorded in a run, with its draws and seed, to its ``config.json``."""
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(job.path, verify=False)
    if run.attributes.get("settings") is None or job.settings is None:
        return
    settings = settings_of_run(run)
    with run.copied():
        write_json(run.path / CONFIGURATION, settings)
