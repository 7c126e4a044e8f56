from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from streammc import registry
from streammc.errors import ConfigError, StorageIOError
from streammc.models.check import evaluate
from streammc.stores import open_store, simulation
from streammc.stores.format import partial
from streammc.stores.simulation import KINDS, SimulatedGroups, _chunk_rows, _stream_rows, simulate
from streammc.stores.store import verify


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    store = open_store(path)
    X, y = store.rows().arrays[:2]
    return np.array(X[: store.n_rows], float), np.array(y[: store.n_rows], float)


def _score(path: Path, kind: str) -> np.ndarray:
    """z-scores of the gradient at the truth: N(0, 1) each if the response is right."""
    X, y = _arrays(path)
    eta = X @ np.array(open_store(path).attributes["simulation"]["theta"])
    mean = np.exp(eta) if kind == "poisson" else 1 / (1 + np.exp(-eta))
    variance = mean if kind == "poisson" else mean * (1 - mean)
    return X.T @ (y - mean) / np.sqrt((X**2).T @ variance)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_groups_have_random_intercepts(tmp_path: Path, kind: str) -> None:
    rows, n_groups = 150_000, 500
    record = simulate(kind, tmp_path / "s", rows, 3, 3, groups=n_groups, chunk_rows=4096)
    store = open_store(tmp_path / "s")
    groups, made = store.groups, SimulatedGroups(rows, n_groups, 3)
    assert groups is not None
    assert (n_groups, 1.0) == (record["groups"], record["tau"])
    assert np.array_equal(made.offset, groups.offset)
    assert np.array_equal(np.arange(n_groups), groups.labels(0, n_groups))
    sizes = np.diff(groups.offset)
    assert sizes.min() < 0.3 * rows / n_groups < 3 * rows / n_groups < sizes.max()
    assert abs(made.effects.std() - 1) < 4.5 / np.sqrt(2 * n_groups)
    X, y = _arrays(tmp_path / "s")
    for effects, right in ((np.repeat(made.effects, sizes), True), (np.zeros(rows), False)):
        eta = X @ np.array(record["theta"]) + effects
        mean = np.exp(eta) if kind == "poisson" else 1 / (1 + np.exp(-eta))
        variance = mean if kind == "poisson" else mean * (1 - mean)
        residual = np.add.reduceat(y - mean, groups.offset[:-1])
        scores = residual / np.sqrt(np.add.reduceat(variance, groups.offset[:-1]))
        assert (abs((scores**2).mean() - 1) < 4.5 * np.sqrt(2 / n_groups)) == right
    assert verify(tmp_path / "s")["ok"]


def test_rows_of_a_simulation_with_groups_do_not_depend_on_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for chunk_rows, cores in ((4096, -1), (65_536, 1)):
        monkeypatch.setattr(simulation, "available_threads", lambda cores=cores: cores)
        path = tmp_path / str(chunk_rows)
        simulate("gaussian", path, 140_000, 2, 5, chunk_rows, groups=7)
        found.append(_arrays(path))
    assert all(map(np.array_equal, *found))


def test_groups_of_other_kinds_or_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one linear predictor for groups, found 'mixture'"):
        simulate("mixture", tmp_path / "s", 100, 2, 1, groups=3)
    for groups in (1, 101, 2.5):
        with pytest.raises(ConfigError, match="between 2 and 100 groups"):
            simulate("logistic", tmp_path / "s", 100, 2, 1, groups=groups)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_response_follows_the_recorded_truth(tmp_path: Path, kind: str) -> None:
    record = simulate(kind, tmp_path / "s", 200_000, 5, 3)
    assert open_store(tmp_path / "s").attributes["simulation"] == record
    assert np.abs(_score(tmp_path / "s", kind)).max() < 4.5


