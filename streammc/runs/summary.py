"""Summary of a run as records, whose fields are the entries of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streammc.diagnostics.audit_record import Audit
from streammc.json_record import Record

Statistics = Mapping[str, Mapping[str, float | None]]
"""Label -> mean, sd, mcse_mean, ess_bulk, ess_tail, ess_sd, r_hat and quantiles."""

_FAMILY_FACTS = ("decay", "noise_clipped", "recalibration")


@dataclass(frozen=True, kw_only=True)
class Sampling(Record):
    """Work, settings and mean statistics of the draws of a finished run.

    ``own`` holds the facts of the sampler's family; in the JSON they are at the same level.
    """

    sampler: str
    target: str
    temperature: float | str
    reason: str
    chains: int
    draws: int
    warmup: int
    seconds: float
    warmup_seconds: float
    pass_seconds: float
    passes: int
    decrement: float | None
    theta_star_certified: bool | None
    iterations: int
    rows_read: int
    bytes_read: int
    log_lik_variance_mean: float | None
    acceptance_rate: float | None
    subsample_acceptance_rate: float | None
    divergences: int
    step_size: float | None
    n_steps: float | None
    rows_per_iteration: float | None
    certainty_rows: int
    evaluations: Mapping[str, int]
    laplace_gap: Mapping[str, float] | None
    subsample_size: int | None
    n_blocks: int | None
    unit_rows: int | None
    minibatch: int | None
    deff: float | None
    deff_rows: int | None
    remainder_kurtosis: float | None
    predicted_perturbation: float | None
    predicted_variance: float | None
    predicted_variance_bias: float | None
    predicted_variance_ratio: Mapping[str, float | None] | None
    own: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return all facts at one level; facts of other sampler families are null."""
        written = super().to_json()
        own = written.pop("own")
        return {**dict.fromkeys(_FAMILY_FACTS), **written, **own}


@dataclass(frozen=True, kw_only=True)
class RunSummary(Record):
    """Parameters, audit, work and warnings of a finished run."""

    parameters: Statistics
    parameters_original: Statistics
    derived: Statistics | None = None
    """Quantities computed from the parameters, such as ``icc[g]``."""
    ratios: Mapping[str, Any] | None
    references: Mapping[str, list[str]] | None = None
    """Label -> reference levels that a coefficient of a level is compared with."""
    priors: Any
    audit: Audit | None
    not_audited: str | None = None
    """Reason why a run that needs an audit has none."""
    sampling: Sampling
    cost: Mapping[str, Any]
    tempering: Mapping[str, Any] | None = None
    """Summary of the levels of a ladder."""
    stop: Mapping[str, Any] | None = None
    """What ended the run, if it had a stopping rule: ``StopRule.verdict``."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know that is no reason for care."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is kept with the run, and that ``sample --json`` prints."""
        audit = None if self.audit is None else self.audit.to_json()
        return {**super().to_json(), "audit": audit, "sampling": self.sampling.to_json()}
