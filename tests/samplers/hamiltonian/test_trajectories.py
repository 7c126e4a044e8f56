"""Trajectories: their target by quadrature, broken ones that are caught, resuming, tuning."""

from __future__ import annotations

import ast
import importlib.util
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numba import types
from pointers import pointer
from problems import Small, batch_z, kernel_problem

from streammc.errors import ConfigError
from streammc.likelihood.blocks import BLOCK_TYPE, allocate_block
from streammc.likelihood.target import BASE_TYPE, DENSITY, allocate_point, allocate_work, evaluate
from streammc.numerics.jit import (
    GENERATOR_TYPE,
    LINK_SIGNATURE,
    LINK_TYPE,
    SUMS_TYPE,
    jit,
    matrix,
)
from streammc.numerics.summation import taylor
from streammc.priors import normal
from streammc.samplers import hmc, hmc_ecs
from streammc.samplers.common import tuning
from streammc.samplers.hamiltonian import transition
from streammc.samplers.hamiltonian.kernel import HamiltonianKernel
from streammc.samplers.hamiltonian.transition import (
    BUFFERS_TYPE,
    Buffers,
    allocate_proposal,
    allocate_tree,
)

DRAWS = 400_000
KINDS = {
    "jittered": {},
    "jittered, leapfrog": {"leapfrog": True},
    "nuts": {"nuts": True},
    "nuts, leapfrog": {"nuts": True, "leapfrog": True},
}


def skewed():
    """Eight rows, all certain: a posterior far from its Gaussian approximation."""
    return Small(n=8, d=2, certain=range(8), order=-1, seed=4, prior=normal(scale=2.0))


def exact(small):
    """First and second moments of both coefficients by quadrature, in NumPy."""
    axis = np.linspace(-12.0, 12.0, 481)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    log = -0.125 * (first**2 + second**2)
    for x, y, offset, weight in zip(small.X, small.y, small.offset, small.weight, strict=True):
        eta = x[0] * first + x[1] * second + offset
        log += weight * (y * eta - np.logaddexp(0, eta))
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    return [(mass * f).sum() for f in moments(first, second)]


def moments(first, second):
    return first, second, first**2, second**2, first * second


