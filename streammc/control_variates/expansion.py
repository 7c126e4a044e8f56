"""Control variates: the result of the full pass, with save, open and identity checks."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streammc.control_variates.bound import bind
from streammc.control_variates.full_pass.block_pass import SUMMARY_COLUMNS, Histogram
from streammc.errors import IdentityError, MissingError, StoreError
from streammc.protocols import Dataset, Index, Matrix, Model, Vector
from streammc.shown import Record, Shown

_WORK = ("passes", "rows_read", "bytes_read", "seconds", "pass_seconds")


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate(Record):
    """Certificate of control variates: findings of the last pass, and work of all passes."""

    term_bound: float | None = None
    """Bound on the terms of a minibatch acceptance test, see ``row_norms``; ``None`` where no
    sampler needs it, infinite where the model has no bound."""
    decrement: float | None
    """Newton decrement at ``theta_star`` in posterior sd; ``None`` without a pass."""
    passes: int
    rows_read: int
    bytes_read: int
    seconds: float
    """Work of all passes and of the search for the first centre."""
    pass_seconds: float | None = None
    pass_gb_per_second: float | None = None
    """Time and read rate of the passes alone; ``None`` in files of an earlier version."""
    converged: bool
    """Whether the decrement is below its limit."""
    warnings: tuple[str, ...] = ()
    """One line each: directions that only the prior determines, a conflict of prior and likelihood,
    what default priors decide, other modes."""
    notes: tuple[str, ...] = ()
    """What priors decide that were given: no reason for care."""
    modes: tuple[tuple[float, ...], ...] | None = None
    """(M, d) modes with at least 5 % of the evidence of ``theta_star``."""
    logarithms: tuple[str, ...] = ()
    """Labels of the parameters that are sampled as logarithms."""
    recalibration: Mapping[str, Any] | None = None
    """Sizes and work of the first stage of a recalibration."""
    nodes: int | None = None
    """Quadrature nodes per effect of a mixed model."""
    update: Mapping[str, Any] | None = None
    """Use of control variates of an earlier generation of the store, see ``appended.Update``."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``certificate`` of saved control variates."""
        written = super().to_json()
        if self.term_bound is not None and not math.isfinite(self.term_bound):
            written["term_bound"] = None
        if not self.notes:
            del written["notes"]
        if self.modes is not None:
            written["modes"] = [list(mode) for mode in self.modes]
        return written

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Certificate:
        """Restore from :meth:`to_json`; files of earlier versions lack some entries."""
        known = {name: written[name] for name in cls.__dataclass_fields__ if name in written}
        for name in ("warnings", "notes", "logarithms"):
            known[name] = tuple(written.get(name, ()))
        if known.get("modes") is not None:
            known["modes"] = tuple(tuple(mode) for mode in known["modes"])
        if "term_bound" in known and known["term_bound"] is None:
            known["term_bound"] = math.inf
        return cls(**known)

    def plus(self, **work: float) -> Certificate:
        """Return a copy with the work of another stage added; keywords are field names."""
        return replace(self, **{name: getattr(self, name) + more for name, more in work.items()})

    def work(self) -> dict[str, Any]:
        """Return passes, rows, bytes and seconds: the entries that add up over stages."""
        return {name: getattr(self, name) or 0 for name in _WORK}


FORMAT = 1
_TEMPERATURE = "@T="
"""Mark in files between the fingerprint of the data set and a temperature that is not 1."""
_ARRAYS: Final = {
    "theta_star": np.float64,
    "gradient": np.float64,
    "hessian": np.float64,
    "factor": np.float64,
    "newton_step": np.float64,
    "score_draws": np.float64,
    "candidates": np.int64,
    "scores": np.float64,
    "stamps": np.int64,
    "order_terms": np.float64,
}
"""Fields that are saved as arrays of their names, and their types."""


