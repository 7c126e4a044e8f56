from __future__ import annotations

import pytest

from streammc.errors import IdentityError
from streammc.runs.record import completed
from streammc.samplers import hmc
from streammc.trace.run_directory import check_identity

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
