from __future__ import annotations

import numpy as np
import pytest

from streammc.control_variates.coordinates import covering_draws


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_draws_are_standard_normal(dim):
    many = np.concatenate([covering_draws(16, dim, purpose) for purpose in range(600)])
    count = many.size
    assert abs(many.mean()) < 4.5 / np.sqrt(count)
    assert 0.94 < (many**2).mean() < 1.005
    # lengths are the middles of 16 equal parts, so the tails are cut a little
    assert 2.2 < (many**4).mean() < 3.05


def test_lengths_and_directions_are_spread():
    draws = covering_draws(8, 8, 0)
    gram = draws @ draws.T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
    lengths = np.sort(np.linalg.norm(covering_draws(8, 3, 0), axis=1))
    assert lengths[0] < 1.0
    assert lengths[-1] > 2.4


def test_draws_differ_between_purposes_and_repeat_for_one():
    np.testing.assert_array_equal(covering_draws(8, 4, 1), covering_draws(8, 4, 1))
    assert not np.allclose(covering_draws(8, 4, 1), covering_draws(8, 4, 2))
