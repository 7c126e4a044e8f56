"""What every sampler is: options, and the decisions that depend on the data.

The driver of runs, the trace and the command line know this class and no family of samplers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from streammc.protocols import Model
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.request import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

NAMED = "asked for by name"
"""Reason of a sampler that no measurement has chosen."""


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """A sampler and its options, before it has seen data. The fields are the options."""

    name: ClassVar[str]
    target: ClassVar[str]
    """A word of ``common.targets``: the density of its draws."""
    paper: ClassVar[str]
    audited: ClassVar[bool] = False
    """Whether importance weights lead from its draws to the posterior."""
    follows_schedule: ClassVar[bool] = False
    """Whether the temperature may change from iteration to iteration."""
    crosses_modes: ClassVar[bool] = False
    """Whether it is made for posteriors with several modes."""
    restarts: ClassVar[bool] = False
    """Whether it counts how often a draw of the prior comes down to the posterior."""
    least_sign: ClassVar[float | None] = None
    """Smallest mean sign of a run that is not refused; ``None``: draws have no sign."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Arrays of ``Setup.arrays`` and their dimensions: the group ``constant_data`` keeps them."""

    @property
    def variance_limit(self) -> float:
        """Mean ``log_lik_variance`` above which a run is refused."""
        return math.inf

    @property
    @abstractmethod
    def statistics(self) -> tuple[str, ...]:
        """Names of what is recorded of every draw, in the order of the columns."""

    def describe(self) -> dict[str, Any]:
        """Return name and options as JSON: part of the run's identity."""
        return {"name": self.name, **asdict(self)}

    def needs_pass(self, model: Model) -> bool:
        """Return whether :meth:`prepare` makes full passes where no control variates are given."""
        return True

    def own_pass_seconds(self, n_rows: int, draws: int) -> float:
        """Return about how long the passes of :meth:`prepare` take beside control variates.

        Parameters
        ----------
        n_rows
            Rows of the data set.
        draws
            Draws of all chains together.
        """
        return 0.0

    def implied_temperature(self, n_rows: int) -> float:
        """Return the temperature of the sampler itself, which multiplies the one asked for."""
        return 1.0

    @abstractmethod
    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Make the passes that are missing and settle every option that depends on the data.

        Parameters
        ----------
        request
            The run; its ``sampler`` is not looked at.
        reason
            Why this sampler, in words; empty where it was asked for by name.

        Raises
        ------
        ConfigError
            If model and options do not fit together.
        RefusedError
            If the draws could not be right on these data.
        StoppedError
            If ``request.stop()`` became true in a short run.
        """

    @abstractmethod
    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return what all chains share, compiled kernels included.

        Raises
        ------
        ConfigError
            If a run with that setup cannot have as many draws as are asked for.
        """

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return what the summary of a finished run says beyond that of every sampler, as JSON."""
        return {}

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return warnings, one line each, of the ``sampling`` part of a summary."""
        return []

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return lines for the receipt of a run, words -> value, of the same facts."""
        return {}
