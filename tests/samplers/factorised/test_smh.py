"""``smh``: exact against grids for every family, whatever the reads; broken partners are caught."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from checks_of_trust import rounds

import streammc
from streammc import models
from streammc.errors import ConfigError, RefusedError
from streammc.likelihood.contiguous_rows import hold
from streammc.numerics.prior import log_prior
from streammc.priors import laplace as laplace_prior
from streammc.priors import normal, student_t
from streammc.protocols import Rows
from streammc.runs.job import run_job
from streammc.samplers import smh
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.factorised import kernel, pool
from streammc.stores import from_arrays
from streammc.trace.run_directory import RunDirectory

Z = 4.5
DRAWS = rounds(2_000, 10_000)
POINTS = 301


def rows(name, n=40, weight=False):
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(n), rng.normal(size=n)]
    eta = X @ [-0.6, 0.9]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "probit": lambda: eta + rng.normal(size=n) > 0,
        "binomial": lambda: rng.binomial(4, 1 / (1 + np.exp(-eta))) / 4,
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "exponential": lambda: rng.exponential(np.exp(eta)),
    }[name]()
    counts = 1.0 + np.arange(n) % 3 if weight else np.full(n, 4.0 if name == "binomial" else 1.0)
    return from_arrays(X, np.asarray(y, float), weight=counts)


FAMILIES = {
    "logistic": (models.logistic, normal(scale=2.0), False),
    "probit": (models.probit, normal(scale=2.0), False),
    "binomial": (models.binomial, normal(scale=2.0), False),
    "poisson": (models.poisson, normal(scale=2.0), False),
    "exponential": (models.exponential, normal(scale=2.0), False),
    "weights": (models.logistic, normal(scale=2.0), True),
    "student-t prior": (models.logistic, student_t(df=3.0, scale=1.0), False),
    "laplace prior": (models.poisson, laplace_prior(0.0, 0.2), False),
}


def case(name):
    family, prior, weight = FAMILIES[name]
    model = family(prior=prior)
    return rows(model.name, weight=weight), model


def by_grid(data, model):
    """Means, standard deviations and the correlation of two coefficients, on a grid."""
    cv = streammc.control_variates(data, model)
    axes = [
        np.linspace(-9.0, 9.0, POINTS) * sd + at
        for sd, at in zip(cv.posterior_sd(), cv.theta_star, strict=True)
    ]
    table = model.prior_table(cv.labels)
    full = hold(data)
    log = np.empty((POINTS, POINTS))
    out = np.empty((3, len(full.y)))
    for i, j in itertools.product(range(POINTS), repeat=2):
        theta = np.array([axes[0][i], axes[1][j]])
        eta = np.ascontiguousarray(theta @ full.design)[None]
        model.link(eta, full.design, full.y, model.constants, 0, out)
        log[i, j] = full.weight @ out[0] + log_prior(theta, table, np.zeros(2))
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    first, second = np.meshgrid(*axes, indexing="ij")
    mean = [(mass * first).sum(), (mass * second).sum()]
    sd = [np.sqrt((mass * (x - m) ** 2).sum()) for x, m in zip((first, second), mean, strict=True)]
    both = (mass * (first - mean[0]) * (second - mean[1])).sum() / (sd[0] * sd[1])
    return np.array(mean), np.array(sd), both


def drawn(data, model, path, **options):
    settings = {"sampler": smh(), "draws": DRAWS, "warmup": 300, "chains": 20, "seed": 3}
    report = run_job(RunRequest(data, model, path=path, **{**settings, **options}))
    return RunDirectory.open(report.path)


def largest_z(run, truth):
    mean, sd, both = truth
    u = (run.draws_matrix() - mean) / sd
    values = [(u[..., 0], 0.0), (u[..., 1], 0.0), (u[..., 0] ** 2, 1.0), (u[..., 1] ** 2, 1.0)]
    values.append((u[..., 0] * u[..., 1], both))
    # Means of ten stretches of each of the twenty chains.
    means = np.array([x.reshape(200, -1).mean(axis=1) - exact for x, exact in values])
    error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    return np.abs(means.mean(axis=1) / error).max()


@pytest.fixture(scope="module")
def truths():
    known = {}

    def truth(name):
        if name not in known:
            known[name] = by_grid(*case(name))
        return known[name]

    return truth


@pytest.mark.trust(2)
@pytest.mark.parametrize("name", FAMILIES)
def test_draws_are_those_of_the_grid(name, truths, tmp_path, record_property):
    run = drawn(*case(name), tmp_path / "run")
    z = largest_z(run, truths(name))
    assert z < Z
    record_property("figure", f"smh, {name}: z at most {z:.1f} in {20 * DRAWS:,} draws")


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_the_expansion_may_be_away_from_the_mode(name, truths, tmp_path):
    data, model = case(name)
    cv = streammc.control_variates(data, model)
    away = cv.theta_star + 0.5 * cv.posterior_sd()
    moved = streammc.control_variates(data, model, theta_star=away)
    assert largest_z(drawn(data, model, tmp_path / "run", control_variates=moved), truths(name)) < Z


def halved(model, rows):
    made = expanded(model, rows)
    return made._replace(weight=0.5 * made.weight, expansion=0.5 * made.expansion)


def without_weights(model, rows):
    return expanded(model, rows._replace(weight=np.ones_like(rows.weight)))


expanded = pool.expanded
sheet_of = pool.Pool.sheet


@pytest.mark.trust(2)
@pytest.mark.parametrize(
    ("name", "broken"), [("logistic", halved), ("poisson", halved), ("weights", without_weights)]
)
def test_other_remainders_are_caught(name, broken, truths, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(pool, "expanded", broken)
    run = drawn(*case(name), tmp_path / "run", draws=4 * DRAWS)
    z = largest_z(run, truths(name))
    assert z > Z
    record_property("caught", f"{broken.__name__.replace('_', ' ')} (smh: z {z:.0f})")


def test_a_pool_that_begins_again_is_caught(truths, tmp_path, monkeypatch):
    """Ten rows that are taken again and again are no independent draws."""
    monkeypatch.setattr(
        pool.Pool, "sheet", lambda self, *_: pool.some(sheet_of(self, 0, 0), slice(0, 10))
    )
    run = drawn(*case("poisson"), tmp_path / "run", draws=4 * DRAWS)
    assert largest_z(run, truths("poisson")) > Z


def test_a_position_beyond_the_radius_is_found(tmp_path, monkeypatch):
    """Bounds hold within the radius alone; without it the program stops and draws nothing wrong."""
    target = kernel.Target

    def boundless(*fields):
        return target(*fields)._replace(radius=np.inf)

    data, model = case("poisson")
    monkeypatch.setattr(kernel, "needed_radius", lambda _: 0.5)
    monkeypatch.setattr(pool.Ahead, "around", lambda *_: None)
    monkeypatch.setattr(kernel, "Target", boundless)
    monkeypatch.setattr(kernel, "most_rows", lambda total, radius: 100)
    with pytest.raises(RefusedError, match="within their bounds"):
        drawn(data, model, tmp_path / "run")


def test_the_bounds_hold_and_are_reached():
    """Against third differences on a dense grid; a bound of nine tenths would not hold."""
    rng = np.random.default_rng(2)
    for name, (family, prior, _) in FAMILIES.items():
        model = family(prior=prior)
        eta, reach = rng.normal(0.0, 3.0, 200), rng.exponential(1.0, 200)
        y = np.array(hold(rows(model.name, 200)).y)
        bound = np.empty(200)
        model.third_derivative(eta, reach, y, model.constants, bound)
        step = 1e-4
        grid = np.linspace(-1.0, 1.0, 4001)
        for i in range(200):
            at = eta[i] + grid * reach[i]
            curvature = []
            for shift in (-step, step):
                out = np.empty((3, len(at)))
                model.link(
                    (at + shift)[None],
                    np.zeros((0, len(at))),
                    np.full(len(at), y[i]),
                    model.constants,
                    2,
                    out,
                )
                curvature.append(out[2])
            largest = np.abs((curvature[1] - curvature[0]) / (2 * step)).max()
            assert largest <= bound[i] * (1 + 1e-6) + 1e-9, (name, eta[i], reach[i], y[i])
            assert largest > 0.9 * bound[i] - 1e-9 or at[-1] < -9.0 or at[0] > 9.0, (
                name,
                eta[i],
                reach[i],
            )


def test_bounds_of_the_certifying_pass_hold_in_the_coordinates_of_the_chains(monkeypatch):
    """They are stretched by the largest singular value of the change; without it some are short."""
    data, model = case("logistic")
    cv = streammc.control_variates(data, model)
    of_reads = cv.factor @ np.diag([0.97, 0.99])
    at = pool.Whitening(model, cv.theta_star, of_reads)
    plan = pool.planned(at, pool.needed_radius(np.zeros(2)), data)
    request = RunRequest(data, model, seed=1, chains=1, warmup=100, draws=100)
    change = pool.Change.between(of_reads, cv.factor)
    assert change.stretch == pytest.approx(1 / 0.97)
    shorter = []
    for stretch in (change.stretch, 1.0):
        monkeypatch.setattr(
            pool.Change, "between", lambda *_, s=stretch: change._replace(stretch=s)
        )
        made = pool.Pool(data, pool.first_read(at, plan, request), None, cv.factor)
        whole = hold(data)
        rows = Rows(np.ascontiguousarray(whole.design.T), whole.y, whole.offset, whole.weight)
        exact = pool.bounds(pool.Whitening(model, cv.theta_star, cv.factor), made.radius, rows)
        drawn = made.sheet(0, 0)
        place = np.argmin(np.abs(drawn.eta[:, None] - exact.eta), axis=1)
        assert drawn.z == pytest.approx(exact.z[place], abs=1e-12)
        shorter.append(np.mean(drawn.bound < exact.bound[place]))
    assert shorter[0] == 0.0
    assert shorter[1] > 0.1


def test_gaussian_needs_no_row(tmp_path):
    """Its sums are sufficient: the posterior of coefficients and scale against hmc."""
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(50), rng.normal(size=50)]
    data = from_arrays(X, X @ [1.0, -0.5] + 0.7 * rng.normal(size=50))
    model = models.gaussian()
    run = drawn(data, model, tmp_path / "run")
    other = drawn(data, model, tmp_path / "hmc", sampler=streammc.samplers.hmc())
    assert run.statistics("n_rows")["n_rows"].max() == 0
    for j in range(3):
        for power in (1, 2):
            pair = [
                np.mean(each.draws_matrix()[..., j].reshape(200, -1) ** power, axis=1)
                for each in (run, other)
            ]
            error = np.sqrt(sum(x.var(ddof=1) / len(x) for x in pair))
            assert abs(pair[0].mean() - pair[1].mean()) < Z * error, (j, power)


@pytest.mark.parametrize("reads", ["one", "many"])
def test_reads_threads_and_interruptions_change_no_bit(reads, tmp_path, monkeypatch):
    data, model = case("poisson")
    monkeypatch.setattr(pool, "_SHEET", 1)
    settings = {"draws": 3000, "warmup": 200, "chains": 3}
    plain = drawn(data, model, tmp_path / "plain", **settings).draws_matrix()
    if reads == "many":
        cv = streammc.control_variates(data, model)
        at = pool.Whitening(model, cv.theta_star, cv.factor)
        plan = pool.planned(at, pool.needed_radius(pool.offset_of(cv)), data)
        memory = 8 * (2 + 8) * (1.2 * plan.sheet_rows * 3 + plan.certain)
        monkeypatch.setattr(pool, "memory_limit", lambda: memory / pool._MEMORY)
    for scheduler in ("sync", 8):
        run = drawn(data, model, tmp_path / str(scheduler), scheduler=scheduler, **settings)
        assert np.array_equal(run.draws_matrix(), plain)
    path, finished = tmp_path / "stopped", []
    for polls in (5, 20, 10**9):
        left = iter(range(polls))
        request = RunRequest(
            data, model, path=path, sampler=smh(), seed=3, batch_iterations=64,
            interrupted=lambda left=left: next(left, None) is None, **settings,
        )  # fmt: skip
        finished.append(run_job(request).finished)
    assert finished == [False, False, True]
    assert np.array_equal(RunDirectory.open(path).draws_matrix(), plain)


def test_a_tail_that_proposals_do_not_reach_is_refused(tmp_path):
    """A prior far narrower than its tails: chains that come there stay for thousands of draws."""
    data, _ = case("logistic")
    narrow = models.logistic(prior=student_t(df=3.0, scale=0.3))
    with pytest.raises(RefusedError, match=r"too far from normal for smh; use hmc-ecs, or hmc"):
        drawn(data, narrow, tmp_path / "run")


def test_what_has_no_bound_is_refused(tmp_path):
    data, _ = case("poisson")
    with pytest.raises(ConfigError, match=r"one linear predictor .* use hmc-ecs, or hmc"):
        drawn(data, models.negative_binomial(), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"acceptance must be a finite number in \(0, 1\)"):
        smh(acceptance=1.0)
