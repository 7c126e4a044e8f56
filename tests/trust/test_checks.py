"""Every check of the battery has a test, and every mark a check."""

from __future__ import annotations

from checks_of_trust import CHECKS, marked


def test_every_check_has_a_test_and_every_mark_a_check() -> None:
    assert set(CHECKS) == set(marked())
