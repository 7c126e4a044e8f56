"""``mintee``: its ladder, its levels, and jumps from the level above."""

import numpy as np
import pytest
from problem_of import problem_of

from streammc import from_arrays, registry
from streammc.errors import ConfigError
from streammc.models import gaussian_mean, gaussian_mixture
from streammc.priors import normal
from streammc.runs.setup import decide
from streammc.samplers import mintee
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.common.tuning import LOG_AVERAGE, LOG_STEP, SHRINK_TO
from streammc.samplers.equi_energy.facts import jump_checks, jumps_described
from streammc.samplers.equi_energy.kernel import FIRST_STEP, EquiEnergyKernel
from streammc.samplers.equi_energy.loop import ABOVE, EMPTY, VALUE, jump, refresh

Z = 4.5
ENERGIES = ["subset", "full", "shared", "carried"]


def chain(data, model, sampler, *, seed=1, index=0, warmup=300, **options):
    setup = decide(RunRequest(data, model, sampler, None))
    shared = problem_of(data, model, setup.cv, setup.plan, sampler, warmup=warmup)
    kernel = shared.kernel(seed, index, **options)
    assert isinstance(kernel, EquiEnergyKernel)
    kernel.initialise()
    return kernel


def sample():
    return np.random.default_rng(2).standard_normal((60, 1)) + 0.4


def one_mean():
    return from_arrays(sample(), np.zeros(60)), gaussian_mean([1.0], prior=normal(2.0))


def two_modes():
    """Two means that may be exchanged, but for their priors."""
    rng = np.random.default_rng(5)
    n = 100
    x = rng.standard_normal(n) + np.where(rng.random(n) < 0.5, -1.25, 1.25)
    data = from_arrays(x[:, None], np.zeros(n))
    name = data.feature_names[0]
    prior = {f"mu[0, {name}]": normal(3.0, location=3.0), f"mu[1, {name}]": normal(3.0)}
    a, b = np.meshgrid(*[np.linspace(-2.5, 2.5, 401)] * 2, indexing="ij")
    density = -0.5 * ((a - 3.0) / 3.0) ** 2 - 0.5 * (b / 3.0) ** 2
    for value in x:
        density += np.logaddexp(-0.5 * (value - a) ** 2, -0.5 * (value - b) ** 2)
    weight = np.exp(density - density.max())
    return data, gaussian_mixture(2, prior=prior), float(weight[a > b].sum() / weight.sum())


def test_the_ladder_is_that_of_the_paper():
    sampler = mintee(subset_size=1000, n_levels=7)
    published = [1.00, 19.41, 27.13, 37.93, 53.02, 74.06, 103.51]
    np.testing.assert_allclose(sampler.temperatures(100_000), published, atol=0.035)
    sizes = np.array(mintee(subset_size=1000).sizes(100_000))
    assert 100_000 == sizes[0]
    assert ((sizes[:-1] / sizes[1:] > 1.18) & (sizes[:-1] / sizes[1:] < 1.7)).all()
    assert [50] == mintee(n_levels=1).sizes(50)
    assert [3] == mintee().sizes(3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"energy": "noisy"}, "energy must be one of subset, full, shared, carried"),
        ({"control_variate": 2}, "control_variate must be one of 0, none"),
        ({"growth": 1.0}, "growth must be a finite number above 1"),
        ({"alpha": 0.0}, "alpha must be a finite number in"),
        ({"ring_width": None}, "ring_width must be a number"),
        ({"jump_probability": 1.5}, "jump_probability must be a finite number in"),
        ({"n_levels": 0}, "n_levels must be a positive whole number"),
        ({"lowest_energy": "low"}, "lowest_energy must be a finite number"),
        ({"explorer": "hmc"}, "explorer must be one of langevin, random-walk"),
        ({"covariance": "full"}, "covariance must be one of laplace, identity"),
        ({"keep_rings": 1}, "keep_rings must name a folder"),
    ],
)
def test_invalid_options_of_mintee_are_refused(options, named):
    with pytest.raises(ConfigError, match=named):
        mintee(**options)


