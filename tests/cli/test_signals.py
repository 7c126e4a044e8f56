"""Signals and pipes, as a shell or a batch system sends them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import PROGRAM, program, streammc

from streammc.cli import signals
from streammc.cli.signals import Interrupted, Interruption, interruptible
from streammc.errors import DataError

LONG = ("sample", "store.zarr", "-o", "run", "--model", "logistic", "--sampler", "hmc", "--json")
REST = ("--dim", "9", "--seed", "1", "--json")
SIZE = ("--seed", "3", "--chains", "2", "--warmup", "100", "--draws", "4000")


def test_signal_raises_where_no_code_polls() -> None:
    with interruptible() as interruption, pytest.raises(Interrupted):
        signal.raise_signal(signal.SIGTERM)
    assert interruption.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_signal_is_left_to_code_that_polls() -> None:
    with interruptible() as interruption:
        assert not interruption.requested()
        signal.raise_signal(signal.SIGTERM)
        assert interruption.requested()
        with pytest.raises(Interrupted):
            interruption.check()


@pytest.mark.trust(39)
def test_a_second_signal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    interruption = Interruption()
    interruption.requested()
    interruption.handle(signal.SIGINT, None)
    interruption.handle(signal.SIGTERM, None)
    assert [143] == ended


def test_sigusr1_has_the_exit_code_of_sigterm() -> None:
    with interruptible(), pytest.raises(Interrupted) as caught:
        signal.raise_signal(signal.SIGUSR1)
    assert 143 == caught.value.exit_code
    assert "SIGUSR1" in str(caught.value)


STUCK = """
import signal
from streammc.cli import signals
signals.GRACE = 0.5
with signals.interruptible() as interruption:
    interruption.requested()
    print("ready", flush=True)
    while True:
        try:
            signal.pause()
        except BaseException:
            continue
"""


@pytest.mark.trust(39)
def test_a_signal_ends_a_process_that_does_not_react() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True, preexec_fn=listen
    )
    assert process.stdout is not None
    assert "ready\n" == process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    sent = time.monotonic()
    assert 143 == process.wait(30)
    process.stdout.close()
    assert time.monotonic() - sent < 10.0


def test_the_deadline_ends_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    monkeypatch.setattr(signals, "GRACE", 0.05)
    with pytest.raises(Interrupted), interruptible():
        signal.raise_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert [] == ended
    with pytest.raises(Interrupted), interruptible():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            time.sleep(0.2)
    assert [143] == ended


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("at_end", [True, False])
def test_a_signal_after_the_work_of_a_process_does_not_change_its_code(
    signum: signal.Signals, at_end: bool
) -> None:
    code = (
        "import signal; from streammc.cli.signals import interruptible\n"
        f"with interruptible(at_end={at_end}):\n    pass\nsignal.raise_signal({int(signum)})"
    )
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=listen, check=False)
    assert done.returncode == (0 if at_end else -signum)


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


IN_CALLBACK = """
import ctypes, signal
from streammc.cli.signals import interruptible
with interruptible() as interruption:
    ctypes.CFUNCTYPE(None)(lambda: {work})()
    print(interruption.signum)
"""


@pytest.mark.trust(39)
@pytest.mark.parametrize(
    ("work", "reported"), [("signal.raise_signal(15)", False), ("1 / 0", True)]
)
def test_a_signal_in_a_callback_of_c_code_is_no_traceback(work: str, reported: bool) -> None:
    code = IN_CALLBACK.format(work=work)
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=listen)
    assert ("Traceback" in done.stderr) == reported, done.stderr
    assert ("None" if reported else "15") == done.stdout.strip()


HALF_MADE = """
import signal
from streammc.cli.signals import Interrupted, interruptible
class Made:
    def __init__(self):
        {work}
        self.made = True
    def __del__(self):
        self.made
with interruptible():
    try:
        Made()
    except (Interrupted, ZeroDivisionError):
        pass
