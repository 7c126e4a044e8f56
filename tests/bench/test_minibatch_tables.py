"""Measures of the pages on minibatch tests: grid posterior, eq. (40), total variation."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers():
    from bench.papers import mixture_posterior, mnist
    from bench.papers.minibatch import mixture_mixing

    return SimpleNamespace(posterior=mixture_posterior, mixing=mixture_mixing, mnist=mnist)


def test_posterior_of_binned_rows_equals_the_posterior_of_the_rows(papers):
    one = papers.posterior
    x = one.rows(5000)
    theta = np.array([[0.0, 1.0], [1.0, -1.0], [0.4, 0.1]])
    found = one.log_density(theta, *one.binned(x), 50.0)
    exact = []
    for first, step in theta:
        rows = np.logaddexp(-((x - first) ** 2) / 4.0, -((x - first - step) ** 2) / 4.0)
        exact.append(rows.sum() / 50.0 - first**2 / 20.0 - step**2 / 2.0)
    bound = 5000 * one.BIN_WIDTH**2 * 0.5 / (24.0 * 50.0)
    assert np.abs(found - exact).max() < bound
    coarse = one.log_density(theta, *one.binned(x, 0.5), 50.0)
    assert np.abs(coarse - exact).max() > 1000 * bound  # such a bin is too wide


def test_the_grid_posterior_adds_up_and_peaks_at_both_modes(papers):
    one = papers.posterior
    grid = one.posterior(one.rows(20_000), 10.0, ((-1.0, 2.0), (-2.5, 2.5)), bins=60, fine=2)
    assert grid.mass.sum() == pytest.approx(1.0)
    assert grid.mass[0].sum() + grid.mass[-1].sum() < 1e-6
    half = grid.mass.shape[1] // 2
    for part, mode in ((slice(half, None), one.TRUTH), (slice(None, half), one.OTHER_MODE)):
        inside = grid.mass[:, part]
        at_1, at_2 = np.unravel_index(inside.argmax(), inside.shape)
        centre_2 = 0.5 * (grid.edges_2[:-1] + grid.edges_2[1:])[part]
        centre_1 = 0.5 * (grid.edges_1[:-1] + grid.edges_1[1:])
        assert np.hypot(centre_1[at_1] - mode[0], centre_2[at_2] - mode[1]) < 0.35


def test_equation_40_is_a_product_of_poisson_probabilities(papers):
    mass = np.array([[0.5, 0.3], [0.15, 0.05]])
    counts = np.array([[40.0, 33.0], [20.0, 7.0]])
    found = papers.posterior.poisson_log_likelihood(counts, mass)
    assert found == pytest.approx(stats.poisson.logpmf(counts, 100.0 * mass).sum())
    # conditional on their sum, the counts are multinomial
    total = stats.poisson.logpmf(100, 100.0)
    multinomial = stats.multinomial.logpmf(counts.ravel(), 100, mass.ravel())
    assert found - total == pytest.approx(multinomial)


def test_chi_squared_equals_scipy_and_pools_rare_cells(papers):
    mass = np.array([0.5, 0.3, 0.19, 0.006, 0.004])
    counts = np.array([52.0, 28.0, 18.0, 2.0, 0.0])
    statistic, bins = papers.posterior.chi_squared(counts, mass)
    assert bins == 5
    assert statistic == pytest.approx(stats.chisquare(counts, 100.0 * mass).statistic)
    pooled, bins = papers.posterior.chi_squared(counts, mass, least=0.9)
    assert bins == 4
    together = stats.chisquare([52.0, 28.0, 18.0, 2.0], [50.0, 30.0, 19.0, 1.0])
    assert pooled == pytest.approx(together.statistic)


def test_total_variation_of_exact_draws_is_the_level_that_is_printed(papers):
    one, rng = papers.posterior, np.random.default_rng(7)
    mass = rng.dirichlet(np.ones(50))
    level = one.expected_variation(mass, 1000)
    exact = rng.multinomial(1000, mass, size=400)
    found = np.array([one.total_variation(counts, mass) for counts in exact])
    error = found.std() * np.sqrt(1 / 200 + 1 / 400)
    assert abs(found.mean() - level) < 4.5 * error
    shifted = np.roll(mass, 1)
    apart = 0.5 * np.abs(mass - shifted).sum()
    assert one.total_variation(1000 * shifted, mass) == pytest.approx(apart)
    assert apart > 3 * level
    assert one.total_variation(np.zeros(50) + mass * 900, mass, outside=100) == pytest.approx(0.1)


def test_wrong_decisions_move_the_posterior_by_at_most_the_bound(papers):
    points = np.stack(np.meshgrid(np.linspace(-2, 2, 8), np.linspace(-2, 2, 8)), -1).reshape(-1, 2)
    value = -0.5 * (points**2).sum(axis=1) + np.sin(3 * points[:, 0])
    mass = np.exp(value) / np.exp(value).sum()
    walk, matrix = papers.mixing.chain(points, value, 0.6, barker=True)
    assert mass @ matrix == pytest.approx(mass)
    r = papers.mixing.amplification(walk, matrix, mass).max()
    rng, off = np.random.default_rng(1), 0.02
    for error in (
        rng.uniform(-off, off, matrix.shape),
        off * np.sign(points[:, :1] - points[:, 0]),
    ):
        changed = walk * np.clip(matrix / walk + error, 0.0, 1.0)
        np.fill_diagonal(changed, 0.0)
        np.fill_diagonal(changed, 1.0 - changed.sum(axis=1))
        values, vectors = np.linalg.eig(changed.T)
        stationary = np.abs(vectors[:, np.argmax(values.real)].real)
        stationary /= stationary.sum()
        distance = 0.5 * np.abs(stationary - mass).sum()
        assert distance <= off * r
    assert distance > 0.1 * off * r  # the second error pushes one way: the bound is not idle


def test_copies_of_digits_are_shifted_and_keep_their_labels(papers):
    one, rng = papers.mnist, np.random.default_rng(0)
    images = rng.random((20, 28 * 28)).astype(np.float32)
    y = np.arange(20) % 2 * 1.0
    start = one.Digits(images, y, images, y)
    found = one.moved_copies(start, rows=50)
    assert found.X.shape == (50, 784)
    assert found.X.min() >= 0.0
    assert found.X.max() <= 1.0
    kept = [i for i, row in enumerate(found.X) if (np.abs(images - row).max(axis=1) < 1e-6).any()]
    assert len(kept) == 20
    again = one.moved_copies(start, rows=50)
    assert np.array_equal(again.X, found.X)
    assert np.array_equal(again.y, found.y)


def test_report_names_minibatch_sizes_far_from_the_published_ones(papers):
    pytest.importorskip("matplotlib")  # the report draws as well
    from bench.papers.minibatch import published, report

    near = {name: {"size": 1.2 * pair[0]} for name, pair in published.TABLE_1.items()}
    near["mh-sublhd"]["size"] = 0.6 * published.TABLE_1["mh-sublhd"][0]
    results = {"mixture": {"readings": {"standard deviation 0.15": near}}}
    assert report.misses(results) == []
    near["mh-minibatch"]["size"] = 1.3 * published.TABLE_1["mh-minibatch"][0]
    near["mh-sublhd"]["size"] = 0.4 * published.TABLE_1["mh-sublhd"][0]
    assert [line.split(":")[0] for line in report.misses(results)] == [
        "mixture, mh-minibatch",
        "mixture, mh-sublhd",
    ]


@pytest.mark.parametrize("name", ["mhminibatch", "simple-minibatch"])
def test_results_are_those_of_the_page(name):
    page = ROOT / "docs" / "reproductions" / f"{name}.md"
    results = json.loads((ROOT / "bench" / "results" / f"papers-{name}.json").read_text())
    text = page.read_text()
    found = results["mixture"]
    methods = found.get("methods") or found["readings"]["standard deviation 0.15"]
    sizes = [line["size"] for key, line in methods.items() if key.startswith("mh-")]
    assert sizes
    assert all(f"{float(f'{size:.4g}'):,.10g}" in text for size in sizes)
    pictures = list(page.with_suffix("").glob("*.png"))
    assert {f"{name}/{path.name}" for path in pictures} <= set(text.replace("(", ")").split(")"))
    assert sum(path.stat().st_size for path in pictures) < 1_000_000
