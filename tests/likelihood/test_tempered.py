"""A data set at a temperature is the one with its weights divided by T."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from streammc.likelihood.data_views import Tempered, tempered
from streammc.protocols import PassTask, PieceTask, Rows
from streammc.stores import from_arrays

N, T = 10_000, 3.0


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 5, N).astype(np.float64)
    return from_arrays(rng.normal(size=(N, 2)), rng.normal(size=N), weight=weight, chunk_rows=4096)


@dataclass(frozen=True)
class Weights(PassTask):
    """The weights, as they come."""

    def map(self, block):
        return np.array(block.weight)

    def combine(self, left, right):
        return np.concatenate([left, right])


@dataclass(frozen=True)
class WeightsByPieces(Weights):
    """The same, and how many pieces a block has."""

    def map_pieces(self, pieces):
        return np.concatenate([[-1.0], *(self.map(piece) for piece in pieces)])


def gathered(dataset, starts, unit_rows=3):
    m = len(starts) * unit_rows
    out = Rows(np.empty((m, 2)), np.empty(m), np.empty(m), np.empty(m))
    source = dataset.rows()
    source.will_need(starts, unit_rows)
    source.gather(starts, unit_rows, out)
    return out


def test_temperature_one_is_the_data_set_itself(data):
    assert data is tempered(data, 1.0)


def test_gathered_rows_count_less_and_padding_not_at_all(data):
    starts = np.array([5, 0, N - 1, 77])
    plain, hot = gathered(data, starts), gathered(tempered(data, T), starts)
    for name in ("X", "y", "offset"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(hot, name))
    np.testing.assert_array_equal(plain.weight / T, hot.weight)
    np.testing.assert_array_equal([0.0, 0.0], hot.weight[7:9])
    assert not np.array_equal(plain.weight, hot.weight)


@pytest.mark.parametrize("task", [Weights(), WeightsByPieces()])
def test_a_pass_sees_the_weights_that_a_gather_sees(data, task):
    hot = tempered(data, T)
    found = hot.reduce(task, scheduler="sync")
    pieces = found == -1.0
    assert pieces.any() == isinstance(task, PieceTask)
    rows = gathered(hot, np.arange(N), 1)
    np.testing.assert_array_equal(rows.weight, found[~pieces])
    # The data set is as it was: nothing is divided in place.
    np.testing.assert_array_equal(rows.weight * 0 + data.rows().arrays[3], data.reduce(Weights()))


class Sent:
    """A data set whose tasks go through a pickle, as to another process."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getattr__(self, name):
        return getattr(self.dataset, name)

    def reduce(self, task, **options):
        return self.dataset.reduce(pickle.loads(pickle.dumps(task)), **options)


@pytest.mark.parametrize("task", [Weights(), WeightsByPieces()])
def test_tempered_pass_gives_the_same_sums_in_another_process(data, task):
    found = tempered(Sent(data), T).reduce(task, scheduler="sync")
    np.testing.assert_array_equal(tempered(data, T).reduce(task), found)


def test_tempered_data_set_keeps_everything_but_the_weights(data):
    hot = Tempered(data, T)
    for name in ("n_rows", "n_features", "feature_names", "response", "address", "attributes"):
        assert getattr(data, name) == getattr(hot, name)
    for name in ("n_rows", "n_features", "row_bytes"):
        assert getattr(data.rows(), name) == getattr(hot.rows(), name)
    assert (data.block_rows(), data.piece_rows()) == (hot.block_rows(), hot.piece_rows())
    assert data.covariate("x1")[1] == hot.covariate("x1")[1]
    assert data.stamps().shape == hot.stamps().shape


def test_a_temperature_is_a_trait_and_leaves_the_fingerprint_of_the_table(data):
    warm = Tempered(data, 10.0 / 3.0)
    assert (data.fingerprint, 10.0 / 3.0) == (warm.fingerprint, warm.temperature)
    assert 1.0 == data.temperature == warm.units.temperature
