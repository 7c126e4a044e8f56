"""Several parameters that are jointly normal: their density as rows of the prior table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from streammc.errors import ConfigError
from streammc.numerics.prior import COLUMNS, CONSTANT, JOINT_NORMAL, KIND, LOCATION, SCALE, SHAPE
from streammc.protocols import Matrix, Vector


@dataclass(frozen=True, eq=False)
class JointNormal:
    """Normal prior of several parameters together.

    Attributes
    ----------
    labels
        Names of the k parameters.
    location
        (k,) means.
    covariance
        (k, k); ``None`` where a run is read: it follows from the rows, see
        ``control_variates.resolved``.
    """

    labels: tuple[str, ...]
    location: Vector
    covariance: Matrix | None

    @classmethod
    def of_a_run(cls) -> JointNormal:
        """Return what a run records: that there are jointly normal parameters."""
        return cls((), np.zeros(0), None)

    @property
    def scale(self) -> Vector:
        """Return the standard deviation (k,) of each alone."""
        return np.sqrt(np.diag(self._known()))

    def _known(self) -> Matrix:
        if self.covariance is None:
            raise ConfigError(
                "expected the covariance of default priors, found the description of a run, which "
                "has none: call streammc.control_variates.resolved(model, dataset)"
            )
        return self.covariance

    def of(self, at: Sequence[int]) -> JointNormal:
        """Return the prior of the parameters at these places, whatever the others are."""
        part = np.ascontiguousarray(self._known()[np.ix_(at, at)])
        return JointNormal(tuple(self.labels[j] for j in at), self.location[list(at)], part)

    def write(self, table: Matrix, labels: Sequence[str]) -> None:
        """Write the rows of these parameters into a prior table with room for precisions.

        The precision matrix stands in the columns after the five of a row's own density, see
        ``numerics.prior``.
        """
        place = {label: j for j, label in enumerate(labels)}
        at = np.array([place[label] for label in self.labels])
        precision, log_norm = self._inverse
        table[at, KIND] = JOINT_NORMAL
        table[at, LOCATION] = self.location
        table[at, SCALE] = self.scale
        table[at, SHAPE] = precision @ self.location
        table[at, CONSTANT] = log_norm / len(at)
        table[np.ix_(at, COLUMNS + at)] = precision

    @cached_property
    def _inverse(self) -> tuple[Matrix, float]:
        """Return the precision matrix and the logarithm of the density at the location."""
        scale = self.scale
        lower, fault = dpotrf(self._known() / scale / scale[:, None], lower=1)
        precision, other = dpotri(lower, lower=1)
        if fault or other:
            raise ConfigError(
                f"expected a prior covariance that is positive definite, found another of "
                f"{self.labels[0]!r} and {len(self.labels) - 1} more: give priors by name"
            )
        log_norm = -np.log(np.diag(lower)) - np.log(scale) - 0.5 * math.log(2.0 * math.pi)
        precision = np.tril(precision) + np.tril(precision, -1).T
        return precision / scale / scale[:, None], float(log_norm.sum())
