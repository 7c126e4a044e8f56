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
    "predict, frame": (
        lambda s: streammc.predict("run", FRAME),
        "found DataFrame: call streammc.from_t",
    ),
    "predict, path": (
        lambda s: streammc.predict("run", "x.zarr"),
        "write streammc.open_store('x.z",
    ),
    "predict, run": (lambda s: streammc.predict(3, s), "expected the path of a run"),
    "sample, frame": (
        lambda s: streammc.sample(FRAME, MODEL),
        "found DataFrame: call streammc.from_table",
    ),
    "sample, name": (lambda s: streammc.sample(s, "logistic"), "expected a model, such as"),
    "sample, builder": (lambda s: streammc.sample(s, streammc.models.logistic), "call it, name()"),
    "sample, class": (lambda s: streammc.sample(s, MODEL, sampler=dict), "expected a sampler"),
    "sample, progress": (
        lambda s: streammc.sample(s, MODEL, progress=True),
        "found True: leave it",
    ),
    "sample, audit": (lambda s: streammc.sample(s, MODEL, audit="yes"), "found 'yes'"),
    "pass, frame": (lambda s: streammc.control_variates(FRAME, MODEL), "found DataFrame: call"),
    "pass, name": (lambda s: streammc.control_variates(s, "logistic"), "expected a model, such as"),
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
def test_another_kind_is_refused(store: Any, name: str) -> None:
    call, message = CASES[name]
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        call(store)
    assert "\n" not in str(caught.value)


def test_frames_of_dask_and_lazy_ones_are_sent_on() -> None:
    frames = pytest.importorskip("dask.dataframe")
    with pytest.raises(ConfigError, match=r"use streammc\.from_dask"):
        streammc.from_table(frames.from_pandas(FRAME, npartitions=2), response="y")

    class Lazy:
        def collect(self) -> pd.DataFrame:
            return FRAME

    with pytest.raises(ConfigError, match=r"collect\(\) it first"):
        streammc.from_table(Lazy(), response="y")
