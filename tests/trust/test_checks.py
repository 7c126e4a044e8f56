"""Every check of the battery has a test or a reason, and every mark a check."""

from __future__ import annotations

from checks_of_trust import CHECKS, MOST_IMPORTANT, TESTS, WITHOUT_TEST, marked


def test_every_check_has_a_test_or_a_reason_and_every_mark_a_check() -> None:
    assert set(CHECKS) - set(WITHOUT_TEST) == set(marked())


def test_every_check_that_matters_most_states_what_its_control_caught() -> None:
    for number in MOST_IMPORTANT - set(WITHOUT_TEST):
        files = {TESTS / test.partition("::")[0] for test in marked()[number]}
        assert any('"caught"' in path.read_text(encoding="utf-8") for path in files), number
