"""Outputs that a command makes once: the same command again finds what is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from streammc.cli.receipt import Receipt
from streammc.errors import BusyError, IdentityError
from streammc.trace.debris import collect_beside


def make_once(
    receipt: Receipt,
    describe: Callable[[], Mapping[str, Any]],
    make: Callable[[], Mapping[str, Any]],
    *,
    overwrite: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Return the result of ``make``, or of an earlier equal command, and whether it is new.

    The receipt is written first, so that after a kill the same command still recognises its
    output. With ``overwrite`` the receipt is removed first and written last, so that after a
    kill the old output is not taken for the new one.
    """
    from streammc.stores.format.partial import refuse_existing

    if overwrite:
        with receipt.taken_away():
            result = receipt.marked(make)
        receipt.write(result)
        return result, True
    while True:
        kept = receipt.kept(describe)
        if kept is not None:
            if receipt.outdated:
                receipt.write(kept)
            with suppress(OSError):  # of a writer that was killed after its last step but one
                collect_beside(receipt.output)
            return kept, False
        try:
            refuse_existing(receipt.output)
            if receipt.begin():
                continue
            result = receipt.marked(make)
        except BaseException as error:
            if isinstance(error, IdentityError) and os.path.lexists(receipt.output):
                continue  # made since by another process: perhaps a copy of this command
            if not isinstance(error, BusyError):
                receipt.give_up()
            raise
        receipt.write(result)
        return result, True
