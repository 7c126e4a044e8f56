"""Whether the tests notice small faults in the sources of the core.

    python bench/mutations.py WORK [--count 200] [--seed 1] [--compiled] [--only TEXT] [--write]

Draws changes of single lines (``mutation_operators.py``) over the packages that compute, each line
of code with the same probability, and runs the quick tests of ``tests/<package>`` that run the
changed line, in a copy of the checkout in WORK, until one fails. They run as plain Python first
(``interpreted.py``): to compile a changed kernel and all that depends on it takes minutes.
``--compiled`` then runs, for every change that is left, the tests of its module as compiled code.

Results go to ``results/mutations.json`` after each change, and what is there is not run again;
those of another seed or count go. Changes are drawn once: later runs take them from the results,
and find their lines in the sources of then. A change whose line has gone keeps its verdict, and
the page counts them. ``--write`` renews ``docs/measurements/mutations.md``. Changes that
survive get a test or a reason in ``mutation_verdicts.py``. Every 20th time the same tests also run
without the change, and must pass. Limits of runs are of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from mutation_operators import Mutation, draw, mutated
from mutation_page import ALIVE, CAUGHT, SURVIVED, lines, package
from mutation_tests import ENDED, PACKAGES, Knowledge, preload, read, run_tests
from mutation_verdicts import EQUIVALENT, TESTS
from page import machine, publish

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results" / "mutations.json"
CONTROL_EVERY: Final = 20
FIRST_SECONDS: Final = 6.0
"""Tests as plain Python that run first, and all that may run."""
ALL_SECONDS: Final = 12.0
COMPILED_SECONDS: Final = 400
"""Processor time of the tests as compiled code, with the compilation."""
_TYPES: Final = ("tuple index", "too many indices")
"""Errors that the compiler finds as well."""
_PYTHON_ALONE: Final = ("IndexError", "ZeroDivisionError", "OverflowError", "math domain error")
"""Errors of plain Python where compiled code goes on with another number."""


def copied(root: Path, tree: Path) -> None:
    """Copy the files of the checkout, and the compiled code that there is as hard links."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target, follow_symlinks=False)


def linked_cache(tree: Path) -> None:
    """Give the copy a cache of its own with the machine code that there is, as hard links.

    The runs of tests are forks of this process: it must not import the package of the checkout.
    """
    asked = "from streammc.numerics.dispatchers import cache_dir; print(cache_dir())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    there = Path(done.stdout.strip())
    own = tree.parent / f"{tree.name}-cache" / "streammc" / there.name
    if not own.exists():
        shutil.copytree(there, own, copy_function=os.link)


class Planted:
    """A change in the copy, taken back at the end with the time of the file."""

    def __init__(self, tree: Path, mutation: Mutation | None) -> None:
        self.mutation = mutation
        self.path = tree / mutation.path if mutation else tree

    def __enter__(self) -> None:
        if self.mutation:
            self.before, self.times = self.path.read_bytes(), self.path.stat()
            self.path.write_text(mutated(self.before.decode(), self.mutation), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        if self.mutation:
            self.path.write_bytes(self.before)
            os.utime(self.path, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))


def is_compiled(tree: Path, mutation: Mutation) -> bool:
    """Return whether the module has compiled functions."""
    text = (tree / mutation.path).read_text(encoding="utf-8")
    return "@jit" in text or "@inline" in text


def told(failure: str) -> str:
    """Return the test and the class of its error from a line of pytest; other texts as they are."""
    known = r"((?:FAILED|ERROR) .+?)(?: - (?:(\w+(?:Error|Exception|Warning)):)?.*)?$"
    found = re.match(known, failure, re.DOTALL)
    return " ".join(filter(None, found.groups())) if found else failure[:300]


def as_python(tree: Path, known: Knowledge, mutation: Mutation, control: bool) -> dict[str, Any]:
    """Return what the tests of the line say as plain Python."""
    running = known.running(mutation.path, mutation.line)
    named = TESTS.get(mutation.key)
    first = [named] if named else known.quick(running, FIRST_SECONDS)
    result: dict[str, Any] = {"seconds": 0.0, "tests": 0}
    if control and first:
        passed = run_tests(tree, first, interpreted=True, seconds=60)
        result["control"] = "passed" if passed.passed else f"FAILED: {passed.first}"
    later = [each for each in known.quick(running, ALL_SECONDS) if each not in first]
    for tests, limit in ((first, 20), (later, 30)):
        if not tests:
            continue
        with Planted(tree, mutation):
            outcome = run_tests(tree, tests, interpreted=True, seconds=limit)
        result["seconds"] = round(result["seconds"] + outcome.seconds, 1)
        result["tests"] += len(tests)
        if outcome.passed:
            continue
        if named or outcome.first.startswith(ENDED):
            unchanged = run_tests(tree, tests, interpreted=True, seconds=limit)
            if not unchanged.passed:
                continue  # these tests fail, or do not end in time, without the change as well
        result |= {"outcome": CAUGHT, "by": told(outcome.first)}
        alone = any(each in outcome.first for each in _PYTHON_ALONE)
        if (
            alone
            and is_compiled(tree, mutation)
            and not any(each in outcome.first for each in _TYPES)
        ):
            result |= {"outcome": ALIVE, "as_python": result.pop("by")}
        return result
    return result | {"outcome": ALIVE}


