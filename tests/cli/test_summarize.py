from __future__ import annotations

from pathlib import Path

import pytest
from command_line import snapshot, streammc

WORDS = ("summarize", "store.zarr", "--model", "logistic")


def test_summarize_keeps_what_it_found(store: Path) -> None:
    done = streammc(*WORDS, "--json")
    assert 0 == done.code, done.err
    found = done.json
    assert str(store.with_name("store.cv.zarr")) == found["path"]
    assert ["beta[Intercept]", "beta[x1]", "beta[x2]"] == list(found["theta_star"])
    assert found["certificate"]["converged"]
    assert all(sd > 0 for sd in found["laplace_sd"].values())
    before = snapshot(store.parent)
    again = streammc(*WORDS, "--json")
    assert done.out == again.out
    assert before == snapshot(store.parent)
    assert "theta_star" in streammc(*WORDS).out


@pytest.mark.parametrize("more", [("--order", "1"), ("--prior-scale", "3"), ("--passes", "1")])
def test_summarize_does_not_overwrite_control_variates_of_another_job(
    store: Path, more: tuple[str, str]
) -> None:
    streammc(*WORDS)
    before = snapshot(store.parent)
    assert 78 == streammc(*WORDS, *more).code
    assert before == snapshot(store.parent)


def test_scheduler_does_not_change_the_result(store: Path) -> None:
    one = streammc(*WORDS, "-o", "a", "--json").json
    two = streammc(*WORDS, "-o", "b", "--json", "--scheduler", "2").json
    assert one["fingerprint"] == two["fingerprint"]


def test_sample_refuses_control_variates_of_another_model(store: Path) -> None:
    streammc(*WORDS, "-o", "cv", "--prior-scale", "3")
    words = ("sample", "store.zarr", "-o", "run", "--model", "logistic", "--quiet")
    done = streammc(*words, "--control-variates", "cv")
    assert 78 == done.code
    assert not Path("run").exists()
