"""A likelihood of your own, from functions of its predictors or of theta itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numba import njit, objmode
from numba.core.registry import CPUDispatcher

from streammc.errors import ConfigError, ModelError
from streammc.models.base import BETA, POSITIVE, REAL, LinearModel, Parameter, predictor
from streammc.models.check import refuse_wrong_derivatives
from streammc.models.code_digest import code_digest
from streammc.numerics.jit import LINK_SIGNATURE
from streammc.priors import PriorOption, as_prior
from streammc.protocols import Index, Matrix, Model, Rows, Vector

Function = Callable[..., Any]


def _interpreted(function: Function) -> Any:
    """Return a link that calls a Python function; about 5 us a call, with the GIL."""

    @njit(LINK_SIGNATURE)
    def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
        with objmode():
            function(eta, X, y, constants, order, out)

    return link


def _compiled(function: CPUDispatcher) -> Any:
    """Return a dispatcher of numba compiled for the signature of a link."""
    function.compile(LINK_SIGNATURE.args)
    return function


def kernel_of(parts: Mapping[str, Function], n_linear: int) -> Any:
    """Return the link of ``link``, or of ``log_lik``, ``gradient`` and ``hessian``."""
    if "link" not in parts:
        log_lik, gradient, hessian = parts.values()
        return _interpreted(_assembled(log_lik, gradient, hessian, n_linear))
    link = parts["link"]
    return _compiled(link) if isinstance(link, CPUDispatcher) else _interpreted(link)


def _assembled(log_lik: Function, gradient: Function, hessian: Function, n_linear: int) -> Function:
    """Return a link from three functions of whole blocks; shapes are checked."""

    def link(eta: Matrix, X: Matrix, y: Vector, constants: Vector, order: int, out: Matrix) -> None:
        p, m = eta.shape
        # Shared parameters are the same for every row: the first column is theta.
        arguments = (eta, y) if n_linear else (eta[:, 0], X.T, y)
        out[0] = _shaped(log_lik, arguments, (m,))
        if order >= 1:
            shape = (p, m) if n_linear else (m, p)
            first = _shaped(gradient, arguments, shape)
            out[1 : 1 + p] = first if n_linear else first.T
        if order == 2:
            second = _shaped(hessian, arguments, (p, p, m) if n_linear else (m, p, p))
            row = 1 + p
            for a in range(p):
                for b in range(a, p):
                    out[row] = second[a, b] if n_linear else second[:, a, b]
                    row += 1

    return link


def _shaped(function: Function, arguments: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        values = np.asarray(function(*arguments), dtype=np.float64)
    if values.shape != shape:
        raise ModelError(
            f"expected {_called(function)} to return shape {shape}, found {values.shape}; "
            "see the shapes in the documentation of streammc.models.user"
        )
    return values


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class UserModel(LinearModel):
    """A likelihood built by :func:`user`."""

    title: str = "user"
    kernel: Any = None
    parameters: tuple[Parameter, ...] = (BETA,)
    code: str = ""
    functions: dict[str, Function] = field(default_factory=dict, compare=False)
    stated: bool = False
    """Whether the parameters were given as records."""
    n_features: int | None = None
    linked: bool = False
    """Whether the link itself was given."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name it was given."""
        return self.title

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return self.kernel

    @property
    def sees_columns(self) -> bool:
        """Return whether the link may use the columns: one that was given, or one of theta."""
        return self.linked or self.n_linear == 0

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``response(y)`` is false, or ``y`` not finite."""
        good = np.isfinite(y)
        text = "finite numbers"
        if "response" in self.functions:
            with np.errstate(all="ignore"):
                good &= np.asarray(self.functions["response"](y), dtype=bool)
            text = f"values that {_called(self.functions['response'])} accepts"
        wrong = np.flatnonzero(~good)
        return (wrong, text) if wrong.size else None

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m)."""
        if "mean" not in self.functions:
            raise ModelError(
                f"expected the model {self.name!r} to have a mean response, found none: give "
                "mean=f(eta)"
            )
        return np.asarray(self.functions["mean"](eta), dtype=np.float64)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m)."""
        if "simulate" not in self.functions:
            raise ModelError(
                f"expected the model {self.name!r} to have a simulator, found none: give "
                "simulate=f(eta, rng)"
            )
        return np.asarray(self.functions["simulate"](eta, rng), dtype=np.float64)

    def start(self, rows: Rows) -> Vector:
        """Return ``start(X, y)`` or zeros (d,), after a look at the derivatives there."""
        d = self.dim(rows.X.shape[1])
        theta: Vector = np.zeros(d)
        if "start" in self.functions:
            theta = np.asarray(self.functions["start"](rows.X, rows.y), dtype=np.float64)
        if theta.shape != (d,):
            raise ModelError(
                f"expected start to return shape {(d,)}, found {theta.shape}; correct the function"
            )
        refuse_wrong_derivatives(cast(Model, self), rows, theta)
        return theta

    def describe(self) -> dict[str, Any]:
        """Return name, parameters, prior and a digest of the functions' source."""
        shared = [each for each in self.parameters if not each.n_linear]
        stated = {"parameters": [each.describe() for each in self.parameters]}
        return {
            "name": self.name,
            "code": self.code,
            "predictors": [each.name for each in self.parameters if each.n_linear],
            "locations": [each.name for each in shared if each.support == REAL],
            "scales": [each.name for each in shared if each.support == POSITIVE],
            "prior": self.prior.describe(),
            **(stated if self.stated else {}),
        }


