"""The receipt of an output that is made from the draws of a run, and may be of fewer of them.

Scores and predictions follow from a run and from settings. In a job those of the same run and
settings are renewed where the run has more draws since, as its report is; others are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.made_by import made_by
from streammc.cli.options import OLDER, THERE
from streammc.cli.receipt import ANNOUNCED, Receipt, is_announced
from streammc.command_mark import MADE_BY, command_digest

if TYPE_CHECKING:
    from streammc.trace.row_reading import RowKind

DRAWS: Final = "digest of the draws"
"""Key of a receipt: a run made again by another version has other draws under the same settings."""
COMMITTED: Final = "committed draws"


class DrawsReceipt(Receipt):
    """The receipt of an output made from draws: see :class:`Receipt`."""

    _older: dict[str, Any] | None = None

    def older(self, describe: Callable[[], Mapping[str, Any]]) -> bool:
        """Return whether the output is that of this command for fewer draws, as it was made.

        After a kill while an output was renewed, it may be that of the receipt which was replaced.
        """
        found = self._there()
        if found is None or not os.path.lexists(self.output):
            return False
        for each in (found, found.get("replaces")):
            if not isinstance(each, dict) or not _has_fewer(each.get("asked"), self._asked):
                continue
            if self._is_of(each, describe):
                kept = ("asked", "result", MADE_BY, ANNOUNCED)
                self._older = {name: each.get(name) for name in kept}
                return True
        return False

    def _is_of(self, receipt: Mapping[str, Any], describe: Callable[[], Mapping[str, Any]]) -> bool:
        """Return whether the output that is there was made by the command of a receipt."""
        asked, result = receipt.get("asked"), receipt.get("result")
        if result is None:
            if (announced := receipt.get(ANNOUNCED)) and is_announced(announced, describe()):
                return True
            return made_by(self.output) == command_digest(asked or {})
        return not self._other(dict(describe()), result, receipt.get(MADE_BY))

    def _announced(self, facts: Mapping[str, Any]) -> None:
        """Write the facts of an output without a mark, and what it replaces."""
        self.write(None, self._older, facts)

    def renew(self, make: Callable[[], Mapping[str, Any]]) -> tuple[dict[str, Any], bool]:
        """Replace the output that :meth:`older` found; see :meth:`Receipt.renew`."""
        self.write(None, self._older)
        result = self.marked(make)
        self.write(result)
        return result, True

    def state(self, describe: Callable[[], Mapping[str, Any]]) -> str:
        """Return whether the output in a job is left or to be renewed.

        Raises
        ------
        IdentityError
            If it was made from other settings or another run, or has changed.
        """
        if self.older(describe):
            return OLDER
        self.kept(describe)
        return THERE


def described_rows(output: str, of: RowKind) -> dict[str, Any]:
    """Return the facts of predictions or effects; of a table the digest of the file."""
    from streammc.trace.row_reading import read_meta
    from streammc.trace.row_tables import ZARR, file_digest, output_format

    if output_format(output) == ZARR:
        return read_meta(output, of)[0]
    return {"fingerprint": file_digest(output)}


def of_draws(output: str, asked: dict[str, Any], *, overwrite: bool = False) -> DrawsReceipt:
    """Return the receipt of an output made from draws.

    Receipts of earlier versions lack a digest of the draws: it is left out where one of them is
    compared, and not where the output is made again.
    """
    receipt = DrawsReceipt(output, asked)
    if not overwrite and os.path.lexists(output) and receipt.lacks(DRAWS):
        receipt = DrawsReceipt(output, {k: each for k, each in asked.items() if k != DRAWS})
    return receipt


def _has_fewer(before: Any, now: Mapping[str, Any]) -> bool:
    """Return whether a command had fewer draws of the same run than another, and was the same."""
    if not isinstance(before, dict):
        return False
    same = {COMMITTED: None, DRAWS: None}
    old, new = before.get(COMMITTED), now[COMMITTED]
    return {**before, **same} == {**now, **same} and isinstance(old, int) and old < new