def test_no_control_variate_has_a_name_on_the_command_line():
    assert "none" == mintee(control_variate=None).control_variate


@pytest.mark.parametrize("explorer", ["langevin", "random-walk"])
def test_the_first_steps_shrink_with_the_dimension_and_grow_with_the_temperature(explorer):
    rng = np.random.default_rng(3)
    data = from_arrays(rng.standard_normal((60, 5)), np.zeros(60))
    model = gaussian_mean([1.0] * 5, prior=normal(2.0))
    kernel = chain(data, model, mintee(explorer=explorer, subset_size=20, covariance="identity"))
    c, power = FIRST_STEP[explorer]
    assert 0.0 < power
    expected = c * 5.0**-power * np.sqrt(kernel.levels.temperature)
    np.testing.assert_allclose(expected[-1], kernel.levels.step[-1], rtol=1e-12)
    assert kernel.levels.step[-1] < c * np.sqrt(kernel.levels.temperature[-1])


def test_a_level_begins_with_the_step_of_the_one_above_at_its_own_temperature():
    data, model = one_mean()
    kernel = chain(data, model, mintee(subset_size=20, covariance="identity"), warmup=400)
    k = len(kernel.levels.temperature) - 2
    begin = int(kernel.levels.begin[k])
    kernel.advance(begin, True)
    above = kernel._tuning[k + 1, LOG_AVERAGE]
    kernel.advance(1, True)
    cooler = np.log(kernel.levels.temperature[k] / kernel.levels.temperature[k + 1])
    # The level above has made one more step by then, which moves its average a little.
    assert abs(kernel._tuning[k, SHRINK_TO] - above - 0.5 * cooler) < 0.2
    assert abs(0.5 * cooler - 0.5 / cooler) > 0.5


def test_the_draws_have_the_step_that_warmup_averaged():
    data, model = one_mean()
    kernel = chain(data, model, mintee(subset_size=20, covariance="identity"), warmup=300)
    kernel.advance(300, True)
    assert np.abs(kernel._tuning[:, LOG_STEP] - kernel._tuning[:, LOG_AVERAGE]).min() > 1e-6
    kernel.advance(1, False)
    np.testing.assert_array_equal(np.exp(kernel._tuning[:, LOG_AVERAGE]), kernel.levels.step)


@pytest.mark.parametrize("energy", ["shared", "carried"])
def test_a_jump_takes_the_energy_under_the_level_above_with_it(energy):
    data, model = one_mean()
    kernel = chain(data, model, mintee(energy=energy, subset_size=20), warmup=200)
    kernel.advance(400, True)
    accepted = 0
    for _ in range(200):
        given = kernel.problem.link, kernel.problem.joint
        before = kernel.states.z[1].copy()
        jump(*given, kernel.ensemble, 1, kernel._kernel_rng)
        if (kernel.states.z[1] != before).any():
            accepted += 1
            value, above = kernel.states.scalars[1, [VALUE, ABOVE]]
            scale = kernel.levels.scale
            assert value * scale[1] / scale[2] == pytest.approx(above, rel=1e-12)
    assert accepted > 5


def test_energies_of_all_rows_where_those_of_subsets_differ_too_much():
    assert "subset" == mintee().settled(10).energy
    assert "full" == mintee().settled(11).energy
    assert "full" == mintee(growth=2.0).settled(5).energy
    assert "subset" == mintee(energy="subset").settled(50).energy


def test_ladder_of_more_levels_than_rows_is_refused_before_a_chain_begins():
    data, model = one_mean()
    sampler = mintee(n_levels=8 + 1, subset_size=20, covariance="identity")
    setup = decide(RunRequest(data, model, sampler, None))
    with pytest.raises(ConfigError, match="9 levels from 20 rows on need 211, found 60"):
        problem_of(data, model, setup.cv, setup.plan, sampler)


