import json

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from streammc.diagnostics.weights import Audit, audit_weights, pareto_k
from streammc.errors import StreammcError


def sampled(rng, shape, shift, rho=0.0):
    """Draw from N(0, 1), autocorrelated, with log weights to N(shift, 1)."""
    x = rng.normal(size=shape)
    for i in range(1, shape[1]):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * x[:, i]
    return x, shift * x


def test_correction_and_sd_ratio_are_the_weighted_moments():
    rng = np.random.default_rng(1)
    x, log_weight = sampled(rng, (4, 100), 0.3)
    theta = np.stack([7.0 + 2.0 * x, rng.normal(size=x.shape)], axis=-1)
    found = audit_weights(theta, log_weight + 1e5, ["a", "b"])
    w = np.exp(log_weight - logsumexp(log_weight))
    for column, label in enumerate("ab"):
        draws, p = theta[:, :, column], found["parameters"][label]
        mean = (w * draws).sum()
        assert p["mean"] == pytest.approx(mean, rel=1e-9)
        assert p["correction"] == pytest.approx(mean - draws.mean(), rel=1e-9)
        assert p["correction_sd"] == pytest.approx(p["correction"] / draws.std(ddof=1), rel=1e-9)
        sd = np.sqrt((w * (draws - mean) ** 2).sum())
        assert p["sd_ratio"] == pytest.approx(sd / draws.std(), rel=1e-9)
    assert found["ess"] == pytest.approx(1.0 / (w**2).sum(), rel=1e-9)
    assert found["largest_correction"] == abs(found["parameters"]["a"]["correction_sd"])
    assert found["largest_z"] > 4.5
    assert found["draws"] == 400
    assert found["largest_weight"] == pytest.approx(400 * w.max(), rel=1e-9)
    json.dumps(found.to_json(), allow_nan=False)


def coverage(rho, mcse, repeats=400, draws=100):
    """Return the variance of (correction - truth) / mcse over independent audits."""
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(repeats):
        x, log_weight = sampled(rng, (4, draws), 0.3, rho)
        p = audit_weights(x[:, :, None], log_weight, ["x"])["parameters"]["x"]
        scores.append((p["correction"] - 0.3) / mcse(p, x, log_weight))
    return np.var(scores)


@pytest.mark.parametrize(
    ("rho", "draws"), [(0.0, 100), pytest.param(0.8, 1000, marks=pytest.mark.slow)]
)
def test_the_standard_error_is_that_of_the_correction(rho, draws):
    # The variance of 200 scores is known to 10 %, the standard errors to about 5 %.
    found = coverage(rho, lambda p, x, w: p["mcse"], 200, draws)
    assert found == pytest.approx(1.0, abs=0.4)


def test_a_standard_error_without_autocorrelation_would_fail():
    def careless(p, x, log_weight):
        w = np.exp(log_weight) / np.exp(log_weight).mean()
        return (w * (x - p["mean"]) - (x - x.mean())).std() / np.sqrt(x.size)

    assert coverage(0.8, careless, 100) > 2.0


def test_a_standard_error_of_unpaired_means_would_fail():
    def unpaired(p, x, log_weight):
        w = np.exp(log_weight) / np.exp(log_weight).mean()
        return np.sqrt(((w * (x - p["mean"])).var() + x.var()) / x.size)

    assert coverage(0.0, unpaired, 100) < 0.3


def spread_coverage(error, rho=0.0, repeats=200, draws=200):
    """Return the variance of (log sd_ratio - truth) / error: weights from N(0, 1) to N(0, 0.81)."""
    rng = np.random.default_rng(5)
    scores = []
    for _ in range(repeats):
        x, _ = sampled(rng, (4, draws), 0.0, rho)
        log_weight = 0.5 * x**2 * (1.0 - 1.0 / 0.81)
        p = audit_weights(x[:, :, None], log_weight, ["x"])["parameters"]["x"]
        scores.append((np.log(p["sd_ratio"]) - np.log(0.9)) / error(p, x))
    return np.var(scores)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_error_of_the_sd_ratio_is_its_spread(rho):
    found = spread_coverage(lambda p, x: p["sd_ratio_mcse"] / p["sd_ratio"], rho, draws=400)
    assert abs(found - 1.0) < 4.5 * 0.1  # the variance of 200 scores is known to 10 %


def test_an_error_of_the_sd_ratio_without_pairing_would_fail():
    assert spread_coverage(lambda p, x: np.sqrt(1.0 / x.size)) < 0.3


