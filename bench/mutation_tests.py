"""Which tests run which line of the core, and runs of tests on a copy of the sources."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

PACKAGES: Final = ("likelihood", "numerics", "trace", "samplers")
_IDLE: Final = 60.0
"""Seconds without any processor time after which a run waits for something for ever."""
_LOOK: Final = 1.0
"""Seconds between two looks at it."""
ENDED: Final = "ended by signal"
"""How the text of a run begins that was ended."""
SECONDS: Final = 1
"""A test that takes longer as plain Python is left to the compiled code."""
_OTHERS: Final = [
    "pytest",
    "numba",
    "numba.extending",
    "numba.np.arrayobj",
    "scipy.stats",
    "scipy.optimize",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.special",
    "zarr",
    "xarray",
    "dask.array",
    "pyarrow",
    "pandas",
]


class Outcome(NamedTuple):
    """What became of a run of tests."""

    passed: bool
    seconds: float
    """Processor time."""
    first: str
    """The first test that failed with its error, or how the run ended."""


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'bench'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "STREAMMC_CACHE_DIR": str(tree.parent / f"{tree.name}-cache"),
        "COLUMNS": "300",
    }


def _options(interpreted: bool) -> list[str]:
    words = ["-p", "no:cacheprovider", "-m", "not slow", "-q", "-x", "--tb=native", "--timeout=0"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    if interpreted:
        words += ["-p", "interpreted", "-W", "ignore::RuntimeWarning"]
        words += ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    return words


def preload() -> None:
    """Import what the tests import of others: the runs are forks of this process."""
    for name in _OTHERS:
        importlib.import_module(name)


def run_tests(
    tree: Path,
    tests: Iterable[str],
    *,
    interpreted: bool,
    seconds: int,
    recorder: Recorder | None = None,
) -> Outcome:
    """Run tests in a fork, within ``seconds`` of processor time, until one fails.

    No limit is of the time by the clock: other programs run as well.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = os.fork()
        if not child:
            _child(tree, [*_options(interpreted), *tests], seconds, said.fileno(), recorder)
        status = _wait(child)
        said.seek(0)
        text = said.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    code = os.waitstatus_to_exitcode(status)
    lines = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    errors = [line for line in text.splitlines() if line.startswith("E  ")]
    failure = re.sub(r" at 0x[0-9a-f]+", "", (*lines, *errors[-1:], text[-300:])[0])
    if code < 0:
        failure = f"{ENDED} {-code} after {used:.0f} s of processor time"
    return Outcome(code in (0, 5), used, {0: "", 5: "no test was run"}.get(code, failure))


def _wait(child: int) -> int:
    """Return the status of a process; end it and its group when nothing of it runs any more."""
    before, since, looked = -1, time.monotonic(), 0.0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        now = time.monotonic()
        if now - looked >= _LOOK:
            looked, ticks = now, _ticks(child)
            if ticks != before:
                before, since = ticks, now
            elif now - since > _IDLE:
                os.killpg(child, signal.SIGKILL)
                return os.waitpid(child, 0)[1]
        time.sleep(0.02)