def _model_scores(path: Path) -> np.ndarray:
    """z-scores of the derivatives of the likelihood of the kind's model at the truth."""
    X, y = _arrays(path)
    truth = open_store(path).attributes["simulation"]
    model = registry.model(truth.get("model", truth["kind"]))(**truth.get("options", {}))
    first = model.n_linear * X.shape[1]
    shared = [*truth["theta"][first:], *(np.log(truth["scales"][name]) for name in model.scales)]
    linear = np.reshape(truth["theta"][:first], (model.n_linear, X.shape[1])) @ X.T
    eta = np.vstack([linear, *(np.full(len(X), value) for value in shared)])
    y = np.zeros(len(X)) if open_store(path).response is None else y
    slopes = evaluate(model, eta, y, 1, X.T)[1 : 1 + len(eta)]
    terms = np.vstack(
        [*(X.T * slopes[a] for a in range(model.n_linear)), *slopes[model.n_linear :]]
    )
    return terms.sum(axis=1) / np.sqrt((terms**2).sum(axis=1))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"gaussian-process"}))
def test_rows_follow_the_model_that_is_recorded(tmp_path: Path, kind: str, edit) -> None:
    dim = 1 if kind == "mixture-tied" else 4
    simulate(kind, tmp_path / "s", 100_000, dim, 3, dtype="float64")
    assert np.abs(_model_scores(tmp_path / "s")).max() < 4.5

    def move(group: dict) -> None:
        truth = group["attributes"]["streammc"]["simulation"]
        if "scales" in truth:
            truth["scales"][list(truth["scales"])[-1]] *= 1.15
        else:
            truth["theta"][0] += 0.2

    edit(tmp_path / "s", "zarr.json", move)
    assert np.abs(_model_scores(tmp_path / "s")).max() > 4.5


def test_a_mixture_has_columns_alone(tmp_path: Path) -> None:
    record = simulate("mixture", tmp_path / "s", 20_000, 2, 3)
    store = open_store(tmp_path / "s")
    assert ("x1", "x2") == store.feature_names
    assert store.response is None
    assert store.attributes["intercept"] is False
    assert ["X"] == [name for name in ("X", "y") if (tmp_path / "s" / name).exists()]
    assert "gaussian-mixture" == record["model"]
    assert {"components": 3, "covariance": 1.0, "dim": 2} == record["options"]
    assert 6 == len(record["theta"])


def test_a_process_follows_its_model(tmp_path: Path) -> None:
    # At the truth the score has mean zero; over seeds its z are those of a t distribution.
    scores = []
    for seed in range(8):
        record = simulate("gaussian-process", tmp_path / str(seed), 200, 2, seed, dtype="float64")
        X, y = _arrays(tmp_path / str(seed))
        assert (X[:20].std(axis=0) > 0.1 * np.exp(record["theta"][:2]).mean()).all()
        model = registry.model(record["model"])()
        for scale in (1.0, 1.3):
            score = np.zeros(4)
            moved = np.add(record["theta"], [0.0, 0.0, 0.0, np.log(scale)])
            model.joint(X.T, y, moved, model.constants, 1, score)
            scores.append(score)
    right, wrong = np.array(scores[::2]), np.array(scores[1::2])
    z = right.mean(axis=0) / (right.std(axis=0, ddof=1) / np.sqrt(len(right)))
    assert np.abs(z).max() < 4.5
    assert wrong[:, 3].mean() / (wrong[:, 3].std(ddof=1) / np.sqrt(len(wrong))) < -4.5


def test_a_process_has_no_intercept_and_few_rows(tmp_path: Path) -> None:
    simulate("gaussian-process", tmp_path / "a", 50, 2, 1)
    store = open_store(tmp_path / "a")
    assert ("x1", "x2") == store.feature_names
    assert store.attributes["intercept"] is False
    simulate("gaussian-process", tmp_path / "b", 80, 2, 1)
    for short, long in zip(_arrays(tmp_path / "a"), _arrays(tmp_path / "b"), strict=True):
        np.testing.assert_array_equal(short, long[:50])
    with pytest.raises(ConfigError, match="expected rows between 1 and 2048, found 2049"):
        simulate("gaussian-process", tmp_path / "c", 2049, 2, 1)


