"""Estimators of scikit-learn: regressions whose coefficients are sampled (``streammc[sklearn]``).

Fitting is :func:`streammc.fit` in this process, and predicting the scorer of a model file
(``streammc.scorer``), so that a pickle holds no run and needs no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError(
        f"expected scikit-learn 1.6 or later, found {error}: pip install 'streammc[sklearn]'"
    ) from error

from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.registry import MODELS
from streammc.scorer import LINKS, Scorer, column_names, of_run

if TYPE_CHECKING:
    from streammc.priors import PriorOption

_MOST_SEED: Final = 2**31 - 1
_OF_PROBABILITIES: Final = ("logit", "probit")
"""Links whose mean response is a probability."""


class _Regression(BaseEstimator):  # type: ignore[misc]
    """Regression of a table; a subclass states the families, and how a response is coded.

    Parameters
    ----------
    formula
        Right side of a formula, such as ``"distance + C(origin)"``; the columns of an array are
        ``x0``, ``x1``, ... ``None``: a sum of all columns, those of text as factors.
    prior
        Prior of the coefficients, as of ``streammc.fit``; ``None``: it scales with the data.
    draws, warmup, chains
        Draws of each chain, iterations before them, and number of chains.
    sampler
        Name, or one of ``streammc.samplers``; ``None`` chooses.
    random_state
        Seed, as in scikit-learn.
    """

    scorer_: Scorer
    _columns: list[str]
    """Names of the columns at fit."""
    _named: bool
    """Whether X at fit had column names."""

    def __init__(
        self,
        formula: str | None = None,
        *,
        family: Any = "gaussian",
        prior: PriorOption | None = None,
        draws: int = 500,
        warmup: int = 500,
        chains: int = 4,
        sampler: Any = None,
        random_state: Any = None,
    ) -> None:
        self.formula = formula
        self.family = family
        self.prior = prior
        self.draws = draws
        self.warmup = warmup
        self.chains = chains
        self.sampler = sampler
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the run, whose files end with the process."""
        state: dict[str, Any] = super().__getstate__()
        return {name: each for name, each in state.items() if name != "run_"}

    def _fitted(self, X: Any, y: NDArray[Any], table: dict[str, Any]) -> Self:
        """Sample the posterior of coded responses ``y`` (n,) and keep its scorer."""
        import streammc

        response = "y"
        while response in table:
            response += "_"
        formula, features = self._formula(table, response), None
        if formula is None:
            features = list(table)
        run = streammc.fit(
            {**table, response: y},
            formula,
            self.family,
            prior=self.prior,
            response=None if features is None else response,
            features=features,
            sampler=self.sampler,
            draws=self.draws,
            warmup=self.warmup,
            chains=self.chains,
            seed=int(check_random_state(self.random_state).randint(_MOST_SEED)),
        )
        self.scorer_ = of_run(run, draws=max(self.draws * self.chains // 5, 200))
        self.run_, self._columns, self._named = run, list(table), column_names(X) is not None
        return self

    def _formula(self, table: dict[str, Any], response: str) -> str | None:
        """Return the formula of a table; ``None`` where all columns are numbers."""
        if self.formula is not None:
            if "~" in self.formula:
                raise ConfigError(
                    f"expected the right side of a formula, found {self.formula!r}: leave out '~' "
                    "and what is left of it, which is y"
                )
            return f"{response} ~ {self.formula}"
        if all(np.asarray(column).dtype.kind in "biuf" for column in table.values()):
            return None
        return f"{response} ~ " + " + ".join(f"`{name}`" for name in table)

    def _table(self, X: Any, y: Any = None) -> tuple[dict[str, Any], Any]:
        """Return the columns of X by name, and the checked response, where one is given.

        The columns of an array are ``x0``, ``x1``, ... Where the table or the one at fit is an
        array, columns are the ones in the same place.
        """
        if isinstance(X, Mapping) and not hasattr(X, "shape"):  # sparse matrices may be mappings
            raise DataError(
                f"expected a data frame or an array as X, found {type(X).__name__}: make it a "
                "frame, such as pandas.DataFrame(X)"
            )
        fitting = y is not None
        names = column_names(X)
        named = names is not None
        if names is None:
            more = {"y": y, "ensure_min_samples": 2} if fitting else {}
            if fitting:
                more["y_numeric"] = isinstance(self, RegressorMixin)
            checked = validate_data(self, X, reset=fitting, dtype=np.float64, **more)
            array, y = checked if fitting else (checked, None)
            names, columns = [f"x{j}" for j in range(array.shape[1])], list(array.T)
        else:
            validate_data(self, X, reset=fitting, skip_check_array=True)
            columns = [X[name] for name in names]
            y = column_or_1d(y, warn=True) if fitting else None
        if not (fitting or (named and self._named)):
            names = self._columns
        return dict(zip(names, columns, strict=True)), y

    def _scored(self, X: Any, sd: bool = False) -> dict[str, NDArray[np.float64]]:
        check_is_fitted(self)
        table, _ = self._table(X)
        return self.scorer_.predict(table, interval=None, sd=sd)


@documented()
class BayesianRegressor(RegressorMixin, _Regression):  # type: ignore[misc]
    """Regression whose coefficients are sampled from their posterior.

    Parameters
    ----------
    family
        ``"gaussian"``, ``"student-t"``, ``"poisson"``, ``"negative-binomial"``, ``"gamma"`` or
        ``"exponential"``, or one of ``streammc.models`` with its options.

    Attributes
    ----------
    run_ : xarray.DataTree
        The draws, for ArviZ. It is not pickled.
    scorer_ : streammc.scorer.Scorer
        Scorer of the fitted model, which ``predict`` uses.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from streammc.sklearn import BayesianRegressor
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 2))
    >>> y = X @ [1.0, -1.0] + 0.1 * rng.normal(size=300)
    >>> model = BayesianRegressor(draws=200, warmup=200, random_state=1).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        X
            Data frame, or array (n, q).
        y : array (n,)
            Responses.
        """
        table, y = self._table(X, _given(y))
        return self._fitted(X, np.asarray(y, np.float64), table)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean responses (n,), averaged over the draws.

        With ``return_std`` also their standard deviations (n,) over the draws: how uncertain the
        mean is, without the noise of a response.
        """
        found = self._scored(X, return_std)
        return (found["mean"], found["sd"]) if return_std else found["mean"]


@documented()
class BayesianClassifier(ClassifierMixin, _Regression):  # type: ignore[misc]
    """Classification of two classes, whose coefficients are sampled from their posterior.

    Parameters
    ----------
    family
        ``"logistic"``, ``"probit"`` or ``"network"``, or one of ``streammc.models`` with its
        options.

    Attributes
    ----------
    classes_ : array (2,)
        The classes, sorted; the model is of the probability of the second.
    run_ : xarray.DataTree
        The draws, for ArviZ. It is not pickled.
    scorer_ : streammc.scorer.Scorer
        Scorer of the fitted model, which ``predict`` uses.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    classes_: NDArray[Any]

    def __init__(
        self,
        formula: str | None = None,
        *,
        family: Any = "logistic",
        prior: PriorOption | None = None,
        draws: int = 500,
        warmup: int = 500,
        chains: int = 4,
        sampler: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            formula,
            family=family,
            prior=prior,
            draws=draws,
            warmup=warmup,
            chains=chains,
            sampler=sampler,
            random_state=random_state,
        )

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        X
            Data frame, or array (n, q).
        y : array (n,)
            Labels of two classes, numbers or texts.
        """
        name = getattr(self.family, "name", self.family)
        link = LINKS.get(name, "" if name in MODELS else "logit")
        if isinstance(name, str) and link not in _OF_PROBABILITIES:
            raise ConfigError(
                f"expected the family 'logistic', 'probit' or 'network', found {name!r}, whose "
                "mean is no probability: choose one of them, or BayesianRegressor"
            )
        table, y = self._table(X, _given(y))
        check_classification_targets(y)
        classes, coded = np.unique(y, return_inverse=True)
        if len(classes) != 2:
            kind = type_of_target(y)
            raise ConfigError(
                "Only binary classification is supported. The type of the target is "
                f"{kind}: expected labels of two classes, found {len(classes)} class"
                f"{'' if len(classes) == 1 else 'es'}"
            )
        self._fitted(X, coded.astype(np.float64), table)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Return the probabilities (n, 2) of the classes, averaged over the draws.

        With ``return_std`` also their standard deviations (n,) over the draws.
        """
        found = self._scored(X, return_std)
        chances = np.stack([1.0 - found["mean"], found["mean"]], axis=1)
        return (chances, found["sd"]) if return_std else chances

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class (n,) of the larger probability."""
        chances = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[(chances[:, 1] > 0.5).astype(np.int64)]
        return labels


def _given(y: Any) -> Any:
    """Return responses; ValueError, as scikit-learn has it, if there are none."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y


EXPECTED_FAILED_CHECKS: Final[dict[str, str]] = {
    "check_regressors_no_decision_function": "its response is a sum of columns without any noise: "
    "the posterior of a Gaussian regression is improper at sigma = 0, and refused",
}
"""Checks of scikit-learn's ``check_estimator`` that cannot hold, with the reason."""


def __dir__() -> Sequence[str]:
    """List the public names."""
    return ["EXPECTED_FAILED_CHECKS", "BayesianClassifier", "BayesianRegressor"]