def z_scores(theta, truth):
    found = moments(theta[:, 0], theta[:, 1])
    return np.array([batch_z(f, t) for f, t in zip(found, truth, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
def test_draws_match_quadrature(kind):
    small = skewed()
    kernel = HamiltonianKernel(kernel_problem(small, **KINDS[kind]), seed=3, chain=0)
    kernel.initialise()
    kernel.advance(2000, True)
    theta = kernel.advance(DRAWS, False)["theta"]
    assert np.abs(z_scores(theta, exact(small))).max() < 4.5


@jit(
    types.void(
        pointer(transition.nuts), pointer(evaluate), LINK_TYPE, SUMS_TYPE, BASE_TYPE, BLOCK_TYPE,
        BUFFERS_TYPE, GENERATOR_TYPE, matrix,
    )
)  # fmt: skip
def trajectories(nuts, evaluate, link, sums, base, certain, buffers, rng, out):
    point, work = buffers.point, buffers.work
    evaluate(link, sums, base, certain, buffers.sub, point, work)
    for t in range(out.shape[0]):
        kinetic = 0.0
        for j in range(point.z.shape[0]):
            work.momentum[j] = rng.standard_normal()
            kinetic += 0.5 * work.momentum[j] ** 2
        start = kinetic - point.scalars[DENSITY]
        nuts(link, sums, base, certain, buffers, start, 1.2, 0.7, rng)
        for i in range(out.shape[1]):
            out[t, i] = base.theta_star[i]
            for j in range(i + 1):
                out[t, i] += base.factor[i, j] * point.z[j]


def nuts_draws(module, small, fault):
    """Positions along NUTS trajectories of long steps, whose energy errors are large."""
    buffers = Buffers(
        sub=allocate_block(0, 2, 1),
        point=allocate_point(2, 0, 0, 1),
        trial=allocate_point(2, 0, 0, 1),
        proposal=allocate_proposal(
            2, 1, 1, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        ),
        work=allocate_work(2, 0, 1, small.n),
        tree=allocate_tree(2, 0, 0, 1),
        tuning=tuning.start(1.2),
    )
    buffers.tuning[0] = fault
    out, rng = np.empty((DRAWS, 2)), np.random.default_rng(8)
    model = small.model.link, taylor, small.base, small.certain
    trajectories(module.nuts, evaluate, *model, buffers, rng, out)
    return out


FAULTS = {
    "uniform weights": (
        "< -error - log_weight_new:",
        "< (-math.log(leaf + 1.0) if FAULT else -error - log_weight_new):",
    ),
    "forward only": (
        "if rng.random() < 0.5 else 0",
        "if rng.random() < (2.0 if FAULT else 0.5) else 0",
    ),
    "turns unseen in a half": (
        "if turned(tree, top - 1, top) == 1:",
        "if not FAULT and turned(tree, top - 1, top) == 1:",
    ),
    "new half too often": (
        "log_weight_new - log_weight:",
        "log_weight_new - log_weight + (1.0 if FAULT else 0.0):",
    ),
}
"""Places of the source, and what is written there instead."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """NUTS with every fault, beside the functions as they are: compiled once, 15 s.

    The first number of the tuning, which NUTS does not read, says which fault it has; 0: none.
    """
    source = importlib.util.find_spec("streammc.samplers.hamiltonian.transition").origin
    text = Path(source).read_text()
    for number, (old, new) in enumerate(FAULTS.values(), 1):
        assert 1 == text.count(old)
        text = text.replace(old, new.replace("FAULT", f"buffers.tuning[0] == {number}.0"))
    lines = text.splitlines()
    parts = [
        "from streammc.samplers.hamiltonian import transition",
        "globals().update(",
        "    {k: v for k, v in vars(transition).items() if not k.startswith('__')}",
        ")",
    ]
    (node,) = (
        each
        for each in ast.parse(text).body
        if isinstance(each, ast.FunctionDef) and each.name == "nuts"
    )
    assert "tuning" not in "".join(
        Path(source).read_text().splitlines()[node.lineno : node.end_lineno]
    )
    first = min(each.lineno for each in node.decorator_list)
    parts += ["\n", *lines[first - 1 : node.end_lineno]]
    path = tmp_path_factory.mktemp("nuts") / "faulty_nuts.py"
    path.write_text("\n".join(parts) + "\n")
    spec = importlib.util.spec_from_file_location("faulty_nuts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_nuts_of_long_steps_matches_quadrature(faulty):
    small = skewed()
    assert np.abs(z_scores(nuts_draws(faulty, small, 0), exact(small))).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_nuts_is_caught(faulty, fault):
    small = skewed()
    theta = nuts_draws(faulty, small, 1 + list(FAULTS).index(fault))
    assert np.abs(z_scores(theta, exact(small))).max() > 4.5


@pytest.mark.parametrize("kind", KINDS)
def test_draws_do_not_depend_on_batches_or_on_a_resume(kind):
    problem = kernel_problem(Small(n=12, d=2, k=3, order=2, seed=6), **KINDS[kind])

    def run(batch, pieces):
        kernel, out = HamiltonianKernel(problem, seed=9, chain=0, batch_iterations=batch), []
        kernel.initialise()
        for n, warmup in pieces:
            out.append(kernel.advance(n, warmup)["theta"])
            arrays, meta = kernel.get_state()
            kernel = HamiltonianKernel(problem, seed=1, chain=0, batch_iterations=batch)
            kernel.set_state(arrays, meta)
        return np.concatenate(out)

    whole = run(4096, [(60, True), (60, False)])
    assert np.array_equal(whole, run(1, [(60, True), (60, False)]))
    assert np.array_equal(whole, run(7, [(13, True), (47, True), (1, False), (59, False)]))


@pytest.mark.parametrize("leapfrog", [False, True])
def test_one_step_follows_a_gaussian_posterior_and_the_leapfrog_needs_more(leapfrog):
    small = Small(n=2, d=2, k=2, prior=normal(scale=1.0))
    flat = np.zeros((2, 2))
    base = small.base._replace(theta_star=np.zeros(2), factor=np.eye(2), gradient=np.zeros(2))
    base = base._replace(hessian=flat, log_lik=0.0, estimate_factor=0.0, variance_factor=0.0)
    problem = kernel_problem(small, base=base, length=np.pi / 2, leapfrog=leapfrog)
    kernel = HamiltonianKernel(replace(problem, target_acceptance=0.95), seed=1, chain=0)
    kernel.initialise()
    kernel.advance(2000, True)
    found = kernel.advance(2000, False)
    assert (found["n_steps"].mean() == 1) != leapfrog
    assert (found["acceptance_rate"].mean() > 0.98) != leapfrog


@pytest.mark.parametrize("build", [hmc, hmc_ecs])
@pytest.mark.parametrize(
    "options",
    [
        {"trajectory": "long"},
        {"integrator": "euler"},
        {"trajectory": "nuts", "trajectory_length": 1.0},
        {"spread": 0.0},
        {"trajectory": "nuts", "jitter": 0.1},
    ],
)
def test_invalid_trajectory_options_are_refused(build, options):
    with pytest.raises(ConfigError, match=next(reversed(options))):
        build(**options)


def test_each_loop_has_files_of_its_own_in_the_cache_and_pickles():
    """Files and pickles go by name: under one name a process could load another's loop."""
    loops = [transition.transition(*flags) for flags in product((False, True), repeat=2)]
    names = [loop.py_func.__qualname__ for loop in loops]
    assert loops == [getattr(transition, name) for name in names]
    assert loops == [pickle.loads(pickle.dumps(loop)) for loop in loops]
    assert len(loops) == len(set(names))


@jit(LINK_SIGNATURE)
def torn(eta, X, y, constants, order, out):
    """A Gaussian log-likelihood that is no number beyond 0.7."""
    for i in range(y.shape[0]):
        out[0, i] = -0.5 * eta[0, i] * eta[0, i] if abs(eta[0, i]) < 0.7 else np.nan
        if order >= 1:
            out[1, i] = -eta[0, i]
        if order >= 2:
            out[2, i] = -1.0


@pytest.mark.parametrize("nuts", [False, True])
def test_a_trajectory_without_a_density_counts_as_rejected(nuts):
    small = Small(n=4, d=1, certain=range(4), order=-1, seed=4, prior=normal(scale=2.0))
    small.theta_star[:] = 0.0
    problem = kernel_problem(small, step_size=0.9, nuts=nuts)
    kernel = HamiltonianKernel(replace(problem, link=torn), seed=3, chain=0)
    kernel.initialise()
    found = kernel.advance(300, False)
    diverged = found["diverging"] == 1.0
    assert 5 < diverged.sum() < 290
    assert np.isfinite(found["theta"]).all()
    assert np.isfinite(found["acceptance_rate"]).all()
    if not nuts:
        assert not found["acceptance_rate"][diverged].any()
        stayed = np.flatnonzero(diverged[1:]) + 1
        np.testing.assert_array_equal(found["theta"][stayed - 1], found["theta"][stayed])
    assert (found["acceptance_rate"][~diverged] > 0.0).all()


def test_trajectories_within_the_edge_are_recorded_as_such():
    kernel = HamiltonianKernel(kernel_problem(Small(n=60, d=2, k=10, order=2, seed=6)), 1, 0)
    kernel.initialise()
    kernel.advance(200, True)
    assert 0.0 == kernel.advance(200, False)["beyond_edge"].max()
