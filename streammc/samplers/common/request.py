"""Request of a run, and its setup: the decisions before the first draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from streammc.diagnostics.stopping import StopRule
from streammc.likelihood.temperature import Schedule
from streammc.protocols import Dataset, Model

if TYPE_CHECKING:
    from streammc.control_variates.expansion import ControlVariates
    from streammc.control_variates.plan.subsample_plan import Plan
    from streammc.samplers.common.sampler import Sampler

Progress = Callable[[str, int, int | None, Mapping[str, Any]], None]
"""``progress(phase, done, total, facts)``; see ``streammc.sample``."""


def never() -> bool:
    """Return ``False``: the default ``stop``, which never stops a run."""
    return False


@dataclass(frozen=True)
class RunRequest:
    """Data, model, sampler and settings of a run; most are arguments of ``streammc.sample``.

    A sampler gets the request with the data set at the final temperature, and with the default
    priors of the model resolved.
    """

    dataset: Dataset
    model: Model
    sampler: Sampler | None = None
    control_variates: ControlVariates | None = None
    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    seed: int | None = None
    path: str | Path | None = None
    audit: bool | str = "auto"
    progress: Progress | None = None
    stop: Callable[[], bool] = never
    """Polled several times a second; true ends the run after the last commit."""
    scheduler: Any = None
    chains_on: str = "here"
    """``here``, or ``workers`` of the cluster that ``scheduler`` names."""
    threads: int | None = None
    """Threads of the chains; ``None``: one per core. No bit of the draws depends on it."""
    batch_iterations: int = 4096
    """Largest number of iterations of a compiled call. No bit of the draws depends on it."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Extra JSON recorded with the run."""
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the sampler that is chosen where ``sampler`` is ``None``; they do not choose."""
    temperature: float | str | Schedule = 1.0
    overwrite: bool = False
    stopping: StopRule | None = None
    """Rule that extends the run beyond ``draws``, which are its fewest."""

    @property
    def schedule(self) -> Schedule:
        """Temperature of every iteration."""
        return Schedule.parse(self.temperature)

    @property
    def stream_seed(self) -> int:
        """Seed of the random numbers of decisions before the first draw."""
        return self.seed or 0

    def notify(self, phase: str, done: int, total: int | None, facts: Mapping[str, Any]) -> None:
        """Call ``progress``, if there is one."""
        if self.progress is not None:
            self.progress(phase, done, total, facts)

    def blocks_of(self, phase: str) -> Callable[[int, int], None] | None:
        """Return a function ``(done, total)`` that reports the blocks of a full pass."""
        if self.progress is None:
            return None
        notify = self.progress
        return lambda done, total: notify(phase, done, total, {})


@dataclass(frozen=True)
class Setup:
    """Decisions before the first draw, shared by all chains and recorded in the run."""

    sampler: Sampler
    """Sampler with all options resolved."""
    cv: ControlVariates
    plan: Plan | None
    """Certainty rows, units and blocks; ``None``: every row is evaluated, or no pass was made."""
    reason: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays named by ``Sampler.arrays``, which the run keeps."""
