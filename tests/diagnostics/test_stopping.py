"""Stopping rules: their texts, the draws at which they are checked, what they say at the end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streammc.diagnostics.stopping import MOST_DRAWS, StopRule, missed_text
from streammc.errors import ConfigError


def parameters(ess: float | None = 500.0, r_hat: float | None = 1.005) -> dict[str, dict]:
    return {"a": {"ess_bulk": ess, "ess_tail": 9999.0, "r_hat": r_hat}}


def test_text_and_mapping_give_the_same_rule() -> None:
    rule = StopRule.parse("ess=1000, rhat=1.01,time=2h,draws=5000")
    assert StopRule(ess=1000.0, rhat=1.01, seconds=7200.0, draws=5000) == rule
    assert rule == StopRule.parse({"ess": 1000, "rhat": 1.01, "time": "2h", "draws": 5000})
    assert rule == StopRule.parse(rule.text()) == StopRule.parse(rule.describe())
    assert MOST_DRAWS == StopRule.parse("rhat=1.01").draws
    assert StopRule.parse(None) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5 min", 90), ("1h", 3600), ("1d", 86400)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert seconds == StopRule.parse(f"ess=1,time={text}").seconds


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("time=2h", "limit ess or rhat"),
        ("draws=100", "limit ess or rhat"),
        ("", "found ''"),
        ("speed=3", "'speed'"),
        ("ess=1,ess=2", "ess once"),
        ("ess=0", "above 0, found '0'"),
        ("ess=many", "found 'many'"),
        ("ess=nan", "found 'nan'"),
        ("rhat=1", "above 1"),
        ("ess=1,time=2y", "found '2y'"),
        ("ess=1,time=-1", "found '-1'"),
        ("ess=1,draws=1.5", "whole number"),
        ({"ess": True}, "found True"),
        (1000, "found int"),
    ],
)
def test_bad_rules_are_refused_in_one_line(value: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        StopRule.parse(value)
    assert "\n" not in str(caught.value)


def test_checks_are_at_whole_intervals_that_grow_by_a_tenth() -> None:
    rule = StopRule.parse("ess=1,draws=5000")
    checks, done = [], 1
    while not checks or checks[-1] < rule.most(125, 1000):
        checks.append(rule.next_check(125, 1000, done))
        done = checks[-1] + 1
    assert [1000, 1125, 1250, 1375] == checks[:4]
    assert 5000 == checks[-1]
    steps = [(a, b - a) for a, b in pairwise(checks[:-1])]
    assert [max(125, a // 1250 * 125) for a, _ in steps] == [step for _, step in steps]


@pytest.mark.parametrize("done", [1, 999, 1000, 1001, 1313, 3999])
def test_next_check_depends_on_the_draws_alone(done: int) -> None:
    rule = StopRule.parse("ess=1,draws=4000")
    checks = {rule.next_check(125, 1000, n) for n in range(1, 4001)}
    assert min(check for check in checks if check >= done) == rule.next_check(125, 1000, done)
    assert rule.next_check(125, 1000, 5001) == 5125


def test_verdict_names_what_ended_the_run() -> None:
    rule = StopRule.parse("ess=400,rhat=1.01,time=60,draws=2000")
    of_run = {"interval": 100, "first": 1000}
    assert "rule" == rule.verdict(parameters(), 1000, **of_run)["ended_by"]
    assert "draws" == rule.verdict(parameters(ess=100.0), 2000, **of_run)["ended_by"]
    missed = rule.verdict(parameters(r_hat=1.2), 1000, **of_run)
    assert ("time", False) == (missed["ended_by"], missed["passed"])
    assert "rhat 1.2, asked for 1.01" in missed_text(missed)
    assert "by time, 60 s, at 1000 draws" in missed_text(missed)
    assert not rule.verdict(parameters(r_hat=None), 1000, **of_run)["passed"]


@pytest.mark.parametrize("draws", [500, 1050])
def test_time_ended_a_run_that_keeps_the_limits_between_two_checks(draws: int) -> None:
    rule = StopRule.parse("ess=400,rhat=1.01,time=60,draws=2000")
    found = rule.verdict(parameters(), draws, interval=50, first=1000)
    assert ("time", True) == (found["ended_by"], found["passed"])


def test_time_is_up_when_warmup_and_draws_have_used_it() -> None:
    rule = StopRule.parse("ess=1,time=10")
    assert not rule.out_of_time({"warmup": 4.0, "draws": 5.9})
    assert rule.out_of_time({"warmup": 4.0, "draws": 6.0})
    assert not StopRule.parse("ess=1").out_of_time({"warmup": 1e9})