def model_digest(model: Model) -> str:
    """Return the sha256 of the canonical JSON of ``model.describe()``."""
    text = json.dumps(model.describe(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, repr=False)
class ControlVariates(Shown):
    """Taylor expansion of the log-likelihood at ``theta_star``, with its certificate.

    Attributes
    ----------
    theta_star
        (d,) expansion point.
    log_lik, log_lik_remainder
        Sum of l_i at ``theta_star``, and the part of it that rounding to float64 lost.
    gradient, hessian
        (d,) and (d, d) derivatives of the log-likelihood at ``theta_star``, without the prior.
    order
        0, 1 or 2: the order of the control variates that the sampler uses.
    noise
        (s,) of the coordinates of expansions, see :mod:`coordinates`; empty: theta.
    factor
        (d, d) lower triangular S; S S' is the inverse of minus the Hessian of the log
        posterior at ``theta_star``.
    newton_step
        (d,) Newton step from ``theta_star`` towards the mode.
    fingerprint
        Fingerprint of the data set.
    certificate
        Distance of ``theta_star`` from the mode, and the work done; see :class:`Certificate`.
    score_draws
        (S, d) shifts from ``theta_star`` at which rows were scored.
    candidates, scores
        (c,) rows with the highest scores, and the scores, highest first.
    histogram
        Power sums of the remainders by score.
    chunk_summaries
        Arrays by column name, with one entry per block of the pass.
    temperature
        T: rows counted 1 / T times.
    order_terms
        (5, S) sums behind ``row_order``, for updates; (5, 0) in earlier files.
    row_order
        Variance of second-order terms summed over runs of ``row_order_rows`` neighbours,
        relative to rows in random order: 1 when shuffled, NaN where the runs are too few.
    """

    theta_star: Vector
    log_lik: float
    log_lik_remainder: float
    gradient: Vector
    hessian: Matrix
    order: int
    factor: Matrix
    newton_step: Vector
    n_rows: int
    labels: tuple[str, ...]
    fingerprint: str
    model_digest: str
    certificate: Certificate
    score_draws: Matrix
    candidates: Index
    scores: Vector
    histogram: Histogram
    chunk_summaries: Mapping[str, Vector]
    row_order: float
    row_order_rows: int
    stamps: Index = field(repr=False)
    noise: Vector = field(default_factory=lambda: np.zeros(0))
    order_terms: Matrix = field(default_factory=lambda: np.zeros((5, 0)), repr=False)
    temperature: float = 1.0

    def __repr__(self) -> str:
        """Return the sizes and the distance from the mode."""
        decrement = self.certificate.decrement
        far = "" if decrement is None else f", {decrement:.2g} posterior sd from the mode"
        return f"<ControlVariates: {self.dim} parameters, {self.n_rows} rows{far}>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return sizes, certificate and centre for a notebook."""
        certificate, sd = self.certificate, self.posterior_sd()
        decrement = certificate.decrement
        far = "no pass" if decrement is None else f"{decrement:.2g} posterior sd from the mode"
        converged = "" if certificate.converged else ", not converged"
        names = [
            f"log {label}" if label in certificate.logarithms else label for label in self.labels
        ]
        centre = [
            f"{name} {value:.4g} +- {spread:.2g}"
            for name, value, spread in zip(names, self.theta_star, sd, strict=True)
        ]
        return "ControlVariates", {
            "rows": self.n_rows,
            "order": self.order,
            "theta_star, Laplace sd": centre,
            "certificate": f"{far}{converged}",
            "passes": certificate.passes,
            "temperature": None if self.temperature == 1.0 else self.temperature,
            "warnings": list(certificate.warnings) or None,
            "store": self.fingerprint[:12],
            "fingerprint": self.digest()[:12],
        }

    @property
    def dim(self) -> int:
        """Length of theta."""
        return len(self.theta_star)

    @property
    def _data(self) -> str:
        """Fingerprint and temperature as one text, as in files and in the digest."""
        hot = f"{_TEMPERATURE}{self.temperature:.17g}" if self.temperature != 1.0 else ""
        return f"{self.fingerprint}{hot}"

    def posterior_sd(self) -> Vector:
        """Return (d,) the standard deviations of the Laplace approximation."""
        return np.asarray(np.sqrt(np.sum(self.factor**2, axis=1)))

    def other_modes(self) -> Matrix | None:
        """Return (M, d) the other modes, as whitened ``S^-1 (theta - theta_star)``, or None."""
        if not self.certificate.modes:
            return None
        shifts = np.array(self.certificate.modes, dtype=np.float64) - self.theta_star
        return np.asarray(np.linalg.solve(self.factor, shifts.T).T, dtype=np.float64)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return arrays and JSON metadata from which :meth:`from_arrays` restores the object."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {
            "histogram_counts": self.histogram.counts,
            "histogram_moments": self.histogram.moments,
            "histogram_maxima": self.histogram.maxima,
            "chunk_summaries": np.stack([self.chunk_summaries[c] for c in SUMMARY_COLUMNS]),
        }
        meta = {
            "kind": "control-variates",
            "format": FORMAT,
            "log_lik": self.log_lik,
            "log_lik_remainder": self.log_lik_remainder,
            "order": self.order,
            "n_rows": self.n_rows,
            "labels": list(self.labels),
            "fingerprint": self._data,
            "model_digest": self.model_digest,
            "certificate": self.certificate.to_json(),
            "row_order": self.row_order if math.isfinite(self.row_order) else None,
            "row_order_rows": self.row_order_rows,
            "noise": self.noise.tolist(),
        }
        return arrays, meta

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> ControlVariates:
        """Restore from :meth:`to_arrays`.

        StoreError if they are not control variates of this format, or their shapes disagree.
        """
        if meta.get("kind") != "control-variates" or meta.get("format") != FORMAT:
            raise StoreError(
                f"expected control variates of format {FORMAT}, found kind "
                f"{meta.get('kind')!r}, format {meta.get('format')!r}; "
                "make them again with `streammc summarize`"
            )
        try:
            fingerprint, _, temperature = str(meta["fingerprint"]).partition(_TEMPERATURE)
            arrays = {"order_terms": np.zeros((5, 0)), **arrays}
            own: dict[str, Any] = {
                name: np.ascontiguousarray(arrays[name], kind) for name, kind in _ARRAYS.items()
            }
            summaries = np.asarray(arrays["chunk_summaries"], np.float64)
            result = cls(
                **own,
                log_lik=float(meta["log_lik"]),
                log_lik_remainder=float(meta["log_lik_remainder"]),
                order=int(meta["order"]),
                n_rows=int(meta["n_rows"]),
                labels=tuple(str(label) for label in meta["labels"]),
                fingerprint=fingerprint,
                temperature=float(temperature or 1.0),
                model_digest=str(meta["model_digest"]),
                certificate=Certificate.from_json(meta["certificate"]),
                histogram=Histogram(
                    np.asarray(arrays["histogram_counts"], np.int64),
                    np.asarray(arrays["histogram_moments"], np.float64),
                    np.asarray(arrays["histogram_maxima"], np.float64),
                ),
                chunk_summaries=dict(zip(SUMMARY_COLUMNS, summaries, strict=True)),
                # JSON has no NaN: null means that the runs were too few.
                row_order=math.nan if meta["row_order"] is None else float(meta["row_order"]),
                row_order_rows=int(meta["row_order_rows"]),
                noise=np.array(meta.get("noise", []), np.float64),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"expected complete control variates, found {error}; "
                "make them again with `streammc summarize`"
            ) from None
        d = result.dim
        fits = (
            result.hessian.shape == result.factor.shape == (d, d)
            and result.gradient.shape == result.newton_step.shape == (len(result.labels),) == (d,)
            and len(result.candidates) == len(result.scores)
            and int(result.histogram.counts.sum()) == result.n_rows
        )
        if not fits:
            raise StoreError(
                f"expected arrays for {d} parameters and {result.n_rows} rows, found other "
                "shapes; make the control variates again with `streammc summarize`"
            )
        return result

    def digest(self) -> str:
        """Return the SHA-256 of the expansion that samplers use, without the certificate."""
        parts = self.theta_star, self.gradient, self.hessian, self.factor, self.score_draws
        text = f"{self._data} {self.model_digest} {self.order} {self.log_lik!r}"
        joined = hashlib.sha256(text.encode())
        for part in (*parts, self.noise):
            joined.update(np.ascontiguousarray(part).tobytes())
        return joined.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a zarr group with a checksum on every array; no partial group is left behind."""
        from streammc.trace.arrays import write_arrays

        arrays, meta = self.to_arrays()
        write_arrays(path, arrays, meta)

    @classmethod
    def open(
        cls, path: str | Path, dataset: Dataset | None = None, model: Model | None = None
    ) -> ControlVariates:
        """Read saved control variates, and check that they belong to ``dataset`` and ``model``.

        Raises
        ------
        IdentityError
            If they were made for another store or model; the message says which.
        StoreError
            If they are damaged, or a chunk of the store has changed since.
        """
        from streammc.trace import kinds
        from streammc.trace.addresses import given_path
        from streammc.trace.arrays import read_arrays

        if not os.path.lexists(given_path(path)):
            raise MissingError(
                f"expected control variates at {str(path)!r}, found nothing: make them with "
                "'streammc summarize'"
            )
        kinds.refuse_other_kind(path, kinds.CONTROL_VARIATES)
        result = cls.from_arrays(*read_arrays(path))
        result.require(dataset, model, f"control variates {str(path)!r}")
        return result

    def require(
        self, dataset: Dataset | None, model: Model | None, name: str = "control variates"
    ) -> None:
        """Raise IdentityError unless these belong to ``dataset`` and ``model``."""
        if dataset is not None and model is not None:
            bound = bind(dataset, model, nodes=self.certificate.nodes)
            dataset, model = bound.dataset, bound.model
        self.require_bound(dataset, model, name)

    def require_bound(
        self, dataset: Dataset | None, model: Model | None, name: str = "control variates"
    ) -> None:
        """Raise IdentityError unless these belong to a data set and a model that are bound."""
        if dataset is not None and dataset.fingerprint != self.fingerprint:
            raise IdentityError(
                f"expected {name} for the store {dataset.address!r} (fingerprint "
                f"{dataset.fingerprint[:12]}), found fingerprint {self.fingerprint[:12]}; "
                "make them again with `streammc summarize`"
            )
        if dataset is not None and dataset.temperature != self.temperature:
            raise IdentityError(
                f"expected {name} at temperature {dataset.temperature:g}, found temperature "
                f"{self.temperature:g}; make them again with `streammc summarize "
                f"--temperature {dataset.temperature:g}`"
            )
        if model is not None and model_digest(model) != self.model_digest:
            raise IdentityError(
                f"expected {name} for the model {model.name} with this prior and these options "
                f"(digest {model_digest(model)[:12]}), found digest {self.model_digest[:12]}; "
                "make them again with `streammc summarize`"
            )
        if dataset is not None:
            dataset.recheck(self.stamps)