def user(
    name: str,
    *,
    link: Function | None = None,
    log_lik: Function | None = None,
    gradient: Function | None = None,
    hessian: Function | None = None,
    predictors: Sequence[str] = ("beta",),
    locations: Sequence[str] = (),
    scales: Sequence[str] = (),
    response: Function | None = None,
    mean: Function | None = None,
    simulate: Function | None = None,
    start: Function | None = None,
    prior: PriorOption | None = None,
    parameters: Sequence[Parameter] | None = None,
    n_features: int | None = None,
) -> UserModel:
    """Return a model of your own; try it with :func:`check_model`.

    With linear predictors (the default) a row is seen through ``p`` numbers: one per
    name in ``predictors`` (the first includes the offset), then the ``locations`` and
    the logarithms of the ``scales``, which all rows share. With ``predictors=()`` the
    functions see theta, the rows' columns and the response: a block of rows at once.

    Parameters
    ----------
    name
        What it is called in runs and messages.
    link
        ``link(eta (p, m), X (q, m), y (m,), constants, order, out)``, as
        :meth:`streammc.protocols.Model.link` has it: writes into ``out``. Compiled where
        it is a function of ``numba.njit``, interpreted (5 us a call more) otherwise.
    log_lik, gradient, hessian
        Instead of ``link``: plain NumPy. ``f(eta (p, m), y (m,))`` returning (m,),
        (p, m) and (p, p, m); with ``predictors=()``: ``f(theta (d,), X (m, q), y (m,))``
        returning (m,), (m, d) and (m, d, d). Derivatives are in theta, so in the
        logarithm of a scale.
    predictors
        Names of the coefficients of each linear predictor.
    locations, scales
        Names of shared parameters: of any sign, and positive.
    parameters : sequence of Parameter, or None
        Instead of names: records that state support, default prior, the way to the table's scale
        and what exponentials mean, coefficients first; see :class:`Parameter`.
    n_features
        Number of columns, where a parameter for each of them is no coefficient.
    response
        ``f(y)`` is true where a response is valid; default: finite.
    mean
        ``f(eta (p, m))`` returns the mean responses (m,), for predictions.
    simulate
        ``f(eta (p, m), rng)`` returns responses (m,).
    start
        ``f(X, y)`` returns a first theta (d,); default: zeros.
    prior
        Prior, as for other models.

    Raises
    ------
    ConfigError
        If functions or names are missing, or given twice.

    Examples
    --------
    >>> import numpy as np
    >>> from streammc.models import check_model, user
    >>> model = user(
    ...     "exponential",
    ...     log_lik=lambda eta, y: -eta[0] - y * np.exp(-eta[0]),
    ...     gradient=lambda eta, y: np.array([-1 + y * np.exp(-eta[0])]),
    ...     hessian=lambda eta, y: np.array([[-y * np.exp(-eta[0])]]),
    ...     response=lambda y: y > 0,
    ...     simulate=lambda eta, rng: rng.exponential(np.exp(eta[0])),
    ... )
    >>> model.labels(["Intercept"])
    ('beta[Intercept]',)
    """
    likelihood = _functions(link=link, log_lik=log_lik, gradient=gradient, hessian=hessian)
    others = _functions(response=response, mean=mean, simulate=simulate, start=start)
    if not isinstance(name, str):
        raise ConfigError(f"expected the name of the model as text, found {name!r}: give one")
    if set(likelihood) not in ({"link"}, {"log_lik", "gradient", "hessian"}):
        raise ConfigError(
            "expected either link, or log_lik, gradient and hessian, found "
            f"{', '.join([*likelihood, *others][:4]) or 'none'}: give all three, since control "
            "variates and the mass matrix need second derivatives"
        )
    names = (*predictors, *locations, *scales)
    if parameters is None:
        _refuse_names(names)
        stated = (
            *(predictor(each) for each in predictors),
            *(Parameter(each) for each in locations),
            *(Parameter(each, support=POSITIVE) for each in scales),
        )
    else:
        if [*map(tuple, (predictors, locations, scales))] != [("beta",), (), ()]:
            raise ConfigError(
                "expected parameters, or names as predictors, locations and scales, found "
                "both: give parameters alone"
            )
        stated = tuple(parameters)
        _refuse_parameters(stated, n_features)
    return UserModel(
        as_prior(prior),
        name,
        kernel_of(likelihood, sum(each.n_linear for each in stated)),
        stated,
        code_digest([*likelihood.values()]),
        others,
        parameters is not None,
        n_features,
        "link" in likelihood,
    )


