"""The advice on data of another kind: the store that they were made from, if it has a name."""

from __future__ import annotations

import pytest

from streammc.errors import StoreError
from streammc.trace import kinds
from streammc.trace.kinds import CONTROL_VARIATES, GROUP_EFFECTS, PREDICTIONS, RUN, STORE, Found

USED = "give the store that was used"
SAMPLED = "give the store that was sampled (it was 'rows.zarr')"
PREDICTED = "give the store of the rows that were predicted (it was 'rows.zarr')"


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (Found(RUN, "rows.zarr"), SAMPLED),
        (Found(RUN, "memory"), USED),
        (Found(RUN), USED),
        (Found(PREDICTIONS, "rows.zarr"), PREDICTED),
        (Found(PREDICTIONS, "memory"), USED),
        (Found(PREDICTIONS), USED),
        (Found(GROUP_EFFECTS, "rows.zarr"), USED),
        (Found(CONTROL_VARIATES, "rows.zarr"), USED),
    ],
)
def test_the_advice_names_the_store_where_it_has_a_name(monkeypatch, found, advice):
    monkeypatch.setattr(kinds, "found_at", lambda path: found)
    with pytest.raises(StoreError) as error:
        kinds.refuse_other_kind("given", STORE)
    assert str(error.value).endswith(
        f"at 'given', found {kinds.with_article(found.kind)}: {advice}"
    )
