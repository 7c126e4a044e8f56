"""Base class of samplers: options, and the decisions that depend on the data.

The driver of runs, the trace and the command line know this class and no family of samplers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from streammc.html_repr import Shown, options_of

if TYPE_CHECKING:
    from streammc.protocols import Model
    from streammc.samplers.common.chain import SharedProblem
    from streammc.samplers.common.evidence import Evidence
    from streammc.samplers.common.request import RunRequest, Setup
    from streammc.trace.run_directory import RunDirectory

NAMED = "asked for by name"
"""Reason for a sampler that was given by name."""


@dataclass(frozen=True, kw_only=True)
class Sampler(Shown, ABC):
    """A sampler with its options, which are the fields; it does not depend on the data."""

    name: ClassVar[str]
    target: ClassVar[str]
    """Density of the draws, one of the words in ``common.targets``."""
    paper: ClassVar[str]
    audited: ClassVar[bool] = False
    """Whether runs can be audited: importance weights from the target to the posterior exist."""
    follows_schedule: ClassVar[bool] = False
    """Whether the temperature may change from iteration to iteration."""
    crosses_modes: ClassVar[bool] = False
    """Whether the sampler moves between the modes of a posterior."""
    restarts: ClassVar[bool] = False
    """Whether the sampler counts how often a draw from the prior reaches the posterior."""
    samples_scales: ClassVar[bool] = False
    """Whether the sampler draws the effects of factors together with their scale."""
    least_sign: ClassVar[float | None] = None
    """Smallest mean sign of a run that is not refused; ``None``: draws have no sign."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Arrays of ``Setup.arrays`` and their dimensions: the group ``constant_data`` keeps them."""

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return target, paper and the options that are not the defaults, for a notebook."""
        from streammc.samplers.common.targets import TARGETS

        target = f"{self.target}: {TARGETS[self.target]}"
        return f"Sampler {self.name}", {
            "targets": target,
            "paper": self.paper,
            "options": [f"{name}={text}" for name, text in options_of(self).items()]
            or "the defaults",
        }

    @property
    def variance_limit(self) -> float:
        """Mean ``log_lik_variance`` above which a run is refused."""
        return math.inf

    @property
    @abstractmethod
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics of every draw, in the order of the columns."""

    def describe(self) -> dict[str, Any]:
        """Return name and options as JSON, a part of the identity of a run."""
        return {"name": self.name, **asdict(self)}

    def needs_pass(self, model: Model) -> bool:
        """Return whether :meth:`prepare` makes full passes if no control variates are given."""
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
        """Return the temperature implied by the sampler, a factor on the requested temperature."""
        return 1.0

    @abstractmethod
    def prepare(self, request: RunRequest, reason: str) -> Setup:
        """Return the setup: make missing passes, and resolve the options that depend on the data.

        Parameters
        ----------
        request
            Request of the run; its ``sampler`` is ignored.
        reason
            Reason for this sampler as text; empty if it was given by name.

        Raises
        ------
        ConfigError
            If model and options do not fit together.
        RefusedError
            If the draws could not be accurate on these data.
        StoppedError
            If ``request.stop()`` became true in a short run.
        """

    @abstractmethod
    def problem(self, request: RunRequest, setup: Setup) -> SharedProblem:
        """Return the problem that all chains share, including compiled kernels.

        Raises
        ------
        RefusedError
            If a run with this setup cannot make the requested number of draws.
        """

    def facts(self, run: RunDirectory, setup: Setup) -> dict[str, Any]:
        """Return the facts of this family of samplers for the summary of a run, as JSON."""
        return {}

    def warnings(self, facts: Mapping[str, Any]) -> list[str]:
        """Return warnings, one line each, from ``facts``, the ``sampling`` part of a summary."""
        return []

    def text(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return lines for the receipt of a run, label -> value, from the same facts."""
        return {}

    def evidence(self, summary: Mapping[str, Any]) -> list[Evidence]:
        """Return the checks of this family for the report of a run, from its whole summary.

        Parameters
        ----------
        summary
            As ``diagnose`` prints it; of an unfinished run ``sampling`` lacks most entries.
        """
        return []
