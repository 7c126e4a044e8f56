"""Models whose log density is stated as text: families of the package, and a user's own.

Expressions, and the links that are made of them, are those of ``models.density``; nothing of a text
is evaluated as Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias, cast

import numpy as np

from streammc.errors import ConfigError, ModelError
from streammc.models.base import (
    BETA,
    POSITIVE,
    LinearModel,
    Parameter,
    predictor,
    predictors_at,
    unit_default,
)
from streammc.models.density import (
    COMPARISONS,
    checked_text,
    condition_of,
    draw_of,
    function_of,
    link_of,
    predictors_in,
)
from streammc.models.glm.least_squares import least_squares
from streammc.priors import PriorOption, as_prior, from_description
from streammc.priors.scaled import WIDTH, Level
from streammc.protocols import Index, Matrix, Model, Rows, Vector

_FARTHEST: Final = 30.0
"""Constant predictors and shared parameters start within it of their level, as they are sampled."""
_LOG_ODDS: Final = "logit_"
"""How the names of parameters begin that are sampled and reported as log odds."""


@dataclass(frozen=True)
class DensityModel(LinearModel):
    """A family that is stated by the text of its log density.

    A family sets ``name``, ``parameters``, ``log_density``, ``mean_response`` and ``level``, and
    defines ``response_fault`` and ``simulate``; see :class:`Statement`. Its shared parameters in
    ``varying`` get linear predictors of their own, of the same columns: of their logarithms where
    they are positive (distributional regression, Rigby and Stasinopoulos 2005).
    """

    varying: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of parameters that depend on the columns."""
    designs: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)

    log_density: ClassVar[str]
    mean_response: ClassVar[str]
    where: ClassVar[Mapping[str, str]] = {}
    """Further names of both, each with its expression in those before it."""
    log_survival: ClassVar[str | None] = None
    """``log P(y > t)`` at ``y = t``, of a family that takes times that are censored at t."""

    def __post_init__(self) -> None:
        """State the parameters in ``varying`` as predictors; refuse what cannot vary."""
        super().__post_init__()
        names = self.varying
        own = [each.name for each in self.parameters if not each.n_linear]
        wrong = next((each for each in names if each not in own or names.count(each) > 1), None)
        if wrong is not None:
            known = f"choose among {', '.join(own)}" if own else "it has none, leave varying out"
            raise ConfigError(
                f"expected parameters of {self.name!r} that vary, each once, found {wrong!r}: "
                f"{known}"
            )
        if names:
            self._vary()

    def _vary(self) -> None:
        """Set what a text says of parameters that vary: linear predictors come first."""
        stated = {each.name: each for each in self.parameters}
        linear = [each for each in self.parameters if each.n_linear]
        own = [_predictor_of(stated[name]) for name in self.varying]
        rest = [each for each in self.parameters if each.name not in self.varying]
        where = {
            name: f"exp(within(eta_{name}, {_MOST:g}))"
            if stated[name].support == POSITIVE
            else f"eta_{name}"
            for name in self.varying
        }
        object.__setattr__(self, "parameters", (*linear, *own, *rest[len(linear) :]))
        object.__setattr__(self, "where", {**where, **self.where})
        scale = self.residual_scale
        if scale is not None and scale.label in self.varying:
            object.__setattr__(self, "residual_scale", None)

    def predictor_level(self, rows: Rows, component: int) -> Level:
        """Return the level of a linear predictor, of one of a parameter that varies as wide as it.

        The level of a standard deviation in units of the response is the logarithm of its unit,
        that of any other parameter 0.
        """
        if not 0 < component <= len(self.varying):
            return super().predictor_level(rows, component)
        name, family = self.varying[component - 1], cast(Any, type(self))
        (default,) = (each.default for each in family.parameters if each.name == name)
        unit = self.level(rows).unit if default is unit_default else 1.0
        return Level(math.log(max(unit, 1e-300)), 1.0, WIDTH)

    def as_stated(self, eta: Matrix) -> Matrix:
        """Return predictors (p, m) in the order in which the family states its parameters."""
        names = [each.name for each in self.parameters]
        family = cast(Any, type(self))
        stated: Matrix = eta[[names.index(each.name) for each in family.parameters]]
        return stated

    def describe(self) -> dict[str, Any]:
        """Return the description of a model, with the parameters that vary where there are any."""
        own: dict[str, Any] = {"varying": list(self.varying)} if self.varying else {}
        if self.designs:
            own["designs"] = [list(columns) for columns in self.designs]
        return {**super().describe(), **own}

    def varied(self, names: Sequence[str]) -> Any:
        """Return the model whose parameters ``names`` depend on the columns."""
        return replace(self, varying=tuple(names))

    @property
    def takes_censored(self) -> bool:  # type: ignore[override]
        """Return whether times may be censored."""
        return self.log_survival is not None

    @property
    def link(self) -> Any:
        """Return the link, which is compiled at its first use."""
        survival = self.log_survival if self.censored else None
        return link_of(self.log_density, self.parameters, tuple(self.where.items()), survival)

    @property
    def mean_by_draw(self) -> bool:  # type: ignore[override]
        """Return whether the mean response depends on more than the first predictor."""
        text, where = self.mean_response, tuple(dict(self.where).items())
        return text is not None and predictors_in(text, self.parameters, where) > {0}

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m)."""
        return function_of(self.mean_response, self.parameters, tuple(self.where.items()))(eta)

    def start(self, rows: Rows) -> Vector:
        """Return constant predictors and the shared parameters of the largest likelihood, (d,).

        Predictors are constant as far as the columns can express a constant.

        Raises
        ------
        ModelError
            If the log density of a row is not a number there.
        """
        from scipy.optimize import minimize

        used = rows.weight > 0.0
        own = Rows(*(np.ascontiguousarray(each[used]) for each in rows))
        total = max(float(own.weight.sum()), 1e-300)
        n, p = self.n_linear, self.n_linear + self.n_scalar
        designs = [own.X[:, list(columns)] for columns in self.designs] or [own.X] * n
        one = np.ones(len(own.y))
        directions = [least_squares(X, one, own.weight) for X in designs]
        offset = least_squares(designs[0], own.offset, own.weight) if n else np.zeros(0)
        out = np.empty((1 + p, len(own.y)))

        def theta_of(at: Vector) -> Vector:
            linear = [each * direction for each, direction in zip(at, directions, strict=False)]
            if n:
                linear[0] -= offset
            return np.concatenate([*linear, at[n:]])

        def loss(at: Vector) -> tuple[float, Vector]:
            eta = predictors_at(cast(Model, self), own, theta_of(at))
            with np.errstate(all="ignore"):
                self.link(eta, own.X.T, own.y, self.constants, 1, out)
                sums: Vector = -(out @ own.weight) / total
            if np.isfinite(sums).all():
                return float(sums[0]), sums[1:]
            return math.inf, np.zeros(len(at))

        first = np.zeros(p)
        first[:n] = [self.predictor_level(own, a).location for a in range(n)]
        bounds = [(each - _FARTHEST, each + _FARTHEST) for each in first]
        found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds)
        theta = theta_of(found.x)
        loss(found.x)
        wrong = np.flatnonzero(np.isnan(out[0]))
        if wrong.size:
            raise ModelError(
                f"expected a number as log density of {self.name!r}, found NaN at the response "
                f"{own.y[wrong[0]]:g}, at predictors and parameters to start from: correct the "
                "expression, or refuse such responses"
            )
        return theta


Names: TypeAlias = str | Sequence[str]
"""Names of parameters that vary: one, or several."""


def named(varying: Names) -> tuple[str, ...]:
    """Return the names of parameters; ConfigError if these are none."""
    names = [each.strip() for each in varying.split(",")] if isinstance(varying, str) else varying
    if isinstance(names, Sequence) and all(isinstance(each, str) for each in names):
        return tuple(names)
    raise ConfigError(
        f"expected varying as names of parameters, found {varying!r:.60}: write one, such as "
        "'sigma', or a list of them"
    )


_MOST: Final = 300.0
"""Predictors of logarithms are clipped to it, either way."""


def _predictor_of(parameter: Parameter) -> Parameter:
    """Return the coefficients of a parameter that varies."""
    odds = parameter.name.startswith(_LOG_ODDS)
    return predictor(parameter.name, "odds ratio" if odds else f"{parameter.name} ratio")


@dataclass(frozen=True)
class TextModel(DensityModel):
    """A likelihood of the user's own, stated by expressions; build it with ``models.user``."""

    title: str = "density"
    log_density: str = "0"  # type: ignore[misc]
    parameters: tuple[Parameter, ...] = (BETA,)
    response: str | None = None
    mean_response: str | None = None  # type: ignore[misc, assignment]
    draw: str | None = None
    where: tuple[tuple[str, str], ...] = ()  # type: ignore[misc, assignment]

    def __post_init__(self) -> None:
        """Read every expression, so that a wrong one is refused here."""
        super().__post_init__()
        link_of(self.log_density, self.parameters, self.where)
        if self.response is not None:
            condition_of(self.response)
        if self.mean_response is not None:
            function_of(self.mean_response, self.parameters, self.where)
        if self.draw is not None:
            draw_of(self.draw, self.parameters, self.where)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name it was given."""
        return self.title

    @property
    def link(self) -> Any:
        """Return the link, which is compiled at its first use."""
        return link_of(self.log_density, self.parameters, self.where)

    def varied(self, names: Sequence[str]) -> Any:
        """Raise ModelError: a text states its predictors itself."""
        return LinearModel.varied(self, names)

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where the condition of the response is false, or ``y`` not finite."""
        good = np.isfinite(y)
        for operator, left, right in [] if self.response is None else condition_of(self.response):
            with np.errstate(all="ignore"):
                good &= COMPARISONS[operator](left(np.empty((0, 0)), y), right(np.empty((0, 0)), y))
        wrong = np.flatnonzero(~good)
        text = "finite numbers" + (f" with {self.response}" if self.response else "")
        return (wrong, text) if wrong.size else None

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m); ModelError without one."""
        if self.mean_response is None:
            raise ModelError(
                f"expected the model {self.name!r} to have a mean response, found none: give one, "
                "as in mean='exp(eta)'"
            )
        return function_of(self.mean_response, self.parameters, self.where)(eta)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m); ModelError without a distribution."""
        if self.draw is None:
            raise ModelError(
                f"expected the model {self.name!r} to have a simulator, found none: give one, as "
                "in simulate='exponential(exp(eta))'"
            )
        try:
            return draw_of(self.draw, self.parameters, self.where)(eta, rng)
        except ValueError as error:
            raise ModelError(
                f"expected parameters that {self.draw!r} can draw from, found others: {error}"
            ) from None

    def describe(self) -> dict[str, Any]:
        """Return all texts, the parameters and the prior: the model can be made of them."""
        stated = {
            "name": "density",
            "title": self.title,
            "log_density": self.log_density,
            "parameters": [each.describe() for each in self.parameters],
            "response": self.response,
            "mean": self.mean_response,
            "simulate": self.draw,
            "where": dict(self.where),
            "prior": self.prior.describe(),
        }
        return stated | self.described_factors()


