"""Signals to a job: checks 39 and 40."""

from __future__ import annotations

import math
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, digest, listen, program, streammc

from streammc import rng
from streammc.trace.run_directory import RunDirectory

DRAWS = 8000
Record = Callable[[str, object], None]


def job(store: Path) -> list[str]:
    return ["sample", str(store), *JOB, "--draws", str(DRAWS), "--sampler", "hmc"]


def start(*words: str | Path) -> subprocess.Popen[str]:
    command = [*PROGRAM, *map(str, words)]
    pipe = subprocess.PIPE

    def prepare() -> None:
        listen()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # In a group of its own: a group without a shell above it is not stopped by SIGTSTP.
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, preexec_fn=prepare, process_group=0
    )


def processor_seconds() -> float:
    """Return the processor time of the programs that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def committed(run: Path) -> int:
    return RunDirectory.open(run).committed_draws if RunDirectory.exists(run) else 0


def wait_for_draws(run: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240.0
    while not committed(run):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Return the digest of the job that nothing interrupts, and its seconds."""
    run, started = tmp_path_factory.mktemp("whole") / "run", time.monotonic()
    assert 0 == program(*job(finished / "store.zarr"), "-o", run).code
    return digest(run), time.monotonic() - started


def used_seconds(pid: int) -> float:
    """Return the seconds of the processor that a child has used; infinite if it has ended."""
    try:
        return sum(psutil.Process(pid).cpu_times()[:2])
    except psutil.NoSuchProcess:
        return math.inf


@pytest.mark.trust(39)
@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_a_job_stopped_at_random_instants_ends_with_its_draws(
    twice: bool,
    finished: Path,
    whole: tuple[str, float],
    tmp_path: Path,
    record_property: Record,
) -> None:
    words, (expected, seconds) = job(finished / "store.zarr"), whole
    generator, stopped = random.Random(1), 0
    for number in range(tried := rounds(2, 20 if twice else 50)):
        run, before = tmp_path / f"run-{number}", processor_seconds()
        process = start(*words, "-o", run)
        time.sleep(seconds * (0.4 + 0.6 * generator.random()))
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        if twice:
            time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        used = used_seconds(process.pid)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - sent < 10.0
        if twice:  # seconds of the processor: other work on a machine only adds to those of a clock
            assert processor_seconds() - before - used < 1.0
        assert process.returncode in (0, 143), err
        assert "Traceback" not in err
        stopped += process.returncode == 143
        assert 0 == streammc(*words, "-o", run).code
        assert expected == digest(run)
    assert stopped
    signals = "two SIGTERM" if twice else "SIGTERM"
    record_property(
        "figure",
        f"{signals}: {tried} of {tried} jobs ended with the same draws, {stopped} of them resumed",
    )


@pytest.mark.trust(39)
@pytest.mark.slow
def test_a_resumed_job_with_other_random_numbers_is_seen(
    finished: Path, whole: tuple[str, float], tmp_path: Path, record_property: Record
) -> None:
    words = job(finished / "store.zarr")
    process = start(*words, "-o", tmp_path / "run")
    wait_for_draws(tmp_path / "run", process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert 143 == process.returncode
    assert 0 < committed(tmp_path / "run") < DRAWS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rng, "from_state", lambda state: np.random.Generator(np.random.PCG64(0)))
        assert 0 == streammc(*words, "-o", tmp_path / "run").code
    assert whole[0] != digest(tmp_path / "run")
    record_property("caught", "a job that begins its random numbers again when it is resumed")


SIGNALS = {
    "SIGINT": (130, "streammc: interrupted by SIGINT: run the same command again to go on"),
    "SIGHUP": (129, "streammc: interrupted by SIGHUP: run the same command again to go on"),
    "SIGUSR1": (143, "streammc: interrupted by SIGUSR1: run the same command again to go on"),
    "SIGQUIT": (-signal.SIGQUIT, ""),
    "SIGTSTP": (0, ""),
}


@pytest.mark.trust(40)
@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNALS)
def test_every_other_signal_ends_a_job_as_documented_and_it_can_be_resumed(
    name: str,
    finished: Path,
    whole: tuple[str, float],
    tmp_path: Path,
    record_property: Record,
) -> None:
    words, (code, line) = job(finished / "store.zarr"), SIGNALS[name]
    for attempt in range(10):
        run = tmp_path / f"run-{attempt}"
        process = start(*words, "-o", run)
        wait_for_draws(run, process)
        process.send_signal(signal.Signals[name])
        if name == "SIGTSTP":
            time.sleep(1.0)
            held = committed(run)
            time.sleep(1.0)
            stopped = held == committed(run)
            process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        if (held if name == "SIGTSTP" else committed(run)) < DRAWS:
            break  # else the machine was busy: the signal came after the last draw
    if name == "SIGTSTP":
        assert stopped
        assert held < DRAWS
    assert code == process.returncode, err
    assert "Traceback" not in err
    assert line == err.strip()
    if code:
        assert 0 < committed(run) < DRAWS
    assert 0 == streammc(*words, "-o", run).code
    assert whole[0] == digest(run)
    record_property("figure", f"{name}: exit code {code}, the same draws after a resume")


@pytest.mark.trust(40, caught="a reader that goes away after one line")
@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback_and_the_job_can_be_resumed(
    finished: Path, whole: tuple[str, float], tmp_path: Path, record_property: Record
) -> None:
    words = [word for word in job(finished / "store.zarr") if word != "--quiet"]
    command = [*PROGRAM, *words, "--log-format", "json", "-o", str(tmp_path / "run")]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, preexec_fn=listen)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.stdout.close()  # as `| head -1` does
    code = process.wait(60)
    assert first.startswith(b"{")
    assert code in (0, 141)
    assert 0 == streammc(*words, "-o", tmp_path / "run").code
    assert whole[0] == digest(tmp_path / "run")
    record_property("figure", f"a pipe that closes: exit code {code}, the same draws")