"""


@pytest.mark.parametrize(
    ("work", "reported"), [("signal.raise_signal(15)", False), ("1 / 0", True)]
)
def test_a_finalizer_of_what_a_signal_left_half_made_is_no_traceback(
    work: str, reported: bool
) -> None:
    words = [sys.executable, "-c", HALF_MADE.format(work=work)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=listen)
    assert 0 == done.returncode
    assert ("AttributeError" in done.stderr) == reported, done.stderr


@pytest.mark.parametrize(
    "error", [KeyError("tcp://127.0.0.1:39601"), ConnectionResetError(104, "")]
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, None])
def test_what_fails_while_a_library_closes_after_a_signal_is_an_interruption(
    signum: int | None, error: Exception
) -> None:
    found = type(error) if signum is None else Interrupted
    with pytest.raises(found), signals.interruptible():
        try:
            if signum is not None:
                signal.raise_signal(signum)
        finally:
            raise error


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), DataError("expected x")])
def test_an_error_that_says_what_is_wrong_stays_after_a_signal(error: Exception) -> None:
    with pytest.raises(type(error)), signals.interruptible():
        with suppress(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        raise error


def listen() -> None:
    """Undo what a shell does to its background jobs: they ignore Ctrl-C, and so would children."""
    for signum in signals.SIGNALS:
        signal.signal(signum, signal.SIG_DFL)


def start(*words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [*PROGRAM, *words]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=listen)


def committed() -> int:
    done = streammc("info", "run", "--json")
    return int(done.json["draws"] + done.json["warmup"]) if done.code == 0 else 0


def wait_for(draws: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240.0
    while committed() < draws:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.trust(39)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 143), (signal.SIGINT, 130)]
)
def test_a_signal_checkpoints_and_the_same_command_resumes(
    store: Path, signum: signal.Signals, code: int
) -> None:
    process = start(*LONG, *SIZE)
    wait_for(100, process)
    sent = time.monotonic()
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 10.0
    assert code == process.returncode, err
    assert code == json.loads(out)["error"]["exit_code"]
    assert "Traceback" not in err
    assert 100 <= committed() < 4100
    assert 0 == streammc(*LONG, *SIZE).code
    Path("run").rename("resumed")
    assert 0 == streammc(*LONG, *SIZE).code
    digests = [streammc("verify", name, "--json").json["digest"] for name in ("run", "resumed")]
    assert digests[0] == digests[1]
    assert 4100 == committed()


def test_a_signal_leaves_no_half_written_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    process = start("simulate", "logistic", "s.zarr", "--rows", "50000000", *REST)
    deadline = time.monotonic() + 120.0
    while not list(tmp_path.glob("s.zarr.partial-*/X/*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert 143 == process.returncode
    assert 143 == json.loads(out)["error"]["exit_code"]
    assert "Traceback" not in err
    assert [] == os.listdir(tmp_path)


@pytest.mark.slow
def test_only_one_process_works_on_a_run(store: Path) -> None:
    process = start(*LONG, *SIZE)
    wait_for(100, process)
    second = streammc(*LONG, *SIZE)
    process.kill()
    process.communicate()
    assert 75 == second.code
    assert committed() >= 100


def test_closed_pipe_of_the_reader_is_no_error(made: Path) -> None:
    process = start("info", str(made / "run"), "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert "" == err
    assert process.returncode in (0, 141)


@pytest.mark.trust(47)
@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_are_no_error(made: Path, closed: int) -> None:
    words = " ".join([*PROGRAM, "info", str(made / "run")])
    done = subprocess.run(["sh", "-c", f"{words} {closed}>&-"], capture_output=True, timeout=60)
    assert 0 == done.returncode
    assert b"Traceback" not in done.stderr


@pytest.mark.trust(47)
def test_a_plain_locale_and_no_home_are_no_error(made: Path) -> None:
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "HOME": "/nonexistent"}
    assert 0 == program("info", made / "run", env=bare).code
