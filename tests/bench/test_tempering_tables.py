"""Measures of the page on tempering by subsampling: costs, R-hat, ESS, rows, results."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers():
    from bench.papers.tempering import cost, measures, problems

    return SimpleNamespace(cost=cost, measures=measures, problems=problems)


@pytest.mark.parametrize("reading", ["corrected", "ours"])
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_closed_forms_are_the_sums_over_the_levels_visited(papers, reading, alpha):
    cost = papers.cost
    for method in ("pt", "tt", "spt", "stt"):
        for m, beta in ((1, 0.5), (6, 0.125), (9, 0.01)):
            visited = cost.levels(m, method, reading)
            direct = cost.added(visited, beta, m, alpha) if method[0] == "s" else len(visited)
            assert cost.relative_cost(method, alpha, beta, m, reading) == pytest.approx(direct)


def test_the_printed_forms_give_the_printed_figures_and_the_corrected_do_not(papers):
    found = {
        (method, alpha, reading): papers.cost.relative_cost(method, alpha, 0.125, 6, reading)
        for method in ("pt", "tt", "spt", "stt")
        for alpha in (1.0, 3.0)
        for reading in ("as printed", "corrected")
    }
    printed = {("spt", 1.0): 3.11, ("stt", 1.0): 4.52, ("spt", 3.0): 1.55, ("stt", 3.0): 1.74}
    for key, value in printed.items():
        assert round(found[*key, "as printed"], 2) == value
    assert round(found["stt", 1.0, "corrected"], 2) == 5.10
    assert round(found["stt", 3.0, "corrected"], 2) == 2.09
    assert (found["pt", 1.0, "as printed"], found["tt", 1.0, "as printed"]) == (6, 10)
    assert (found["pt", 1.0, "corrected"], found["tt", 1.0, "corrected"]) == (7, 12)


def test_r_hat_and_effective_size_follow_gelman_et_al(papers):
    draws = np.array([[[0.0], [2.0]], [[1.0], [5.0]]])
    # W = (2 + 8) / 2, B = 2 * 2 = 4 of means 1 and 3, Var = W / 2 + B / 2
    judged = papers.measures.judge(draws)
    assert judged.rhat == pytest.approx(np.sqrt(4.5 / 5.0))
    assert judged.ess == pytest.approx(4 * min(1.0, 4.5 / 4.0))
    apart = draws + np.array([0.0, 100.0])[:, None, None]
    judged = papers.measures.judge(apart)
    assert judged.rhat[0] > 10.0
    assert judged.ess[0] == pytest.approx(2.0, rel=0.01)


def test_the_median_of_equation_8_is_too_large_by_the_stated_factor(papers):
    """Independent parameters, autocorrelation 5 / 3: 1 / ln 2 times, spread 1.44 / sqrt(d)."""
    d, repetitions, s = 40, 60, 500
    rng, found = np.random.default_rng(1), []
    for _ in range(repetitions):
        noise = rng.standard_normal((3, s + 1, d))
        draws = noise[:, 1:] + 0.5 * noise[:, :-1]
        tau = 1.0 + 2.0 * 0.5 / 1.25
        found.append(np.median(papers.measures.judge(draws).ess) * tau / (3 * s))
    error = np.std(found) / np.sqrt(repetitions)
    assert abs(np.mean(found) - 1.0 / np.log(2.0)) < 4.5 * error + 0.05
    assert np.std(found) / np.mean(found) == pytest.approx(1.44 / np.sqrt(d), rel=0.4)


def test_larger_tables_begin_with_the_rows_of_smaller_ones(papers):
    one = papers.problems
    theta, x = one.gaussian_rows(5, 4000, 3.0)
    assert np.array_equal(one.gaussian_rows(5, 64, 3.0)[1], x[:64])
    assert np.abs((x.mean(axis=0) - theta) / (3.0 / np.sqrt(4000))).max() < 4.5
    theta, x, y = one.process_rows(5, 200)
    _, fewer, responses = one.process_rows(5, 64)
    assert np.array_equal(fewer, x[:64])
    assert responses == pytest.approx(y[:64], rel=1e-9)
    apart = (x[:, None] - x) / theta[:3]
    covariance = theta[3] ** 2 * np.exp(-0.5 * (apart**2).sum(axis=-1))
    covariance += theta[4] ** 2 * np.eye(200)
    square = y @ np.linalg.solve(covariance, y)
    assert abs(square - 200.0) < 4.5 * np.sqrt(400.0)


def test_starts_are_the_prior_mean_its_half_and_its_double(papers):
    one = papers.problems
    first, half, double = (np.exp(one.first_position("gp", 7, chain)) for chain in range(3))
    assert first == pytest.approx([np.exp(1.0)] * 5 + [4.0, 1.0])
    assert half == pytest.approx(first / 2)
    assert double == pytest.approx(2 * first)


def test_a_cell_of_the_table_is_measured(papers):
    from bench.papers.tempering import runs

    one = papers.problems
    cell = one.Cell(one.GAUSSIAN, one.HMC, 2, 64, "inner")
    kernel = one.kernel(cell, 2)
    assert kernel.ladder.step == pytest.approx([0.01])
    chains = [runs.run_chain(cell, chain, 10.0, most=400) for chain in range(3)]
    assert [len(chain.draws) for chain in chains] == [400] * 3
    line = runs.summarise(cell, chains, 10.0)
    assert line["n_rows"] == pytest.approx(640.0, rel=0.01)
    assert line["kept"] == 200
    assert 0.9 < line["rhat"] < 2.0
    assert line["curve"]["draws"][-1] == 400


def test_results_are_those_of_the_page():
    page = ROOT / "docs" / "reproductions" / "tempering-by-subsampling.md"
    results = json.loads(
        (ROOT / "bench" / "results" / "papers-tempering-by-subsampling.json").read_text()
    )
    text = page.read_text()
    rates = [
        line["rate"]
        for part in ("gaussian", "gp")
        for name, line in results[part]["cells"].items()
        if name.split("-")[2] in ("5", "10") and line["rate"] > 1e-3
    ]
    assert rates
    assert all(f"{float(f'{rate:.3g}'):,.10g}" in text for rate in rates)
    pictures = list(page.with_suffix("").glob("*.png"))
    named = set(text.replace("(", ")").split(")"))
    assert {f"{page.stem}/{path.name}" for path in pictures} <= named
    assert sum(path.stat().st_size for path in pictures) < 1_000_000