@pytest.mark.parametrize("kind", ["mixture-tied", "mixture", "network", "gaussian-process"])
def test_an_intercept_is_refused_where_there_is_none(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"expected no intercept of this kind, found 1\.0"):
        simulate(kind, tmp_path / "s", 10, 1, 1, intercept=1.0)
    assert [] == list(tmp_path.iterdir())


def test_tied_means_are_of_one_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected dim 1, found 2"):
        simulate("mixture-tied", tmp_path / "s", 10, 2, 1)


def test_a_wrong_truth_would_be_seen(tmp_path: Path, edit) -> None:
    simulate("logistic", tmp_path / "s", 200_000, 5, 3)

    def move(group: dict) -> None:
        group["attributes"]["streammc"]["simulation"]["theta"][2] += 0.05

    edit(tmp_path / "s", "zarr.json", move)
    assert np.abs(_score(tmp_path / "s", "logistic")).max() > 4.5


def test_features_are_an_intercept_and_standard_normals(tmp_path: Path) -> None:
    simulate("logistic", tmp_path / "s", 200_000, 4, 5)
    X, _ = _arrays(tmp_path / "s")
    store = open_store(tmp_path / "s")
    assert ("Intercept", "x1", "x2", "x3") == store.feature_names
    assert store.attributes["intercept"] is True
    assert (X[:, 0] == 1).all()
    n = len(X)
    assert np.abs(X[:, 1:].mean(0)).max() < 4.5 / np.sqrt(n)
    assert np.abs(X[:, 1:].var(0) - 1).max() < 4.5 * np.sqrt(2 / n)


def test_rows_depend_on_the_seed_alone(tmp_path: Path) -> None:
    simulate("poisson", tmp_path / "a", 70_000, 3, 9)
    simulate("poisson", tmp_path / "b", 70_000, 3, 9, chunk_rows=5_000)
    simulate("poisson", tmp_path / "c", 140_000, 3, 9)
    simulate("poisson", tmp_path / "d", 70_000, 3, 10)
    arrays = {name: _arrays(tmp_path / name) for name in "abcd"}
    for one in "bc":
        for wanted, found in zip(arrays["a"], arrays[one], strict=True):
            assert np.array_equal(wanted, found[:70_000])
    assert not np.array_equal(arrays["a"][0], arrays["d"][0])


def test_same_command_gives_the_same_store(tmp_path: Path) -> None:
    for name in "ab":
        simulate("logistic", tmp_path / name, 1_000, 3, 1)
    assert 1 == len({verify(tmp_path / name)["fingerprint"] for name in "ab"})


