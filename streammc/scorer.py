"""Model files: a run as one JSON file of at most 1 MB, and its predictions by NumPy alone.

``streammc export RUN model.json`` writes what predictions need: the fitted formula and draws of the
coefficients. :func:`load` reads it where neither the run nor its store is, and without numba, zarr,
Dask, xarray or pyarrow. Nothing of a file is executed: its expressions are read by the allow-list
of formulas.

Draws are on the table's scale, so that no standardisation is left: with the columns ``x_j`` of the
formula a draw has the linear predictor ``eta = offset + b_0 + sum_j b_j x_j``. Where the number of
draws asked for does not fit, a file has mean and covariance of all, as a normal distribution.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from pathlib import Path
from statistics import NormalDist
from threading import Lock
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.quantiles import mean, quantiles
from streammc.docstrings import documented
from streammc.errors import (
    ConfigError,
    DataError,
    MissingError,
    ModelError,
    RefusedError,
    StorageIOError,
    StoreError,
)
from streammc.numerics.process_limits import available_threads
from streammc.prediction.mean_responses import NormalRules, effect_levels, responses
from streammc.prediction.prediction_request import DRAWS, INTEGRATE, INTERVAL, PredictionRequest
from streammc.protocols import Index, Matrix, Vector
from streammc.stores.formula.expressions import (
    Codes,
    fields,
    filled,
    finite,
    fitted_parts,
    level_index,
)
from streammc.stores.formula.fitted import (
    STAND_INS,
    DesignColumn,
    factor_node,
    good_stand_in,
    good_state,
    has_levels,
    is_factor,
    read_design,
    write_columns,
)
from streammc.stores.formula.parser import (
    Call,
    Column,
    Node,
    argument_of,
    columns_of,
    label,
    parse_expression,
    tokenize,
)
from streammc.stores.iso_words import iso_word
from streammc.unfinished import current_mark, mark_entry, replace_file

__all__ = ["Scorer", "load"]

VERSION: Final = 1
"""Version of the format that this version of streammc writes; it reads all up to it."""
MOST_BYTES: Final = 1_000_000
"""Size of a model file."""
FEWEST: Final = 50
"""Draws that a file has at least where no number was asked for."""
DRAWN: Final = "draws"
NORMAL: Final = "normal"
REFUSE: Final = "refuse"
INVALID: Final = (REFUSE, "nan")
_KEY: Final = "streammc_model"
_BLOCK: Final = 1 << 14
"""Rows whose columns are computed at once."""
_TILE_ENTRIES: Final = 1 << 16
"""Rows times draws that fit into a cache."""

Cube = NDArray[np.float64]


def _logit(eta: Any) -> Any:
    """Return ``1 / (1 + exp(-eta))``."""
    chance = np.exp(-eta)
    chance += 1.0
    return np.divide(1.0, chance, out=chance)


# Rational approximations of erf below 1, and of exp(x^2) erfc(x) up to 8 and above it, from the
# Cephes library (Moshier 1984), whose errors are below 1e-15 of the value.
_BELOW_1: Final = (
    "9.60497373987051638749 90.0260197203842689217 2232.00534594684319226 7003.32514112805075473 "
    "55592.3013010394962768",
    "1 33.5617141647503099647 521.357949780152679795 4594.32382970980127987 22629.0000613890934246 "
    "49267.3942608635921086",
)
_BELOW_8: Final = (
    "2.46196981473530512524e-10 0.564189564831068821977 7.46321056442269912687 "
    "48.6371970985681366614 196.520832956077098242 526.445194995477358631 934.528527171957607540 "
    "1027.55188689515710272 557.535335369399327526",
    "1 13.2281951154744992508 86.7072140885989742329 354.937778887819891062 975.708501743205489753 "
    "1823.90916687909736289 2246.33760818710981792 1656.66309194161350182 557.535340817727675546",
)
_ABOVE_8: Final = (
    "0.564189583547755073984 1.27536670759978104416 5.01905042251180477414 6.16021097993053585195 "
    "7.40974269950448939160 2.97886665372100240670",
    "1 2.26052863220117276590 9.39603524938001434673 12.0489539808096656605 "
    "17.0814450747565897222 9.60896809063285878198 3.36907645100081516050",
)


def _ratio(table: tuple[str, str], x: Vector) -> Vector:
    above, below = (np.polyval([float(each) for each in row.split()], x) for row in table)
    return np.asarray(above / below, np.float64)


def _probit(eta: Any) -> Any:
    """Return the standard normal distribution function."""
    x = np.asarray(eta) * np.sqrt(0.5)
    away, out = np.abs(x), np.empty(np.shape(x))
    near, far = away < 1.0, away >= 8.0
    out[near] = 0.5 + 0.5 * x[near] * _ratio(_BELOW_1, x[near] ** 2)
    for where, table in ((~near & ~far, _BELOW_8), (far, _ABOVE_8)):
        tail = 0.5 * np.exp(-(away[where] ** 2)) * _ratio(table, away[where])
        out[where] = np.where(x[where] > 0.0, 1.0 - tail, tail)
    return out


MEANS: Final[dict[str, Callable[[Any], Any]]] = {
    "cumulative logit": _logit,
    "identity": np.array,
    "log": np.exp,
    "logit": _logit,
    "probit": _probit,
}
"""Mean response by link, in a new array; of categories P(y > k) by ``eta - c_k``."""
LINKS: Final = {
    "beta": "logit",
    "beta-binomial": "logit",
    "binomial": "logit",
    "exponential": "log",
    "gamma": "log",
    "gaussian": "identity",
    "hurdle-poisson": "log",
    "inverse-gaussian": "log",
    "logistic": "logit",
    "lognormal": "log",
    "negative-binomial": "log",
    "network": "logit",
    "ordinal": "cumulative logit",
    "poisson": "log",
    "probit": "probit",
    "quantile": "identity",
    "student-t": "identity",
    "tweedie": "log",
    "weibull": "log",
    "zero-inflated-negative-binomial": "log",
    "zero-inflated-poisson": "log",
}
"""Link of each family with a mean response."""


def _shift_of_weibull(scalars: Matrix) -> Vector:
    each = np.exp(-np.clip(scalars[0], -300.0, 300.0)).ravel()
    shift = np.array([math.lgamma(1.0 + x) for x in each])
    return shift.reshape(scalars[0].shape)


SHIFTS: Final[dict[str, Callable[[Matrix], Vector]]] = {
    "hurdle-poisson": lambda s: -np.logaddexp(0.0, s[0]),
    "lognormal": lambda s: 0.5 * np.exp(2.0 * s[0]),
    "weibull": _shift_of_weibull,
    "zero-inflated-negative-binomial": lambda s: -np.logaddexp(0.0, s[1]),
    "zero-inflated-poisson": lambda s: -np.logaddexp(0.0, s[0]),
}
"""What the shared parameters add to the predictor of a mean response."""
_WITH_SCALARS: Final = ("network", "ordinal", *SHIFTS)
"""Families whose mean response depends on parameters without a column."""


@dataclass(frozen=True)
class Family:
    """A family and its mean response."""

    name: str
    n_scalar: int = 0
    hidden: tuple[int, ...] = ()
    """Sizes of the hidden layers of a network."""

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m)."""
        last: Vector = eta[0]
        if self.hidden:
            activations, at = _logit(eta[: self.hidden[0]]), self.hidden[0]
            for size in (*self.hidden[1:], 1):
                end = at + size * len(activations)
                weights = eta[at:end].reshape(size, len(activations), -1)
                total = np.einsum("kjm,jm->km", weights, activations) + eta[end : end + size]
                activations, at = _logit(total), end + size
                last = total[0]
        with np.errstate(over="ignore"):
            chosen = MEANS[LINKS[self.name]]
            if self.name == "hurdle-poisson":  # counts above 0 alone
                last = np.maximum(last, -700.0)  # below it the mean above 0 is 1
                last = last - np.log(-np.expm1(-np.exp(last)))
            if self.name in SHIFTS:
                last = last + SHIFTS[self.name](eta[1:])
            found: Vector = chosen(last)
            if self.name == "ordinal":  # the sum of P(y > k) over the cut points
                for cut in np.cumsum(np.exp(eta[1:]), axis=0):
                    found += chosen(last - cut)
        return found


