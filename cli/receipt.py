"""Outputs of commands: who made one, whether it may be replaced, and how it is made.

The receipt ``<output>.config.json`` has settings and inputs of an output. A command finds an output
of its own by it and leaves it; that of another is refused, or replaced with ``--overwrite``.
:func:`make_output` is the sequence of every command that has an output.

Scores and predictions follow from a run and from settings. In a job those of the same run and
settings are renewed where the run has more draws since, as its report is; others are refused. A
page is renewed where its run has changed since: more draws, an audit. A page that was edited, or is
of another run, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import streammc
from streammc.cli.configuration import write_json
from streammc.cli.input_description import (
    describe_inputs,
    differences,
    input_contents,
    same_inputs,
    with_real_paths,
)
from streammc.cli.options import COMPARE, OLDER, STAGE, THERE
from streammc.cli.output import Output, plain
from streammc.errors import (
    BusyError,
    ConfigError,
    IdentityError,
    StreammcError,
)
from streammc.trace.debris import RECEIPT, collect_beside
from streammc.trace.disk import creation_error, folder_lock
from streammc.trace.kinds import CONTROL_VARIATES, FILE, GROUP_EFFECTS, PREDICTIONS, STORE, found_at
from streammc.unfinished import MADE_BY, Owner, command_digest, making, state_of, this_process

if TYPE_CHECKING:
    from streammc.trace.row_arrays import RowKind


_HEAD_BYTES: Final = 4096
_IN_FILE: Final = re.compile(rb'"made_by"(?:: | content=)"([0-9a-f]{64})"')


def made_by(output: str | os.PathLike[str]) -> str | None:
    """Return the mark of the command that made an output; ``None`` if it has none."""
    from streammc.stores.format.manifest import read_manifest
    from streammc.trace.disk import read_file
    from streammc.trace.kinds import STORE_MANIFEST
    from streammc.trace.zarr_files import DOCUMENT_LIMIT, unseal

    path = Path(output)
    try:
        if path.is_file():
            with open(path, "rb") as file:
                found = _IN_FILE.search(file.read(_HEAD_BYTES))
            return None if found is None else found[1].decode()
        if (path / STORE_MANIFEST).exists():
            return read_manifest(path).made_by
        _, own = unseal(read_file(path / "zarr.json", limit=DOCUMENT_LIMIT), path / "zarr.json")
    except (OSError, StreammcError):
        return None
    mark = own.get(MADE_BY)
    return mark if isinstance(mark, str) else None


def with_mark(page: str, mark: str) -> str:
    """Return a page of HTML with the mark of a command in its head."""
    return page.replace("<head>", f'<head>\n<meta name="{MADE_BY}" content="{mark}">', 1)


ANNOUNCED: Final = "announced"
"""Key of a receipt without a result: the result, once the output is whole but for its name."""
_REPLACED: Final = {
    "ingest": STORE,
    "simulate": STORE,
    "summarize": CONTROL_VARIATES,
    "predict": PREDICTIONS,
    "effects": GROUP_EFFECTS,
    "export": FILE,
    "score": FILE,
}
"""Kind of data that each command replaces with --overwrite."""


def require_apart(output: str, inputs: Sequence[str]) -> None:
    """Raise ConfigError if ``output`` is one of the inputs or inside one."""
    from streammc.stores.cloud.address import split_arrays
    from streammc.trace.addresses import is_address

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
        self.target = output
        self._asked = plain(asked)
        self._sources = tuple(sources)
        self._older: dict[str, Any] | None = None
        self.outdated = False
        """Whether :meth:`kept` found a receipt without a result, or of touched inputs."""
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
        if not os.path.lexists(self.target):
            return None
        try:
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            asked, result = kept["asked"], kept["result"]
            contents, mark = kept.get("contents"), kept.get(MADE_BY)
            announced = kept.get(ANNOUNCED)
        except (OSError, ValueError, KeyError, TypeError):
            raise IdentityError(
                f"expected nothing at {self.target!r}, but it exists, and not from this "
                "command: choose another path or delete it",
                self._or_overwrite(),
            ) from None
        if not self._is_same(asked, contents):
            found, remedy = differences(asked, self._asked)
            raise IdentityError(
                f"expected {self.target!r} to be made by the same command, found {found}: {remedy}"
                "choose another path or delete it",
                self._or_overwrite(),
            )
        there = dict(describe())
        if result is None:
            self.outdated = True
            if is_announced(announced, there):
                return dict(announced)
            self._require_own(asked)
            return there
        if other := self._other(there, result, mark):
            raise IdentityError(
                f"expected {self.target!r} as it was made, found another {other}: "
                "choose another path or delete it",
                self._or_overwrite(),
            )
        return there if _was_appended_to(there, result) else dict(result)

    def _other(self, there: Mapping[str, Any], result: Mapping[str, Any], mark: Any) -> str:
        """Return what of an output is not as it was made, by its description; empty if nothing."""
        if _was_appended_to(there, result):
            return ""
        if there.get("fingerprint") != result.get("fingerprint"):
            return "fingerprint"
        found = found_at(self.output)
        whole = found is not None and found.kind in (STORE, FILE)  # digests of every byte
        return "" if whole or mark == made_by(self.output) else "output in its place"

    def _require_own(self, asked: Any) -> None:
        """Refuse an output that another command made while the receipt had no result."""
        if made_by(self.output) != command_digest(asked):
            raise IdentityError(
                f"expected {self.target!r} to be made by the command that began its receipt "
                f"{self.path.name!r} and was killed, found another output in its place: choose "
                "another path or delete it",
                self._or_overwrite(),
            )

    def _is_same(self, before: Any, contents: Any) -> bool:
        """Return whether the same was asked before; inputs in doubt are compared by contents."""
        old, new = with_real_paths(before), with_real_paths(self._asked)
        if old == new:
            return True
        if not self._sources or {**old, "sources": None} != {**new, "sources": None}:
            return False
        known = same_inputs(old.get("sources"), new["sources"], contents, self._sources)
        if known is not None and contents:
            self._contents, self.outdated = known, True
        return known is not None

    def lacks(self, name: str) -> bool:
        """Return whether the receipt that is there, of an earlier version, does not have a key."""
        there = self._there()
        return there is not None and name not in there["asked"]

    def _or_overwrite(self) -> str:
        """Return the advice to use --overwrite, if the command can replace the output."""
        from streammc.scorer import is_model_file
        from streammc.trace.row_tables import is_row_table

        found = found_at(self.target)
        replaced = _REPLACED.get(str(self._asked["command"]))
        can = found is not None and found.kind == replaced
        if found is not None and found.kind == FILE and replaced in (PREDICTIONS, GROUP_EFFECTS):
            can = is_row_table(self.output)
        elif replaced == FILE:
            mark = made_by(self.output) is not None
            can = is_model_file(self.output) if self._asked["command"] == "export" else mark
        return ", or replace it with --overwrite" if can else ""

    def write(
        self,
        result: Mapping[str, Any] | None,
        replaces: Mapping[str, Any] | None = None,
        announced: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the receipt; ``result`` is ``None`` before the work is done.

        ``replaces`` is the receipt of an output that is to be renewed, and ``announced`` the result
        of one that is about to appear and carries no mark.

        Raises
        ------
        OutputError, AccessError, StorageIOError
            If it cannot be written.
        """
        known: dict[str, Any] = {}
        if result is None:
            known["owner"] = asdict(this_process())
            known |= {} if replaces is None else {"replaces": replaces}
            known |= {} if announced is None else {ANNOUNCED: plain(announced)}
        else:
            known[MADE_BY] = made_by(self.output)
        try:
            if self._sources and result:
                known["contents"] = self._read_contents()
            write_json(self.path, {"asked": self._asked, "result": result, **known})
        except OSError as error:
            raise creation_error(error, self.path) from error

    def _read_contents(self) -> list[str | None] | None:
        """Return the digest of the contents of each source; ``None`` if one is another by now."""
        if self._contents is None:
            found = [input_contents(path) for path in self._sources]
            if plain(describe_inputs(self._sources, states=True)) == self._asked["sources"]:
                self._contents = found
        return self._contents

    def older(self, describe: Callable[[], Mapping[str, Any]]) -> bool:
        """Return whether the output is to be renewed in a job: never but one made from draws."""
        return False

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

    def renew(self, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Replace the output by what ``make`` makes from it, and return the result.

        The receipt is written first, without a result: after a kill the same command finds the
        old output or the new one, and goes on from either.
        """
        self.write(None, self._older)
        result = self.marked(make)
        self.write(result)
        return result

    @property
    def mark(self) -> str:
        """The mark of this command, which its output carries."""
        return command_digest(self._asked)

    def marked(self, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the result of ``make``, whose output carries the mark of this command."""
        with making(self.mark, self._announced):
            return dict(plain(make()))

    def _announced(self, facts: Mapping[str, Any]) -> None:
        """Write the facts of an output that carries no mark, and what it replaces."""
        self.write(None, self._older, facts)

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
            if os.path.lexists(self.target):
                return True
            there = self._there()
            if there is not None and there["result"] is None and there["asked"] != self._asked:
                self.remove()
            elif there is None or there["result"] is not None or _is_left(there):
                self.write(None)
        return False

    def give_up(self) -> None:
        """Delete a receipt of this command without a result, where there is no output."""
        with folder_lock(self.path.parent):
            there = self._there()
            if there is None or os.path.lexists(self.target):
                return
            if there["result"] is None and there["asked"] == self._asked:
                self.remove()

    def _there(self) -> dict[str, Any] | None:
        """Return the receipt that is there; ``None`` if there is none that can be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return {"owner": None, **found, "asked": found["asked"], "result": found["result"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Delete the receipt, and ignore an error: that of the work is the one to report."""
        with suppress(OSError):
            self.path.unlink()


def is_announced(announced: Any, there: Mapping[str, Any]) -> bool:
    """Return whether an output that is there is the one that a killed command announced."""
    return isinstance(announced, dict) and announced.get("fingerprint") == there.get("fingerprint")


def _is_left(receipt: Mapping[str, Any]) -> bool:
    """Return whether the process that began a receipt without a result has ended."""
    try:
        return state_of(Owner(**receipt["owner"])) == "dead"
    except TypeError:
        return True  # of an earlier version


def _was_appended_to(there: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Return whether a store is a later generation of the one with a result."""
    before = (each["fingerprint"] for each in there.get("generations", ()))
    return result.get("fingerprint") in before


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


def make_output(
    printer: Output,
    receipt: Receipt,
    describe: Callable[[], Mapping[str, Any]],
    make: Callable[[bool], Mapping[str, Any]],
    *,
    overwrite: bool = False,
    renew: bool = False,
) -> dict[str, Any] | None:
    """Make the output of a command, or leave that of an earlier equal one; return its result.

    Parameters
    ----------
    printer
        Says that an output is left.
    receipt
        Receipt of the output.
    describe
        Returns the description of an existing output, with its ``fingerprint``.
    make
        Makes the output and returns its result; called with whether it replaces an output.
    overwrite
        Replace an output of others.
    renew
        Replace an output of this command, from which the new one is made.

    Returns
    -------
    dict or None
        ``None`` in a stage of a job that compares its output: the state is its result.

    Raises
    ------
    IdentityError
        If there is an output of others, without ``overwrite``.
    """
    stage = click.get_current_context().meta
    if COMPARE in stage:
        printer.result({"state": receipt.state(describe)}, "")
        return None
    if renew or (STAGE in stage and receipt.older(describe)):
        return receipt.renew(lambda: make(True))
    result, new = make_once(receipt, describe, lambda: make(overwrite), overwrite=overwrite)
    if not new:
        printer.note(f"{receipt.target} is already there, made by the same command: nothing to do")
    return result


DRAWS: Final = "digest of the draws"
"""Key of a receipt: a run made again by another version has other draws under the same settings."""
COMMITTED: Final = "committed draws"


class DrawsReceipt(Receipt):
    """The receipt of an output made from draws: see :class:`Receipt`."""

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


def described_rows(output: str, of: RowKind) -> dict[str, Any]:
    """Return the facts of predictions or effects; of a table the digest of the file."""
    from streammc.trace.row_arrays import read_meta
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


def page_receipt(output: str, run: str, predictions: Sequence[str]) -> Receipt:
    """Return the receipt of the page of a run with some predictions."""
    shown = [os.path.abspath(path) for path in predictions]
    asked = {"command": "report", "run": os.path.abspath(run), "predictions": shown}
    return Receipt(output, asked)


def renewable(receipt: Receipt) -> dict[str, Any] | None:
    """Return the result of the page that is there; ``None`` if none is, or none with a receipt.

    Raises
    ------
    IdentityError
        If it is of another run, or was changed since it was made.
    """
    if not receipt.path.exists():
        return None
    return receipt.kept(lambda: {"fingerprint": page_fingerprint(receipt.output)})


def page_fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a page."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def store_fingerprint(store: str) -> str | None:
    """Return the fingerprint of the store at a place; ``None`` if there is none."""
    from streammc.errors import StreammcError
    from streammc.stores.cloud.address import store_root
    from streammc.stores.format.manifest import read_manifest

    try:
        return read_manifest(store_root(store)).fingerprint
    except StreammcError:
        return None


def made_from(
    run: str, store: str | None, predictions: Sequence[str], interval: float
) -> dict[str, Any]:
    """Return what a page shows: draws, summary, place of the store, predictions and the like.

    Raises
    ------
    MissingError, StoreError
        If there is no run, or it is damaged.
    """
    from streammc.trace.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    attributes = json.dumps(dict(opened.attributes), sort_keys=True, default=str)
    place = store or opened.attributes.get("store")
    return {
        "draws": opened.digest(),
        "attributes": hashlib.sha256(attributes.encode()).hexdigest(),
        "store": os.path.abspath(str(place)) if place else None,
        "found": store_fingerprint(str(place)) if place else None,
        "predictions": describe_inputs([os.path.join(path, "zarr.json") for path in predictions]),
        "interval": interval,
        "version": streammc.__version__,
    }
