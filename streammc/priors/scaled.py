"""Default priors in the units of the data, whatever the coding of the columns.

A regression says which functions of a row are possible; its columns are one of many bases of
these. The default prior of its coefficients is a statement about the function, so that another
reference level, a shifted column in a power or a product, raw or orthogonal polynomials, or columns
in other units leave the posterior of the function as it is. With ``u`` the unit of the predictor
(``Level``):

- the mean of the predictor over the rows is ``Normal(location, width^2)``;
- a combination of numeric columns that varies by one standard deviation over the rows has an
  effect ``Normal(0, (2.5 u)^2)``: jointly ``(2.5 u)^2 S^-1``, ``S`` their covariance;
- each level of a factor has an effect ``Normal(0, (2.5 u)^2)`` about the mean of the levels, so
  that contrasts with any reference have the covariance ``(2.5 u)^2 (I + 11')``. The cells of an
  interaction of factors are levels as well. Slopes that differ between levels have, at each level,
  the covariance ``(2.5 u)^2 G^-1``, ``G`` the second moments of these numbers over all rows. Sum,
  Helmert and polynomial contrasts express the same effects of levels.

So a rare level may be as far off as a common one. These effects are more numbers than there are
columns; the coefficients are linear in them, which gives their covariance. The width of 2.5 is that
of ``rstanarm`` (Gabry and Goodrich, "Prior distributions for rstanarm models").
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csr_array, eye_array, kron

from streammc.numerics.process_limits import single_threaded
from streammc.priors.by_name import NamedPriors, ScaledPriors
from streammc.priors.densities import JointNormal
from streammc.priors.families import FamilyPrior, half_student_t, normal
from streammc.protocols import Coding, ColumnTerm, Matrix, Rows, Vector

M = TypeVar("M")
_Cell: TypeAlias = frozenset[tuple[str, int]]
"""One level of each of some factors."""
_Numbers: TypeAlias = tuple[str, ...]
"""Names of the numeric columns in a product of them, sorted; empty: the product is 1."""
_Function: TypeAlias = tuple[_Cell, _Numbers]
"""The function ``1[cell] x numbers`` of a row."""
_Loading: TypeAlias = dict[int, float]
"""A function of a row as a combination of columns: column -> coefficient."""

WIDTH: Final = 2.5
"""Standard deviations of a prior per unit of what it is scaled with."""
LINK_INTERCEPT: Final = 5.0
"""Standard deviation of an intercept on the scale of a link, around the link of the mean."""
UNKNOWN_INTERCEPT: Final = 10.0
"""The same where the link is not known: around 0."""
INTERCEPT: Final = "Intercept"
LARGEST_LOG: Final = 700.0
"""Largest absolute log of a mean rate: a float64 rate has no larger one, whatever the offset."""
_LARGEST: Final = 1e300
"""Largest scale of a prior; its reciprocal is the smallest."""
_COLLINEAR: Final = 1e-12
"""Eigenvalue of a correlation matrix below which its direction has no variance in the rows."""
_SQUARED: Final = (1e-150, 1e150)
"""Range of variances of coefficients, and of columns, in which no square over- or underflows."""
_TWO_VALUES: Final = 1e-6
"""Distance from 0, relative to its range, at which the lower of two values is 0."""


@dataclass(frozen=True)
class Level:
    """Location and scale of a linear predictor where every column is at its mean."""

    location: float = 0.0
    unit: float = 1.0
    """Scale of the predictor: a coefficient has ``WIDTH`` units per scale of its column."""
    width: float = UNKNOWN_INTERCEPT
    """Standard deviation of the intercept."""


def with_defaults(
    model: M, rows: Rows, feature_names: Sequence[str], coding: Coding | None = None
) -> M:
    """Return the model with numbers in place of the defaults that scale with the data.

    ``rows`` stand for all rows; those with an invalid response are left out. ``coding`` is what
    the columns are, ``None``: each is a number of its own.
    """
    untyped: Any = model
    prior = untyped.prior
    if not isinstance(prior, ScaledPriors):
        return model
    labels = untyped.labels(feature_names)
    missing = {
        label
        for label, each in zip(labels, prior.each(labels, [False] * len(labels)), strict=True)
        if each is None
    }
    defaults: dict[str, FamilyPrior] = {}
    joint: list[JointNormal] = []
    if missing:
        own = _usable(untyped, rows)
        for default in untyped.default_priors(labels, feature_names, own, coding):
            if isinstance(default, JointNormal):
                free = [j for j, label in enumerate(default.labels) if label in missing]
                if free:
                    joint.append(default.of(free))
                    defaults |= _alone(joint[-1])
            else:
                defaults |= {label: each for label, each in default.items() if label in missing}
    named = dict(prior.priors) | defaults
    resolved = NamedPriors(tuple(sorted(named.items())), tuple(defaults), tuple(joint))
    return replace(untyped, prior=resolved)  # type: ignore[no-any-return]


def _alone(joint: JointNormal) -> dict[str, FamilyPrior]:
    """Return the prior of each of several parameters alone, for print."""
    pairs = zip(joint.location, joint.scale, strict=True)
    each = [located(location, scale) for location, scale in pairs]
    return dict(zip(joint.labels, each, strict=True))


def coefficients(
    labels: Sequence[str], rows: Rows, names: Sequence[str], level: Level, coding: Coding | None
) -> JointNormal | dict[str, FamilyPrior]:
    """Return the default prior of the coefficients of one linear predictor.

    ``rows``, ``names`` and ``coding`` are those of :func:`with_defaults`. Where no combination of
    columns is constant, the effects have to reach the location of ``level``: that is part of their
    unit. Columns whose squares float64 does not hold get independent priors, 2.5 units per standard
    deviation.
    """
    share = shares(rows)
    with single_threaded(), np.errstate(all="ignore"):  # the same bits on any number of cores
        columns = _Columns(rows, share, coding or _numbers(rows, names))
        constant = columns.constant()
        unit = level.unit if constant is not None else math.hypot(level.unit, level.location)
        variance = rounded(WIDTH * unit) ** 2
        covariance = variance * columns.covariance(constant is not None)
        unknown = np.flatnonzero(np.diag(covariance) == 0.0)  # constant in these rows
        covariance[unknown, unknown] = variance
        location = np.zeros(len(labels))
        if constant is not None:  # the predictor's mean is independent of the effects about it
            mean = share @ rows.X
            moved = covariance @ mean
            covariance += np.outer(constant, constant) * (mean @ moved + rounded(level.width) ** 2)
            covariance -= np.outer(constant, moved) + np.outer(moved, constant)
            location = constant * _location(level.location, level.width)
    inside = (np.diag(covariance) > _SQUARED[0]) & (np.diag(covariance) < _SQUARED[1])
    if inside.all() and np.abs(rows.X).max(initial=0.0) < _SQUARED[1]:
        return JointNormal(tuple(labels), location, covariance)
    return dict(zip(labels, _independent(rows, share, names, level), strict=True))


def _independent(
    rows: Rows, share: Vector, names: Sequence[str], level: Level
) -> list[FamilyPrior]:
    """Return independent priors, one per column, where the joint one is out of range."""
    spreads = [spread(rows.X[:, j], share) for j in range(len(names))]
    place = _intercept(rows, names)
    unit = level.unit if place is not None else math.hypot(level.unit, level.location)
    priors = [normal(rounded(WIDTH * unit / (gap or sd or 1.0))) for _, sd, gap in spreads]
    if place is not None:
        value = float(rows.X[0, place]) if len(rows.y) and rows.X[0, place] else 1.0
        priors[place] = located(level.location / value, level.width / abs(value))
    return priors


def _numbers(rows: Rows, names: Sequence[str]) -> Coding:
    """Return the coding of columns of numbers, one of which may be the constant."""
    constant = _intercept(rows, names)
    terms = [ColumnTerm((), (name,), 1.0) for name in names]
    if constant is not None:
        value = float(rows.X[0, constant]) if len(rows.y) else 1.0
        terms[constant] = ColumnTerm((), (), value or 1.0)
    return Coding(tuple(terms), {}, {}, np.zeros(len(names)), np.ones(len(names)))


def located(location: float, scale: float) -> FamilyPrior:
    """Return a normal prior with numbers as they are printed.

    The scale has three digits, the location those that a hundredth of the scale needs.
    """
    return normal(rounded(scale), location=_location(location, scale))


def _location(location: float, scale: float) -> float:
    """Return a location with the digits that a hundredth of the scale needs; 0 if not finite."""
    if not math.isfinite(location) or location == 0.0:
        return 0.0
    digits = 3 + math.floor(math.log10(abs(location))) - math.floor(math.log10(rounded(scale)))
    return float(f"{location:.{min(digits, 17)}g}") if digits > 0 else 0.0


def means(rows: Rows, covariance: Sequence[Sequence[float]]) -> list[FamilyPrior]:
    """Return the priors of means of the columns: Normal(mean(x), 2.5 sd(x)).

    The standard deviation counts as no less than that of the known covariance (q, q).
    """
    share, priors = shares(rows), []
    for j in range(rows.X.shape[1]):
        mean, sd, _ = spread(rows.X[:, j], share)
        priors.append(located(mean, WIDTH * max(sd, math.sqrt(covariance[j][j]))))
    return priors


def scale_prior(unit: float) -> FamilyPrior:
    """Return half-Student-t(3, 2.5 unit), for a standard deviation in the units of the data."""
    return half_student_t(3.0, rounded(WIDTH * unit))


def rounded(scale: float) -> float:
    """Return a scale with three digits, positive and finite."""
    bounded = min(max(scale, 1.0 / _LARGEST), _LARGEST)
    return float(f"{bounded:.3g}")


def shares(rows: Rows) -> Vector:
    """Return the weights divided by their sum."""
    weight = rows.weight / max(float(rows.weight.max(initial=0.0)), 1e-300)
    share: Vector = weight / max(float(weight.sum()), 1e-300)
    return share


def spread(x: Vector, share: Vector) -> tuple[float, float, float]:
    """Return mean, standard deviation, and the gap of two values where there are just two, else 0.

    A constant has a standard deviation of exactly 0.
    """
    if len(x) == 0:
        return 0.0, 0.0, 0.0
    low, high = float(x.min()), float(x.max())
    if low == high:
        return low, 0.0, 0.0
    mean = float(np.sum(share * x))
    with np.errstate(over="ignore", invalid="ignore"):
        away = x - mean
        most = float(np.abs(away).max())
        sd = most * math.sqrt(float(np.sum(share * np.square(away / most))))
    two = bool(np.all((x == low) | (x == high)))
    return mean, min(sd, _LARGEST), high - low if two else 0.0


def response_level(rows: Rows) -> Level:
    """Return the level of a predictor in the units of the response.

    The unit is the standard deviation of ``y - offset``; of a constant its size.
    """
    mean, sd, _ = spread(rows.y - rows.offset, shares(rows))
    unit = sd or abs(mean) or 1.0
    return Level(mean, unit, WIDTH * unit)


def logit_level(rows: Rows) -> Level:
    """Return the level under a logit link: the log odds of the mean response."""
    chance, offset = _mean_response(rows)
    return Level(math.log(chance / (1.0 - chance)) - offset, 1.0, LINK_INTERCEPT)


def probit_level(rows: Rows) -> Level:
    """Return the level under a probit link: the probit of the mean response."""
    from scipy.special import ndtri

    chance, offset = _mean_response(rows)
    return Level(float(ndtri(chance)) - offset, 1.0, LINK_INTERCEPT)


def _mean_response(rows: Rows) -> tuple[float, float]:
    """Return the mean response, away from 0 and 1 by half a row, and the mean offset."""
    share, half = shares(rows), 0.5 / (len(rows.y) + 1.0)
    mean, offset = spread(rows.y, share)[0], float(np.sum(share * rows.offset))
    if len(rows.y) and 0.0 < mean < 1.0:  # as it is: weights are as good as repeated rows
        return mean, offset
    return (1.0 - half if mean >= 1.0 else half), offset


def log_level(rows: Rows) -> Level:
    """Return the level under a log link: the log of the mean rate; of no counts, of half a count.

    The mean of ``log(y / exposure)`` would not do: most counts of a rare event are 0.
    """
    if len(rows.y) == 0:
        return Level(0.0, 1.0, LINK_INTERCEPT)
    share, shift = shares(rows), float(rows.offset.max())
    exposure = float(np.sum(share * np.exp(rows.offset - shift)))
    counts = float(np.sum(share * rows.y)) or 0.5 / len(rows.y)
    location = math.log(counts) - math.log(max(exposure, 1e-300)) - shift
    return Level(max(min(location, LARGEST_LOG), -LARGEST_LOG), 1.0, LINK_INTERCEPT)


def time_level(rows: Rows) -> Level:
    """Return the level of the log of a time, -t if censored: the log of all time over events."""
    level = log_level(rows._replace(y=np.abs(rows.y)))
    if not (rows.y < 0.0).any():
        return level
    events = max(float(np.sum(shares(rows) * (rows.y >= 0.0))), 0.5 / len(rows.y))
    return replace(level, location=min(level.location - math.log(events), LARGEST_LOG))


def _usable(model: Any, rows: Rows) -> Rows:
    """Return the rows that count: finite, of positive weight, with a valid response."""
    good = np.isfinite(rows.X).all(axis=1) & np.isfinite(rows.offset)
    good &= np.isfinite(rows.weight) & (rows.weight > 0.0)
    fault = model.of_a_row.response_fault(rows.y)  # of a mixed model, its regression checks it
    if fault is not None:
        good[fault[0]] = False
    if good.all():
        return rows
    return Rows(rows.X[good], rows.y[good], rows.offset[good], rows.weight[good])


def _intercept(rows: Rows, names: Sequence[str]) -> int | None:
    """Return the column of that name, else the first constant that is not 0, else ``None``."""
    if INTERCEPT in names:
        return list(names).index(INTERCEPT)
    if len(rows.y) == 0:
        return None
    constant = (rows.X[0] == rows.X).all(axis=0) & (rows.X[0] != 0.0)
    return int(np.argmax(constant)) if constant.any() else None


class _Columns:
    """The columns of a design as functions of a row, and the effects that they can express.

    A column is ``times 1[cell] x numbers``: 0 in rows of other levels than those of its cell, else
    a product of numbers (``protocols.ColumnTerm``). Effects are functions ``1[cell] x numbers`` of
    all cells, which the columns may express in another way (:meth:`_express`).
    """

    def __init__(self, rows: Rows, share: Vector, coding: Coding) -> None:
        self._share = share
        self._X, self._mean, self._scale = rows.X, coding.mean, coding.scale
        self._terms, self._sizes = list(coding.columns), dict(coding.sizes)
        # Column j of ``_terms`` by columns of the store, where it is not the store's column j.
        self._moved: dict[int, _Loading] = {}
        self._factor_of = {
            name: factor for factor, contrasts in coding.contrasts.items() for name in contrasts
        }
        # Indicators (n,) of the levels of a factor = (1, its n - 1 contrasts) @ weights (n, n).
        self._weights = {
            factor: np.linalg.inv(
                np.column_stack([np.ones(coding.sizes[factor]), *contrasts.values()])
            )
            for factor, contrasts in coding.contrasts.items()
        }
        self._contrasts = coding.contrasts
        self._indicate_two_values()
        # The functions that are a column, up to a factor.
        self._direct: dict[_Function, _Loading] = {}
        for j, term in enumerate(self._terms):
            key = frozenset(term.levels), term.numbers
            self._direct.setdefault(key, {j: 1.0 / term.times})
        # Those that were expressed: without it, two factors of n levels each take time like 2^n.
        self._known: dict[_Function, _Loading] = {}

    def constant(self) -> Vector | None:
        """Return the coefficients (q,) of the function 1; ``None`` if no combination is 1."""
        loading = self._express(frozenset(), ())
        return None if loading is None else self._to_store(self._sparse([loading]).toarray())[:, 0]

    def covariance(self, centred: bool) -> Matrix:
        """Return the covariance (q, q) of the coefficients, for effects of unit size.

        ``centred``: a combination of columns is constant; it is left out.
        """
        numbers: dict[tuple[str, ...], set[_Numbers]] = defaultdict(set)
        for term in self._terms:
            coded = {self._factor_of[name] for name in term.numbers if name in self._factor_of}
            own = sorted({factor for factor, _ in term.levels} | coded)
            slopes = tuple(name for name in term.numbers if name not in self._factor_of)
            for size in range(len(own) + 1):  # effects of cells, and those that cells share
                for some in combinations(own, size):
                    numbers[some].add(slopes)
        if centred:
            numbers[()].discard(())
        q = len(self._terms)
        total = np.zeros((q, q))
        for factors, basis in numbers.items():
            if basis:
                total += self._of_cells(factors, sorted(basis), centred)
        return self._to_store(self._to_store(total).T)

    def _of_cells(self, factors: Sequence[str], basis: Sequence[_Numbers], centred: bool) -> Matrix:
        """Return the covariance of the columns by independent effects of each cell of factors."""
        levels = [[(factor, at) for at in range(self._sizes[factor])] for factor in factors]
        cells = [frozenset(each) for each in product(*levels)]
        known, loadings = [], []
        for place, numbers in enumerate(basis):
            own = self._each([(cell, numbers) for cell in cells], frozenset())
            if own is not None:
                known.append(place)
                loadings += own
        between = self._inverse_moments(basis, () in basis or (centred and not factors))
        effects = kron(between[np.ix_(known, known)], eye_array(len(cells)))
        of_columns = self._sparse(loadings)
        total: Matrix = (of_columns @ effects @ of_columns.T).toarray()
        return total

    def _inverse_moments(self, basis: Sequence[_Numbers], about_mean: bool) -> Matrix:
        """Return the inverse (k, k) of the covariance of the numbers of ``basis`` over all rows.

        Without ``about_mean``: the inverse of their second moments. If the constant is in
        ``basis``, that inverse is computed from the covariance: the effect at the means is
        independent of those about the means, and nothing cancels.
        """
        own = [place for place, numbers in enumerate(basis) if numbers]
        values = np.stack([self._values(basis[place]) for place in own], axis=1) if own else None
        inverse_moments = np.zeros((len(basis), len(basis)))
        mean, inverse = np.zeros(0), np.zeros((0, 0))
        if values is not None:
            mean, inverse = _inverse_spread(values, self._share, about_mean)
            inverse_moments[np.ix_(own, own)] = inverse
        if () in basis:
            at, moved = basis.index(()), inverse @ mean
            inverse_moments[at, at] = 1.0 + mean @ moved
            inverse_moments[at, own] = inverse_moments[own, at] = -moved
        return inverse_moments

    def _values(self, numbers: _Numbers) -> Vector:
        """Return a product of numbers (m,) in the rows."""
        loading = self._express(frozenset(), numbers)
        if loading is None:  # some cells lack it
            some = [j for j, term in enumerate(self._terms) if term.numbers == numbers]
            loading = {j: 1.0 / self._terms[j].times for j in some}
        total = np.zeros(len(self._X))
        for j, coefficient in loading.items():
            total += coefficient * self._column(j)
        return total

    def _column(self, j: int) -> Vector:
        """Return a column (m,) of ``_terms`` on the table's scale."""
        total = np.zeros(len(self._X))
        for i, value in self._moved.get(j, {j: 1.0}).items():
            total += value * (self._X[:, i] * self._scale[i] + self._mean[i])
        return total

    def _express(
        self, cell: _Cell, numbers: _Numbers, above: frozenset[_Function] = frozenset()
    ) -> _Loading | None:
        """Return the function ``1[cell] x numbers`` as a combination of columns, or ``None``.

        A level without a column of its own is the whole without the other levels, or a weighted sum
        of the whole and the contrasts of its factor. The whole without a column of its own is the
        sum of all levels, and a contrast their weighted sum. ``above`` are the functions whose
        expression has led to this one: an expression by them would have no end.
        """
        if (direct := self._direct.get((cell, numbers))) is not None:
            return direct
        if (known := self._known.get((cell, numbers))) is not None:
            return known
        if (cell, numbers) in above:
            return None
        found = self._composed(cell, numbers, above | {(cell, numbers)})
        if found is not None:
            self._known[cell, numbers] = found
        return found

    def _composed(
        self, cell: _Cell, numbers: _Numbers, above: frozenset[_Function]
    ) -> _Loading | None:
        """Return the function ``1[cell] x numbers`` by others, see :meth:`_express`."""
        for factor, at in sorted(cell):
            rest, n = cell - {(factor, at)}, self._sizes[factor]
            if factor in self._contrasts:
                names = self._contrasts[factor]
                parts = [(rest, tuple(sorted((*numbers, name)))) for name in names]
                weights = self._weights[factor][:, at]
            else:
                parts = [(rest | {(factor, k)}, numbers) for k in range(n) if k != at]
                weights = np.array([1.0] + [-1.0] * (n - 1))
            found = self._weighted([(rest, numbers), *parts], weights, above)
            if found is not None:
                return found
        others = sorted(set(self._sizes) - {factor for factor, _ in cell})
        sums = [(factor, numbers, np.ones(self._sizes[factor])) for factor in others]
        for name in numbers:
            if (coded := self._factor_of.get(name)) is not None:
                beside = tuple(each for each in numbers if each != name)
                sums.append((coded, beside, self._contrasts[coded][name]))
        for factor, beside, weights in sums:
            levels = [(cell | {(factor, k)}, beside) for k in range(len(weights))]
            if levels[0] in self._direct or levels[-1] in self._direct:
                found = self._weighted(levels, weights, above)
                if found is not None:
                    return found
        return None

    def _weighted(
        self, functions: Sequence[_Function], weights: Vector, above: frozenset[_Function]
    ) -> _Loading | None:
        """Return a weighted sum of functions by columns; ``None`` if one cannot be expressed."""
        parts = self._each(functions, above)
        if parts is None:
            return None
        weighted = zip(weights.tolist(), parts, strict=True)
        return _sum([{j: weight * v for j, v in part.items()} for weight, part in weighted])

    def _each(
        self, functions: Sequence[_Function], above: frozenset[_Function]
    ) -> list[_Loading] | None:
        """Return each function by columns; ``None`` if one cannot be expressed."""
        parts = []
        for cell, numbers in functions:
            part = self._express(cell, numbers, above)
            if part is None:
                return None
            parts.append(part)
        return parts

    def _sparse(self, loadings: Sequence[_Loading]) -> csr_array:
        """Return functions as the columns of a matrix (q, functions)."""
        at = [(j, i) for i, loading in enumerate(loadings) for j in loading]
        data = [value for loading in loadings for value in loading.values()]
        place = np.array(at, np.int64).reshape(-1, 2).T
        return csr_array((data, (place[0], place[1])), shape=(len(self._terms), len(loadings)))

    def _to_store(self, coefficients: Matrix) -> Matrix:
        """Return coefficients (q, k) of ``_terms`` as those of the store's columns.

        What centred columns move into an intercept is left out: the caller fixes the mean of the
        predictor.
        """
        if self._moved:
            own = [self._moved.get(j, {j: 1.0}) for j in range(len(self._terms))]
            coefficients = self._sparse(own) @ coefficients
        return coefficients * self._scale[:, None]

    def _indicate_two_values(self) -> None:
        """Make numbers of two values the levels of factors.

        Where the lower value is not 0, a column with such a number is the indicator plus a multiple
        of the column without that number; if there is none, it stays a number.
        """
        terms = self._terms
        alone = {
            term.numbers[0]: j
            for j, term in enumerate(terms)
            if not term.levels and len(term.numbers) == 1 and term.numbers[0] not in self._factor_of
        }
        ones: dict[str, tuple[int, Vector]] = {}
        for name, j in alone.items():
            x = self._column(j) / terms[j].times
            if not spread(x, self._share)[2]:
                continue
            low, high = float(x.min()), float(x.max())
            if abs(low) <= _TWO_VALUES * (high - low):
                low = 0.0
            own = {i: _without(term, name) for i, term in enumerate(terms) if name in term.numbers}
            if low:
                places = {(frozenset(t.levels), t.numbers): i for i, t in enumerate(terms)}
                at = {i: places.get((frozenset(t.levels), t.numbers)) for i, t in own.items()}
                if None in at.values():
                    continue
                for i, r in at.items():
                    assert r is not None
                    back = -low * terms[i].times / terms[r].times
                    beside = {k: back * v for k, v in self._moved.get(r, {r: 1.0}).items()}
                    self._moved[i] = _sum([self._moved.get(i, {i: 1.0}), beside])
            for i, rest in own.items():
                levels = (*rest.levels, (name, 1))
                terms[i] = ColumnTerm(levels, rest.numbers, rest.times * (high - low))
            self._sizes[name] = 2
            if not low and len(own) == 1:
                ones[name] = j, (x > 0.5 * high).astype(np.float64)
        self._join_exclusive(ones)

    def _join_exclusive(self, ones: Mapping[str, tuple[int, Vector]]) -> None:
        """Make indicators that exclude each other, as in a one-hot coding, levels of one factor.

        The factor has one more level, of the rows in which all are 0, if there are such rows.
        """
        if len(ones) < 2:
            return
        names, at = list(ones), [j for j, _ in ones.values()]
        together = np.stack([x for _, x in ones.values()])
        both = together @ together.T
        groups: list[list[int]] = []
        for i in range(len(names)):
            free = (group for group in groups if not both[i, group].any())
            found = next(free, None)
            if found is None:
                groups.append([i])
            else:
                found.append(i)
        for group in groups:
            if len(group) == 1:
                continue
            whole = "|".join(names[i] for i in group)
            first = int(not together[group].sum(axis=0).all())
            for place, i in enumerate(group, start=first):
                term = self._terms[at[i]]
                self._terms[at[i]] = ColumnTerm(((whole, place),), (), term.times)
                del self._sizes[names[i]]
            self._sizes[whole] = len(group) + first


