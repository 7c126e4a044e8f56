"""Interface between runs and samplers: request, setup, sampler, targets and checks.

The driver of runs, the trace and the command line know this module and no family of samplers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from streammc.diagnostics.text import number
from streammc.samplers.common.options import check_types
from streammc.settings import OverwriteOption, PassOptions, setting
from streammc.shown import Shown, options_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streammc.control_variates.expansion import ControlVariates
    from streammc.control_variates.plan.subsample_plan import Plan
    from streammc.diagnostics.stopping import StopRule
    from streammc.likelihood.temperature import Schedule
    from streammc.protocols import Dataset, Model, Phases
    from streammc.samplers.common.chains import SharedProblem
    from streammc.trace.run_directory import RunDirectory


EXACT: Final = "exact"
WEIGHTED: Final = "exact, by weights"
PERTURBED: Final = "perturbed"
SIGNED: Final = "signed"
APPROXIMATE: Final = "approximate"
TEMPERED: Final = "tempered"
BIASED: Final = "biased"

TARGETS: Final = {
    EXACT: "the posterior",
    WEIGHTED: "the posterior, by exact importance weights of an approximation",
    PERTURBED: "close to the posterior; an audit measures how close",
    SIGNED: "the posterior, where draws are weighted by their sign",
    APPROXIMATE: "the posterior, but for the error of each decision",
    TEMPERED: "the posterior",
    BIASED: "no step is rejected, so the draws are not the posterior's",
}
"""Text of each target for the receipt of a run."""
NOT_AUDITED: Final = {
    EXACT: "{name} targets the posterior itself",
    WEIGHTED: "{name} weighs its draws by the exact posterior before it keeps any",
    SIGNED: "weighted by their signs the draws are of the posterior itself",
}
"""Reason why runs with this target have no audit; for other targets no weights exist."""


LEVELS: Final = "levels"
"""Figure of the temperature levels of a run, from ``summary["tempering"]``."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of a run: its line in the report and on the receipt, its warning, its figure.

    Attributes
    ----------
    name
        Name of the check, a noun phrase.
    value
        Value as text.
    meaning
        One sentence for a reader who does not know the method; empty: the report leaves it out.
    limit
        Limit as text; empty where there is none.
    passed
        Whether the value is within the limit; ``None`` without a limit.
    warning
        Warning of the run; empty where nothing is wrong.
    receipt
        Lines of the receipt, label to value.
    figure
        Statistic of every draw to draw over the iterations, or ``LEVELS``; empty: no figure.
    line
        Limit to draw into the figure of a statistic.
    """

    name: str
    value: str = ""
    meaning: str = ""
    limit: str = ""
    passed: bool | None = None
    warning: str = ""
    receipt: Mapping[str, Any] = field(default_factory=dict)
    figure: str = ""
    line: float | None = None


def at_most(
    name: str, value: Any, limit: float, meaning: str = "", *, warning: str = "", **more: Any
) -> Check:
    """Return a check that passes if ``value`` is at most ``limit``; ``None`` is not known.

    ``warning`` is that of a value above the limit.
    """
    if value is None:
        text = "unknown"
    else:
        text = "without bound" if value == math.inf else number(value, 3)
    passed = None if value is None else value <= limit
    return Check(
        name=name,
        value=text,
        meaning=meaning,
        limit=f"at most {limit:g}",
        passed=passed,
        warning="" if passed is not False else warning,
        **more,
    )


def never() -> bool:
    """Return ``False``: the default ``stop``, which never stops a run."""
    return False


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(PassOptions):
    """Options that decide where a run is computed; no bit of its draws depends on them.

    Parameters
    ----------
    chains_on
        ``"workers"``: chains are tasks on the cluster of ``scheduler``, whose workers see ``path``
        and the store; draws are the same, bit for bit.
    threads
        Threads of the chains. ``None``: one per core.
    """

    chains_on: Literal["here", "workers"] = setting(
        "here",
        "Chains as threads of this process, or as tasks on the cluster of --scheduler.",
        recorded=False,
    )
    threads: int | None = setting(
        None, "Threads of the chains; default: one per core.", minimum=1, recorded=False
    )


@dataclass(frozen=True, kw_only=True)
class TemperatureOption:
    """Option of runs and of control variates for runs.

    Parameters
    ----------
    temperature
        T: the target is ``prior x likelihood^(1/T)``; 1 is the posterior. Samplers with an
        acceptance test also take ``"T:sqrt"``, max(1, T / sqrt(i + 1)) at iteration i, and
        ``"T:N"``, T for N iterations, then 1.
    """

    temperature: float | str = setting(
        1.0,
        "likelihood^(1/T) x prior; mh samplers also T:sqrt and T:N, T for N iterations.",
        kind="temperature",
        key="sampler",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(TemperatureOption, ExecutionOptions, OverwriteOption):
    """Options of a run that Python, the command line and job files share.

    Parameters
    ----------
    draws
        Kept draws of each chain. A number above that of a finished run extends the run.
    warmup
        Iterations of each chain before the kept draws, which tune the sampler.
    chains
        Number of chains; each is a thread.
    seed
        Seed of all random numbers, in ``[0, 2**63)``. ``None``: the seed of the run in
        ``path``, or a new one. In Python also a NumPy ``Generator``, from which one is drawn.
    overwrite
        Whether to replace a run in ``path`` by a new one, once the passes are done, instead of
        resuming or returning it.
    stop
        Rule that goes on after ``draws`` until every parameter keeps the limits:
        ``"ess=1000,rhat=1.01"``, or a mapping with these keys. ``time`` (``"2h"``, or seconds of
        warm-up and draws over all calls) and ``draws`` (100,000 per chain by default) end a run
        that does not; ``summary["stop"]`` and a warning then say so.
    """

    draws: int = setting(1000, "Per chain.", minimum=1, key="sampler")
    warmup: int = setting(1000, "Per chain.", minimum=1, key="sampler")
    chains: int = setting(4, "Chains.", minimum=1, most=1024, key="sampler")
    seed: int | None = setting(
        None,
        "Default: a new one, printed and kept with the run.",
        minimum=0,
        most=2**63 - 1,
        key="sampler",
    )
    stop: str | Mapping[str, Any] | None = setting(
        None,
        "ess=1000,rhat=1.01,time=2h,draws=50000: go on after --draws until each parameter"
        " keeps ess and rhat; exit 1 if time or draws end it first.",
        kind="stop",
    )


@dataclass(frozen=True, kw_only=True)
class RunArguments(RunOptions):
    """Arguments of ``streammc.sample`` beside data, model, sampler and control variates.

    Parameters
    ----------
    path
        Directory of the run, or its address (``s3://bucket/run``). ``None``: a temporary
        directory, removed when the process ends; a run of less than 16 MB stays in memory, and is
        written there once it is opened again.
    audit : bool or 'auto'
        Whether to measure the error of subsampling, in one more pass; ``"auto"``: if that
        takes less time than the sampling did. Only ``hmc-ecs`` has an audit.
    progress : Callable[[str, int, int, dict], None] | None
        Called as ``progress(phase, done, total, facts)``: ``start`` before the first iteration
        of this call, ``warmup`` and ``draws`` after every commit, in iterations of a chain;
        ``pass`` after every block of a full pass, in blocks. With total ``None``: ``forecast``
        before work of over a minute, ``newton`` and ``plan`` after the steps of phases of over
        a second, and ``stop`` after a check of the stopping rule.
    """

    SAME: ClassVar[Mapping[str, str]] = {"random_seed": "seed", "random_state": "seed"}
    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "tune": "warmup=, the iterations of each chain before those that are kept",
        "num_warmup": "warmup=",
        "num_samples": "draws=",
        "num_chains": "chains=",
        "cores": "threads=, the chains being threads of one process; all cores without it",
        "n_jobs": "threads=, the chains being threads of one process; all cores without it",
        "target_accept": "sampler=, such as streammc.samplers.hmc(target_acceptance=0.9)",
        "progressbar": "progress=streammc.notebook_bar(), or leave it out",
        "idata_kwargs": "nothing: what is returned is a tree for ArviZ",
    }

    path: str | Path | None = None
    audit: bool | str = "auto"
    progress: Phases | None = None


@dataclass(frozen=True)
class RunRequest(RunArguments):
    """Data, model and settings of a run.

    A sampler gets the request with the data set at the final temperature, and with the default
    priors of the model resolved.
    """

    dataset: Dataset
    model: Model
    sampler: Sampler | None = None
    control_variates: ControlVariates | None = None
    _: KW_ONLY
    interrupted: Callable[[], bool] = never
    """Polled several times a second; true ends the run after the last commit."""
    on_draws: Callable[[Mapping[str, Any]], None] | None = None
    """Called once all draws are there, before the audit, with the statistics of the summary."""
    batch_iterations: int = 4096
    """Largest number of iterations of a compiled call. No bit of the draws depends on it."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Extra JSON recorded with the run."""
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the sampler that is chosen where ``sampler`` is ``None``; they do not choose."""

    @property
    def stopping(self) -> StopRule | None:
        """Rule that extends the run beyond ``draws``, which are its fewest."""
        from streammc.diagnostics.stopping import StopRule

        return StopRule.parse(self.stop)

    @property
    def schedule(self) -> Schedule:
        """Temperature of every iteration."""
        from streammc.likelihood.temperature import Schedule

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
    ahead: Any = field(default=None, compare=False, repr=False)
    """What the certifying pass made of the rows for ``Sampler.problem``; not kept by the run."""


# Base class of samplers: options, and the decisions that depend on the data.
#
# The driver of runs, the trace and the command line know this class and no family of samplers.


NAMED = "asked for by name"
"""Reason for a sampler that was given by name."""


@dataclass(frozen=True, kw_only=True)
class Sampler(Shown, ABC):
    """A sampler with its options, which are the fields; it does not depend on the data."""

    name: ClassVar[str]
    target: ClassVar[str]
    """Density of the draws, a key of ``TARGETS``."""
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
    draws_crossed: ClassVar[bool] = False
    """Whether the sampler draws the effects of factors that cross."""
    own_designs: ClassVar[bool] = False
    """Whether linear predictors may have columns of their own, see ``StatedModel.designs``."""
    draws_together: ClassVar[bool] = False
    """Whether all draws are made before the first: a run cannot go on beyond them."""
    least_sign: ClassVar[float | None] = None
    """Smallest mean sign of a run that is not refused; ``None``: draws have no sign."""
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Arrays of ``Setup.arrays`` and their dimensions: the group ``constant_data`` keeps them."""

    def __post_init__(self) -> None:
        """Check the options that do not depend on the data."""
        check_types(self)

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return target, paper and the options that are not the defaults, for a notebook."""
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

    def needs_rows(self, model: Model) -> bool:
        """Return whether chains read rows; otherwise passes over them are enough."""
        return True

    def check_model(self, model: Model) -> None:
        """Raise ConfigError if the sampler cannot sample a model, whatever its data."""
        return

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
            If ``request.interrupted()`` became true in a short run.
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

    def checks(self, summary: Mapping[str, Any]) -> list[Check]:
        """Return the checks of this family: receipt, warnings and report of a run read them.

        Parameters
        ----------
        summary
            Summary of the run as ``diagnose`` prints it. For the warnings and the receipt it is
            ``sampling`` and the name of the ``model``; of an unfinished run ``sampling`` lacks
            most entries.
        """
        return []
