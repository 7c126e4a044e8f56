from __future__ import annotations

import numpy as np
import pytest
from passes import table

from streammc.control_variates import compute
from streammc.control_variates.pilot import remainders
from streammc.control_variates.subset import gather
from streammc.sampling import audit
from streammc.sampling.audit import RemainderTask, audit_draws


@pytest.mark.parametrize("family", ["logistic", "poisson", "gaussian"])
@pytest.mark.parametrize("pieces", [2**21, 600])
def test_the_pass_adds_up_the_remainders_of_every_row(family, pieces, monkeypatch):
    monkeypatch.setattr(audit, "_PIECE_ENTRIES", pieces)
    rows = table(family, n=2000, q=3)
    cv = compute(rows.store, rows.model)
    shifts = np.random.default_rng(1).standard_normal((7, cv.dim)) @ cv.factor.T * 3
    everything = gather(rows.store, np.arange(2000, dtype=np.int64))
    expected = remainders(rows.model, everything, cv.theta_star, shifts, cv.order).sum(axis=1)
    task = RemainderTask(rows.model, cv.theta_star, shifts, cv.order)
    found = rows.store.reduce(task).sum(axis=0)
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_fewer_draws_are_looked_at_where_a_pass_is_long():
    assert [400, 400, 40, 40] == [audit_draws(n) for n in (1, 10**8, 10**9, 10**11)]