@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("explorer", ["langevin", "random-walk"])
def test_batches_and_checkpoints_change_nothing(energy, explorer):
    data, model = one_mean()
    sampler = mintee(
        energy=energy, explorer=explorer, subset_size=20, jump_probability=0.5, ring_capacity=30,
        covariance="identity",
    )  # fmt: skip
    whole = chain(data, model, sampler, batch_iterations=64)
    parts = chain(data, model, sampler, batch_iterations=1)
    expected = [whole.advance(300, True), whole.advance(200, False)]
    found = parts.advance(300, True)
    np.testing.assert_array_equal(expected[0]["theta"], found["theta"])
    first = parts.advance(90, False)
    arrays, meta = parts.get_state()
    resumed = chain(data, model, sampler, seed=1)
    resumed.set_state(arrays, meta)
    rest = resumed.advance(110, False)
    for name, values in expected[1].items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], rest[name]]))
    assert expected[1]["jump_proposed"].sum() > 20
    for name, values in whole.tallies().items():
        np.testing.assert_array_equal(values, resumed.tallies()[name])
    assert whole.rings.held.max() == 30
    assert whole.rings.seen.max() > 100


@pytest.mark.parametrize("energy", ["subset", "full"])
def test_carried_energies_equal_recomputed_energies(energy):
    data, model = one_mean()
    kernel = chain(
        data, model, mintee(energy=energy, subset_size=20, jump_probability=0.5), warmup=200
    )
    kernel.advance(400, True)
    carried = kernel.states.scalars.copy()
    assert kernel.advance(200, False)["jump_accepted"].sum() > 5
    carried = kernel.states.scalars.copy()
    slope = kernel.states.slope.copy()
    for k in range(len(carried)):
        given = kernel.problem.link, kernel.problem.joint
        refresh(*given, kernel.ensemble, k, kernel._kernel_rng)
    columns = [0, 2]  # level 0 and the last know no energy of a level above
    np.testing.assert_allclose(kernel.states.scalars[:, columns], carried[:, columns], atol=1e-9)
    np.testing.assert_allclose(kernel.states.scalars[1:-1, 1], carried[1:-1, 1], atol=1e-9)
    np.testing.assert_allclose(kernel.states.slope, slope, atol=1e-8)


@pytest.mark.parametrize("energy", ["subset", "carried"])
def test_a_jump_looks_into_the_ring_of_the_energy_under_the_level_above(energy):
    data, model = one_mean()
    kernel = chain(data, model, mintee(energy=energy, subset_size=20), warmup=200)
    kernel.advance(300, True)
    levels, scalars, held, k = kernel.levels, kernel.states.scalars, kernel.rings.held, 1
    middle = 0.5 * (levels.bounds[:-1] + np.append(levels.bounds[1:-1], np.inf))
    scalars[k, VALUE] = middle[0] / levels.scale[k]
    for ring in (1, 2):
        for others in (0, 1):
            scalars[k, ABOVE] = middle[ring] / levels.scale[k + 1]
            held[:] = others
            held[k + 1, ring] = 1 - others
            given = kernel.problem.link, kernel.problem.joint
            found = jump(*given, kernel.ensemble, k, kernel._kernel_rng)
            assert (found == EMPTY) == (others == 1)
            scalars[k, VALUE] = middle[0] / levels.scale[k]


