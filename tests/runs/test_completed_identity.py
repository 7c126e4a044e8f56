from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammc
from streammc.errors import IdentityError
from streammc.runs.record import completed
from streammc.samplers import hmc
from streammc.samplers.common.sampler import Sampler
from streammc.trace.run_directory import RunDirectory, check_identity

OLDER = {"seed": 1, "sampler": {"name": "hmc", "step_size": 0.1}}
"""Identity of a run that was made before ``hmc`` had its other options."""


def test_an_option_newer_than_the_run_stands_at_its_default() -> None:
    asked = {"seed": 1, "sampler": hmc(step_size=0.1).describe()}
    check_identity(completed(OLDER), asked)
    with pytest.raises(IdentityError, match="is absent, asked for"):
        check_identity(OLDER, asked)
    other = {"seed": 1, "sampler": hmc(step_size=0.1, jitter=0.3).describe()}
    with pytest.raises(IdentityError, match=r"sampler\.jitter is None, asked for 0\.3"):
        check_identity(completed(OLDER), other)


@pytest.mark.parametrize("sampler", [{"name": "auto"}, {"name": "gone"}, {"name": "hmc", "old": 1}])
def test_an_identity_that_cannot_be_completed_stays(sampler: dict[str, object]) -> None:
    assert {"sampler": sampler} == completed({"sampler": sampler})


def test_a_run_from_before_an_option_is_extended_and_keeps_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(1).normal(size=(200, 2))
    store = streammc.stores.from_arrays(X, (X[:, 0] > 0).astype(float))
    options: dict[str, Any] = {"sampler": hmc(), "warmup": 20, "chains": 1, "seed": 1}

    def draws(path: Path, number: int) -> RunDirectory:
        streammc.sample(store, streammc.models.logistic(), draws=number, path=path, **options)
        return RunDirectory.open(path)

    describe = Sampler.describe
    with monkeypatch.context() as before:
        before.setattr(Sampler, "describe", lambda self: _without_spread(describe(self)))
        identity = draws(tmp_path / "run", 20).identity
    assert "spread" not in identity["sampler"]
    extended = draws(tmp_path / "run", 40)
    assert identity == extended.identity
    assert draws(tmp_path / "whole", 40).digest() == extended.digest()


def _without_spread(described: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name != "spread"}