@pytest.mark.parametrize("kind", ["student-t", "mixture", "network"])
def test_rows_do_not_depend_on_threads_or_dtype(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (kind, 200_000, 6)
    for threads in (1, 3):
        monkeypatch.setattr(simulation, "available_threads", lambda cores=threads - 2: cores)
        simulate(*_at(tmp_path / f"{threads}", *shape), chunk_rows=20_480)
    simulate(*_at(tmp_path / "wide", *shape), dtype="float64")
    assert 1 == len({open_store(tmp_path / name).fingerprint for name in "13"})
    for wanted, found in zip(_arrays(tmp_path / "1"), _arrays(tmp_path / "wide"), strict=True):
        assert np.array_equal(wanted, found)


def _at(path: Path, kind: str, rows: int, dim: int) -> tuple[str, Path, int, int, int]:
    return kind, path, rows, dim, 3


def test_wide_rows_are_drawn_from_shorter_streams(tmp_path: Path) -> None:
    assert 65_536 == _stream_rows(64)
    assert 8_192 == _stream_rows(500)
    assert 4_096 == _stream_rows(16_000)
    for chunk_rows in (4_096, 12_288):
        path = tmp_path / f"{chunk_rows}"
        simulate("gaussian", path, 20_000, 500, 1, chunk_rows=chunk_rows)
    a, b = (_arrays(tmp_path / name) for name in ("4096", "12288"))
    assert np.array_equal(a[0], b[0])
    assert np.array_equal(a[1], b[1])


def test_default_chunks_are_whole_streams(tmp_path: Path) -> None:
    for dim in (1, 8, 20, 29, 64):
        assert 0 == max(_chunk_rows(dim, "float32", 10**9), 65_536) % 65_536
    assert 32_768 == _chunk_rows(64, "float32", 10**6)
    simulate("logistic", tmp_path / "s", 300_000, 20, 1)
    assert 131_072 * 20 * 4 == (tmp_path / "s/X/c.0.0").stat().st_size


def test_rare_events_are_as_rare_as_asked(tmp_path: Path) -> None:
    rows, asked = 2_000_000, -8.0
    record = simulate("logistic", tmp_path / "s", rows, 4, 2, intercept=asked)
    simulate("logistic", tmp_path / "usual", 1_000, 4, 2)
    usual = open_store(tmp_path / "usual").attributes["simulation"]["theta"]
    assert [asked, *usual[1:]] == record["theta"]
    X, y = _arrays(tmp_path / "s")
    expected = (1 / (1 + np.exp(-X @ record["theta"]))).sum()
    assert 500 < expected < 2_000
    assert abs(y.sum() - expected) < 4.5 * np.sqrt(expected)


@pytest.mark.parametrize(("kind", "value"), [("logistic", -30.1), ("poisson", 12.1)])
def test_an_intercept_out_of_range_is_refused(tmp_path: Path, kind: str, value: float) -> None:
    with pytest.raises(ConfigError, match=r"expected an intercept between -30 and \d+ for"):
        simulate(kind, tmp_path / "s", 10, 2, 1, intercept=value)
    with pytest.raises(ConfigError, match="found nan"):
        simulate(kind, tmp_path / "s", 10, 2, 1, intercept=float("nan"))
    assert [] == list(tmp_path.iterdir())


def test_counts_fit_at_the_largest_intercept(tmp_path: Path) -> None:
    simulate("negative-binomial", tmp_path / "s", 65_536, 4, 1, intercept=12.0)
    _, y = _arrays(tmp_path / "s")
    assert 0 <= y.min() < y.max() < 2**31 / 4


def test_progress_grows_to_all_rows(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    simulate(
        *("logistic", tmp_path / "s", 200_000, 2, 1),
        chunk_rows=65_536,
        progress=lambda *call: calls.append(call),
    )
    assert 4 == len(calls)
    assert sorted(set(calls)) == calls
    assert (200_000, 200_000) == calls[-1]


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate("logistic", tmp_path / "s", 10**6, 4, 1, chunk_rows=65_536, progress=interrupt)
    assert [] == list(tmp_path.iterdir())


def test_a_disk_that_fills_up_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = os.write, iter(range(1000))

    def fail(descriptor: int, content: memoryview) -> int:
        if next(calls) < 5:
            return write(descriptor, content)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(partial.os, "write", fail)
    with pytest.raises(StorageIOError, match="No space left"):
        simulate("logistic", tmp_path / "s", 10**6, 4, 1, chunk_rows=65_536)
    monkeypatch.undo()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("gaussian-ish", 10, 2, 1),
        ("logistic", 0, 2, 1),
        ("logistic", 10, 0, 1),
        ("logistic", 10, 2, -1),
        ("logistic", 10, 2, 2**64),
        ("logistic", 10.0, 2, 1),
        ("logistic", 10**18, 2, 1),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: tuple
) -> None:
    kind, rows, dim, seed = arguments
    with pytest.raises(ConfigError):
        simulate(kind, tmp_path / "s", rows, dim, seed)
    assert [] == list(tmp_path.iterdir())