def as_compiled(tree: Path, known: Knowledge, mutation: Mutation) -> dict[str, Any]:
    """Return what the tests of the module and of the line say as compiled code."""
    running = known.running(mutation.path, mutation.line)
    named = TESTS.get(mutation.key)
    tests = [named] if named else known.compiled(mutation.path, running)
    failed = [] if named else known.quick(running, FIRST_SECONDS)[:4]
    with Planted(tree, mutation):
        outcome = run_tests(tree, [*failed, *tests], interpreted=False, seconds=COMPILED_SECONDS)
    result = {"compiled_seconds": round(outcome.seconds, 1), "compiled_tests": tests}
    if outcome.passed:
        return result | {"outcome": SURVIVED}
    if outcome.first.startswith(ENDED):  # maybe by the time to compile alone
        return result | {"as_compiled": outcome.first}
    return result | {"outcome": CAUGHT, "by": told(outcome.first)}


def due(result: dict[str, Any], asked: argparse.Namespace) -> str | None:
    """Return how a change is to be tried now; ``None``: not at all."""
    if asked.only not in result["key"]:
        return None
    if "outcome" not in result:
        return "python"
    if result["outcome"] == CAUGHT or result["key"] in EQUIVALENT:
        return None
    if asked.again:
        return "python" if result["key"] in TESTS or not result["tests"] else None
    return "compiled" if asked.compiled and result["outcome"] == ALIVE else None


def drawn(tree: Path, count: int, seed: int) -> dict[str, Any]:
    """Return results without an outcome: changes of the lines of a tree, by package and file."""
    found = draw(tree, [f"streammc/{each}" for each in PACKAGES], count, seed)
    found.sort(key=lambda each: (PACKAGES.index(package(each.path)), each.path))
    mutants = [{"key": each.key, **each._asdict()} for each in found]
    return {"seed": seed, "drawn": count, "machine": machine(), "mutants": mutants}


def located(tree: Path, result: dict[str, Any]) -> Mutation | None:
    """Return a drawn change at the line that it has in a tree; ``None``: the line has gone."""
    path = tree / result["path"]
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    before, after = result["before"].strip(), result["after"].strip()
    alike = [i for i, line in enumerate(lines) if line.strip() == before]
    if len(alike) < result["place"]:
        return None
    at = alike[result["place"] - 1]
    fields = {name: result[name] for name in Mutation._fields}
    fields |= {"line": at + 1, "before": lines[at], "after": lines[at].replace(before, after, 1)}
    return Mutation(**fields)


def main() -> None:
    """Draw, run what is not known, and if asked publish."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--tree", type=Path, help="a copy of the checkout that exists already")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument(
        "--again", action="store_true", help="changes that a test was written for, or that none ran"
    )
    parser.add_argument("--only", default="", help="changes whose name contains this")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    tree, folder = asked.tree or asked.work / "tree", asked.work / "map"
    if not tree.exists():
        copied(ROOT, tree)
    linked_cache(tree)
    preload()
    if "streammc" in sys.modules:
        raise SystemExit("streammc is imported already: the tests would run it, not the copy")
    known = Knowledge(tree, folder)
    results = read(RESULTS)
    if (results.get("seed"), results.get("drawn")) != (asked.seed, asked.count):
        results = drawn(tree, asked.count, asked.seed)
    mutants: list[dict[str, Any]] = results["mutants"]
    places = [(index, located(tree, each)) for index, each in enumerate(mutants)]
    there = [(index, each) for index, each in places if each is not None]
    results["gone"] = len(mutants) - len(there)
    if asked.compiled:  # those without a compiled function first: they take seconds
        there.sort(key=lambda each: is_compiled(tree, each[1]))
    for index, mutation in there:
        how = due(mutants[index], asked)
        if how is None:
            continue
        begun = time.perf_counter()
        known.learn(mutation.path)
        if how == "compiled":
            found = mutants[index] | as_compiled(tree, known, mutation)
        else:
            found = as_python(tree, known, mutation, index % CONTROL_EVERY == 0)
        mutants[index] = {"key": mutants[index]["key"], **found, **mutation._asdict()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        outcome, wall = found["outcome"], time.perf_counter() - begun
        print(f"{index:4} {outcome:27} {wall:4.0f} s {mutation.key}", file=sys.stderr)
    if asked.write:
        publish("mutations.md", "mutations", lines(results))


if __name__ == "__main__":
    main()
