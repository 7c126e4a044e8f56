import numpy as np
import pytest

from streammc.diagnostics.cost import cost, inefficiency, relative


def autoregression(phi, shape=(4, 20_000), seed=1):
    rng = np.random.default_rng(seed)
    x = np.empty(shape)
    x[:, 0] = rng.normal(size=shape[0]) / np.sqrt(1 - phi**2)
    noise = rng.normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("phi", [-0.3, 0.0, 0.5, 0.9])
def test_inefficiency_of_an_autoregression_is_known(phi):
    found = inefficiency(autoregression(phi))
    assert found == pytest.approx((1 + phi) / (1 - phi), rel=0.12)


def test_inefficiency_is_unknown_for_constants_and_few_draws():
    assert inefficiency(np.ones((2, 100))) is None
    assert inefficiency(np.arange(6.0).reshape(2, 3)) is None
    assert inefficiency(np.full((2, 100), np.nan)) is None


EVALUATIONS = {"passes": 1000, "warmup": 3000, "draws": 16_000}


def test_costs_are_evaluations_per_independent_draw():
    theta = np.stack([autoregression(phi, (2, 4000)) for phi in (0.0, 0.8)], axis=-1)
    found = cost(theta, ["a", "b"], EVALUATIONS)
    assert {**EVALUATIONS, "total": 20_000} == found["evaluations"]
    for label in "ab":
        entry = found["parameters"][label]
        assert entry["ct"] == pytest.approx(entry["if"] * 20_000 / 8000, rel=1e-12)
        assert entry["ct_draws"] == pytest.approx(entry["if"] * 16_000 / 8000, rel=1e-12)
    assert found["if"]["max"] == found["parameters"]["b"]["if"]
    assert found["ct"]["median"] == pytest.approx(
        (found["parameters"]["a"]["ct"] + found["parameters"]["b"]["ct"]) / 2
    )
    assert found["mean_sign"] == 1.0


def test_signs_cost_the_square_of_their_mean():
    theta = autoregression(0.4, (2, 1000))[..., None]
    sign = np.ones((2, 1000))
    sign[:, ::4] = -1.0
    plain, signed = cost(theta, ["a"], EVALUATIONS), cost(theta, ["a"], EVALUATIONS, sign)
    assert signed["parameters"]["a"]["if"] == plain["parameters"]["a"]["if"]
    assert signed["ct"]["max"] == pytest.approx(plain["ct"]["max"] / 0.25, rel=1e-12)
    assert cost(theta, ["a"], EVALUATIONS, -sign)["ct"]["max"] is None


def test_relative_cost_does_not_depend_on_the_length_of_a_run():
    short, long = autoregression(0.5, (2, 4000))[..., None], autoregression(0.5, seed=2)[..., None]
    one = cost(short, ["a"], {"passes": 0, "warmup": 0, "draws": 8000 * 70})
    two = cost(long, ["a"], {"passes": 0, "warmup": 0, "draws": 80_000 * 140})
    assert relative(one, two)["median"] == pytest.approx(2.0, rel=0.1)
    assert relative(one, one) == {
        "min": 1.0,
        "median": 1.0,
        "max": 1.0,
        "parameters": {"a": 1.0},
    }
    assert relative(two, one, "ct_draws")["max"] == pytest.approx(0.5, rel=0.1)


def test_unknown_parameters_are_left_out_of_the_spread():
    theta = np.stack([autoregression(0.0, (2, 1000)), np.ones((2, 1000))], axis=-1)
    found = cost(theta, ["a", "b"], EVALUATIONS)
    assert found["parameters"]["b"] == {"if": None, "ct": None, "ct_draws": None}
    assert found["if"]["min"] == found["if"]["max"] == found["parameters"]["a"]["if"]
    assert relative(found, found)["parameters"]["b"] is None
    alone = cost(theta[..., 1:], ["b"], EVALUATIONS)
    assert alone["ct"] == {"min": None, "median": None, "max": None}
