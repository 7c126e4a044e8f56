"""A likelihood of your own, from functions of its predictors or of theta itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numba import njit, objmode
from numba.core.registry import CPUDispatcher

from streammc.errors import ModelError
from streammc.models.linear import BETA, LinearModel
from streammc.models.parameters import POSITIVE, REAL, Parameter
from streammc.models.quick_check import refuse_wrong_derivatives
from streammc.numerics.jit import LINK_SIGNATURE
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
