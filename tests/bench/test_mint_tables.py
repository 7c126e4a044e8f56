"""Measures of the page on MINT and MINTEE: steps, accuracies, rings, results."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers():
    pytest.importorskip("matplotlib")
    from bench.papers.mint import __main__ as mint
    from bench.papers.mint import digits_text, runs

    return SimpleNamespace(
        command=mint, digits=mint.digits, text=digits_text, runs=runs,
        scaled=mint.temperatures, mixture=mint.mixture, mintee=mint.mintee,
    )  # fmt: skip


@pytest.fixture
def images(papers):
    rng = np.random.default_rng(5)
    X = rng.random((60, 8)).astype(np.float32)
    X[:, 3] = 0.5
    y = np.arange(60) % 2 * 1.0
    return papers.digits.mnist.Digits(X[:40], y[:40], X[40:], y[40:])


def test_a_step_is_tuned_to_the_acceptance_of_a_walk(papers):
    def case_of(step):
        rate = 2.0 * stats.norm.cdf(-25.0 * step)
        advance = lambda n, _: {"acceptance_rate": np.full(n, rate)}  # noqa: E731
        return SimpleNamespace(kernel=lambda *_: SimpleNamespace(advance=advance))

    exact = -stats.norm.ppf(0.15) / 25.0
    for spread in (3.0, 8.0):
        found = papers.runs.tuned_step(case_of, 0.05, 0.30, 100, rounds=8, spread=spread)
        assert found == pytest.approx(exact, rel=0.03)
    assert papers.runs.tuned_step(case_of, 0.4, 0.30, 100, spread=2.0) > 4 * exact  # not in reach


def test_the_smallest_step_is_that_of_a_walk_on_a_normal_target(papers):
    d, rows, square = papers.digits.DIMENSION, 1000, 60.0
    curvature = 0.25 * rows * square / d
    rng, n = np.random.default_rng(3), 4000
    length = papers.text.smallest_step(square, rows)
    rates = []
    for scale in (1.0, 1.3):
        x = rng.standard_normal((n, d)) / np.sqrt(curvature)
        move = scale * length / np.sqrt(d) * rng.standard_normal((n, d))
        log_ratio = -0.5 * curvature * (2 * x * move + move**2).sum(axis=1)
        accepted = np.exp(np.minimum(log_ratio, 0.0))
        rates.append((accepted.mean(), accepted.std() / np.sqrt(n)))
    (mean, error), (longer, _) = rates
    assert abs(mean - papers.digits.ACCEPTANCE) < 4.5 * error + 0.003
    assert longer < mean - 8 * error


def test_accuracies_are_those_of_positions_and_of_averaged_predictions(papers, images):
    rng = np.random.default_rng(6)
    theta = np.repeat(rng.standard_normal((50, 8)), 2, axis=0)
    found = papers.digits.reduce(images, theta)
    tested = theta[:: papers.digits.EVERY]
    margin = images.X_test @ tested.T
    truth = images.y_test == 1.0
    seven = special.expit(margin)
    assert found["accuracy"] == pytest.approx([np.mean((m > 0) == truth) for m in margin.T])
    exact = [np.mean((seven[:, : k + 1].mean(axis=1) > 0.5) == truth) for k in range(len(tested))]
    assert found["running"] == pytest.approx(exact)
    assert found["seven"] == pytest.approx(seven[:, 10:].mean(axis=1), abs=1e-6)
    length, moved, iterations = found["moves"][0]
    late = np.linalg.norm(np.diff(theta, axis=0), axis=1)[49:]
    assert (moved, iterations) == (np.count_nonzero(late), 50)
    assert length == pytest.approx(late.sum())
    assert found["blocks"][-1] == pytest.approx(theta[-5:].mean(axis=0), rel=1e-5)


def test_a_level_is_reached_where_every_run_has_it(papers):
    right = np.array([[0.5, 0.91, 0.2, 0.96], [0.95, 0.9, 0.1, 0.2], [0.1, 0.5, 0.93, 0.2]])
    rows = np.broadcast_to(np.array([1.0, 2.0, 3.0, 4.0]), right.shape)
    found = papers.digits.reached(right, rows, 10.0 * rows)
    assert found["0.9"] == [2.0, 20.0]
    assert found["0.93"] == [3.0, 30.0]
    assert found["0.95"] is None


def test_standardised_pixels_have_variance_1_or_are_0(papers, images):
    found = papers.scaled.standardised(images)
    varies = np.arange(8) != 3
    assert found.X[:, varies].mean(axis=0) == pytest.approx(np.zeros(7), abs=1e-5)
    assert found.X[:, varies].std(axis=0) == pytest.approx(np.ones(7), rel=1e-5)
    assert not found.X[:, 3].any()
    slope = (found.X_test[0] - found.X_test[1]) / (images.X_test[0] - images.X_test[1] + 1e-30)
    assert slope[varies] == pytest.approx(1.0 / images.X[:, varies].std(axis=0), rel=1e-3)


def test_training_errors_tell_separable_images_from_others(papers, images):
    images.X[:, 0] += images.y.astype(np.float32)
    assert papers.scaled.training_errors(images) == 0
    images.X[0], images.y[0] = images.X[1], 1.0 - images.y[1]
    assert papers.scaled.training_errors(images) >= 1


def test_ratios_of_the_modes_are_counts_within_a_radius(papers):
    one = papers.mixture
    theta = np.zeros((2, 1000, 2))
    theta[:, :300] = one.TRUTH
    theta[:, 300:400] = one.OTHER_MODE + 0.05
    theta[0, 400:405] = one.OTHER_MODE
    theta[0, 405:410] = one.TRUTH
    at, ratio, pooled = one.ratio_curves(theta)
    assert at[-1] == 1000
    assert ratio[0, 0, -1] == pytest.approx(5 / 305)
    assert np.isnan(ratio[0, 1, -1])
    assert pooled[:, -1] == pytest.approx([5 / 605, 205 / 605])


def test_mass_of_the_lowest_ring_is_an_incomplete_gamma_function(papers):
    shape, hot, width = 5, 4.0, 2.0
    flat = width**shape / shape * np.exp(-width / hot)
    tail = special.gammaincc(shape, width / hot) * special.gamma(shape) * hot**shape
    below, jumped = papers.mintee.overlap(shape, hot, width)
    assert below == pytest.approx(flat / (flat + tail), rel=0.02)
    assert 0.0 < jumped < 1.0


def test_the_part_on_mintee_is_written_from_chains_that_were_kept(papers, tmp_path, monkeypatch):
    one, command = papers.mintee, papers.command
    monkeypatch.setattr(one, "observations", lambda: np.linspace(-2.0, 4.0, 50))
    monkeypatch.setattr(one, "overlap", lambda shape, _: (0.1 / shape, 0.2 / shape))
    rng, levels, d = np.random.default_rng(8), 7, one.D
    kept = {name: draws for name, (_, _, draws) in one.ESTIMATORS.items()}
    kept |= {one.LADDER: one.DRAWS, one.FEWER: one.FEWER_DRAWS}
    for name, draws in kept.items():
        count = one.CHAINS if name in (one.LADDER, one.FEWER) else 1
        theta = np.zeros((count, draws, d), np.float32)
        theta[..., 1] = 1.0
        theta[:, ::4, 0] = 2.0
        tallies = {
            "temperature": [1.0, 19.41, 27.13, 37.93, 53.02, 74.06, 103.51],
            "rows": [1000.0] * levels,
            "acceptance_rate": [0.3] * levels, "jump_rate": [0.1] * (levels - 1),
            "ring_percent": rng.random((levels, levels)).tolist(), "step_size": [0.1] * levels,
        }  # fmt: skip
        facts = {"tallies": tallies, "modes_in_rings": [50] * 6, "energy": [13.0] * 7, "seconds": 1}
        path = tmp_path / f"mintee-{name.replace(', ', '-').replace(' ', '-')}-{draws}.npz"
        np.savez(path, theta=theta, facts=json.dumps([facts] * count))
    options = SimpleNamespace(work=tmp_path, threads=1, full=False)
    found = command.measure("mintee", options, tmp_path / "mint")
    assert found["ladders"]["shared"]["modes"] == 2
    assert found["ladders"]["shared"]["away"] == pytest.approx(0.25)
    text = command.report.page({"mintee": command.plain(found) | {"machine": "a machine"}})
    assert text.count("## MINTEE") == 1
    assert "| shared | 1,000 | 2 | 3 |" in text
    assert "modes that are published were not reached" in text
    assert "(mint/mintee.png)" in text
    assert (tmp_path / "mint" / "mintee.png").exists()


def test_results_are_those_of_the_page():
    page = ROOT / "docs" / "reproductions" / "mint.md"
    results = json.loads((ROOT / "bench" / "results" / "papers-mint.json").read_text())
    text = page.read_text()
    accuracies = [
        f"{line['accuracy']:.4f}"
        for part in ("methods", "alphas", "standardised")
        for line in results["digits"][part].values()
    ]
    pooled = [line["pooled"] for line in results["mixture"]["ratio"].values()]
    ratios = [f"{float(f'{ratio:.4g}'):.10g}" for ratio in pooled]
    assert len(accuracies) > 8
    assert all(value in text for value in accuracies + ratios)
    pictures = list(page.with_suffix("").glob("*.png"))
    named = set(text.replace("(", ")").split(")"))
    assert {f"{page.stem}/{path.name}" for path in pictures} <= named
    assert sum(path.stat().st_size for path in pictures) < 1_000_000
