"""The verdict on a run: right, warned, refused, or silently wrong."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from silent_priors import transformed
from silent_references import TAILS, Extra, Reference

Array = np.ndarray
Z = 4.5
"""Monte Carlo standard errors that excuse a difference."""
EXCUSED = 0.5
"""Reference sds that they excuse at most: a run with fewer effective draws has to say so."""
TAIL = 0.02
"""Probability by which the 5 % on either side may be off: 0.1 sd in mean and sd."""

KINDS: tuple[tuple[str, str], ...] = (
    ("improper", r"improper|no posterior\b|unbounded"),
    (
        "mixing",
        r"r_hat|\bess\b|effective (draws|sample)|stuck|never moved|have mixed|round trip|restart"
        r"|prior level|transitions were accepted|exchanged states|took fewer than|of its steps"
        r"|first subsample",
    ),
    ("mode not found", r"posterior sd from the mode|curves upwards"),
    ("modes", r"(other|another|several|missed|of \d+) modes?\b|exchang|missed one"),
    ("conflict", r"in conflict|prior moves|prior pulls|the default prior decides about"),
    ("divergences", r"diverg"),
    (
        "audit",
        r"audit corrects|audit's weights are|by the audit|predicted to be off by .* in the tails",
    ),
    (
        "estimate",
        r"log_lik_variance|are skewed|mean variance|one row that is most|sampled density|the edge",
    ),
    ("bias", r"is biased|noise estimate|weight the draws"),
    ("decisions", r"decision is off|error of .* of its decisions"),
    ("temperature", r"temperature"),
    ("sign", r"negative sign"),
)
"""Kinds of lines that say that the draws may not be those of the posterior, the first that fits.

Others do not count: what the prior alone decides, separation and rank, rows in order, decisions
that looked at all rows, runs that were not audited, default priors.
"""


@dataclass(frozen=True)
class Deviation:
    """A statistic of a run beside that of the reference."""

    label: str
    statistic: str
    found: float
    expected: float
    error: float
    """In reference sds; of a tail in probability."""
    bound: float

    @property
    def excess(self) -> float:
        """Return the error over its bound."""
        return self.error / self.bound if math.isfinite(self.error) else math.inf


@dataclass(frozen=True)
class Verdict:
    """One line of the table."""

    word: str
    """``right``, ``warned``, ``refused``, ``SILENT`` or ``crashed``."""
    line: str
    """The warning or message that decides."""
    worst: Deviation | None = None


def kind_of_line(line: str) -> str | None:
    """Return the kind of a warning, ``None`` where it does not bear on the numbers."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, line.lower())), None)


def skeleton(line: str) -> str:
    """Return a line without its numbers and names of parameters, to compare those of two runs."""
    return re.sub(r"\[[^\]]*\]|[-+]?\d[\d.,e+-]*", "#", line)


def draws_of(tree: Any, labels: tuple[str, ...], extra: Extra | None) -> tuple[Array, Array]:
    """Return draws (chain, draw, labels) as the reference has them, and signs (chain, draw)."""
    posterior = tree["posterior"].to_dataset()
    columns: dict[str, Array] = {}
    for name, variable in posterior.data_vars.items():
        values = np.asarray(variable.values, dtype=float)
        inside = [d for d in variable.dims if d not in ("chain", "draw")]
        if not inside:
            columns[str(name)] = values
            continue
        for at, coordinate in enumerate(posterior[inside[0]].values):
            columns[f"{name}[{coordinate}]"] = values[:, :, at]
    own = [label for label in labels if label in columns]
    theta = np.stack([transformed(label, columns[label]) for label in own], axis=-1)
    if extra is not None:
        more = extra(theta.reshape(-1, len(own)))
        shaped = [np.reshape(value, theta.shape[:2]) for value in more.values()]
        theta = np.concatenate([theta, np.stack(shaped, axis=-1)], axis=-1)
        own += list(more)
    if tuple(own) != labels:
        raise ValueError(f"expected the parameters {labels}, found {own} of {list(columns)}")
    stats = tree["sample_stats"].to_dataset()
    sign = np.asarray(stats["sign"].values if "sign" in stats else np.ones(theta.shape[:2]))
    return theta, sign.astype(float)


def standard_error(series: Array) -> float:
    """Return the Monte Carlo standard error of the mean of (chain, draw)."""
    if not np.isfinite(series).all() or np.ptp(series) == 0.0:
        return 0.0
    value = float(array_stats.mcse(np.ascontiguousarray(series), method="mean"))
    return value if math.isfinite(value) else 0.0


