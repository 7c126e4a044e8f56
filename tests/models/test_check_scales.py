"""The self-check on data of any scale: right models pass, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from families import FAMILIES

from streammc import registry
from streammc.models.check import Place, check_model, derivatives, differences, evaluate
from streammc.models.text_models import DensityModel

SCALES = (1e-8, 1e-3, 1.0, 1e3, 1e6, 1e8)
ROWS = 16


def built(name: str) -> Any:
    return registry.model(name)(**FAMILIES[name].options)


def place(name: str, scale: float, seed: int) -> Place:
    """Return predictors and responses of this scale: rates of counts, or a location and sigma."""
    model, rng = built(name), np.random.default_rng(seed)
    p = model.n_linear + model.n_scalar
    if name in ("poisson", "negative-binomial"):
        first = np.log(scale) + rng.normal(size=ROWS)
        y = rng.poisson(np.exp(first)).astype(np.float64)
    elif name in ("gaussian", "student-t"):
        first = scale * rng.normal(size=ROWS)
        y = first + scale * rng.normal(size=ROWS)
    else:
        first = np.sign(scale - 1.0) * min(abs(np.log(scale)), 12.0) + rng.normal(size=ROWS)
        y = (rng.random(ROWS) < 0.5).astype(np.float64)
        if name == "ordinal":
            y = rng.integers(4, size=ROWS).astype(np.float64)
    others = [np.full(ROWS, np.log(scale))] if name in ("gaussian", "student-t") else []
    others += [rng.normal(size=ROWS) for _ in range(p - 1 - len(others))]
    eta = np.array([first, *others])
    if isinstance(model, DensityModel):
        y = model.simulate(eta, rng)
    return Place(eta, y, np.zeros((0, ROWS)))


def changed(model: Any, change: Any) -> Any:
    """Return a model whose link is changed after it wrote."""

    class Changed(type(model)):  # type: ignore[misc]
        @property
        def link(self) -> Any:
            inner = model.link

            def link(eta: Any, X: Any, y: Any, constants: Any, order: int, out: Any) -> None:
                inner(eta, X, y, constants, order, out)
                change(out, len(eta), y)

            return link

    other = object.__new__(Changed)
    other.__dict__.update(model.__dict__)
    return other


def slope_off(out: Any, p: int, y: Any) -> None:
    out[1] *= 1.0 + 1e-4


def last_slope_off(out: Any, p: int, y: Any) -> None:
    out[p] *= 1.0 - 1e-4


def wrong_sign(out: Any, p: int, y: Any) -> None:
    out[1 + p] *= -1.0


def wrong_factor(out: Any, p: int, y: Any) -> None:
    out[-1] *= 2.0


def off_by_1e_4(out: Any, p: int, y: Any) -> None:
    out[1 + p] *= 1.0001


WRONG = {
    slope_off: "first derivatives",
    last_slope_off: "first derivatives",
    wrong_sign: "second derivatives",
    wrong_factor: "second derivatives",
    off_by_1e_4: "second derivatives",
}
NAMES = sorted(set(FAMILIES) - {"network"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", SCALES)
def test_a_right_model_passes_on_data_of_any_scale(name: str, scale: float) -> None:
    for seed in range(3):
        for finding in derivatives(built(name), place(name, scale, seed)):
            assert finding.passed, f"seed {seed}: {finding}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_a_wrong_derivative_is_found_on_data_of_any_scale(name: str, change: Any) -> None:
    for scale in SCALES:
        if name == "negative-binomial" and not 1e-3 <= scale <= 1e6:
            continue  # the slope in log phi is below the rounding of the value's terms
        at = place(name, scale, seed=1)
        wrong = changed(built(name), change)
        with np.errstate(all="ignore"):
            failed = {f.name for f in derivatives(wrong, at) if not f.passed}
        assert WRONG[change] in failed, scale


@pytest.mark.parametrize("name", NAMES)
def test_a_right_model_passes_under_every_seed(name: str) -> None:
    for seed in range(12):
        family = FAMILIES[name]
        report = check_model(
            built(name), support=family.support, centre=family.centre, draws=4000, seed=seed
        )
        assert report.passed, f"seed {seed}\n{report}"


@pytest.mark.parametrize(
    ("name", "constant"), [("poisson", 0.01), ("binomial", 0.01), ("negative-binomial", -0.01)]
)
def test_a_missing_constant_is_found_where_probabilities_are_summed(
    name: str, constant: float
) -> None:
    def shift(out: Any, p: int, y: Any) -> None:
        out[0] += constant

    report = check_model(changed(built(name), shift), support=FAMILIES[name].support, draws=100)
    assert "probabilities sum to one" in {f.name for f in report.findings if not f.passed}


def test_a_difference_that_says_nothing_fails_instead_of_passing() -> None:
    rng = np.random.default_rng(0)

    def noise(out: Any, p: int, y: Any) -> None:
        out[0] += rng.normal(size=out.shape[1])

    at = place("poisson", 1.0, seed=1)
    first, _ = derivatives(changed(built("poisson"), noise), at)
    assert not first.passed


@pytest.mark.parametrize("scale", SCALES)
def test_a_difference_is_within_four_times_its_own_error(scale: float) -> None:
    x = scale * np.linspace(-2.0, 2.0, 41)[None]
    found, error, _ = differences(lambda at: np.sin(at / scale), x, 0, np.full(41, scale))
    off = np.abs(found - np.cos(x / scale) / scale)
    assert (off <= 4.0 * error + 1e-15 / scale).all()
    assert (error < 1e-6 / scale).all()


def test_a_model_outside_its_domain_writes_no_finite_difference() -> None:
    found, error, _ = differences(
        lambda at: np.full_like(at, np.nan), np.zeros((1, 3)), 0, np.ones(3)
    )
    assert np.isinf(error).all()
    assert found.shape == (1, 3)


def test_evaluate_is_what_the_changes_act_on() -> None:
    at = place("poisson", 1.0, seed=1)
    right, wrong = built("poisson"), changed(built("poisson"), slope_off)
    ratio = evaluate(wrong, at.eta, at.y)[1] / evaluate(right, at.eta, at.y)[1]
    np.testing.assert_allclose(ratio, 1.0001)
