"""Receipts of commands that begin at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streammc.cli.receipt import Receipt, make_once
from streammc.errors import BusyError, IdentityError

ASKED = {"command": "score", "seed": 1}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.json"


def receipt(output: Path, **changes: Any) -> Receipt:
    return Receipt(str(output), {**ASKED, **changes})


def described(output: Path) -> dict[str, Any]:
    return {"fingerprint": output.read_text()}


def made(output: Path) -> dict[str, Any]:
    output.write_text("1")
    return described(output)


def once(output: Path, make: Any, **changes: Any) -> tuple[dict[str, Any], bool]:
    return make_once(receipt(output, **changes), lambda: described(output), make)


def test_a_copy_that_was_quicker_has_made_the_output(output: Path) -> None:
    def make() -> dict[str, Any]:
        assert ({"fingerprint": "1"}, True) == once(output, lambda: made(output))
        raise IdentityError("expected nothing here, found an output: choose another path")

    assert ({"fingerprint": "1"}, False) == once(output, make)
    assert ({"fingerprint": "1"}, False) == once(output, lambda: pytest.fail("made again"))


def test_another_command_that_was_quicker_is_named(output: Path) -> None:
    def make() -> dict[str, Any]:
        once(output, lambda: made(output), seed=2)
        raise IdentityError("expected nothing here, found an output: choose another path")

    with pytest.raises(IdentityError, match="made by the same command, found other 'seed'"):
        once(output, make)


def test_an_output_is_not_taken_for_that_of_a_command_which_began_meanwhile(output: Path) -> None:
    first, second = receipt(output), receipt(output, seed=2)
    assert not first.begin()
    assert not second.begin()
    made(output)  # by the first, which is killed before its receipt
    for each in (first, second):
        with pytest.raises(IdentityError, match="not from this command"):
            each.kept(lambda: described(output))


def test_a_copy_that_ends_because_another_is_at_work_leaves_its_receipt(output: Path) -> None:
    def busy() -> dict[str, Any]:
        raise BusyError("expected to be alone, found another process: wait for it")

    first = receipt(output)
    assert not first.begin()
    with pytest.raises(BusyError):
        once(output, busy)
    text = f'{{"made_by": "{first.mark}"}}'
    output.write_text(text)  # by the first, which is killed before its receipt
    assert {"fingerprint": text} == first.kept(lambda: described(output))


def test_a_command_that_fails_leaves_no_receipt(output: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        once(output, lambda: {"share": 1 / 0})
    assert [] == list(output.parent.iterdir())