def _ticks(child: int) -> int:
    """Return the processor time of a process and of all that it started."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        process = int(path.parent.name)
        parents[process], used[process] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {child}
    while more := {each for each, of in parents.items() if of in family} - family:
        family |= more
    return sum(used.get(each, 0) for each in family)


def _child(
    tree: Path, words: list[str], seconds: int, out: int, recorder: Recorder | None
) -> NoReturn:
    """Be the process of a run."""
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.setsid()
        os.chdir(tree)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(_environment(tree))
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(tree), str(tree / "bench")]
        import pytest

        code = int(pytest.main(words, plugins=[recorder] if recorder else []))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def folder_of(path: str) -> str:
    """Return the folder of the tests of a module: ``tests/samplers/metropolis``."""
    parts = Path(path).parent.parts[1:]
    return "/".join(("tests", *parts[:2]))


def record(tree: Path, folder: Path, tests: str) -> None:
    """Run the quick tests of a folder as plain Python, and note which runs which line.

    A file of tests that was run before is not run again.
    """
    folder.mkdir(exist_ok=True, parents=True)
    files = [str(path.relative_to(tree)) for path in sorted((tree / tests).rglob("test_*.py"))]
    names = {each: folder / f"{each.replace('/', '-')}.jsonl" for each in files}
    parts = {each: name.with_suffix(".part") for each, name in names.items() if not name.exists()}
    for part in parts.values():
        part.write_text("")
    if parts:
        words = ["--continue-on-collection-errors", f"--maxfail={len(parts) + 1}", *parts]
        recorder = Recorder(tree, parts)
        run_tests(tree, words, interpreted=True, seconds=600, recorder=recorder)
    for each, part in parts.items():
        part.rename(names[each])


class Recorder:
    """pytest plugin: runs each test in a fork, and writes what it runs as a line of JSON.

    The fork has ``SECONDS`` of processor time. (A signal in the process of pytest itself, as of
    pytest-timeout, can leave the lock of a random generator behind, for which later tests wait.)
    """

    def __init__(self, tree: Path, into: dict[str, Path]) -> None:
        self.tree, self.into = tree, into

    def pytest_runtest_protocol(self, item: Any) -> bool:
        """Run a test."""
        child = os.fork()
        if not child:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
                os.setsid()
                self._run(item)
            finally:
                os._exit(0)
        _wait(child)
        return True

    def _run(self, item: Any) -> None:
        from _pytest.runner import runtestprotocol
        from coverage import Coverage

        sources = [str(self.tree / "streammc" / each) for each in PACKAGES]
        coverage = Coverage(data_file=None, source=sources, messages=False)
        coverage.start()
        begun = time.process_time()
        reports = runtestprotocol(item, log=False, nextitem=None)
        seconds = time.process_time() - begun
        coverage.stop()
        data = coverage.get_data()
        lines = {
            str(Path(path).relative_to(self.tree)): sorted(data.lines(path) or [])
            for path in data.measured_files()
        }
        passed = all(each.outcome == "passed" for each in reports)
        line = {"test": item.nodeid, "passed": passed, "seconds": seconds, "lines": lines}
        into = self.into[item.nodeid.partition("::")[0]]
        with open(into, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Knowledge:
    """Tests by the lines that they run, from files of :func:`record`."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        self.seconds: dict[str, float] = {}
        """Of the tests that pass as plain Python."""
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._read: set[Path] = set()

    def learn(self, path: str) -> None:
        """Record the tests of the folder of a module, and read all that is recorded."""
        record(self.tree, self.folder, folder_of(path))
        for file in sorted(set(self.folder.glob("*.jsonl")) - self._read):
            self._read.add(file)
            for each in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                if each["passed"]:
                    self.seconds[each["test"]] = each["seconds"]
                for source, lines in each["lines"].items():
                    for line in lines:
                        self.lines[source][line].add(each["test"])

    def running(self, path: str, line: int) -> set[str]:
        """Return the tests that run a statement, or else any of its file.

        A statement outside of functions runs when the first test imports its module: all count.
        """
        lines = self.lines.get(path, {})
        if not _in_function(self.tree / path, line):
            return {test for each in lines.values() for test in each}
        found = {
            test for each in _statement(self.tree / path, line) for test in lines.get(each, ())
        }
        return found or {test for each in lines.values() for test in each}

    def quick(self, tests: set[str], seconds: float) -> list[str]:
        """Return those that pass as plain Python, quickest first; few of one function."""
        chosen: list[str] = []
        count: dict[str, int] = defaultdict(int)
        for test in sorted(tests & set(self.seconds), key=lambda each: self.seconds[each]):
            function = test.partition("[")[0]
            count[function] += 1
            seconds -= self.seconds[test]
            if count[function] <= 4 and (seconds >= 0.0 or not chosen):
                chosen.append(test)
        return chosen

    def compiled(self, path: str, tests: set[str]) -> list[str]:
        """Return what is run as compiled code: tests of the module's own file, then of its line."""
        stem = Path(path).stem
        own = [
            str(each.relative_to(self.tree))
            for each in sorted((self.tree / "tests").rglob(f"test_{stem}*.py"))
        ]
        folder = self.tree / "tests" / Path(path).parent.relative_to("streammc")
        slow = sorted(test for test in tests if test not in self.seconds)
        here = [test for test in slow if test.startswith(str(folder.relative_to(self.tree)))]
        files = list(dict.fromkeys(test.partition("::")[0] for test in [*here, *slow]))
        return list(dict.fromkeys([*own, *files[:3]])) or [str(folder.relative_to(self.tree))]


@cache
def _spans(path: Path) -> list[tuple[int, int]]:
    """Return the first and last lines of all statements, of compound ones without their body."""
    spans = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            body: list[Any] = getattr(node, "body", [])
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            spans.append((node.lineno, max(end, node.lineno)))
    return spans


def _in_function(path: Path, line: int) -> bool:
    """Return whether a line stands in the body of a function."""
    return any(
        isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or 0)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def _statement(path: Path, line: int) -> range:
    """Return the lines of the smallest statement that holds a line."""
    around = [span for span in _spans(path) if span[0] <= line <= span[1]]
    lo, hi = min(around, key=lambda span: span[1] - span[0], default=(line, line))
    return range(lo, hi + 1)


def read(path: Path) -> Any:
    """Return the JSON of a file, or nothing where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
