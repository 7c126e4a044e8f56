"""``auto`` takes the sampler that is predicted to be faster, and says both predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammc
from streammc.errors import RefusedError
from streammc.likelihood import blocks
from streammc.runs import setup as decisions
from streammc.runs.setup import RunCost, cost_from_sizes, run_cost
from streammc.samplers.common import preparation
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.hamiltonian.options import SubsampleOptions
from streammc.stores import MemoryStore

MODEL = streammc.models.logistic(streammc.priors.normal(scale=2.5))


def table(n: int) -> MemoryStore:
    """Return n rows of three columns with a binary response."""
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    return streammc.from_arrays(X, (rng.random(n) < 0.3).astype(float))


def chosen(n: int, **options: Any) -> tuple[str, str]:
    """Return the sampler of ``auto`` for n rows, and the reason."""
    made = decisions.decide(RunRequest(table(n), MODEL, seed=1, **options))
    return made.sampler.name, made.reason


def test_a_small_table_gets_hmc_without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "plan_units", lambda *_, **__: pytest.fail("a plan was made"))
    name, reason = chosen(1000)
    assert "hmc" == name
    assert reason.startswith("hmc, because it is exact and as fast; predicted processor time for")


def test_a_larger_table_gets_hmc_ecs_with_both_predictions() -> None:
    name, reason = chosen(20_000)
    assert "hmc-ecs" == name
    cost = run_cost(table(20_000), MODEL)
    assert cost is not None
    assert cost.hmc > 2.0 * cost.hmc_ecs
    assert f"hmc {cost.hmc:.2g} s, hmc-ecs " in reason


def test_smh_is_named_where_it_takes_far_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a row an iteration, where ``hmc-ecs`` takes 30; not where it takes as many."""
    words = "smh is exact and may be faster, with about "
    assert words not in chosen(20_000)[1]
    monkeypatch.setattr(decisions, "MANY_ROWS", 20_000)
    reason = chosen(20_000)[1]
    assert words in reason
    rows = float(reason.split(words)[1].split()[0])
    data = table(20_000)
    run = streammc.sample(data, MODEL, sampler=streammc.samplers.smh(), seed=1, draws=500, chains=2)
    taken = float(run["sample_stats"]["n_rows"].mean())
    assert taken == pytest.approx(rows, rel=0.2)
    monkeypatch.setattr(decisions, "MORE_ROWS", 1000)
    assert words not in chosen(20_000)[1]


def test_hmc_is_taken_where_the_plan_asks_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(dataset: MemoryStore, model: Any, plan: Any = None) -> RunCost:
        return RunCost(1.0, 0.5 if plan is None else plan.subsample_size / 30)

    monkeypatch.setattr(decisions, "run_cost", cost)
    name, reason = chosen(20_000)
    assert "hmc" == name
    assert "because it is exact and as fast" in reason


def test_a_refused_plan_is_the_reason_for_hmc_without_its_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = "hmc-ecs needs at most half of the 20000 rows"

    def refused(*_: Any, **__: Any) -> None:
        raise RefusedError(fault, advice="--sampler hmc")

    monkeypatch.setattr(SubsampleOptions, "prepare", refused)
    name, reason = chosen(20_000)
    assert "hmc" == name
    assert reason == f"hmc, because {fault}"


def test_the_choice_is_the_same_for_any_number_of_draws() -> None:
    assert chosen(1000) == chosen(1000, draws=100_000, warmup=10, chains=1)


def test_hmc_ecs_is_taken_where_all_rows_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = table(1000)
    needed = blocks.block_bytes(1000, 3, 1, -1)
    monkeypatch.setattr(blocks, "memory_limit", lambda: needed - 1)
    assert "hmc-ecs" == decisions.decide(RunRequest(data, MODEL, seed=1)).sampler.name


@pytest.mark.parametrize(
    ("n", "q", "rows", "exact"),
    [(1000, 10, 30, True), (3000, 3, 50, False), (10_000, 10, 30, False), (10_000, 10, 5000, False),
     (2000, 50, 900, True), (10_000, 50, 400, False), (10**9, 10, 1000, False)],
)  # fmt: skip
def test_the_faster_sampler_by_rows_columns_and_subsample(
    n: int, q: int, rows: int, exact: bool
) -> None:
    assert exact == cost_from_sizes(n, q, rows).all_rows


def test_within_twenty_percent_the_exact_sampler_is_taken() -> None:
    assert RunCost(1.19, 1.0).all_rows
    assert not RunCost(1.21, 1.0).all_rows
    assert RunCost(1.19, 1.0).text().endswith("hmc 1.2 s, hmc-ecs 1 s")


@pytest.mark.parametrize("n", [1000, 20_000])
@pytest.mark.parametrize("options", [{"step_size": 0.5}, {"trajectory_length": 1.0, "jitter": 0.1}])
def test_options_of_both_samplers_are_those_of_the_one_that_is_taken(
    n: int, options: dict[str, Any]
) -> None:
    expected, _ = chosen(n)
    made = decisions.decide(RunRequest(table(n), MODEL, seed=1, sampler_options=options))
    assert expected == made.sampler.name
    described = made.sampler.describe()
    assert options == {name: described[name] for name in options}


def test_a_subsample_that_was_asked_for_does_not_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "hmc-ecs needs more than half of the rows"
    prepare = SubsampleOptions.prepare

    def refused(self: Any, *arguments: Any) -> Any:
        if self.subsample_size is None:
            raise RefusedError(fault)
        return prepare(self, *arguments)

    monkeypatch.setattr(SubsampleOptions, "prepare", refused)
    assert "hmc" == chosen(20_000)[0]
    with pytest.raises(RefusedError, match=f"found subsample_size: .*{fault}"):
        chosen(20_000, sampler_options={"subsample_size": 300})


def test_a_subsample_that_was_asked_for_makes_no_pass_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    expanded = preparation.expanded

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return expanded(*arguments, **options)

    monkeypatch.setattr(preparation, "expanded", counted)
    name, reason = chosen(20_000, sampler_options={"subsample_size": 300, "step_size": 0.3})
    assert ("hmc-ecs", 1) == (name, len(made))
    assert reason.startswith("hmc-ecs, which auto takes for these data whatever its subsample_size")


def test_a_run_that_is_refused_while_it_runs_falls_back_with_its_step_size() -> None:
    setup = decisions.decide(RunRequest(table(20_000), MODEL, seed=1))
    error = RefusedError("the variance grew; use --sampler hmc")
    fallen = decisions.instead(setup, error, {"step_size": 0.25})
    assert ("hmc", 0.25) == (fallen.sampler.name, fallen.sampler.describe()["step_size"])
    with pytest.raises(RefusedError, match="the variance grew"):
        decisions.instead(setup, error, {"step_size": 0.25, "n_blocks": 10})