def _without(term: ColumnTerm, name: str) -> ColumnTerm:
    """Return a term without one of its numbers."""
    return term._replace(numbers=tuple(each for each in term.numbers if each != name))


def _sum(parts: Sequence[_Loading]) -> _Loading:
    """Return the sum of functions."""
    total: _Loading = defaultdict(float)
    for loading in parts:
        for j, value in loading.items():
            total[j] += value
    return {j: value for j, value in total.items() if value != 0.0}


def _inverse_spread(values: Matrix, share: Vector, about_mean: bool) -> tuple[Vector, Matrix]:
    """Return means (k,) of columns (m, k) and the inverse (k, k) of their covariance.

    Not ``about_mean``: the means are 0, and it is that of their second moments. A direction in
    which collinear columns do not vary has the variance that they have alone. A constant column has
    none: its row is 0.
    """
    k = values.shape[1]
    mean, size, scaled = np.zeros(k), np.zeros(k), np.zeros_like(values)
    for j, column in enumerate(values.T):
        if about_mean:
            mean[j], size[j], _ = spread(column, share)
        elif (most := float(np.abs(column).max(initial=0.0))) > 0.0:
            size[j] = most * math.sqrt(float(share @ np.square(column / most)))
        if size[j] > 0.0:
            scaled[:, j] = (column - mean[j]) / size[j]
    varies = np.flatnonzero(size > 0.0)
    own = scaled[:, varies]
    eigenvalues, vectors = np.linalg.eigh((own.T * share) @ own)
    inverse = (vectors / np.where(eigenvalues > _COLLINEAR, eigenvalues, 1.0)) @ vectors.T
    inverse_spread = np.zeros((k, k))
    inverse_spread[np.ix_(varies, varies)] = inverse / size[varies] / size[varies][:, None]
    return mean, inverse_spread
