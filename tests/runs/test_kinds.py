"""Arguments of another kind are refused in one line that says what to write."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streammc
from streammc.errors import ConfigError

RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"a": RNG.normal(size=50), "y": RNG.integers(0, 2, 50)})


@pytest.fixture(scope="module")
def store() -> Any:
    return streammc.from_table(FRAME, response="y")


MODEL = streammc.models.logistic()

CASES: dict[str, tuple[Any, str]] = {
    "predict, no table": (
        lambda s: streammc.predict("run", None),
        "expected a data set, such as",
    ),
    "predict, run": (lambda s: streammc.predict(3, s), "expected the path of a run"),
    "sample, frame": (
        lambda s: streammc.sample(FRAME, MODEL),
        "found DataFrame: call streammc.from_table",
    ),
    "sample, name": (
        lambda s: streammc.sample(s, "logistic"),
        "expected a model, found the text 'logistic': write streammc.models.logistic()",
    ),
    "sample, text": (lambda s: streammc.sample(s, "my own"), "expected a model, such as"),
    "sample, builder": (lambda s: streammc.sample(s, streammc.models.logistic), "call it, name()"),
    "sample, name of a sampler": (
        lambda s: streammc.sample(s, MODEL, sampler="hmc_esc"),
        "expected a sampler, found the text 'hmc_esc': write streammc.samplers.hmc_ecs()",
    ),
    "sample, class": (lambda s: streammc.sample(s, MODEL, sampler=dict), "expected a sampler"),
    "sample, progress": (
        lambda s: streammc.sample(s, MODEL, progress=True),
        "found True: leave it",
    ),
    "sample, audit": (lambda s: streammc.sample(s, MODEL, audit="yes"), "found 'yes'"),
    "pass, frame": (lambda s: streammc.control_variates(FRAME, MODEL), "found DataFrame: call"),
    "sample, no model": (lambda s: streammc.sample(s, None), "expected a model, such as"),
    "sample, no store": (lambda s: streammc.sample(None, MODEL), "expected a data set, such as"),
    "sample, URL": (lambda s: streammc.sample(s, MODEL, path="ftp://b/run"), "found ftp://"),
    "sample, path": (lambda s: streammc.sample(s, MODEL, path=3), "expected a path, found int"),
    "sample, control variates": (
        lambda s: streammc.sample(s, MODEL, control_variates="cv.zarr"),
        "expected control variates, found str",
    ),
    "pass, passes": (
        lambda s: streammc.control_variates(s, MODEL, passes="2"),
        "a whole number of passes >= 1, found '2'",
    ),
    "pass, theta_star": (
        lambda s: streammc.control_variates(s, MODEL, theta_star="zero"),
        "finite numbers, found str",
    ),
    "pass, memory": (
        lambda s: streammc.control_variates(s, MODEL, memory_limit=-1),
        "expected memory_limit as a whole number of at least 1, found -1",
    ),
    "resolved, no model": (
        lambda s: streammc.control_variates.resolved(None, s),
        "expected a model, such as",
    ),
    "facts, path": (lambda s: streammc.facts("run"), "expected a run or predictions, found str"),
    "summarize, path": (
        lambda s: streammc.diagnostics.summarize("run"),
        "expected a tree with a group 'posterior', found str",
    ),
    "user, link": (
        lambda s: streammc.models.user("own", link="logit"),
        "expected a function as link, found 'logit'",
    ),
    "arrays, names": (
        lambda s: streammc.from_arrays(np.ones((5, 2)), response=3),
        "the name of the response as text, found int",
    ),
    "pass, name": (
        lambda s: streammc.control_variates(s, "logistic"),
        "found the text 'logistic': write streammc.models.logistic",
    ),
    "table, xarray": (
        lambda s: streammc.from_table(FRAME.to_xarray(), response="y"),
        "use streammc.from_xarray",
    ),
    "table, array": (
        lambda s: streammc.from_table(FRAME.to_numpy(), response="y"),
        "use streammc.from_arrays",
    ),
    "open_run, tree": (lambda s: streammc.open_run(FRAME), "expected the path of a run"),
    "open_store, frame": (lambda s: streammc.open_store(FRAME), "expected a path, found DataFrame"),
}


@pytest.mark.parametrize("name", CASES)
def test_argument_of_another_kind_is_refused(store: Any, name: str) -> None:
    call, message = CASES[name]
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        call(store)
    assert "\n" not in str(caught.value)


def test_a_series_of_dask_is_refused_with_what_to_call() -> None:
    frames = pytest.importorskip("dask.dataframe")
    with pytest.raises(ConfigError, match=r"for streammc\.from_dask"):
        streammc.from_table(frames.from_pandas(FRAME, npartitions=2)["y"], response="y")
