"""The arithmetic behind the tables of ``bench/papers``, on input whose answer is known."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers():
    from bench.papers import measures
    from bench.papers.hmc_ecs import accounting

    return SimpleNamespace(accounting=accounting, measures=measures)


def autoregression(rho: float, chains: int = 4, n: int = 20_000) -> np.ndarray:
    noise = np.random.default_rng(3).standard_normal((chains, n, 1))
    x = np.zeros((chains, n, 1))
    x[:, 0] = noise[:, 0] / np.sqrt(1 - rho**2)
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_inefficiency_of_an_autoregression(papers, rho):
    found = papers.measures.inefficiency(autoregression(rho))
    assert found[0] == pytest.approx((1 + rho) / (1 - rho), rel=0.1)


def test_inefficiency_of_a_constant_chain_is_infinite(papers):
    assert np.isinf(papers.measures.inefficiency(np.ones((2, 50, 1)))).all()


def run(papers, rows, **changes):
    given = {"warmup_rows": 1000.0, "pass_rows": 3000.0, **changes}
    return papers.measures.Run("x", autoregression(0.5, 2, 4000), rows, **given)


def test_computational_time_counts_whole_runs_and_signs(papers):
    one = papers.measures
    factor = one.inefficiency(run(papers, 7.0).draws)
    after = one.computational_time(run(papers, 7.0), whole=False)
    assert after == pytest.approx(factor * 7.0)
    whole = one.computational_time(run(papers, 7.0), whole=True)
    assert whole == pytest.approx(factor * (7.0 + 4000.0 / 4000.0))
    sign = np.ones((2, 4000))
    sign[:, ::10] = -1.0  # tau = 0.9
    signed = one.computational_time(run(papers, 7.0, sign=sign), whole=False)
    assert signed == pytest.approx(factor * 7.0 / 0.8**2)


def test_relative_time_for_equal_draws_is_the_ratio_of_rows(papers):
    ratio = papers.measures.relative(run(papers, 60.0), run(papers, 20.0), whole=False)
    assert ratio == pytest.approx(3.0)


def test_signs_weight_the_moments(papers):
    draws = np.array([[[0.0], [1.0], [5.0]]])
    sign = np.array([[1.0, 1.0, -1.0]])
    found = papers.measures.Run("x", draws, 1.0, sign=sign)
    assert found.moments()[0] == pytest.approx([-4.0])  # (0 + 1 - 5) / (1 + 1 - 1)


def test_implied_passes_recovers_the_passes_of_a_ratio(papers):
    n, passes, iterations = 1_000_000, 17.0, 3026
    inner = {"rows": 1300.0, "if": 2.2, "first": 5e6}
    ecs = 2.2 * (7 * iterations * 1300.0 + 5e6 + passes * n)
    ratio = 2.1 * 7 * iterations * n / ecs
    assert papers.accounting.implied_passes(ratio, inner, 2.1, n) == pytest.approx(passes)


def test_the_published_ratios_imply_one_number_of_passes(papers):
    from bench.papers.hmc_ecs import published

    for part, sizes in published.SIZES.items():
        for name, ratio in published.OVER_HMC[part].items():
            efficiency = published.EFFICIENCIES[part]
            inner = {
                "rows": sizes[name],
                "if": efficiency[name]["IF"],
                "first": sizes["first"],
            }
            hmc = efficiency["HMC"]["IF"]
            found = papers.accounting.implied_passes(ratio, inner, hmc, sizes["n"])
            assert found == pytest.approx(papers.accounting.PAPER_PASSES, rel=0.06)


def test_a_file_of_higgs_becomes_two_standardised_stores(tmp_path):
    pytest.importorskip("pandas")
    import streammc
    from bench.papers.hmc_ecs import higgs_store

    rng = np.random.default_rng(0)
    table = np.c_[rng.integers(2, size=500), 3.0 + 2.0 * rng.standard_normal((500, 28))]
    source = tmp_path / "HIGGS.csv.gz"
    np.savetxt(source, table, delimiter=",")
    stores = [streammc.open_store(path) for path in higgs_store.real(tmp_path, source, 100)]
    assert [store.n_rows for store in stores] == [400, 100]
    X, y = (np.concatenate([store.rows().arrays[i] for store in stores]) for i in (0, 1))
    assert y == pytest.approx(table[:, 0])
    assert X.mean(axis=0) == pytest.approx([1.0] + [0.0] * 28, abs=1e-5)
    assert X[:, 1:].std(axis=0) == pytest.approx(np.ones(28), abs=1e-5)


@pytest.mark.slow
def test_the_command_runs_and_continues(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    command = [sys.executable, "-m", "bench.papers.hmc_ecs", str(tmp_path), "orders"]
    command += ["--rows", "20000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):  # the second time nothing is run again
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert "Figures 8 and 9" in done.stdout
    assert "order-1" not in done.stderr
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {"orders-moments.png", "orders-variance.png"}


def test_results_are_those_of_the_page():
    page = ROOT / "docs" / "reproductions" / "hmc-ecs.md"
    results = json.loads((ROOT / "bench" / "results" / "papers-hmc-ecs.json").read_text())
    text = page.read_text()
    for part in ("higgs", "bankruptcy"):
        ratio = results[part]["costs"]["HMC over"]["HMC-ECS, perturbed"]["counted"]
        assert f"{float(f'{ratio:.3g}'):,.10g}" in text
    pictures = list(page.with_suffix("").glob("*.png"))
    assert {f"hmc-ecs/{path.name}" for path in pictures} <= set(text.replace("(", ")").split(")"))
    assert sum(path.stat().st_size for path in pictures) < 2_000_000


@pytest.mark.parametrize("paper", ["hmc_ecs", "mint", "minibatch", "simple_minibatch", "tempering"])
def test_every_bench_of_a_paper_starts(paper, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    package = importlib.import_module(f"bench.papers.{paper}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    monkeypatch.setattr(sys, "argv", [paper, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"bench.papers.{paper}.__main__").main()
    assert f"python -m bench.papers.{paper} WORK" in " ".join(capsys.readouterr().out.split())
