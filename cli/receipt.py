"""The receipt ``<output>.config.json``: settings and inputs of an output, to recognise a rerun."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from streammc.cli.configuration import write_json
from streammc.cli.input_description import (
    describe_inputs,
    differences,
    input_contents,
    same_inputs,
)
from streammc.cli.output import plain
from streammc.errors import (
    AccessError,
    BusyError,
    ConfigError,
    IdentityError,
    OutputError,
    StorageIOError,
)
from streammc.trace.debris import RECEIPT, collect_beside
from streammc.trace.kinds import CONTROL_VARIATES, GROUP_EFFECTS, PREDICTIONS, STORE, found_at
from streammc.trace.lock import folder_lock

DRAWS: Final = "digest of the draws"
"""Key of a receipt: a run made again by another version has other draws under the same settings."""
_REPLACED: Final = {
    "ingest": STORE,
    "simulate": STORE,
    "summarize": CONTROL_VARIATES,
    "predict": PREDICTIONS,
    "effects": GROUP_EFFECTS,
}
"""Kind of data that each command replaces with --overwrite."""


def require_apart(output: str, inputs: Sequence[str]) -> None:
    """Raise ConfigError if ``output`` is one of the inputs or inside one."""
    from streammc.stores.cloud.address import split_arrays
    from streammc.trace.local_path import is_address

    if is_address(output):
        return
    target = os.path.realpath(output)
    for name in inputs:
        if is_address(name):
            continue
        source = os.path.realpath(split_arrays(name)[0])
        if target == source or target.startswith(source.rstrip(os.sep) + os.sep):
            raise ConfigError(
                f"expected an output outside the input {name!r}, found {output!r}: "
                "choose another output"
            )


class Receipt:
    """The file beside an output with the settings and inputs that made it, and the result.

    Parameters
    ----------
    output
        Path of the store or result.
    asked
        Resolved settings and inputs of the command, as JSON types.
    sources
        The inputs of ``asked["sources"]``, whose contents are kept too: see :func:`describe_inputs`
        with ``states``.
    """

    def __init__(self, output: str, asked: Mapping[str, Any], sources: Sequence[str] = ()) -> None:
        self.output = Path(os.path.abspath(output))
        self.path = self.output.with_name(f"{self.output.name}{RECEIPT}")
        self._output = output
        self._asked = plain(asked)
        self._sources = tuple(sources)
        self.touched = False
        """Whether :meth:`kept` found inputs with the same contents in other files."""
        self._contents: list[str | None] | None = None

    def kept(self, describe: Callable[[], Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the result of an earlier, equal command; ``None`` if there is no output.

        Parameters
        ----------
        describe
            Returns the description of the existing output, with its ``fingerprint``.

        Raises
        ------
        IdentityError
            If the output was made from other settings or inputs, or has changed.
        """
        if not os.path.lexists(self._output):
            return None
        try:
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            asked, result = kept["asked"], kept["result"]
            contents = kept.get("contents")
        except (OSError, ValueError, KeyError, TypeError):
            raise IdentityError(
                f"expected nothing at {self._output!r}, but it exists, and not from this "
                f"command: choose another path or delete it{self._or_overwrite()}"
            ) from None
        if asked != self._asked and not self._same_contents(asked, contents):
            found, remedy = differences(asked, self._asked)
            raise IdentityError(
                f"expected {self._output!r} to be made by the same command, found {found}: {remedy}"
                f"choose another path or delete it{self._or_overwrite()}"
            )
        there = dict(describe())
        before = [each["fingerprint"] for each in there.get("generations", ())]
        if result is None or result.get("fingerprint") in before:  # rows were appended since
            return there
        if there.get("fingerprint") != result.get("fingerprint"):
            raise IdentityError(
                f"expected {self._output!r} as it was made, found another fingerprint: "
                f"choose another path or delete it{self._or_overwrite()}"
            )
        return dict(result)

    def _same_contents(self, before: Any, contents: Any) -> bool:
        """Return whether only inodes and times of a change of status differ, not the contents."""
        if not self._sources or not isinstance(before, dict):
            return False
        if {**before, "sources": None} != {**self._asked, "sources": None}:
            return False
        known = same_inputs(before.get("sources"), self._asked["sources"], contents, self._sources)
        if known is None:
            return False
        if contents:
            self._contents, self.touched = known, True
        return True

    def lacks(self, name: str) -> bool:
        """Return whether the receipt that is there, of an earlier version, does not have a key."""
        there = self._there()
        return there is not None and name not in there["asked"]

    def _or_overwrite(self) -> str:
        """Return the advice to use --overwrite, if the command can replace the output."""
        found = found_at(self._output)
        replaced = _REPLACED.get(str(self._asked["command"]))
        return ", or replace it with --overwrite" if found and found.kind == replaced else ""

    def write(self, result: Mapping[str, Any] | None) -> None:
        """Write the receipt; before the work is done ``result`` is ``None``.

        Raises
        ------
        OutputError, AccessError, StorageIOError
            If it cannot be written.
        """
        try:
            known = {"contents": self._read_contents()} if self._sources and result else {}
            write_json(self.path, {"asked": self._asked, "result": result, **known})
        except PermissionError as error:
            raise AccessError(
                f"expected to write {str(self.path)!r}: {error.strerror}; check the permissions"
            ) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
            kind = StorageIOError if full else OutputError
            raise kind(
                f"cannot create {str(self.path)!r}: {error.strerror}; give a path in an existing, "
                "writable folder"
            ) from error

    def _read_contents(self) -> list[str | None] | None:
        """Return the digest of the contents of each source; ``None`` if one is another by now."""
        if self._contents is None:
            found = [input_contents(path) for path in self._sources]
            if plain(describe_inputs(self._sources, states=True)) == self._asked["sources"]:
                self._contents = found
        return self._contents

    def renew(self, make: Callable[[], Mapping[str, Any]]) -> tuple[dict[str, Any], bool]:
        """Replace the output by what ``make`` makes from it; return the result and true.

        The receipt is written first, without a result: after a kill the same command finds the
        old output or the new one, and goes on from either.
        """
        self.write(None)
        result = plain(make())
        self.write(result)
        return dict(result), True

    @contextmanager
    def taken_away(self) -> Iterator[None]:
        """Remove the receipt while the block runs; restore it if the block fails."""
        old = self.path.read_bytes() if self.path.exists() else None
        self.remove()
        try:
            yield
        except BaseException:
            if old is not None:
                self.path.write_bytes(old)
            raise

    def begin(self) -> bool:
        """Write the receipt without a result, unless there is an output; return whether there is.

        Copies of a command may begin at once, and other commands with the same output. Where
        another one has begun, nobody keeps a receipt until the work is done: an output is never
        taken for that of a command which did not make it.
        """
        with folder_lock(self.path.parent):
            if os.path.lexists(self._output):
                return True
            there = self._there()
            if there is not None and there["result"] is None and there["asked"] != self._asked:
                self.remove()
            elif there is None or there["result"] is not None:
                self.write(None)
        return False

    def give_up(self) -> None:
        """Delete a receipt of this command without a result, where there is no output."""
        with folder_lock(self.path.parent):
            there = self._there()
            if there is None or os.path.lexists(self._output):
                return
            if there["result"] is None and there["asked"] == self._asked:
                self.remove()

    def _there(self) -> dict[str, Any] | None:
        """Return the receipt that is there; ``None`` if there is none that can be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return {"asked": found["asked"], "result": found["result"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Delete the receipt, and ignore an error: that of the work is the one to report."""
        with suppress(OSError):
            self.path.unlink()


def of_draws(output: str, asked: dict[str, Any], *, overwrite: bool = False) -> Receipt:
    """Return the receipt of an output made from draws.

    Receipts of earlier versions lack a digest of the draws: it is left out where one of them is
    compared, and not where the output is made again.
    """
    receipt = Receipt(output, asked)
    if not overwrite and os.path.lexists(output) and receipt.lacks(DRAWS):
        receipt = Receipt(output, {name: each for name, each in asked.items() if name != DRAWS})
    return receipt


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
            result = plain(make())
        receipt.write(result)
        return result, True
    while True:
        kept = receipt.kept(describe)
        if kept is not None:
            if receipt.touched:
                receipt.write(kept)
            with suppress(OSError):  # of a writer that was killed after its last step but one
                collect_beside(receipt.output)
            return kept, False
        try:
            refuse_existing(receipt.output)
            if receipt.begin():
                continue
            result = plain(make())
        except BaseException as error:
            if isinstance(error, IdentityError) and os.path.lexists(receipt.output):
                continue  # made since by another process: perhaps a copy of this command
            if not isinstance(error, BusyError):
                receipt.give_up()
            raise
        receipt.write(result)
        return result, True
