"""Records of the audit of a run by importance weights, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streammc.json_record import Record


@dataclass(frozen=True, eq=False, kw_only=True)
class Correction(Record):
    """Corrections of one parameter by the weights; ``None`` for an unknown statistic.

    Attributes
    ----------
    mean
        Weighted mean.
    correction, mcse
        Weighted minus plain mean, and its Monte Carlo error.
    correction_sd, mcse_sd
        ``correction`` and ``mcse`` in units of the posterior standard deviation.
    sd_ratio, sd_ratio_mcse
        Weighted over plain standard deviation, and its Monte Carlo error.
    """

    mean: float | None
    correction: float | None
    mcse: float | None
    correction_sd: float | None
    mcse_sd: float | None
    sd_ratio: float | None
    sd_ratio_mcse: float | None

    @property
    def size(self) -> float:
        """Absolute correction in posterior standard deviations; 0 if unknown."""
        return abs(self.correction_sd or 0.0)

    @property
    def z(self) -> float | None:
        """Absolute correction over its Monte Carlo error; ``None`` if one of them is unknown."""
        return self.size / self.mcse_sd if self.correction_sd is not None and self.mcse_sd else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(Record):
    """Audit of draws by importance weights: quality of the weights, and corrections.

    Attributes
    ----------
    draws
        Number of weighted draws.
    ess
        Effective sample size (sum w)^2 / sum w^2 of the weights.
    largest_weight
        Largest weight over their mean; ``None`` in runs of an earlier version.
    pareto_k
        Shape of the right tail of the weights; ``None`` if all are equal or there are fewer than
        25.
    largest_correction, largest_z
        Largest correction of a mean in posterior standard deviations, and in its Monte Carlo
        error.
    parameters
        Corrections by label.
    """

    draws: int
    ess: float
    largest_weight: float | None = None
    pareto_k: float | None
    largest_correction: float
    largest_z: float
    parameters: Mapping[str, Correction]

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``audit`` of a summary."""
        parameters = {label: entry.to_json() for label, entry in self.parameters.items()}
        return {**super().to_json(), "parameters": parameters}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Audit:
        """Return the audit from its JSON; runs of earlier versions lack some entries."""
        names = Correction.__dataclass_fields__
        return cls(
            draws=written["draws"],
            ess=written["ess"],
            largest_weight=written.get("largest_weight"),
            pareto_k=written["pareto_k"],
            largest_correction=written["largest_correction"],
            largest_z=written["largest_z"],
            parameters={
                label: Correction(**{name: entry.get(name) for name in names})
                for label, entry in written["parameters"].items()
            },
        )

    @property
    def worst(self) -> str:
        """Label of the parameter whose mean is corrected most."""
        return max(self.parameters, key=lambda label: self.parameters[label].size)
