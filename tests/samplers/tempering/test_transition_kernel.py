"""Chains of ``tt`` and ``stt``: the same bits for every batch size; tallies."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from streammc.control_variates.bound import bind
from streammc.control_variates.certify import without_pass
from streammc.models import gaussian_mixture, logistic
from streammc.priors import normal
from streammc.samplers import pt, stt, tt
from streammc.samplers.tempering import transition_kernel
from streammc.samplers.tempering.ladder import EXPLORERS
from streammc.samplers.tempering.problem import tempering
from streammc.stores.memory import from_arrays

N = 60
KINDS = {
    "tt": tt(n_levels=4, beta_min=0.125, n_steps=3),
    "stt": stt(n_levels=4, beta_min=0.125, n_steps=3),
    "stt, independent": stt(
        n_levels=4, beta_min=0.125, explorer="random-walk", subsets="independent"
    ),
    "tt, posterior": tt(n_levels=3, path="posterior", explorer="random-walk", inner_steps=2),
    "tt, no base": tt(n_levels=3, beta_min=0.125, base_steps=0, ladder="geometric"),
    "tt to the prior": tt(n_levels=4, n_steps=3),
    "stt to the prior": stt(n_levels=4, beta_min=0.0, n_steps=3),
    "stt, independent, to the prior": stt(
        n_levels=4, explorer="random-walk", subsets="independent"
    ),
}


def problem(sampler, model=None):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, 2))
    y = (rng.random(N) < 1.0 / (1.0 + np.exp(-X @ [1.0, -0.5]))).astype(float)
    data = from_arrays(X, y) if model is None else from_arrays(X[:, :1], y)
    model = model or logistic(normal(10.0))
    sampler = type(sampler)(**{k: v for k, v in sampler.describe().items() if k != "name"})
    return tempering(data, model, without_pass(bind(data, model), sampler.start), sampler)


def begun(sampler, **options):
    kernel = problem(sampler).kernel(5, 0, **options)
    kernel.initialise()
    return kernel


def drawn(kernel, warmup=70, draws=30):
    return [kernel.advance(n, phase) for n, phase in ((warmup, True), (draws, False))]


def same(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_do_not_depend_on_batch_size(kind):
    one, other = begun(KINDS[kind], batch_iterations=1), begun(KINDS[kind], batch_iterations=64)
    same(drawn(one), drawn(other))
    for name, values in one.tallies().items():
        np.testing.assert_array_equal(values, other.tallies()[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [True, False])
def test_restored_chain_continues_bit_for_bit(kind, warmup):
    kernel, twin = begun(KINDS[kind]), begun(KINDS[kind])
    kernel.advance(40, True)
    if not warmup:
        kernel.advance(5, False)
    twin.set_state(*kernel.get_state())
    same(drawn(kernel, 45 * warmup, 20), drawn(twin, 45 * warmup, 20))
    for name, values in kernel.tallies().items():
        np.testing.assert_array_equal(values, twin.tallies()[name], err_msg=name)


@pytest.mark.parametrize("explorer", EXPLORERS)
def test_one_level_is_the_inner_kernel_bit_for_bit(explorer):
    alone = drawn(begun(pt(n_levels=1, explorer=explorer)))
    for sampler in (tt, stt):
        same(alone, drawn(begun(sampler(n_levels=1, explorer=explorer))))


def test_chains_of_one_seed_differ():
    first, second = (problem(tt(n_levels=3)).kernel(5, chain) for chain in range(2))
    for kernel in (first, second):
        kernel.initialise()
    assert (first.advance(3, True)["theta"] != second.advance(3, True)["theta"]).all()


def test_the_inverse_temperatures_say_how_many_rows_an_iteration_evaluates():
    """Random walks: one evaluation a transition; a change of rows asks for those that differ."""
    kernel = begun(stt(n_levels=4, explorer="random-walk", beta_min=0.2, ladder="geometric"))
    n = [int(rows) for rows in kernel.tallies()["rows"]]
    assert [60, 35, 21, 12] == n
    found = drawn(kernel)[1]["n_rows"]
    kernels = n[0] + 2 * sum(n[1:])
    up = n[1] + (n[1] - n[2]) + (n[2] - n[3])
    down = (n[2] - n[3]) + (n[1] - n[2]) + n[0]
    assert {kernels + up + down} == set(found)
    full = begun(tt(n_levels=4, beta_min=0.125, explorer="random-walk"))
    assert {7 * N} == set(drawn(full)[1]["n_rows"])


def test_tallies_are_of_the_draws_and_agree_with_the_statistics():
    kernel = begun(tt(n_levels=3, beta_min=0.125))
    found = drawn(kernel, draws=200)[1]
    tallies = kernel.tallies()
    assert abs(found["swap_accepted"].mean() - tallies["transition_acceptance"]) < 0.15
    np.testing.assert_allclose(found["acceptance_rate"].mean(), tallies["acceptance_up"][0])
    described = type(kernel).described([tallies, tallies])
    np.testing.assert_allclose(tallies["transition_acceptance"], described["transition_acceptance"])
    assert described["levels"]["acceptance_down"][0] is None
    np.testing.assert_allclose(tallies["beta"], described["levels"]["beta"])
    assert (tallies["exchange_probability"] > 0.2).all()


def test_step_sizes_meet_the_target_at_every_level():
    kernel = begun(
        tt(
            n_levels=3,
            beta_min=0.125,
            explorer="random-walk",
            target_acceptance=0.3,
            ladder="geometric",
        )
    )
    drawn(kernel, 2000, 2000)
    tallies = kernel.tallies()
    both = 0.5 * (tallies["acceptance_up"] + tallies["acceptance_down"])[1:]
    assert np.abs(np.r_[tallies["acceptance_up"][0], both] - 0.3).max() < 0.04


def test_a_last_level_at_the_prior_keeps_the_draws_finite():
    model = gaussian_mixture(weights=[0.6, 0.4], prior=normal(30.0))
    kernel = problem(tt(n_levels=3, beta_min=0.0), model).kernel(1, 0)
    kernel.initialise()
    found = kernel.advance(200, True)
    assert np.isfinite(found["theta"]).all()
    assert np.isfinite(found["lp"]).all()


def test_decisions_have_uniforms_above_0_and_up_to_1(monkeypatch):
    kernel, seen = begun(KINDS["tt"]), []
    monkeypatch.setattr(transition_kernel, "run", lambda *args: seen.append(args[-1].uniforms))
    for number in (0.0, 0.75):
        kernel.swap_rng = SimpleNamespace(random=lambda shape, at=number: np.full(shape, at))
        kernel.advance(3, True)
    assert [[1.0] * 3, [0.25] * 3] == [each.ravel().tolist() for each in seen]