def _functions(**given: Any) -> dict[str, Function]:
    """Return the functions that are there by name; refuse what is none."""
    functions = {name: each for name, each in given.items() if each is not None}
    for name, function in functions.items():
        if not callable(function):
            raise ConfigError(f"expected a function as {name}, found {function!r:.60}: pass one")
    return functions


def _refuse_names(names: tuple[Any, ...]) -> None:
    if not names or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise ConfigError(f"expected different names of parameters, found {names!r}: rename them")


def _refuse_parameters(given: tuple[Any, ...], n_features: int | None) -> None:
    """Refuse records of parameters that a model of the user's own cannot have."""
    wrong = [each for each in given if not isinstance(each, Parameter)]
    if wrong:
        raise ConfigError(
            f"expected parameters as streammc.models.Parameter, found {wrong[0]!r:.60}: write "
            "Parameter(name, ...)"
        )
    _refuse_names(tuple(each.name for each in given))
    for each in given:
        if each.support not in (REAL, POSITIVE) or callable(each.default):
            raise ConfigError(
                f"expected a parameter that is {REAL} or {POSITIVE}, with a prior as default, "
                f"found {each.name!r}, {each.support}: change it"
            )
        if each.per_feature and not each.n_linear and n_features is None:
            raise ConfigError(
                f"expected n_features with a parameter for each feature that is no coefficient, "
                f"found none with {each.name!r}: give the number of columns"
            )
    if any(b.n_linear and not a.n_linear for a, b in pairwise(given)):
        raise ConfigError(
            f"expected the coefficients first, found {', '.join(each.name for each in given)}: "
            "give them in the order of theta, which begins with its linear predictors"
        )
    kinds = sorted({each.exponential for each in given if each.exponential})
    if len(kinds) > 1:
        raise ConfigError(
            f"expected one meaning of the exponentials, found {' and '.join(kinds)}: leave all "
            "but one out"
        )