def text_model(
    name: str,
    log_density: str,
    parameters: Sequence[Parameter],
    *,
    response: str | None = None,
    mean: str | None = None,
    simulate: str | None = None,
    where: Mapping[str, str] | None = None,
    prior: PriorOption | None = None,
) -> TextModel:
    """Return the model of a log density as text; see ``models.user``.

    Raises
    ------
    ConfigError
        If a text is no expression of the names and functions that there are.
    """
    pairs = {} if where is None else where
    checked_text(log_density, "log density")
    texts = {"response": response, "mean": mean, "simulate": simulate}
    wrong = [key for key, each in texts.items() if not isinstance(each, str | None)]
    if wrong or not isinstance(pairs, Mapping):
        raise ConfigError(
            f"expected texts with a log density as text, found {wrong[0] if wrong else 'where'} "
            "otherwise: write expressions of y, eta and the parameters"
        )
    named_texts = tuple(
        (key, checked_text(each, f"expression of {key!r}")) for key, each in pairs.items()
    )
    return TextModel(
        as_prior(prior),
        title=name,
        log_density=log_density,
        parameters=tuple(parameters),
        response=response,
        mean_response=mean,
        draw=simulate,
        where=named_texts,
    )


def described(prior: PriorOption | None = None, **stated: Any) -> TextModel:
    """Return the model with this description by :meth:`TextModel.describe`."""
    parameters = [
        Parameter(**{**each, "components": tuple(each["components"]), "default": _prior_of(each)})
        for each in stated.pop("parameters")
    ]
    return text_model(stated.pop("title"), stated.pop("log_density"), parameters, prior=prior,
                      **stated)  # fmt: skip


def _prior_of(parameter: Mapping[str, Any]) -> Any:
    default = parameter["default"]
    return None if default is None else from_description(default)
