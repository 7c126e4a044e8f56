"""A sweep of any family: the joint distribution, derivatives, and starts far from the posterior."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crossed_tables import CROSSED, effects_of

import streammc
from streammc.control_variates.bound import Bound, resolved
from streammc.control_variates.certify import without_pass
from streammc.diagnostics.summary import summarize_draws
from streammc.errors import SamplingWarning
from streammc.models.mixed.crossed_model import CrossedModel
from streammc.numerics.prior import draw_prior
from streammc.priors import half_normal, lognormal, normal
from streammc.samplers.crossed import kernel, likelihoods
from streammc.samplers.crossed.likelihoods import Family, allocate_walk, constants_of, steps_of
from streammc.samplers.crossed.table import pieces_of

PRIOR = {"beta*": normal(0.2, 0.6), "tau*": half_normal(0.7)}
SCALARS = {
    "negative_binomial": {"phi": half_normal(0.7)},
    "student_t": {"sigma": lognormal(0.0, 0.3), "nu": lognormal(1.5, 0.3)},
}
"""Of Student's t priors without responses so far out that no sweep of these sizes leaves them."""
RESPONSES = {
    "binomial": np.array([0, 1]),
    "poisson": np.array([0, 4]),
    "negative_binomial": np.array([0, 4]),
    "student_t": np.array([-1.0, 2.0]),
}


INTERCEPTS = "y ~ 1 + x + (1 | user) + (1 | item)"
SLOPES = "y ~ 1 + x + (1 + x | user) + (0 + x | item)"


def problem_of(family: str, table: Any, formula: str = INTERCEPTS, **options: Any) -> Any:
    """Return what a sweep needs."""
    prior = PRIOR | SCALARS.get(family, {})
    rows = streammc.from_table(
        table, formula=formula, group_as=CROSSED, offset="o",
        standardize=False, dtype="float64", **options,
    )  # fmt: skip
    model: Any = resolved(getattr(streammc.models, family)(prior=prior), rows)
    cv = without_pass(Bound(rows, model))
    request: Any = SimpleNamespace(dataset=rows, model=model)
    sums, ordered = kernel._table(request, cv)
    assert ordered is not None
    inner, q = model.of_a_row, rows.n_features
    made = Family(
        q, inner.n_scalar, inner.constants, model.prior_table(cv.labels),
        constants_of(sums, ordered, q), steps_of(sums, q + inner.n_scalar),
    )  # fmt: skip
    walk = allocate_walk(made, sums)
    walk.theta[:] = cv.theta_star
    walk.afar[:] = likelihoods.AFAR if family == "student_t" else 0.0
    return SimpleNamespace(
        problem=(inner.link, made, sums, ordered, walk), model=inner, walk=walk, sums=sums,
        rows=ordered, family=made, pieces=list(pieces_of(rows, None, lambda *_: None)),
    )  # fmt: skip


def small_table(family: str, nested: bool) -> Any:
    """Return a table of 24 rows, 5 users and 4 items, unbalanced, or 2 users of 2 items each."""
    rng = np.random.default_rng(17)
    n = 24
    table = {
        "y": RESPONSES[family][np.arange(n) % 2],
        "x": rng.normal(size=n),
        "o": 0.5 * rng.normal(size=n),
        "user": np.append(np.arange(5), rng.integers(0, 4, n - 5)),
        "item": np.append(np.arange(4), rng.integers(0, 4, n - 4)),
    }
    if nested:
        table["user"] = table["item"] % 2
    if family == "binomial":
        table["m"] = rng.integers(1, 4, n)
    return table