# Writing.


@documented()
def export(
    run: Any, path: str | os.PathLike[str], *, draws: int | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write a run as a model file, for :func:`load`.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    path
        JSON file to make.
    draws
        Number of draws to keep, thinned from all chains together; at least 2. ``None`` keeps 200,
        or as many as fit in 1 MB, at least 50. Where a number that is given does not fit, the file
        has mean and covariance of all draws of the coefficients.
    overwrite
        Replace a file at ``path``. Without it ``path`` must not exist.

    Returns
    -------
    dict
        Facts: ``family``, ``link``, ``columns`` of the table, ``kind`` (``draws`` or ``normal``),
        ``draws``, ``groups``, ``bytes``.

    Raises
    ------
    IdentityError
        If ``path`` exists.
    DataError
        If the run is unfinished.
    ModelError
        If the model has no mean response.
    RefusedError
        If these do not fit in 1 MB, or the mean sign of the draws is below 0.2.
    StoreError
        If the model is one of your own, whose functions are not in a file.
    """
    from streammc.errors import IdentityError

    wanted = DRAWS if draws is None else draws
    opened, model = _opened(run, wanted)
    if os.path.lexists(path):
        ours = is_model_file(path)
        if not (ours and overwrite):
            raise IdentityError(
                f"expected nothing at {os.fspath(path)!r}, found a file: choose another path",
                "; or replace it with --overwrite (in Python overwrite=True)" * ours,
            )
    described = _described(opened, model, wanted)
    text = _document(described)
    if len(text) > MOST_BYTES:
        described = _smaller(opened, model, described, len(text), asked=draws is not None)
        text = _document(described)
    replace_file(Path(path), text)
    posterior, groups = described["posterior"], described["groups"]
    return {
        "family": described["family"],
        "link": described["link"],
        "columns": list(described["columns"]),
        "kind": posterior["kind"],
        "draws": posterior["draws"],
        "groups": None if groups is None else groups["column"],
        "bytes": len(text),
    }


def of_run(run: Any, *, draws: int = DRAWS) -> Scorer:
    """Return the scorer of a run, without a file and its limit of size.

    Parameters
    ----------
    run : path or xarray.DataTree
        Directory of a finished run, or the run opened from it.
    draws
        Number of draws to keep, thinned from all chains together; at least 2.

    Raises
    ------
    DataError, ModelError, RefusedError, StoreError
        As :func:`export`.
    """
    return Scorer(_described(*_opened(run, draws), draws))


def _opened(run: Any, draws: int) -> tuple[Any, Any]:
    """Return a run and its model; refuse one of your own, and one that cannot predict."""
    from streammc.prediction.predict import model_of, opened_run, require_predictable

    opened = opened_run(run)
    described = opened.identity["model"]
    if "code" in described:
        raise StoreError(
            f"expected a run of one of the families {', '.join(LINKS)}, found a model of your own, "
            f"{described['name']!r}, whose functions are not in a file: predict with "
            "streammc.predict"
        )
    model = model_of(opened, None)
    require_predictable(model, PredictionRequest(draws=draws))
    return opened, model


def _described(run: Any, model: Any, draws: int | None) -> Any:
    """Return the part of a model file that is the model; without ``draws`` their normal form.

    ``None`` if there is no normal form.
    """
    from streammc.models.mixed.mixed_model import MixedModel
    from streammc.prediction import predictors
    from streammc.prediction.predictors import load_draws, matched
    from streammc.prediction.row_effects import (
        _slope,
        effect_covariance,
        require_temperature_one,
    )

    posterior = load_draws(run, model, DRAWS if draws is None else draws)
    design, theta, weights = posterior.design, posterior.theta, posterior.weights
    everything = model.unconstrain(run.draws_matrix())
    everything = everything.reshape(-1, everything.shape[-1])
    plain = {**design, "standardization": None}
    regression, groups = model, None
    if isinstance(model, MixedModel):
        require_temperature_one(run)
        theta = theta if weights is not None else matched(theta, everything)
        slope = _slope(model, design, plain)
        groups = {
            "column": model.column,
            "covariance": _packed(effect_covariance(model, theta)),
            "slope": None if slope is None else [model.slope, *slope[1:]],
        }
        regression, theta = model.inner, theta[:, : -model.n_covariance]
    normal = draws is None
    scalars = regression.name in _WITH_SCALARS
    if normal and (weights is not None or scalars):
        return None
    wanted = everything if normal else theta
    coefficients = predictors.on_table(regression, wanted, weights, design, plain)
    named = _design_columns(design)
    at = [k for k, column in enumerate(named) if column is not None and column.fields]
    intercept = coefficients.shifts.copy()
    for k, column in enumerate(named):
        if column is not None and not column.fields:
            intercept += column.scale * coefficients.slopes[:, :, k]
    slopes = coefficients.slopes[:, :, at]
    family = Family(
        regression.name,
        regression.n_scalar if scalars else 0,
        tuple(getattr(regression, "hidden", ())),
    )
    _check_mean(regression, family)
    kept: dict[str, Any] = {"kind": NORMAL if normal else DRAWN, "draws": len(wanted)}
    if normal:
        b = np.concatenate([intercept, slopes[0].T]).T
        covariance = np.cov(b.T, bias=True).reshape(b.shape[1], b.shape[1])
        lower = covariance[np.tril_indices(len(covariance))]
        kept |= {"mean": _packed(b.mean(axis=0)), "covariance": _packed(lower)}
    else:
        kept |= {"intercept": _packed(intercept), "coefficients": _packed(slopes)}
        kept["scalars"] = _packed(coefficients.scalars) if family.n_scalar else None
        kept["weights"] = None if weights is None else _packed(weights)
    formula, offset = design["formula"], []
    terms = None if formula is None else read_design(formula, "the run").terms
    if terms is not None and terms.offsets:
        offset = [_expression(node) for node in terms.offsets]
    elif design["offset"]:
        offset = [{"column": design["offset"]}]
    used = [named[k] for k in at]
    nodes = [node for column in used if column is not None for node, _ in column.fields]
    names = dict.fromkeys(name for node in nodes for name in columns_of(node))
    for each in offset:
        names |= dict.fromkeys(columns_of(_node(each)))
    kinds = {} if formula is None else formula["columns"]
    return {
        "family": family.name,
        "link": LINKS[family.name],
        "hidden": list(family.hidden),
        "response": design.get("response"),
        "trials": design.get("trials"),
        "run": run.digest(),
        "columns": {name: kinds.get(name, "number") for name in names},
        "states": {} if formula is None else formula["states"],
        STAND_INS: {} if formula is None else formula.get(STAND_INS, {}),
        "design": [
            {
                "name": column.name,
                "of": [[_expression(node), index] for node, index in column.fields],
                "scale": column.scale,
            }
            for column in used
            if column is not None
        ],
        "offset": offset,
        "posterior": kept,
        "groups": groups,
    }


def _smaller(run: Any, model: Any, described: Any, size: int, *, asked: bool) -> Any:
    """Return a model of at most :data:`MOST_BYTES` in place of one of ``size`` bytes.

    It has mean and covariance if its number of draws was asked for, else as many draws as fit.
    RefusedError if there is no room for these.
    """
    if asked and described["groups"] is None:
        normal = _described(run, model, None)
        if normal is not None and len(_document(normal)) <= MOST_BYTES:
            return normal
    fewest = _described(run, model, 2)
    n, least = (each["posterior"]["draws"] for each in (described, fewest))
    per_draw = (size - len(_document(fewest))) / max(n - least, 1)
    # Sizes are linear in the draws, but for the last bytes of each array.
    room = n - int((size - MOST_BYTES + 64) / per_draw) - 1 if n > least else 0
    fitting = max(room, 0) // run.chains * run.chains
    if not asked and fitting >= FEWEST:
        return _described(run, model, fitting)
    raise RefusedError(
        f"expected a model of at most {MOST_BYTES:,} bytes"
        + (f" with {FEWEST} draws or more" * (not asked))
        + f", found {size:,} for {len(described['design'])} columns and {n} draws, and room for "
        f"{fitting} draws: "
        + f"ask for {fitting} (--draws {fitting}, in Python draws={fitting}), or " * (fitting > 1)
        + "make a model of fewer columns"
    )


def _design_columns(design: Mapping[str, Any]) -> list[DesignColumn | None]:
    """Return the columns of a design; one without fields is 1, and of ``None`` all zeros."""
    if design["formula"] is None:
        names = design["features"]
        first = int(design["intercept"])
        plain = [DesignColumn(name, ((Column(name), 0),), 1.0) for name in names[first:]]
        return [*(DesignColumn(name, (), 1.0) for name in names[:first]), *plain]
    fitted = read_design(design["formula"], "the run")
    columns = [each for each in fitted.columns if not each.fields] * int(design["intercept"])
    found: list[DesignColumn | None] = [*columns]
    found += [each for each in fitted.columns if each.fields]
    for factor in fitted.factors:
        node = factor_node(factor)
        levels = fitted.states[label(node)]["levels"]
        found += [DesignColumn(f"u[{factor}={x}]", ((node, i),), 1.0) for i, x in enumerate(levels)]
        found.append(None)
    return found


def _check_mean(model: Any, family: Family) -> None:
    """Refuse a model whose mean response is not that of its family here; ModelError without one."""
    if model.nominal:
        raise ModelError(
            f"expected a model with a mean response, which a model file predicts, found "
            f"{model.name!r}: predict the probabilities of its categories with streammc.predict"
        )
    rng = np.random.default_rng(1)
    eta = rng.normal(size=(model.n_linear + model.n_scalar, 64))
    expected = np.asarray(model.mean(eta), np.float64)
    if family.name not in LINKS or not np.allclose(family.mean(eta), expected, 1e-12, 0.0):
        raise StoreError(
            f"expected a model of one of the families {', '.join(LINKS)}, found {family.name!r}: "
            "predict with streammc.predict"
        )


def _expression(node: Node) -> dict[str, str]:
    return {"column": node.name} if isinstance(node, Column) else {"call": label(node)}


def _packed(values: Any) -> dict[str, Any]:
    """Return an array as JSON: its shape, and float64 in little-endian order as base64."""
    array = np.ascontiguousarray(values, "<f8")
    return {"shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def _document(described: Mapping[str, Any]) -> bytes:
    """Return a model file."""
    from streammc import __version__

    head = {_KEY: VERSION, "streammc": __version__, "sha256": _digest(described)}
    whole = {**mark_entry(current_mark()), **head, "model": described}
    return (json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _digest(described: Mapping[str, Any]) -> str:
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# Reading.


@documented()
def load(path: str | os.PathLike[str]) -> Scorer:
    """Return the scorer of a model file.

    Parameters
    ----------
    path
        File that ``streammc export`` or ``streammc.export`` wrote.

    Raises
    ------
    MissingError
        If there is no such file.
    StorageIOError
        If it cannot be read.
    StoreError
        If it is no model file, is damaged, or is of a newer version of streammc.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(4 * MOST_BYTES)
    except FileNotFoundError:
        raise MissingError(
            f"expected a model file at {os.fspath(path)!r}, found nothing: make one with "
            "'streammc export RUN FILE'"
        ) from None
    except OSError as error:
        raise StorageIOError(
            f"expected a model file at {os.fspath(path)!r}, found one that cannot be read: "
            f"{error.strerror}: name a file that you may read"
        ) from None
    where = f"at {os.fspath(path)!r}"
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(where, "no JSON") from None
    if not isinstance(whole, dict) or type(whole.get(_KEY)) is not int:
        raise _damaged(where, "another file")
    if whole[_KEY] > VERSION:
        raise StoreError(
            f"expected a model file of version {VERSION} or earlier {where}, found version "
            f"{whole[_KEY]}, written by streammc {whole.get('streammc')}: install that version"
        )
    described = whole.get("model")
    if not isinstance(described, dict) or whole.get("sha256") != _digest(described):
        raise _damaged(where, "a damaged one, whose checksum is another")
    return Scorer(described, where)


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a model file, which may be damaged."""
    if not os.path.isfile(path):  # a pipe would wait for a writer
        return False
    try:
        with open(path, "rb") as file:
            return f'"{_KEY}"'.encode() in file.read(1024)
    except OSError:
        return False


def _damaged(where: str, found: str) -> StoreError:
    return StoreError(
        f"expected a model file of streammc {where}, found {found}: export or copy it again"
    )


def _unpacked(stated: Any, *shape: int) -> NDArray[np.float64]:
    """Return an array from its JSON; ValueError if its shape is another (-1: any length)."""
    array = np.frombuffer(base64.b64decode(stated["data"], validate=True), "<f8")
    array = array.reshape(stated["shape"]).astype(np.float64)
    if len(array.shape) != len(shape) or not np.isfinite(array).all():
        raise ValueError(f"an array of shape {array.shape}")
    if any(want not in (-1, found) for want, found in zip(shape, array.shape, strict=True)):
        raise ValueError(f"an array of shape {array.shape}")
    return array


def _node(stated: Any) -> Node:
    """Return an expression from its JSON; ValueError if it is not allowed."""
    if set(stated) == {"column"} and isinstance(stated["column"], str):
        return Column(stated["column"])
    node = parse_expression(tokenize(stated["call"]))
    if not isinstance(node, Call):
        raise ValueError(f"no call: {stated['call']!r}")
    return node


class Scorer:
    """The model of a model file; :func:`load` returns it. It can be pickled.

    Attributes
    ----------
    family, link
        Names.
    columns : tuple of str
        Columns of the table that :meth:`predict` needs.
    facts : dict
        The model as JSON, but for its arrays: response, levels and knots, number of draws.
    """

    _arrays: ClassVar[tuple[str, ...]] = ("design", "posterior", "groups")

    def __init__(self, described: Mapping[str, Any], where: str = "given") -> None:
        self._described = dict(described)
        try:
            self._read(self._described)
        except (
            ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError
        ) as e:  # fmt: skip
            raise _damaged(where, f"a damaged one ({type(e).__name__}: {e})"[:200]) from None

    def __getstate__(self) -> dict[str, Any]:
        """Return the JSON of the model: all else follows from it."""
        return {"_described": self._described}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore from the JSON of the model."""
        self._described = dict(state["_described"])
        self._read(self._described)

    def __repr__(self) -> str:
        """Return family, columns and draws."""
        kept = f"{self._draws} draws" if self._normal is None else "mean and covariance"
        return f"Scorer({self.family!r}, columns={list(self.columns)}, {kept})"

    @property
    def facts(self) -> dict[str, Any]:
        """The model as JSON, but for its arrays."""
        facts = {k: each for k, each in self._described.items() if k not in self._arrays}
        posterior, groups = self._described["posterior"], self._described["groups"]
        facts |= {"features": [column.name for column in self._design]}
        facts |= {"kind": posterior["kind"], "draws": posterior["draws"]}
        return facts | {"groups": None if groups is None else groups["column"]}

    def _read(self, model: Mapping[str, Any]) -> None:
        self.family, self.link = str(model["family"]), str(model["link"])
        if LINKS.get(self.family) != self.link:
            raise ValueError(f"the family {self.family!r} with the link {self.link!r}")
        self._kinds: dict[str, str] = dict(model["columns"])
        self.columns = tuple(self._kinds)
        self._states: dict[str, Any] = dict(model["states"])
        self._stand_ins: dict[str, Any] = {
            name: state for name, state in model.get(STAND_INS, {}).items() if name in self._kinds
        }
        for name, state in self._stand_ins.items():
            if not good_stand_in(state, self._kinds[name]):
                raise ValueError(f"what stands for a missing value of {name!r}")
        self._design = [
            DesignColumn(
                str(each["name"]),
                tuple((_node(node), int(index)) for node, index in each["of"]),
                float(each["scale"]),
            )
            for each in model["design"]
        ]
        self._offsets = [_node(each) for each in model["offset"]]
        nodes = dict.fromkeys(node for each in self._design for node, _ in each.fields)
        for node in [*nodes, *self._offsets]:
            if any(name not in self._kinds for name in columns_of(node)):
                raise ValueError(f"columns of {label(node)!r}")
            factor = [node] if has_levels(node, self._kinds) else []
            for part in [*fitted_parts(node), *factor]:
                if not good_state(part, self._states.get(label(part))):
                    raise ValueError(f"the state of {label(part)!r}")
        for column in self._design:
            if not column.fields or not np.isfinite(column.scale):
                raise ValueError(f"the column {column.name!r}")
            for node, index in column.fields:
                if not 0 <= index < self._count(node):
                    raise ValueError(f"field {index} of {label(node)!r}")
        if bool(model["hidden"]) != (self.family == "network"):
            raise ValueError(f"the family {self.family!r} with the layers {model['hidden']}")
        k, posterior = len(self._design), model["posterior"]
        self._normal: tuple[Vector, Matrix] | None = None
        self._draws, self._weights, scalars = 1, None, None
        lone: list[int] = []
        if posterior["kind"] == NORMAL:
            covariance = np.zeros((k + 1, k + 1))
            covariance[np.tril_indices(k + 1)] = _unpacked(
                posterior["covariance"], (k + 1) * (k + 2) // 2
            )
            covariance += np.tril(covariance, -1).T
            self._normal = _unpacked(posterior["mean"], k + 1), covariance
            self._intercept, slopes = np.zeros((1, 1)), np.zeros((1, 1, k))
        else:
            self._intercept = _unpacked(posterior["intercept"], -1, -1)
            n_linear, self._draws = self._intercept.shape
            slopes = _unpacked(posterior["coefficients"], n_linear, self._draws, k)
            if posterior["weights"] is not None:
                self._weights = _unpacked(posterior["weights"], self._draws)
            if posterior["scalars"] is not None:
                scalars = _unpacked(posterior["scalars"], -1, self._draws)
            # A factor that is a term of its own is read from a table of its levels.
            lone = [
                j
                for j, each in enumerate(self._design)
                if len(each.fields) == 1
                and each.scale == 1.0
                and is_factor(each.fields[0][0], self._kinds)
            ]
        self._scalars = np.zeros((0, self._draws)) if scalars is None else scalars
        others = len(self._intercept) - 1 + len(self._scalars)
        self._model = Family(self.family, others, tuple(model["hidden"]))
        self._rules = NormalRules(self._model) if not self._model.hidden else None
        self._dense = [each for j, each in enumerate(self._design) if j not in lone]
        dense = [j for j in range(k) if j not in lone]
        self._slopes = np.ascontiguousarray(slopes[:, :, dense].transpose(0, 2, 1))
        self._nodes = list(dict.fromkeys(node for each in self._dense for node, _ in each.fields))
        self._factors: dict[Node, Cube] = {}
        for j in lone:
            ((node, index),) = self._design[j].fields
            levels = len(self._states[label(node)]["levels"])
            table = self._factors.setdefault(node, np.zeros((len(slopes), levels, self._draws)))
            table[:, index] = slopes[:, :, j]
        factors = [*self._factors, *(node for node in self._nodes if has_levels(node, self._kinds))]
        self._level_columns = {
            inner.name for node in factors if isinstance(inner := argument_of(node), Column)
        }
        self._covariance: Matrix | None = None
        self._z = np.zeros((self._draws, 1))
        self._slope: tuple[int, float, float] | None = None
        if model["groups"] is not None:
            self._covariance = _unpacked(model["groups"]["covariance"], self._draws, 3)
            self._z = _normal_quantiles(effect_levels(self._draws))
            slope = model["groups"]["slope"]
            if slope is not None:
                place = [each.name for each in self._dense].index(slope[0])
                self._slope = place, float(slope[1]), float(slope[2])

    def _count(self, node: Node) -> int:
        """Return the number of fields of an expression: those of a table without rows."""
        none = np.empty(0)
        kinds = self._kinds.items()
        empty = {name: Codes(none, []) if kind == "text" else none for name, kind in kinds}
        return len(fields(node, empty, self._states, lambda *_: None))

    def predict(
        self,
        table: Any,
        *,
        interval: float | None = INTERVAL,
        new_groups: str = INTEGRATE,
        invalid: str = REFUSE,
        sd: bool = False,
        threads: int | None = None,
    ) -> dict[str, Vector]:
        """Predict the rows of a table, as ``streammc.predict`` does from the same draws.

        Parameters
        ----------
        table : data frame or mapping
            Of pandas, polars or Arrow, or a mapping from names to arrays, with :attr:`columns`;
            others are ignored.
        interval
            Probability of the band, between 0 and 1, with equal tails; ``None``: the mean alone,
            in half the time.
        new_groups : {'integrate', 'refuse'}
            Rows of a mixed model: a file has no effects of known groups, so that all are integrated
            over the distribution of effects, or refused.
        invalid : {'refuse', 'nan'}
            Rows that cannot be predicted, by a missing value, an unseen level or a value outside
            of the bounds of a spline: refuse them by name, or predict NaN.
        sd
            Also the standard deviation of the mean response over the draws.
        threads
            Number of threads; ``None``: the processors of the process, at most 8.

        Returns
        -------
        dict
            ``mean`` (m,), with ``sd`` its standard deviation (m,), and the ends of the band (m,),
            such as ``q5`` and ``q95``.

        Raises
        ------
        DataError
            If a column does not exist, or a row cannot be predicted: the message names column,
            value and row.
        ConfigError
            If an option is out of its range, or ``sd`` is asked of a model without draws.
        """
        if sd and self._normal is not None:
            raise ConfigError(
                "expected a model file with draws for sd, found one with mean and covariance: "
                "export fewer draws"
            )
        request = PredictionRequest(
            interval=INTERVAL if interval is None else interval, new_groups=new_groups
        )
        if invalid not in INVALID:
            raise ConfigError(
                f"expected {' or '.join(map(repr, INVALID))} as invalid, found {invalid!r}: choose "
                "one of them"
            )
        whole = isinstance(threads, Integral) and not isinstance(threads, bool)
        if threads is not None and not (whole and threads >= 1):
            raise ConfigError(
                f"expected a whole number of at least 1 as threads, found {threads!r}: give one, "
                "or leave it out"
            )
        if self._covariance is not None and new_groups != INTEGRATE:
            raise DataError(
                "expected rows of groups that the model file has, found none of "
                f"{self._described['groups']['column']!r} in it: predict with streammc.predict, or "
                "as rows of new groups with new_groups='integrate'"
            )
        read = read_columns(table, self._kinds, self._level_columns)
        columns = {**filled(read, self._stand_ins)}
        rows = next((_length(each) for each in columns.values()), _rows_of(table))
        ends = () if interval is None else request.ends
        names = ("mean", *(["sd"] if sd else []), *(request.names if ends else ()))
        out = {name: np.full(rows, np.nan) for name in names}
        faults = _RowFaults(rows, invalid == REFUSE)
        for name, column in columns.items():
            values = column.codes if isinstance(column, Codes) else column
            missing = np.isnan(values)
            if missing.any():
                faults.add("missing values", name, np.flatnonzero(missing), None)

        def score(start: int) -> None:
            keep = np.arange(start, min(start + _BLOCK, rows))
            keep = keep[~faults.bad[keep]]
            if len(keep):
                self._score(columns, keep, (sd, ends), out, faults)

        if not faults.refused:
            starts = range(0, rows, _BLOCK)
            count = threads or min(available_threads(), 8)
            if count == 1 or len(starts) == 1:
                for start in starts:
                    score(start)
            else:
                with ThreadPoolExecutor(count) as pool:
                    list(pool.map(score, starts))
        faults.refuse()
        for values in out.values():
            values[faults.bad] = np.nan
        return out

    def _score(
        self,
        columns: Mapping[str, Vector | Codes],
        keep: Index,
        wanted: tuple[bool, Sequence[float]],
        out: dict[str, Vector],
        faults: _RowFaults,
    ) -> None:
        """Write the predictions of the rows ``keep``."""

        def report(kind: str, name: str, bad: NDArray[np.bool_], values: Any) -> None:
            positions = np.flatnonzero(bad)
            if positions.size:
                faults.add(kind, name, keep[positions], values[int(positions[0])])

        values = {
            name: Codes(column.codes[keep], column.values)
            if isinstance(column, Codes)
            else column[keep]
            for name, column in columns.items()
        }
        design = np.empty((len(self._dense), len(keep)))
        by_node = {node: fields(node, values, self._states, report) for node in self._nodes}
        write_columns(self._dense, by_node, design)
        for column, row in zip(self._dense, design, strict=True):
            if not np.isfinite(row.sum()):
                report("undefined results", column.name, ~np.isfinite(row), row)
        levels = [level_index(node, values, self._states, report) for node in self._factors]
        offset = np.zeros(len(keep))
        for node in self._offsets:
            offset += finite(node, values, self._states, report)
        if faults.refused:
            return
        step = max(_TILE_ENTRIES // (self._draws * self._z.shape[1]), 16)
        found = {name: np.empty(len(keep)) for name in out}
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(0, len(keep), step):
                tile = slice(low, low + step)
                each_level = [each[tile] for each in levels]
                parts = self._tile(design[:, tile], each_level, offset[tile], *wanted)
                for name, each in zip(out, parts, strict=True):
                    found[name][tile] = each
        bad = ~np.isfinite(found["mean"])
        report("undefined results", "mean", bad, found["mean"])
        for name, each in found.items():
            out[name][keep] = each

    def _tile(
        self,
        design: Matrix,
        levels: Sequence[Index],
        offset: Vector,
        sd: bool,
        wanted: Sequence[float],
    ) -> list[Vector]:
        """Return means, with ``sd`` standard deviations, and the ends of bands of some rows."""
        if self._normal is not None:
            return self._of_normal(design, offset, wanted)
        n_linear, m = len(self._intercept), design.shape[1]
        eta = np.empty((n_linear + len(self._scalars), m, self._draws))
        for a in range(n_linear):
            np.matmul(design.T, self._slopes[a], out=eta[a])
            eta[a] += self._intercept[a]
            for table, index in zip(self._factors.values(), levels, strict=True):
                eta[a] += table[a][index]
        eta[n_linear:] = self._scalars[:, None, :]
        if self._offsets:
            eta[0] += offset[:, None]
        if self._covariance is None:
            means = responses(self._model, eta)
            found = self._moments(means, sd)
            ends = quantiles(means, wanted, self._weights, overwrite=True) if wanted else ()
            return [*found, *ends]
        assert self._rules is not None
        spread = self._spread(design)
        found = self._moments(self._rules.means(eta, spread), sd)
        if not wanted:
            return found
        points = eta[0][..., None] + spread[..., None] * self._z
        by_draw = self.family in _WITH_SCALARS
        if by_draw:  # the mean response is another function of the predictor at each draw
            shared = np.broadcast_to(eta[1:, ..., None], (len(eta) - 1, *points.shape))
            moved = np.concatenate([points[None], shared])
            points = self._model.mean(moved.reshape(len(eta), -1))
        weights = None if self._weights is None else np.repeat(self._weights, self._z.shape[1])
        ends = quantiles(points.reshape(m, -1), wanted, weights, overwrite=True)
        if by_draw:
            return [*found, *ends]
        return [*found, *self._model.mean(ends.reshape(1, -1)).reshape(ends.shape)]

    def _moments(self, means: Matrix, sd: bool) -> list[Vector]:
        """Return the averages (m,) of the mean responses (m, S) and, if wanted, their sd."""
        averages = mean(means, self._weights)
        if not sd:
            return [averages]
        away = means - averages[:, None]
        variance = mean(away * away, self._weights)
        return [averages, np.sqrt(np.maximum(variance, 0.0))]

    def _spread(self, design: Matrix) -> Matrix:
        """Return the standard deviations (m, S) of the effect of a new group."""
        assert self._covariance is not None
        first, both, second = self._covariance.T
        z = np.zeros((design.shape[1], 1))
        if self._slope is not None:
            column, scale, shift = self._slope
            z[:, 0] = scale * design[column] + shift
        spread: Matrix = np.sqrt(np.maximum(first + z * (2.0 * both + z * second), 0.0))
        return spread

    def _of_normal(self, design: Matrix, offset: Vector, wanted: Sequence[float]) -> list[Vector]:
        """Return means and ends where the coefficients are normal, and so the predictors."""
        assert self._normal is not None
        assert self._rules is not None
        center, covariance = self._normal
        x = np.concatenate([np.ones((1, design.shape[1])), design])
        eta = center @ x + offset
        sd = np.sqrt(np.maximum(np.einsum("im,im->m", covariance @ x, x), 0.0))
        averages = self._rules.means(eta[None, :, None], sd[:, None])[:, 0]
        ends = [self._model.mean((eta + sd * NormalDist().inv_cdf(p))[None]) for p in wanted]
        return [averages, *ends]


def _normal_quantiles(levels: Matrix) -> Matrix:
    """Return the quantiles of the standard normal distribution at levels (S, J)."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(p) for p in levels.ravel().tolist()]).reshape(levels.shape)


class _RowFaults:
    """Rows that cannot be predicted, found by several threads."""

    _EXPECTED: ClassVar[dict[str, str]] = {
        "missing values": "no missing values",
        "unseen levels": "levels that the model has seen",
        "values out of bounds": "values within the bounds of the spline",
        "undefined results": "finite numbers",
    }

    def __init__(self, n_rows: int, refuse: bool) -> None:
        self.bad = np.zeros(n_rows, np.bool_)
        """Which rows cannot be predicted."""
        self._refuse = refuse
        self._found: dict[tuple[str, str], list[tuple[Index, Any]]] = {}
        self._lock = Lock()

    @property
    def refused(self) -> bool:
        """Whether there is a row to refuse."""
        return self._refuse and bool(self._found)

    def add(self, kind: str, name: str, rows: Index, example: Any) -> None:
        """Record rows with a fault in a column."""
        self.bad[rows] = True
        with self._lock:
            self._found.setdefault((kind, name), []).append((rows, example))

    def refuse(self) -> None:
        """Raise DataError for the first kind of fault, with its column."""
        if not self.refused:
            return
        for kind, expected in self._EXPECTED.items():
            for (what, name), found in self._found.items():
                if what == kind:
                    first, example = min(found, key=lambda each: int(each[0][0]))
                    count = len(np.unique(np.concatenate([rows for rows, _ in found])))
                    shown = "" if example is None else f" ({example!r})"
                    shown = f" ({float(example):g})" if isinstance(example, np.floating) else shown
                    rows = "1 row" if count == 1 else f"{count:,} rows"
                    raise DataError(
                        f"expected {expected} in column {name!r}, found {kind} in {rows}, first "
                        f"in row {first[0]}, counted from 0{shown}: leave such rows out, or give "
                        "invalid='nan'"
                    )


# Columns of a table in memory.


def read_columns(
    table: Any, kinds: Mapping[str, str], levels: set[str]
) -> dict[str, Vector | Codes]:
    """Return columns of a data frame or mapping as float64 or as codes of text; NaN if missing.

    Parameters
    ----------
    table
        Data frame or mapping.
    kinds
        Kind of each column that is needed: ``text``, or numbers.
    levels
        Columns of numbers that are levels.

    Raises
    ------
    DataError
        If a column does not exist, or is of another kind or length.
    """
    names = column_names(table)
    if names is None:
        raise DataError(
            "expected a data frame, or a mapping from names to arrays, found "
            f"{type(table).__name__}: give names to its columns"
        )
    columns: dict[str, Vector | Codes] = {}
    length: int | None = None
    for name, kind in kinds.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names[:8])}"
            raise DataError(f"expected the column {name!r} in the table, found none: {hint}")
        column = table[name]
        columns[name] = _texts(column, name) if kind == "text" else _numbers(column, name, levels)
        rows = _length(columns[name])
        if length not in (None, rows):
            raise DataError(
                f"expected {length} rows in every column, found {rows} in {name!r}: make them equal"
            )
        length = rows
    return columns


def column_names(table: Any) -> list[str] | None:
    """Return the names of the columns of a data frame or mapping; ``None`` of anything else.

    Raises
    ------
    DataError
        If the frame is a query, whose rows are not in memory.
    """
    if hasattr(type(table), "collect"):
        raise DataError(
            f"expected a table in memory, found {type(table).__name__}, whose rows are not "
            "computed yet: give its .collect()"
        )
    if isinstance(table, Mapping):
        return list(table) if all(isinstance(name, str) for name in table) else None
    for attribute in ("column_names", "columns"):
        names = getattr(table, attribute, None)
        if names is not None and all(isinstance(name, str) for name in names):
            return list(names)
    return None


def _rows_of(table: Any) -> int:
    """Return the number of rows of a table without a column that is used."""
    if isinstance(table, Mapping):
        return next((len(column) for column in table.values()), 0)
    return int(getattr(table, "num_rows", None) or len(table))


def _length(column: Vector | Codes) -> int:
    return len(column.codes if isinstance(column, Codes) else column)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a missing value of pandas."""
    if value is None:
        return True
    return not isinstance(value, (str, bytes)) and str(value) in ("nan", "<NA>", "NaT")


def _unmasked(column: Any) -> Any:
    """Return a column whose masked values, if there are any, are missing ones."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    missing: dict[str, Any] = {"f": np.nan, "M": np.datetime64("NaT")}
    kind = column.dtype.kind
    values = np.array(column.data, None if kind in missing else object)
    values[np.ma.getmaskarray(column)] = missing.get(kind)
    return values


def _numbers(column: Any, name: str, levels: set[str]) -> Vector:
    """Return a column of numbers (m,) as float64."""
    array = np.asarray(_unmasked(column))
    if array.ndim != 1:
        raise DataError(
            f"expected one number per row in column {name!r}, found an array of shape "
            f"{array.shape}: give one dimension"
        )
    if array.dtype.kind == "O":
        array = np.array([np.nan if _is_missing(each) else each for each in array.tolist()])
        if array.dtype.kind == "O" and all(_is_number(each) for each in array):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        example = next(iter(array.tolist()), "")
        raise DataError(
            f"expected numbers in column {name!r}, as in the table of the model, found "
            f"{'dates' if array.dtype.kind == 'M' else 'text'}, such as {str(example)[:40]!r}: "
            "convert the column"
        )
    if name in levels and array.dtype in (np.float16, np.float32):
        # A number of half or single precision is the one of its fewest digits.
        different, place = np.unique(array, return_inverse=True)
        return np.array([float(str(each)) for each in different])[place]
    return array.astype(np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_)) or type(value).__name__ == "Decimal"


class _Coder(dict[Any, float]):
    """Codes of values, in the order of their appearance."""

    def __missing__(self, value: Any) -> float:
        code = self[value] = float(len(self))
        return code


def _texts(column: Any, name: str) -> Codes:
    """Return a column of text or dates as codes of its values; NaN where one is missing."""
    try:
        codes = np.asarray(column.cat.codes, np.float64)  # categories of pandas
        words: list[Any] = list(column.cat.categories)
        codes[codes < 0] = np.nan
    except AttributeError:
        array = np.asarray(_unmasked(column))
        if array.dtype.kind == "M":
            # Of polars and Arrow, whose moments with a time zone are those of UTC here.
            zone = getattr(getattr(column, "dtype", None), "time_zone", None)
            zone = zone or getattr(getattr(column, "type", None), "tz", None)
            missing = np.isnat(array)
            array = np.char.add(np.datetime_as_string(array), "Z" if zone else "").astype(object)
            array[missing] = None
        elif array.dtype.kind in "SU" and isinstance(column, Sequence):
            array = np.asarray(column, object)  # NumPy would write NaN as text
        coder = _Coder()
        codes = np.fromiter(map(coder.__getitem__, array.tolist()), np.float64, len(array))
        words = list(coder)
    missing = np.array([_is_missing(word) for word in words], np.bool_)
    if missing.any():
        known = ~np.isnan(codes)
        codes[known] = np.where(missing[codes[known].astype(np.int64)], np.nan, codes[known])
    texts = [("" if gone else _word(each, name)) for each, gone in zip(words, missing, strict=True)]
    return Codes(codes, texts)


def _word(value: Any, name: str) -> str:
    """Return a text, a date or a moment as levels are written."""
    if isinstance(value, str):
        return iso_word(value)
    if isinstance(value, bytes):
        return iso_word(value.decode("utf-8", "replace"))
    if hasattr(value, "isoformat"):
        return iso_word(str(value), times=True)
    raise DataError(
        f"expected text in column {name!r}, as in the table of the model, found {value!r}: "
        "convert the column"
    )


def __dir__() -> Iterator[str]:
    """List the public names."""
    return iter(["Scorer", "export", "load"])