def test_a_level_has_its_truncated_density(tmp_path):
    data, model = one_mean()
    x = sample()[:, 0]
    folder = tmp_path / "rings"
    sampler = mintee(
        energy="full", subset_size=20, ring_width=2.0, covariance="identity", inner_steps=4,
        lowest_energy=float(0.5 * np.sum((x - x.mean()) ** 2) + 30.0 * np.log(2.0 * np.pi)),
        keep_rings=str(folder),
    )  # fmt: skip
    batches, means = 10, []
    for index in range(6):
        kernel = chain(data, model, sampler, index=index, warmup=400)
        kernel.advance(400, True)
        kernel.advance(1500, False)
        kept = np.load(folder / f"chain-{index}-{400:09d}.npz")
        assert (1500, 4, 1) == kept["theta"].shape
        squares = (kept["theta"][:, :, 0] - x.mean()) ** 2
        means += list(squares.reshape(batches, -1, 4).mean(axis=1))
    found = np.mean(means, axis=0)
    error = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    theta = np.linspace(-4.0, 5.0, 20_001)
    energy = 30.0 * (theta - x.mean()) ** 2
    for k in range(4):
        expected = []
        for floor in (max(kernel.levels.floor[k] - kernel.levels.bounds[0], -1.0), -1.0):
            p = np.exp(-np.maximum(energy, floor) / kernel.levels.temperature[k] - theta**2 / 8.0)
            expected.append(np.sum(p * (theta - x.mean()) ** 2) / p.sum())
        assert abs(found[k] - expected[0]) < Z * error[k]
        assert k < 3 or abs(found[k] - expected[1]) > 2 * Z * error[k]


@pytest.mark.slow
def test_modes_have_their_weights():
    data, model, weight = two_modes()
    assert 0.65 < weight < 0.75, weight
    sampler = mintee(jump_probability=0.5, inner_steps=5, growth=2.3)
    shares = []
    for index in range(20):  # with 8, their spread would be known to 27 %
        kernel = chain(data, model, sampler, index=index, warmup=1500)
        kernel.advance(1500, True)
        theta = kernel.advance(3000, False)["theta"]
        shares.append((theta[:, 0] > theta[:, 1]).mean())
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - weight) < Z * error
    assert abs(np.mean(shares) - 0.5) > Z * error


def test_model_without_row_likelihoods_is_refused(monkeypatch):
    data, model = one_mean()
    cv = decide(RunRequest(data, model, mintee(covariance="identity"), None)).cv
    monkeypatch.setattr(type(model), "joint", object(), raising=False)
    sampler = mintee(energy="carried", covariance="identity")
    with pytest.raises(ConfigError, match="no product over rows"):
        problem_of(data, model, cv, None, sampler)


def test_mintee_is_registered():
    assert "mintee" == registry.sampler("mintee")().name


def test_levels_that_do_not_move_or_are_truncated_are_warnings():
    good = {
        "temperature": np.array([1.0, 2.0, 4.0]),
        "rows": np.array([40, 20, 10]),
        "energy_level": np.array([0.0, 10.0, 30.0]),
        "step_size": np.ones(3),
        "acceptance_rate": np.array([0.3, 0.3, 0.3]),
        "jumps": np.array([10.0, 10.0]),
        "jump_rate": np.array([0.5, 0.5]),
    }
    assert [] == jumps_described([good])["warnings"]
    still = {**good, "acceptance_rate": np.array([0.02, 0.3, 0.05])}
    (line,) = jumps_described([still, still])["warnings"]
    assert line.startswith("level 0, 2 accepted fewer than 1 in 10 of its steps")
    cut = {**good, "jump_rate": np.array([0.5, 0.001])}
    (line,) = jumps_described([cut, cut])["warnings"]
    assert line.startswith("level 1 took fewer than 1 in 100 of the jumps")


def test_the_smallest_rate_of_jumps_and_of_steps_is_checked():
    levels = {"jump_rate": [0.5, 0.02, None], "acceptance_rate": [0.05, 0.3, 0.3]}
    jumps, steps = jump_checks({"tempering": {"levels": levels}})
    assert ("0.02", "at least 0.01", True) == (jumps.value, jumps.limit, jumps.passed)
    assert ("0.05", "at least 0.1", False) == (steps.value, steps.limit, steps.passed)
    assert [] == jump_checks({})