def joint_z(
    family: str, broken: bool, iterations: int, nested: bool = False, formula: str = INTERCEPTS
) -> Any:
    """Return z of moments of successive-conditional draws against the prior (Geweke 2004).

    In the broken partner each row counts three times; with slopes those of the first factor are
    less in the rows than in the sweep.
    """
    rng = np.random.default_rng(18)
    table = small_table(family, nested)
    made = problem_of(family, table, formula, **({"trials": "m"} if "m" in table else {}))
    walk, sums, inner, F = made.walk, made.sums, made.model, 2
    q, s = made.family.q, made.family.scalars
    streams = [np.random.default_rng(k) for k in range(3)]
    walk.theta[:] = draw_prior(made.family.prior, 1, streams)[0]
    (piece,) = made.pieces
    order = [np.argsort(each, kind="stable") for each in piece.levels.T]
    widths, linear = np.diff(sums.component), q + s

    def draw(theta: Any) -> Any:
        """Return effects of all levels from their distribution."""
        parts = [theta[linear:][sums.parameter[f] : sums.parameter[f + 1]] for f in range(F)]
        return np.concatenate([
            effects_of(part, k, size, rng).ravel()
            for part, k, size in zip(parts, widths, np.diff(sums.first), strict=True)
        ])  # fmt: skip

    def of_rows(effects: Any) -> Any:
        """Return the sum of the effects of each row."""
        total = 0.0
        for f, k in enumerate(widths):
            columns = sums.column[sums.component[f] : sums.component[f + 1]]
            z = np.c_[piece.X, np.ones(len(piece.y))][:, columns]
            own = effects[sums.effect[f] : sums.effect[f + 1]].reshape(-1, k)
            if broken and f == 0 and k > 1:
                own = own * [1.0, 0.3]
            total = total + (z * own[piece.levels[:, f]]).sum(axis=1)
        return total

    weighted = sums.row_weight.shape[1] > 0
    if broken and formula == INTERCEPTS:
        wrong = sums.row_weight if weighted else np.ones((F, int(sums.rows)))
        sums = sums._replace(row_weight=3.0 * wrong)
    problem = *made.problem[:2], sums, *made.problem[3:]
    walk.effects[:] = draw(walk.theta)
    walk.pull[:] = np.where(sums.component[1] > np.arange(len(walk.pull)), 0.2, 0.05)
    likelihoods.set_powers(made.sums, walk)
    walk.chance[:] = 0.4  # so that correlated effects are drawn in both ways
    assert 0.0 < walk.power.min() < 0.8 < walk.power.max()
    assert nested == len(sums.parent)
    kept = np.empty((iterations, len(walk.theta) + 1))
    for t in range(iterations):
        eta = piece.X @ walk.theta[:q] + piece.offset + of_rows(walk.effects)
        all_eta = np.vstack([eta, *(np.full(len(eta), each) for each in walk.theta[q : q + s])])
        if weighted:
            y = rng.binomial(piece.weight.astype(int), inner.mean(all_eta)) / piece.weight
        else:
            y = inner.simulate(all_eta, rng)
        for f in range(F):
            made.rows.double[f, :, q] = y[order[f]]
        likelihoods.sweep(*problem, False, rng)
        kept[t, :-1] = walk.theta
        kept[t, -1] = np.tanh(walk.effects[0] * walk.effects[-1])
    prior = draw_prior(made.family.prior, 20_000, streams)
    pair = np.array([draw(each)[[0, -1]] for each in prior])
    prior = np.c_[prior, np.tanh(pair.prod(axis=1))]
    both = []
    for each in (kept, prior):
        each[:, q:-1] = np.clip(each[:, q:-1], -4.0, 3.0)
        both.append(np.c_[each, each**2])
    rows = summarize_draws(both[0][None], [str(j) for j in range(both[0].shape[1])])
    error = [row["mcse_mean"] for row in rows.values()]
    away = both[0].mean(axis=0) - both[1].mean(axis=0)
    return away / np.hypot(error, both[1].std(axis=0) / np.sqrt(len(prior)))


@pytest.mark.parametrize("family", RESPONSES)
def test_a_sweep_leaves_the_joint_distribution_invariant(family: str) -> None:
    assert np.max(np.abs(joint_z(family, False, 20_000))) < 4.5


@pytest.mark.parametrize("family", ["binomial", "negative_binomial"])
def test_slopes_leave_the_joint_distribution_invariant(family: str) -> None:
    assert np.max(np.abs(joint_z(family, False, 20_000, formula=SLOPES))) < 4.5


def test_slopes_that_rows_see_less_of_are_caught() -> None:
    assert np.max(np.abs(joint_z("poisson", True, 8000, formula=SLOPES))) > 6.0


def test_effects_of_nested_factors_move_against_each_other() -> None:
    assert np.max(np.abs(joint_z("poisson", False, 40_000, nested=True))) < 4.5


@pytest.mark.parametrize("family", ["binomial", "negative_binomial"])
def test_rows_that_count_too_much_are_caught(family: str) -> None:
    assert np.max(np.abs(joint_z(family, True, 8000))) > 6.0