def deviations(
    reference: Reference,
    draws: Array,
    sign: Array,
    tolerance: float = 0.1,
    allowance: dict[str, tuple[float, float]] | None = None,
) -> list[Deviation]:
    """Return mean, sd and tails of every label beside the reference.

    Parameters
    ----------
    reference
        What is right.
    draws, sign
        (chain, draw, labels) and (chain, draw): the weight of a draw.
    tolerance
        Reference sds that a mean or sd may be off whatever its standard error.
    allowance
        By label, the errors of mean and sd that the run itself predicts, in sds.
    """
    found = []
    share = sign / sign.sum()
    for j, label in enumerate(reference.labels):
        x, sd = draws[:, :, j], max(float(reference.sd[j]), 1e-300)
        mean = float((share * x).sum())
        spread = math.sqrt(max(float((share * (x - mean) ** 2).sum()), 0.0))
        shift, stretch = (allowance or {}).get(label, (0.0, 0.0))

        def error_of(series: Array) -> float:
            return standard_error(series * sign / sign.mean())

        pairs = (
            ("mean", mean, reference.mean[j], reference.mean_error[j], shift, x - mean),
            ("sd", spread, reference.sd[j], reference.sd_error[j], stretch,
             ((x - mean) ** 2 - spread**2) / (2.0 * max(spread, 1e-300))),
        )  # fmt: skip
        for name, ours, theirs, known, predicted, series in pairs:
            noise = Z * math.hypot(error_of(series), known) / sd
            bound = max(tolerance, min(noise, EXCUSED)) + predicted
            found.append(
                Deviation(label, name, ours, float(theirs), abs(ours - theirs) / sd, bound)
            )
        for p, q in zip(TAILS, reference.tails[:, j], strict=True):
            below = (x < q).astype(float) + 0.5 * (x == q)
            ours = float((share * below).sum())
            noise = Z * math.hypot(error_of(below - ours), reference.tail_error[j])
            wide = TAIL * tolerance / 0.1 + 0.2 * (shift + stretch)
            bound = max(wide, min(noise, 0.1))
            if _discrete(reference, j):
                continue
            found.append(Deviation(label, f"q{100 * p:g}", ours, p, abs(ours - p), bound))
    return found


def _discrete(reference: Reference, j: int) -> bool:
    """Whether a label is an indicator, which has no tails."""
    return reference.labels[j].startswith("is ")


def judge(
    found: list[Deviation], warnings: list[str], standing: frozenset[str] = frozenset()
) -> Verdict:
    """Return the verdict on a run that finished.

    Parameters
    ----------
    found
        From :func:`deviations`.
    warnings
        The lines of the run.
    standing
        Skeletons of lines that this sampler always prints: they warn of nothing.
    """
    worst = max(found, key=lambda deviation: deviation.excess)
    bearing = [w for w in warnings if kind_of_line(w) and skeleton(w) not in standing]
    # A line that is said of every mixture covers labels, not what has none.
    free = [d for d in found if d.label.startswith("any ") and d.excess > 1.0]
    if worst.excess <= 1.0:
        return Verdict("right", bearing[0] if bearing else "", worst)
    if free:
        worst = max(free, key=lambda deviation: deviation.excess)
        bearing = [w for w in bearing if not always_of_a_mixture(w)]
    return Verdict("warned" if bearing else "SILENT", bearing[0] if bearing else "", worst)


def always_of_a_mixture(line: str) -> bool:
    """Whether a line names modes that come from exchangeable labels alone."""
    return kind_of_line(line) == "modes" and bool(
        re.search(r"exchang|label|may have", line.lower())
    )


def allowance_of(summary: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the errors of mean and sd that a biased sampler predicts of itself, in sds."""
    sampling = summary["sampling"]
    found: dict[str, tuple[float, float]] = {}
    if sampling.get("target") == "biased":
        for label, ratio in (sampling.get("predicted_variance_ratio") or {}).items():
            found[label] = (0.0, abs(math.sqrt(ratio) - 1.0) if ratio else 0.0)
    for label, entry in ((sampling.get("mint") or {}).get("marginal") or {}).items():
        ratio = entry["variance_ratio"] or 1.0
        found[label] = (abs(entry["shift"] or 0.0), abs(math.sqrt(ratio) - 1.0))
    return found
