"""A likelihood of your own, from functions of its predictors or of theta itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numba import njit, objmode
from numba.core.registry import CPUDispatcher

from streammc.errors import ConfigError, ModelError
from streammc.models.code_digest import code_digest
from streammc.models.linear import LinearModel
from streammc.models.quick_check import refuse_wrong_derivatives
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


def _assembled(log_lik: Function, gradient: Function, hessian: Function, n_linear: int) -> Function:
    """Return a link from three functions of whole blocks; shapes are checked."""

    def link(eta: Matrix, X: Matrix, y: Vector, constants: Vector, order: int, out: Matrix) -> None:
        p, m = eta.shape
        # Shared parameters are the same for every row: the first column is theta.
        given = (eta, y) if n_linear else (eta[:, 0], X.T, y)
        out[0] = _shaped(log_lik, given, (m,))
        if order >= 1:
            shape = (p, m) if n_linear else (m, p)
            first = _shaped(gradient, given, shape)
            out[1 : 1 + p] = first if n_linear else first.T
        if order == 2:
            second = _shaped(hessian, given, (p, p, m) if n_linear else (m, p, p))
            row = 1 + p
            for a in range(p):
                for b in range(a, p):
                    out[row] = second[a, b] if n_linear else second[:, a, b]
                    row += 1

    return link


def _shaped(function: Function, given: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        found = np.asarray(function(*given), dtype=np.float64)
    if found.shape != shape:
        raise ModelError(
            f"expected {_called(function)} to return shape {shape}, found {found.shape}; "
            "see the shapes in the documentation of streammc.models.user"
        )
    return found


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class UserModel(LinearModel):
    """A likelihood built by :func:`user`."""

    title: str = "user"
    kernel: Any = None
    predictors: tuple[str, ...] = ("beta",)
    shared: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    code: str = ""
    functions: dict[str, Function] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name it was given."""
        return self.title

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return self.kernel

    @property
    def n_linear(self) -> int:  # type: ignore[override]
        """Return the number of linear predictors."""
        return len(self.predictors)

    @property
    def locations(self) -> tuple[str, ...]:
        """Return the names of the shared parameters that may have any sign."""
        return self.shared

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the names of the shared parameters that are positive."""
        return self.positive

    def labels(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Return ``predictor[feature]`` for every predictor, then the shared parameters."""
        slopes = [f"{name}[{feature}]" for name in self.predictors for feature in feature_names]
        return (*slopes, *self.shared, *self.positive)

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
        return {
            "name": self.name,
            "code": self.code,
            "predictors": list(self.predictors),
            "locations": list(self.shared),
            "scales": list(self.positive),
            "prior": self.prior.describe(),
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
    parts = (log_lik, gradient, hessian)
    given = {
        "link": link, "log_lik": log_lik, "gradient": gradient, "hessian": hessian,
        "response": response, "mean": mean, "simulate": simulate, "start": start,
    }  # fmt: skip
    named = [key for key, function in given.items() if function is not None][:4]
    if not isinstance(name, str):
        raise ConfigError(f"expected the name of the model as text, found {name!r}: give one")
    for key, function in given.items():
        if function is not None and not callable(function):
            raise ConfigError(f"expected a function as {key}, found {function!r:.60}: pass one")
    if (link is None) == any(part is None for part in parts) or (
        link is not None and any(part is not None for part in parts)
    ):
        raise ConfigError(
            "expected either link, or log_lik, gradient and hessian, found "
            f"{', '.join(named) or 'none'}: give all three, since control variates and the mass "
            "matrix need second derivatives"
        )
    names = (*predictors, *locations, *scales)
    if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
        raise ConfigError(f"expected different names of parameters, found {names!r}: rename them")
    if link is not None:
        kernel = _compiled(link) if isinstance(link, CPUDispatcher) else _interpreted(link)
    else:
        kernel = _interpreted(_assembled(*parts, len(tuple(predictors))))  # type: ignore[arg-type]
    others = {"response": response, "mean": mean, "simulate": simulate, "start": start}
    functions = {key: function for key, function in others.items() if function is not None}
    used = [part for part in (link, *parts) if part is not None]
    return UserModel(
        as_prior(prior),
        name,
        kernel,
        tuple(predictors),
        tuple(locations),
        tuple(scales),
        code_digest(used),
        functions,
    )
