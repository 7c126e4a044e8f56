"""Outputs of a job with a name for every night or every input: ``{date}``, ``{hash}``, ``keep``.

``{date}`` in a path is the day for which the job runs. ``{hash}`` in an output is a digest of
settings and inputs: the same job on the same tables has the same outputs, so that it goes on after
a kill, and any other has others. The outputs of one start are a *set*. The summary lists the sets
of this job file, each with the paths that it made, and of these alone the oldest are deleted where
``keep`` says so; a path that holds no output of streammc is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

from streammc.cli.jobs.growing import GENERATION
from streammc.cli.jobs.job_file import JobFile, Outputs, absolute, with_paths
from streammc.cli.jobs.problems import Problem
from streammc.errors import ConfigError, StreammcError, one_line
from streammc.trace.addresses import is_address

DATE: Final = "{date}"
HASH: Final = "{hash}"
_WORDS: Final = (DATE, HASH, GENERATION)
_WORD: Final = re.compile(r"\{\w*\}")
_DIGITS: Final = 12
"""Hexadecimal digits of ``{hash}``."""

Set = dict[str, Any]
"""``words``, as below; ``done``, whether the job ended so; ``outputs``, the real paths it made."""
Words = Mapping[str, str]
"""Word in the paths of outputs -> its text: what tells a set of outputs from others."""


def parse_date(text: str | None) -> str:
    """Return the day of ``--date``, by default today in local time, as YYYY-MM-DD.

    Raises
    ------
    ConfigError
        If it is no day.
    """
    if text is None:
        return date.today().isoformat()
    try:
        found = date.fromisoformat(text).isoformat()
    except ValueError:
        found = None
    if found != text:
        raise ConfigError(f"expected a day such as 2026-01-31 for --date, found {text!r}: give one")
    return text


def name_faults(job: JobFile) -> Iterator[Problem]:
    """Yield what is wrong with the words in the paths of outputs, as the file has them."""
    outputs = job.outputs
    if outputs is None:  # a fault of its own
        return
    named: dict[str, set[str]] = {}
    for name, path in outputs.paths().items():
        words = set(_WORD.findall(path))
        for word in sorted(words - set(_WORDS)):
            text = f"expected {', '.join(_WORDS)}, found {word!r} in {path!r}: choose one of them"
            yield Problem(f"outputs.{name}", text)
        words &= set(_WORDS)
        if words & {DATE, HASH} and job.source is not None and job.source.append is not None:
            text = f"expected {GENERATION} beside source.append, found {path!r}: write it instead"
            yield Problem(f"outputs.{name}", text)
        if words:
            named[name] = words
    if outputs.keep is None:
        return
    if not named:
        text = f"expected {DATE}, {HASH} or {GENERATION} in a path, found none: write 'run-{DATE}'"
        yield Problem("outputs.keep", text)
    for name, words in named.items():
        path = getattr(outputs, name)
        if name == "summary":
            text = (
                f"expected one path for every start, since the summary lists what outputs.keep "
                f"may delete, found {path!r}: leave {' and '.join(sorted(words))} out"
            )
            yield Problem("outputs.summary", text)
        elif is_address(path):
            text = f"expected paths on a local disk for keep, found {path!r}: leave keep out"
            yield Problem("outputs.keep", text)
        elif words != named[min(named)]:
            text = (
                f"expected the same words in all outputs for keep, found {path!r} beside "
                f"{getattr(outputs, min(named))!r}: write the same ones"
            )
            yield Problem(f"outputs.{name}", text)


def named_job(job: JobFile, day: str) -> tuple[JobFile, dict[str, str]]:
    """Return a job with the words of its paths replaced, but for the generation; and these words.

    The day, YYYY-MM-DD, also stands in the paths of inputs.
    """

    def dated_path(path: str) -> str:
        return path.replace(DATE, day)

    used = set(_WORD.findall(" ".join(job.outputs.paths().values())))
    words = {DATE: day} if DATE in used else {}
    dated: JobFile = with_paths(job, dated_path, dated_path)
    if HASH in used:
        words[HASH] = _digest(dated)
    return replace(dated, outputs=dated.outputs.named(words)), words


def _digest(job: JobFile) -> str:
    """Return the digest of the settings and inputs of a job, whatever its outputs are called."""
    from streammc.cli.input_description import absolute_input, describe_inputs
    from streammc.cli.receipt import store_fingerprint

    settings = asdict(with_paths(replace(job, outputs=Outputs(run="")), absolute, absolute_input))
    tables = [*(job.source.files or ()), *(getattr(job.predict, "files", None) or ())]
    stores = [job.source.store, getattr(job.predict, "store", None)]
    found = [store_fingerprint(store) for store in stores if store is not None]
    text = json.dumps([settings, describe_inputs(tables), found], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def named_paths(written: Outputs, words: Words) -> set[str]:
    """Return the real paths of the outputs of a set whose paths have words."""
    paths = written.named(words).paths()
    return {os.path.realpath(p) for name, p in paths.items() if p != getattr(written, name)}


def sets_with(
    before: object, words: Words, *, done: bool = False, made: Iterable[str] = ()
) -> list[Set]:
    """Return the sets that a job file has made, oldest first, with the present one.

    Parameters
    ----------
    before
        The list of the last summary; what is no set in it is left out.
    words
        Those of the present set; without any there is none.
    done
        Whether the job is done.
    made
        Real paths of outputs that were made just now.
    """
    known = [dict(each) for each in before if _is_set(each)] if isinstance(before, list) else []
    if words:
        own = next((each for each in known if each["words"] == words), None)
        if own is None:
            own = {"words": dict(words), "done": False, "outputs": []}
            known.append(own)
        own["done"] = own["done"] or done
        own["outputs"] = list(dict.fromkeys([*own["outputs"], *made]))
    if all(DATE in each["words"] for each in known):  # also a day that was made up for
        known.sort(key=lambda each: str(each["words"][DATE]))
    return known


def _is_set(each: object) -> bool:
    """Return whether an entry of a summary is a set as this module writes it."""
    if not isinstance(each, dict) or set(each) != {"words", "done", "outputs"}:
        return False
    words, outputs = each["words"], each["outputs"]
    good = isinstance(words, dict) and isinstance(outputs, list) and isinstance(each["done"], bool)
    return good and all(isinstance(path, str) for path in outputs) and set(words) <= set(_WORDS)


def delete_older(
    keep: int, sets: list[Set], words: Words, present: Iterable[str]
) -> tuple[list[Set], list[str]]:
    """Delete the oldest of some sets of outputs; return those that are left, and warnings.

    The newest ``keep`` that are done stay, all after the first of them, and the present one.

    Parameters
    ----------
    keep
        As in the file.
    sets
        As of :func:`sets_with`.
    words
        Those of the present set.
    present
        Real paths of the outputs of the job.
    """
    done = [each for each in sets if each["done"]]
    first = sets.index(done[-keep:][0]) if len(done) >= keep else 0
    older = [each for each in sets[:first] if each["words"] != words]
    left = [each for each in sets if each not in older]
    stay = {Path(path) for each in left for path in each["outputs"]} | set(map(Path, present))
    folders = {parent for path in stay for parent in path.parents}
    warnings: list[str] = []
    for each in older:
        faults = []
        for path in [Path(path) for path in each["outputs"] if Path(path) not in stay]:
            try:
                fault = _delete(path)
                for parent in path.parents:  # folders of this set alone, now empty
                    if parent in folders or not parent.is_dir() or any(parent.iterdir()):
                        break
                    parent.rmdir()
            except (OSError, StreammcError) as error:
                fault = one_line(str(error))
            if fault:
                faults.append(
                    f"expected to delete {str(path)!r}, older than the {keep} sets of "
                    f"outputs.keep, found {fault}: it is left"
                )
        warnings += faults
        if faults:
            left.insert(0, each)
    return left, warnings


def _delete(path: Path) -> str:
    """Delete an output and its receipt; return why not, or nothing."""
    from streammc.trace.debris import RECEIPT
    from streammc.trace.kinds import CONTROL_VARIATES, FILE, PREDICTIONS, RUN, STORE, found_at
    from streammc.trace.lock import run_lock
    from streammc.unfinished import remove

    receipt = path.with_name(f"{path.name}{RECEIPT}")
    if os.path.realpath(path) != str(path):
        return "a link where it was"
    if os.path.lexists(path):
        found = found_at(path)
        kind = None if found is None else found.kind
        if kind not in (RUN, STORE, CONTROL_VARIATES, PREDICTIONS, FILE):
            return "something else than an output of streammc"
        if kind == FILE and not receipt.is_file():
            return "a file without a receipt of streammc"
        with ExitStack() as stack:
            if kind == RUN:
                stack.enter_context(run_lock(path))
            if kind == FILE:
                path.unlink()
            else:
                # Under a name that 'streammc gc' knows, in case of a kill.
                away = path.with_name(f"{path.name}.partial-{os.getpid()}")
                path.rename(away)
                remove(away)
    receipt.unlink(missing_ok=True)
    return ""
