"""Samplers that keep all rows in memory say how much they take before they take it."""

from __future__ import annotations

import numpy as np
import pytest

from streammc.errors import OutOfMemoryError
from streammc.likelihood.contiguous_rows import held_bytes
from streammc.models import logistic
from streammc.priors import normal
from streammc.runs.job import run_job
from streammc.samplers import mintee, pt, spt, stt, tt
from streammc.samplers.common import preparation
from streammc.samplers.common.preparation import size_text
from streammc.samplers.common.sampler import RunRequest
from streammc.samplers.tempering import problem
from streammc.stores import from_arrays
from streammc.stores.memory import MemoryStore

N, Q, CHAINS = 400, 2, 3
ROWS = held_bytes(N, Q)
BUILDERS = {"pt": pt, "spt": spt, "tt": tt, "stt": stt}
OPTIONS = {"n_levels": 3, "beta_min": 0.25}
MINE = {
    "spt": ROWS + 8 * N,
    "spt, independent": held_bytes(N // 2 + N // 4, Q) + 8 * N * 2,
    "stt": held_bytes(N // 2, Q),
}
"""Bytes of the subsets of a chain: of its rows and, of spt, of the order that they come in."""


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(N), rng.normal(size=N)]
    return from_arrays(X, (rng.random(N) < 0.5).astype(float))


class Heard:
    """The forecasts of a run, and what was read or allocated before each of them."""

    def __init__(self, monkeypatch):
        self.forecasts = []
        self.before = []
        for where, name in ((MemoryStore, "reduce"), (MemoryStore, "rows")):
            monkeypatch.setattr(where, name, self._counted(getattr(where, name)))
        self.used = 0

    def _counted(self, function):
        def call(*words, **options):
            self.used += 1
            return function(*words, **options)

        return call

    def __call__(self, phase, done, total, facts):
        if phase == "forecast":
            self.forecasts.append(facts)
            self.before.append(self.used)


def request(data, sampler, path, **options):
    settings = {"draws": 3, "warmup": 3, "chains": CHAINS, "seed": 1, "audit": False}
    return RunRequest(data, logistic(prior=normal(2.0)), sampler, path=path, **settings, **options)


def built(name):
    kind, _, subsets = name.partition(", ")
    return BUILDERS[kind](**OPTIONS, **({"subsets": subsets} if subsets else {}))


@pytest.mark.parametrize("name", [*BUILDERS, "mintee"])
def test_bytes_of_all_rows_are_said_before_a_row_is_read(data, tmp_path, monkeypatch, name):
    heard = Heard(monkeypatch)
    sampler = mintee(n_levels=2, subset_size=50) if name == "mintee" else built(name)
    run_job(request(data, sampler, tmp_path / "run", progress=heard))
    first = heard.forecasts[0]
    assert f"{name} keeps all 400 rows in memory: 0.016 MB" == first["text"]
    assert (N, ROWS, 0) == (first["rows"], first["memory_bytes"], heard.before[0])
    assert heard.used > 0


@pytest.mark.parametrize("name", MINE)
def test_bytes_of_subsets_are_those_of_every_chain(data, tmp_path, monkeypatch, name):
    heard = Heard(monkeypatch)
    run_job(request(data, built(name), tmp_path / "run", progress=heard))
    said = heard.forecasts[1]
    assert CHAINS * MINE[name] == said["memory_bytes"]
    assert f"each of 3 chains keeps {said['rows']} rows of its subsets: " in said["text"]


@pytest.mark.parametrize("name", [*BUILDERS, "mintee"])
def test_rows_that_do_not_fit_are_refused_before_a_row_is_read(data, tmp_path, monkeypatch, name):
    heard = Heard(monkeypatch)
    monkeypatch.setattr(preparation, "memory_limit", lambda: ROWS - 1)
    sampler = mintee(n_levels=2, subset_size=50) if name == "mintee" else built(name)
    with pytest.raises(OutOfMemoryError, match=f"for {name}, .* found 400 rows x 2 features"):
        run_job(request(data, sampler, tmp_path / "run", progress=heard))
    assert (0, []) == (heard.used, [*tmp_path.iterdir()])


@pytest.mark.parametrize("name", MINE)
def test_subsets_of_all_chains_that_do_not_fit_are_refused(data, tmp_path, monkeypatch, name):
    fits = CHAINS * MINE[name]
    monkeypatch.setattr(problem, "memory_limit", lambda: fits - 1)
    with pytest.raises(OutOfMemoryError, match="in each of 3 chains") as error:
        run_job(request(data, built(name), tmp_path / "run"))
    assert 71 == error.value.exit_code
    assert [] == [*tmp_path.iterdir()]
    monkeypatch.setattr(problem, "memory_limit", lambda: fits)
    assert run_job(request(data, built(name), tmp_path / "run")).finished


def test_sizes_are_said_in_the_unit_that_fits():
    assert ["0.016 MB", "99 MB", "0.1 GB", "1.6 GB", "1,234.5 GB"] == [
        size_text(size) for size in (16_000, 99_000_000, 10**8, 1_600_000_000, 1_234_500_000_000)
    ]
