"""``streammc.models.user``: what is given for a model of one's own, checked and built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, Final, ParamSpec

from streammc.errors import ConfigError
from streammc.models.code_digest import code_digest
from streammc.models.parameters import POSITIVE, REAL, Parameter, predictor
from streammc.models.user_model import Function, UserModel, kernel_of
from streammc.priors import PriorOption, as_prior

P = ParamSpec("P")


@dataclass(frozen=True)
class _Definition:
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

    name: str
    _: KW_ONLY
    link: Function | None = None
    log_lik: Function | None = None
    gradient: Function | None = None
    hessian: Function | None = None
    predictors: Sequence[str] = ("beta",)
    locations: Sequence[str] = ()
    scales: Sequence[str] = ()
    response: Function | None = None
    mean: Function | None = None
    simulate: Function | None = None
    start: Function | None = None
    prior: PriorOption | None = None
    parameters: Sequence[Parameter] | None = None
    n_features: int | None = None

    def parts(self) -> dict[str, Any]:
        """Return the functions of the likelihood that were given, by name."""
        return self._given("link", "log_lik", "gradient", "hessian")

    def others(self) -> dict[str, Any]:
        """Return the functions that the likelihood does without, by name."""
        return self._given("response", "mean", "simulate", "start")

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def check(self) -> None:
        """Refuse functions that are missing, given twice or none."""
        parts = self.parts()
        given = {**parts, **self.others()}
        if not isinstance(self.name, str):
            raise ConfigError(
                f"expected the name of the model as text, found {self.name!r}: give one"
            )
        for key, function in given.items():
            if not callable(function):
                raise ConfigError(f"expected a function as {key}, found {function!r:.60}: pass one")
        if set(parts) not in ({"link"}, {"log_lik", "gradient", "hessian"}):
            raise ConfigError(
                "expected either link, or log_lik, gradient and hessian, found "
                f"{', '.join([*given][:4]) or 'none'}: give all three, since control variates and "
                "the mass matrix need second derivatives"
            )

    def statement(self) -> tuple[Parameter, ...]:
        """Return the parameters; refuse names that come twice and records that do not fit."""
        named = (tuple(self.predictors), tuple(self.locations), tuple(self.scales))
        if self.parameters is not None:
            if named != (("beta",), (), ()):
                raise ConfigError(
                    "expected parameters, or names as predictors, locations and scales, found "
                    "both: give parameters alone"
                )
            return _checked(tuple(self.parameters), self.n_features)
        names = (*named[0], *named[1], *named[2])
        _refuse_names(names)
        return (
            *(predictor(name) for name in named[0]),
            *(Parameter(name) for name in named[1]),
            *(Parameter(name, support=POSITIVE) for name in named[2]),
        )


def _refuse_names(names: tuple[Any, ...]) -> None:
    if not names or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise ConfigError(f"expected different names of parameters, found {names!r}: rename them")


def _checked(given: tuple[Any, ...], n_features: int | None) -> tuple[Parameter, ...]:
    """Return records of parameters that a model of the user's own can have."""
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
    return given


def _build(definition: _Definition) -> UserModel:
    """Return the model of a definition."""
    definition.check()
    parameters, parts = definition.statement(), definition.parts()
    n_linear = sum(each.n_linear for each in parameters)
    return UserModel(
        as_prior(definition.prior),
        definition.name,
        kernel_of(parts, n_linear),
        parameters,
        code_digest([*parts.values()]),
        definition.others(),
        definition.parameters is not None,
        definition.n_features,
        "link" in parts,
    )


def _of_definition(definition: Callable[P, _Definition]) -> Callable[P, UserModel]:
    """Return the builder whose arguments are the fields of a definition."""
    signature = inspect.signature(definition).replace(return_annotation=UserModel)

    def user(*args: P.args, **kwargs: P.kwargs) -> UserModel:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"user() {error}") from None
        return _build(definition(*args, **kwargs))

    user.__signature__ = signature  # type: ignore[attr-defined]
    user.__doc__ = definition.__doc__
    return user


user: Final = _of_definition(_Definition)
