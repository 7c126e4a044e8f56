"""A job whose table grows: files that its store does not have, and the generation they make.

Nothing is written here. Files are known as ``ingest.append`` says: those of the store are
in its manifest; of one that is not there yet they are ``source.files``.

How the generations of a job whose table grows have ended: with all outputs, missed, or not yet.

Outputs are judged by what they record of themselves: other settings of the job since then do not
begin a finished generation again.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streammc import registry
from streammc.cli.jobs.job_file import JobFile, alone
from streammc.cli.jobs.job_record import DONE, MISSED
from streammc.cli.jobs.problems import Problem
from streammc.errors import IdentityError, StreammcError
from streammc.trace.addresses import is_address, real_place

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
    from streammc.trace.addresses import is_address

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
    name = job.sampler and job.sampler.name
    makes_none = name in registry.SAMPLERS and registry.sampler(name)().draws_crossed
    if grows and outputs.control_variates is None and not makes_none:
        text = (
            "expected a path for the control variates, which appended rows bring up to date, found "
            "nothing: add it, or name the sampler gibbs where factors cross"
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
    from streammc.trace.disk import FileStamp, stamp_difference

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
    return replace(job, outputs=job.outputs.named({GENERATION: str(number)}))


UNFINISHED: Final = "not finished"
_FROM_DRAWS: Final = ("scores", "predictions")
_MADE: Final = ("rows", *_FROM_DRAWS, "report")


def with_local_run(job: JobFile) -> JobFile:
    """Return a job with the local folder of its run, in place of an address."""
    from streammc.trace.places import run_folder

    run = job.outputs.run
    run = str(run_folder(run)) if is_address(run) else run
    return replace(job, outputs=replace(job.outputs, run=run))


def generation_end(job: JobFile) -> str | None:
    """Return ``done`` or ``missed`` for the outputs of a generation; ``None`` if some are to do.

    ``job`` has the number of the generation in its paths: see ``growing.of_generation``.
    """
    from streammc.trace.run_directory import RunDirectory

    outputs = job.outputs
    if not RunDirectory.exists(outputs.run):
        return None
    try:
        run = RunDirectory.open(outputs.run, verify=False)
        end = _run_end(run)
        if end != DONE:
            return end
        for name in _MADE:
            path = getattr(outputs, name)
            if path is not None and not _is_made(path, name, run):
                return None
    except StreammcError:
        return None  # its stage says what is wrong
    return DONE


def _run_end(run: Any) -> str | None:
    """Return how a run has ended, by its own plan and rule; ``None`` if it goes on."""
    kept = run.attributes.get("summary")
    if not kept or not run.finished() or kept["sampling"]["draws"] != run.committed_draws:
        return None
    rule = (run.attributes.get("stopping") or {}).get("rule")
    stop = kept.get("stop")
    if rule is None:
        return DONE
    if stop is None or stop["rule"] != rule:
        return None
    return DONE if stop["passed"] else MISSED


def _is_made(path: str, name: str, run: Any) -> bool:
    """Return whether an output is there as a whole, and of all draws of its run."""
    if not os.path.lexists(path):
        return False
    try:
        text = Path(f"{path.rstrip(os.sep)}.config.json").read_text(encoding="utf-8")
        receipt = json.loads(text)
        asked, result = receipt["asked"], receipt["result"]
        if result is not None and name in _FROM_DRAWS:
            return bool(asked["committed draws"] == run.committed_draws)
        if result is not None and name == "report":
            return bool(result["made_from"]["draws"] == run.digest())
    except (OSError, ValueError, KeyError, TypeError):
        return True  # not of a job: its stage would refuse it
    return result is not None


def generation_words(job: JobFile) -> dict[str, str]:
    """Return what stands for ``{generation}`` in the outputs of a job that grows."""
    from streammc.stores.format.generations import generations
    from streammc.stores.store import open_store

    if job.source.append is None:
        return {}
    place = str(job.source.store or job.outputs.store)
    return {GENERATION: str(len(generations(open_store(place).attributes)))}


def earlier_generation(job: JobFile, *, appended: bool) -> dict[str, Any] | None:
    """Return generation, run and outcome of the generation before that of a job, if not ``done``.

    Parameters
    ----------
    job
        The job as its file has it.
    appended
        Whether files that are to be appended have been.
    """
    from streammc.stores.format.generations import generations
    from streammc.stores.store import open_store
    from streammc.trace.run_directory import RunDirectory

    place = str(job.source.store or job.outputs.store)
    if job.source.append is None or not os.path.lexists(place):
        return None
    number = len(generations(open_store(place).attributes)) - appended
    run = with_local_run(of_generation(job, number)).outputs.run
    if number < 1 or not RunDirectory.exists(run):
        return None
    end = _run_end(RunDirectory.open(run, verify=False)) or UNFINISHED
    found = {"generation": number, "run": os.path.abspath(run), "outcome": end}
    return None if end == DONE else found


def earlier_text(found: Mapping[str, Any]) -> str:
    """Return what is to be said of an earlier generation that is not done."""
    number, run = found["generation"], found["run"]
    if found["outcome"] == MISSED:
        return (
            f"expected generation {number} to meet its stopping rule, found {run!r} without: it "
            "has no predictions, and the next generation goes on from it"
        )
    return (
        f"expected the run of generation {number} to be finished, found {run!r} partial, and rows "
        f"appended since: finish it with 'streammc resume {shlex.quote(run)}', or delete it"
    )
