"""Groups as rows: every group once, whatever the chunks, and its rows where they are."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from streammc import from_arrays, from_table
from streammc.control_variates.full_pass.block_pass import ExpansionPass
from streammc.errors import ConfigError, StoreError
from streammc.likelihood.data_views import (
    Grouped,
    by_group,
    fewer,
    relative_sizes,
    tempered,
    together,
)
from streammc.models import gaussian
from streammc.priors import normal
from streammc.protocols import PassTask, Rows
from streammc.stores.store import _opened_again


@dataclass(frozen=True)
class Table:
    """The part of a table of groups that is used here."""

    offset: np.ndarray

    @property
    def n_groups(self):
        return len(self.offset) - 1

    def labels(self, start, stop):
        return np.array([f"g{i}" for i in range(start, stop)])


@dataclass(frozen=True)
class Seen(PassTask):
    """Task of a pass: the places of all groups, in order."""

    def map(self, block):
        assert len(block.y)
        assert np.array_equal(block.weight, np.ones(len(block.y)))
        return [(block.start + i, *map(int, block.X[i])) for i in range(len(block.y))]

    def combine(self, left, right):
        return left + right


def grouped(sizes, chunk_rows=4096):
    n = int(np.sum(sizes))
    rng = np.random.default_rng(3)
    data = from_arrays(rng.normal(size=(n, 2)), rng.normal(size=n), chunk_rows=chunk_rows)
    data.groups = Table(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    return Grouped(data)


@pytest.mark.parametrize(
    "sizes",
    [
        [5, 1, 7],
        [4096, 4096, 1],
        [3, 13_000, 2, 9000, 4],  # groups over several pieces, and pieces without a first row
        [300_000, 3, 2],  # a group larger than a call
        np.random.default_rng(1).integers(1, 200, 700),
    ],
)
def test_a_pass_sees_every_group_once_and_in_order(sizes):
    data = grouped(sizes)
    first = np.cumsum(sizes) - sizes
    assert data.reduce(Seen()) == [*zip(range(len(sizes)), first, sizes, strict=True)]
    assert data.n_rows == len(sizes)


@dataclass(frozen=True)
class Threads(PassTask):
    """Task of a pass: the places of all groups, and the threads that saw them."""

    barrier: threading.Barrier

    def map(self, block):
        self.barrier.wait(timeout=60)
        return Seen().map(block), {threading.get_ident()}

    def combine(self, left, right):
        return left[0] + right[0], left[1] | right[1]


def test_groups_of_one_block_are_shared_by_threads_and_combined_in_order():
    data = grouped([50] * 4000, chunk_rows=2**18)  # 200,000 rows: one block, four parts
    places, threads = data.reduce(Threads(threading.Barrier(2)), scheduler=2)
    alone, one = data.reduce(Threads(threading.Barrier(1)), scheduler=1)
    assert places == alone
    assert [place[0] for place in places] == list(range(4000))
    assert (len(threads), len(one)) == (2, 1)


def test_gather_returns_places_of_groups_and_weight_zero_past_the_last():
    data = grouped([5, 1, 7])
    out = Rows(np.empty((4, 2)), np.empty(4), np.empty(4), np.empty(4))
    data.rows().gather(np.array([1, 2]), 2, out)
    assert out.X.tolist() == [[5, 1], [6, 7], [6, 7], [0, 0]]
    assert out.weight.tolist() == [1, 1, 1, 0]


def test_sizes_of_groups_are_in_units_of_the_mean_and_those_of_rows_are_one():
    groups = grouped([5, 1, 6])
    assert relative_sizes(groups, np.array([2, 0])) == pytest.approx([1.5, 1.25])
    assert relative_sizes(tempered(groups, 2.0), np.array([1])) == pytest.approx([0.25])
    np.testing.assert_array_equal(relative_sizes(groups.dataset, np.array([7, 3])), [1.0, 1.0])


def test_rows_of_groups_are_requested_ahead_once_each():
    data, asked = grouped([5, 130, 7]), []

    class Source:
        n_rows, row_bytes = 142, 8

        def will_need(self, starts, unit_rows):
            asked.extend((int(start), unit_rows) for start in starts)

    data.dataset.rows = Source
    data.rows().will_need(np.array([1, 2]), 1)
    assert asked == [(5, 64), (69, 64), (133, 64), (135, 64)]


def test_labels_are_the_ids_and_the_table_is_found_under_a_temperature():
    data = grouped([5, 1, 7])
    assert data.row_ids(1).tolist() == ["g1", "g2"]
    assert tempered(data, 2.0).table is data.dataset


def test_a_task_of_a_store_gives_the_same_after_it_was_pickled(tmp_path):
    rng = np.random.default_rng(4)
    n, path = 9000, tmp_path / "s.zarr"
    table = {"y": rng.normal(size=n), "x": rng.normal(size=n), "g": rng.integers(0, 700, n)}
    store = from_table(table, formula="y ~ x + (1 | g)", path=path, chunk_rows=4096)
    data, model = by_group(store, gaussian(prior=normal(scale=1.0)))
    theta = np.zeros(model.dim(2))
    task = ExpansionPass(model, theta, np.zeros((1, len(theta))), 2, 10, check_response=True)
    here, there = data.reduce(task), data.reduce(pickle.loads(pickle.dumps(task)))
    assert here.n_rows == 700
    assert np.array_equal(here.totals, there.totals)
    again = pickle.loads(pickle.dumps(store))
    assert again.fingerprint == store.fingerprint
    from_table(table, formula="y ~ x", path=path, overwrite=True)
    _opened_again.cache_clear()
    with pytest.raises(StoreError, match=r"expected the store .* as it was"):
        pickle.loads(pickle.dumps(store))


def test_groups_in_memory_are_refused_on_a_cluster():
    with pytest.raises(ConfigError, match="a store on disk for a cluster"):
        grouped([5, 1]).reduce(Seen(), scheduler="tcp://localhost:1")


@pytest.mark.parametrize(
    ("count", "rows", "found"),
    [
        (16_384, 10, 1638),  # about as many rows
        (16_384, 100, 256),  # rather more rows than so few groups
        (16_384, 1000, 65),  # at most four times as many rows
        (16_384, 10_000, 64),
        (100, 1, 100),
    ],
)
def test_groups_of_a_sample_are_counted_by_their_rows(count, rows, found):
    data = grouped(np.full(3000, 1))
    data.dataset.n_rows = 3000 * rows
    assert fewer(count, data) == found
    assert fewer(count, tempered(data, 2.0)) == found
    assert fewer(count, data.dataset) == count


def test_the_first_groups_with_a_number_of_rows_together():
    data = grouped([500, 1, 700, *[10] * 100])
    assert together(np.arange(103), data, 1200) == 64
    assert together(np.arange(103), data, 1951) == 78
    assert together(np.arange(2), data, 1) == 2
    assert together(np.arange(70), data.dataset, 1) == 70
