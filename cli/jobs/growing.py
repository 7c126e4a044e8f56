"""A job whose table grows: files that its store does not have, and the generation they make.

Nothing is written here. Files are known as ``ingest.append`` says: those of the store are
in its manifest; of one that is not there yet they are ``source.files``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from streammc.cli.jobs.job_file import JobFile, Outputs
from streammc.cli.jobs.job_inputs import alone
from streammc.cli.jobs.problems import Problem
from streammc.errors import IdentityError
from streammc.trace.local_path import real_place

if TYPE_CHECKING:
    from streammc.stores.sources.input_files import InputFile

GENERATION: Final = "{generation}"
"""Word in the paths of outputs, replaced by the number of the store's generation."""
_ADVICE: Final = (
    "move it back, leave it out of source.append, or append its rows once more with 'streammc "
    "ingest --append --again'"
)
_OF_GENERATION: Final = ("run", "scores", "rows", "predictions", "report")
"""Outputs that are made anew for every generation."""


@dataclass(frozen=True)
class Growth:
    """The next generation of the store of a job."""

    generation: int
    """Its number; that of the store as it is if there is no new file."""
    new: tuple[str, ...]
    """Sources to append, one for each file: see ``job_inputs.alone``."""


def growth_faults(job: JobFile) -> Iterator[Problem]:
    """Yield what is wrong between ``source.append`` and the outputs."""
    from streammc.trace.local_path import is_address

    outputs, grows = job.outputs, job.source.append is not None
    if grows and is_address(job.source.store or ""):
        text = (
            f"expected a store on a local disk for source.append, found {job.source.store!r}: copy "
            "it with 'streammc pull'"
        )
        yield Problem("source.store", text)
    for name in _OF_GENERATION:
        path = getattr(outputs, name)
        if path is None or (GENERATION in path) == grows:
            continue
        text = (
            f"expected {GENERATION} in this path, since source.append makes a new one of every "
            f"generation of the store, found {path!r}: write 'work/{name}-{GENERATION}'"
            if grows
            else f"expected source.append for a path with {GENERATION}, found none: add it, or "
            "leave the word out"
        )
        yield Problem(f"outputs.{name}", text)
    for name in ("store", "control_variates"):
        if GENERATION in (getattr(outputs, name) or ""):
            text = (
                f"expected one path for all generations, found {getattr(outputs, name)!r}: leave "
                f"{GENERATION} out, since this output grows"
            )
            yield Problem(f"outputs.{name}", text)
    if grows and outputs.control_variates is None:
        text = (
            "expected a path for the control variates, which appended rows bring up to date, found "
            "nothing: add it"
        )
        yield Problem("outputs.control_variates", text)


def growth_of(job: JobFile, append: Sequence[InputFile], first: Sequence[str]) -> Growth:
    """Return the generation that a job makes or finds.

    Parameters
    ----------
    job
        A job with ``source.append``.
    append
        The files that ``source.append`` finds.
    first
        Those of ``source.files``, which are in the store from the start.

    Raises
    ------
    IdentityError
        If a file was changed after it was appended, or has the contents of another one.
    StoreError
        If the store cannot be opened.
    """
    place = str(job.source.store or job.outputs.store)
    number, doubtful, kept = 0, set(), []
    inputs: dict[str, Any] = {real_place(each): () for each in first}
    if os.path.lexists(place):
        from streammc.stores.ingest.append import recorded_generations
        from streammc.stores.store import open_store

        kept = recorded_generations(open_store(place))
        number = len(kept)
        if kept[0]["inputs"] is None:
            inputs |= {real_place(name): () for name in kept[0]["sources"]}
            if job.source.store is not None:  # where relative paths began is not known
                doubtful = {os.path.basename(each) for each in kept[0]["sources"]}
        for generation, each in enumerate(kept, 1):
            files = each["inputs"] or ()
            inputs |= {real_place(file["path"]): (file, generation) for file in files}
    new = [file for file in append if _is_new(file.path, inputs, place)]
    paths = [file.path for file in new]
    if new and kept:
        from streammc.stores.ingest.append import refuse_equal
        from streammc.stores.sources.input_files import input_records

        refuse_equal(kept, input_records(new) or [], paths, place, advice=_ADVICE)
    for path in paths:
        if os.path.basename(path) in doubtful:
            raise IdentityError(
                f"expected files that {place!r} was not made of, found {path!r}, whose name is one "
                "of its tables: leave it out of source.append, or rename it if it is another"
            )
    return Growth(max(number, 1) + bool(new), tuple(map(alone, new)))


def _is_new(path: str, inputs: dict[str, Any], place: str) -> bool:
    """Return whether the store at ``place`` lacks a file; refuse one that has changed."""
    from streammc.stores.sources.input_files import input_stamp, same_input
    from streammc.trace.file_stamp import FileStamp, stamp_difference

    known = inputs.get(real_place(path))
    if not known:
        return known is None
    before, generation = known
    if not same_input(before, path):
        now = input_stamp(path)
        then = FileStamp(before["bytes"], before["modified_ns"], 0)
        when = f"it was appended to {place!r}" if generation > 1 else f"{place!r} was made of it"
        raise IdentityError(
            f"expected {path!r} as it was when {when}, found it with "
            f"{stamp_difference(then, now)}: give new rows a file of their own, or make the store "
            "again from all tables"
        )
    return False


def of_generation(job: JobFile, number: int) -> JobFile:
    """Return a job with the number of a generation in the paths of its outputs."""
    known = {each.name: getattr(job.outputs, each.name) for each in fields(Outputs)}
    paths = {
        name: path.replace(GENERATION, str(number))
        for name, path in known.items()
        if isinstance(path, str)
    }
    return replace(job, outputs=replace(job.outputs, **paths))