def test_equal_weights_correct_nothing():
    theta = np.random.default_rng(3).normal(5.0, 1e-3, size=(4, 100, 2))
    found = audit_weights(theta, np.full((4, 100), -3.7), ["a", "b"])
    assert found["largest_correction"] < 1e-12
    assert found["largest_z"] == 0.0
    assert found["ess"] == pytest.approx(400.0, rel=1e-12)
    assert found["pareto_k"] is None


def test_a_weight_of_zero_takes_its_draw_out():
    theta = np.random.default_rng(4).normal(size=(1, 200, 1))
    log_weight = np.where(np.arange(200) < 100, 0.0, -np.inf)[None, :]
    found = audit_weights(theta, log_weight, ["x"])
    assert found["ess"] == pytest.approx(100.0)
    assert found["parameters"]["x"]["mean"] == pytest.approx(theta[0, :100, 0].mean(), rel=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weight_that_is_nan_is_an_error(bad):
    log_weight = np.zeros((2, 50))
    log_weight[1, 7] = bad
    with pytest.raises(StreammcError, match="finite log weights"):
        audit_weights(np.zeros((2, 50, 1)), log_weight, ["x"])
    with pytest.raises(StreammcError, match="finite log weights"):
        audit_weights(np.zeros((2, 50, 1)), np.full((2, 50), -np.inf), ["x"])


def test_few_draws_and_constants_say_what_is_known():
    theta = np.random.default_rng(5).normal(size=(1, 3, 1))
    found = audit_weights(theta, np.array([[0.0, 1.0, 0.5]]), ["x"])
    assert found["pareto_k"] is None
    assert found["parameters"]["x"]["mcse"] > 0.0
    constant = audit_weights(np.ones((4, 50, 1)), np.zeros((4, 50)), ["x"])
    assert {*constant["parameters"]["x"].values()} == {None}
    single = audit_weights(theta[:, :1], np.zeros((1, 1)), ["x"])
    assert {*single["parameters"]["x"].values()} == {None}


@pytest.mark.parametrize("shape", [0.1, 0.5, 0.9])
def test_pareto_k_equals_arviz_and_finds_the_tail(shape):
    rng = np.random.default_rng(6)
    log_weight = shape * rng.exponential(size=(4, 5000))
    found = pareto_k(log_weight)
    assert found == pytest.approx(float(array_stats.psislw(-log_weight.ravel())[1]), rel=1e-10)
    assert found == pytest.approx(shape, abs=0.12)


def test_pareto_k_is_of_the_right_tail():
    rng = np.random.default_rng(7)
    heavy_left = -np.abs(rng.standard_cauchy((4, 1000)))
    assert pareto_k(heavy_left) < 0.3
    assert pareto_k(-heavy_left) > 10.0


@pytest.mark.parametrize("shape", [50.0, 200.0, 900.0])
def test_pareto_k_is_right_for_weights_that_overflow(shape):
    log_weight = shape * np.random.default_rng(8).exponential(size=(4, 1000))
    assert pareto_k(log_weight) == pytest.approx(shape, rel=0.4)


def test_pareto_k_of_a_few_draws_that_have_all_the_weight():
    log_weight = np.where(np.arange(400) < 10, np.arange(400.0), -np.inf)
    assert pareto_k(log_weight) == 1000.0


def test_an_audit_is_written_as_it_was_read():
    rng = np.random.default_rng(9)
    theta, log_weight = rng.normal(size=(2, 200, 2)), 0.1 * rng.normal(size=(2, 200))
    theta[:, :, 1] = 1.0  # a constant: its corrections are not known
    found = audit_weights(theta, log_weight, ["x", "c"])
    written = json.loads(json.dumps(found.to_json()))
    assert written == Audit.from_json(written).to_json() == dict(found)
    names = ("draws", "ess", "largest_weight", "pareto_k", "largest_correction", "largest_z")
    assert [*names, "parameters"] == list(written)
    assert {None} == {*written["parameters"]["c"].values()}


def test_an_audit_of_an_earlier_version_is_read():
    old = {"draws": 5, "ess": 4.0, "pareto_k": None, "largest_correction": 0.1, "largest_z": 2.0}
    found = Audit.from_json({**old, "parameters": {"a": {"correction_sd": -0.1, "mcse_sd": 0.05}}})
    assert (None, None, "a") == (found.largest_weight, found.parameters["a"].sd_ratio, found.worst)
    assert (0.1, 2.0) == (found.parameters["a"].size, found.parameters["a"].z)
    assert "largest_weight" not in found.to_json()