def test_another_model_of_the_name_gaussian_is_sampled_by_its_own_likelihood() -> None:
    inner: Any = streammc.models.gaussian()
    other: Any = type("Other", (type(inner),), {})(inner.prior)
    assert "gaussian" == other.name
    found = [
        kernel.of_sums(CrossedModel(each.prior, inner=each, crossed=("user", "item")))
        for each in (inner, other)
    ]
    assert [True, False] == found


def away_from_grid(draws: int) -> tuple[float, float]:
    """Return the farthest mean of an effect from its integral, in Monte Carlo errors, and R-hat.

    40 levels of 4 rows, in six of which a Student t has two modes; the parameters are known, so
    that the effects are independent of one another.
    """
    rng = np.random.default_rng(1)
    tau, sigma, nu, levels = 6.0, 0.5, 3.0, 40
    g = np.repeat(np.arange(levels), 4)
    y = tau * rng.normal(size=levels)[g] + sigma * rng.standard_t(nu, size=len(g))
    for level in range(6):
        side = np.array([-8.0, -8.0, 8.0, 8.0]) + 3.0 * (level % 2)  # tau prefers the nearer one
        y[4 * level : 4 * level + 4] = side + 0.3 * rng.normal(size=4)
    known = {"beta*": normal(0.0, 1e-3)}
    known |= {
        name: lognormal(np.log(value), 1e-3)
        for name, value in {"tau*": tau, "sigma": sigma, "nu": nu}.items()
    }
    rows = streammc.from_table(
        {"y": y, "g": g}, formula="y ~ 1 + (1 | g)", group_as={"g": "crossed"}, dtype="float64"
    )
    run = streammc.sample(
        rows, streammc.models.student_t(prior=known), seed=2, draws=draws, warmup=200,
        sampler=streammc.samplers.gibbs(effect_draws=draws),
    )  # fmt: skip
    labels = [str(level) for level in range(levels)]
    drawn = streammc.effect_draws(run, rows, labels, factor="g", draws=draws)["u"]
    found = summarize_draws(
        drawn.transpose("chain", "draw", "group", "effect").to_numpy()[..., 0], labels
    )
    u = np.linspace(-30.0, 30.0, 20_001)
    away = []
    for level in range(levels):
        residual = (y[g == level][:, None] - u) / sigma
        log = -0.5 * (u / tau) ** 2 - 0.5 * (nu + 1.0) * np.log1p(residual**2 / nu).sum(axis=0)
        weight = np.exp(log - log.max())
        row = found[str(level)]
        away.append((row["mean"] - weight @ u / weight.sum()) / row["mcse_mean"])
    return float(np.abs(away).max()), max(row["r_hat"] for row in found.values())


def test_levels_with_two_modes_are_drawn_in_both() -> None:
    away, r_hat = away_from_grid(10_000)
    assert away < 4.5
    assert r_hat < 1.05


def test_chains_that_stay_in_a_mode_of_an_effect_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = kernel.RowsPosition.learn

    def near(self: Any) -> None:
        learn(self)
        self._walk.afar[:] = 0.0

    monkeypatch.setattr(kernel.RowsPosition, "learn", near)
    with pytest.warns(SamplingWarning, match="effects of levels is above"):
        away, r_hat = away_from_grid(1000)
    assert away > 6.0
    assert r_hat > 1.5


def test_a_proposal_without_a_finite_mean_teaches_nothing() -> None:
    rng, n = np.random.default_rng(11), 1000
    user = np.minimum((6.0 * rng.pareto(1.0, n)).astype(int), 39)
    item = np.minimum((5.0 * rng.pareto(1.2, n)).astype(int), 24)
    user[:40], item[:25] = np.arange(40), np.arange(25)
    x = rng.normal(size=n)
    eta = 0.2 + 0.4 * x + 0.7 * rng.normal(size=40)[user] + 0.02 * rng.normal(size=25)[item]
    table = {"y": rng.poisson(np.exp(eta)), "x": x, "user": user, "item": item}
    rows = streammc.from_table(
        table, formula="y ~ x + (1 | user) + (1 | item)", group_as=CROSSED, standardize=False,
        dtype="float64",
    )  # fmt: skip
    model = streammc.models.poisson(prior={"beta*": normal(1.0), "tau*": half_normal(1.0)})
    run = streammc.sample(rows, model, seed=2, draws=100, warmup=500, chains=4)
    moved = np.diff(run["posterior"]["beta"].sel(feature="x"), axis=1) != 0.0
    assert moved.mean(axis=1).min() > 0.3
