"""The bench of planted faults: what it changes, what it leaves alone, and that it takes it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
SOURCE = textwrap.dedent(
    '''
    """A module of 3 lines."""

    LIMIT: Final[int] = 4


    def add(rows: Vector, out, n=2) -> None:
        """Add 1 to every row."""
        if n < 0 or not rows.any():
            raise ValueError(f"expected 1 row, found {n + 1}")
        for i in range(n):
            out[i] += rows[i] * 0.5
        clear(out, rows)


    def mean(rows):
        return np.sum(rows, axis=0) / max(len(rows), 1)
    '''
)


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import mutation_operators
        import mutation_tests
        import mutations

        yield SimpleNamespace(operators=mutation_operators, tests=mutation_tests, command=mutations)


def test_a_line_is_changed_in_every_way_that_is_named(bench):
    found = {each.after.strip() for each in bench.operators.changes("a.py", SOURCE)}
    assert {
        "LIMIT: Final[int] = 5",
        "def add(rows: Vector, out, n=3) -> None:",
        "if n <= 0 or not rows.any():",
        "if n < 0 and not rows.any():",
        "if n < 0 or rows.any():",
        "if n < 0 or not rows.all():",
        "if (not (n < 0 or not rows.any())):",
        "for i in range(n - 1):",
        "out[i] = rows[i] * 0.5",
        "out[i] -= rows[i] * 0.5",
        "out[i] += rows[i] / 0.5",
        "out[i] += rows[i] * 1.5",
        "out[i] += rows[i] * 0.505",
        "clear(rows, out)",
        "pass",
        "return np.sum(rows, axis=1) / max(len(rows), 1)",
        "return np.sum(rows, axis=0) * max(len(rows), 1)",
        "return np.sum(rows, axis=0) / min(len(rows), 1)",
        "return np.prod(rows, axis=0) / max(len(rows), 1)",
    } <= found
    # A return of nothing is early in a function that returns nothing, and only there.
    assert "return" in found


def test_messages_docstrings_and_types_are_left_alone(bench):
    changed = {each.before.strip() for each in bench.operators.changes("a.py", SOURCE)}
    assert not [line for line in changed if line.startswith(("raise", '"""'))]
    assert not [each for each in bench.operators.changes("a.py", SOURCE) if "Final[int]" not in
                each.after and "Final" in each.before]  # fmt: skip


def test_a_change_is_one_line_that_can_be_parsed_and_has_a_name(bench):
    changes = bench.operators.changes("a.py", SOURCE)
    assert len(changes) == len({each.key for each in changes}) >= 25
    for each in changes:
        text = bench.operators.mutated(SOURCE, each)
        compile(text, "a.py", "exec")
        pairs = zip(SOURCE.splitlines(), text.splitlines(), strict=True)
        assert [(each.before, each.after)] == [pair for pair in pairs if pair[0] != pair[1]]


def test_equal_lines_of_a_file_have_names_of_their_own(bench):
    text = "for i in range(n):\n    a(i)\nif n > 0:\n    for i in range(n):\n        b(i)\n"
    ranges = [
        each for each in bench.operators.changes("a.py", text) if "range(n - 1)" in each.after
    ]
    after = "for i in range(n): => for i in range(n - 1):"
    assert [f"a.py: {after}", f"a.py (2): {after}"] == [each.key for each in ranges]


def test_a_drawn_change_follows_its_line_until_that_has_gone(bench, tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    drawn = {each.after.strip(): each for each in bench.operators.changes("a.py", SOURCE)}
    result = drawn["out[i] += rows[i] * 1.5"]._asdict()
    assert drawn["out[i] += rows[i] * 1.5"] == bench.command.located(tmp_path, result)
    deeper = textwrap.indent(SOURCE, "    ")
    (tmp_path / "a.py").write_text(f"if True:\n{deeper}")
    moved = bench.command.located(tmp_path, result)
    assert moved in bench.operators.changes("a.py", f"if True:\n{deeper}")
    assert result["line"] + 1 == moved.line
    (tmp_path / "a.py").write_text(SOURCE.replace("* 0.5", "* 0.25"))
    assert None is bench.command.located(tmp_path, result)
    (tmp_path / "a.py").unlink()
    assert None is bench.command.located(tmp_path, result)


@pytest.fixture
def process():
    """Start a process that runs some code, in a session of its own."""
    begun = []

    def begin(code):
        words = [sys.executable, "-c", code]
        begun.append(subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE))
        return begun[-1]

    yield begin
    for each in begun:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def test_a_run_that_waits_is_ended(bench, monkeypatch, process):
    monkeypatch.setattr(bench.tests, "_IDLE", 0.5)
    monkeypatch.setattr(bench.tests, "_LOOK", 0.1)
    status = bench.tests._wait(process("import time; time.sleep(600)").pid)
    assert -signal.SIGKILL == os.waitstatus_to_exitcode(status)


def test_the_time_of_a_run_has_that_of_the_processes_that_it_started(bench, process):
    child = "while True: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{child}'])"
    begun = process(f"print(flush=True); {code}")
    begun.stdout.readline()
    before = bench.tests._ticks(begun.pid)
    while bench.tests._ticks(begun.pid) < before + 50:
        assert begun.poll() is None


@pytest.mark.slow
def test_a_seed_draws_the_same_lines_from_all_packages(bench):
    packages = ["streammc/likelihood", "streammc/numerics"]
    drawn = bench.operators.draw(ROOT, packages, 40, 1)
    assert drawn == bench.operators.draw(ROOT, packages, 40, 1)
    assert drawn != bench.operators.draw(ROOT, packages, 40, 2)
    assert 40 == len({(each.path, each.line) for each in drawn})
    assert {"likelihood", "numerics"} == {each.path.split("/")[1] for each in drawn}


def test_a_planted_change_is_taken_back_with_the_time_of_the_file(bench, tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    mutation = bench.operators.changes("a.py", SOURCE)[0]
    with pytest.raises(KeyboardInterrupt), bench.command.Planted(tmp_path, mutation):
        assert mutation.after in (tmp_path / "a.py").read_text()
        raise KeyboardInterrupt
    assert SOURCE == (tmp_path / "a.py").read_text()
    assert 1e9 == (tmp_path / "a.py").stat().st_mtime


TESTS = """
import inspect
import numpy as np
from streammc.numerics.special import exp, log
from streammc.numerics.summation import taylor

def test_functions_are_plain():
    assert inspect.isfunction(exp) and inspect.isfunction(taylor)

def test_numbers_are_those_of_numpy():
    x = np.float64(1.3)
    assert abs(exp(x) / np.exp(x) - 1.0) < 1e-14
    assert abs(log(x) / np.log(x) - 1.0) < 1e-14
"""


@pytest.mark.parametrize(("plugin", "passed"), [(("-p", "interpreted"), 2), ((), 1)])
def test_compiled_functions_are_plain_python_with_the_plugin_alone(tmp_path, plugin, passed):
    (tmp_path / "test_plain.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    env = os.environ | {"PYTHONPATH": str(BENCH)}
    done = subprocess.run(
        [*words, "test_plain.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert f"{passed} passed" in done.stdout, done.stdout
