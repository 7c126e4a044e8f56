"""Signals, locks, limits, clocks and odd environments of one job: checks 39 and 42 to 48."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, Result, program, snapshot, streammc

from streammc.errors import BusyError
from streammc.trace.layout import make_layout
from streammc.trace.run_directory import RunDirectory

FEW = (*JOB, "--draws", "60")


def digest(run: Path) -> str:
    found = streammc("verify", run, "--json")
    assert 0 == found.code, found.err
    return str(found.json["digest"])


def limited(
    *words: str | Path,
    prepare: Callable[[], object] = lambda: None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a command as a program, after ``prepare`` in its process."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words)],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def listen() -> None:
    """Undo what a shell does to its background jobs."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.trust(39)
@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_a_job_stopped_at_random_instants_ends_with_its_draws(
    twice: bool,
    finished: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    words = ["sample", str(finished / "store.zarr"), *JOB, "--draws", "3000", "--sampler", "hmc"]
    whole = tmp_path / "whole"
    started = time.monotonic()
    assert 0 == program(*words, "-o", whole).code
    seconds = time.monotonic() - started
    generator, stopped = random.Random(1), 0
    for number in range(tried := rounds(2, 25)):
        run = tmp_path / f"run-{number}"
        process = subprocess.Popen(
            [*PROGRAM, *words, "-o", str(run)], stderr=subprocess.PIPE, preexec_fn=listen, text=True
        )
        time.sleep(seconds * (0.4 + 0.6 * generator.random()))
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        if twice:
            time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - sent < (1.0 if twice else 10.0)
        assert process.returncode in (0, 143), err
        assert "Traceback" not in err
        stopped += process.returncode == 143
        assert 0 == streammc(*words, "-o", run).code
        assert digest(whole) == digest(run)
    assert stopped
    signals = "two SIGTERM" if twice else "SIGTERM"
    record_property("figure", f"{signals}: {tried} of {tried} jobs ended with the same draws")


def plan(draws: int) -> dict[str, Any]:
    layout = make_layout(["a"], ["a"], 1, 5, {"lp": "float64"})
    return {"layout": layout, "draws": draws, "warmup": 0, "attributes": {}, "constant_data": {}}


def commit(run: RunDirectory) -> None:
    n = run.next_length
    theta = np.full((1, n, 1), 1.0 + run.next_start)
    run.append("draws", theta, {"lp": theta[:, :, 0]}, ({"at": theta[0, -1]}, {"next": 1}))


def two_writers(path: Path, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Let two writers in at once; return how many commits there were, and how many were refused."""
    patch.setattr(fcntl, "flock", lambda *_: None)
    made = refused = 0
    with (
        RunDirectory.hold(path, identity={"seed": 1}, **plan(50)) as first,
        RunDirectory.hold(path, identity={"seed": 1}, **plan(50)) as second,
    ):
        for writer in (first, second, first, second):
            try:
                commit(writer)
                made += 1
            except (BusyError, OSError):
                refused += 1
    return made, refused


@pytest.mark.trust(42)
def test_where_locks_do_nothing_the_second_writer_cannot_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(rounds(5, 100)):
        path = tmp_path / f"run-{number}"
        with pytest.MonkeyPatch.context() as patch:
            assert (2, 2) == two_writers(path, patch)
        assert 10 == RunDirectory.open(path).committed_draws
    monkeypatch.setattr("streammc.trace.commit.root_stamp", lambda path: "never another")
    with pytest.MonkeyPatch.context() as patch:
        assert two_writers(tmp_path / "unfenced", patch) != (2, 2)


@pytest.mark.trust(42)
@pytest.mark.slow
def test_a_run_whose_holder_was_killed_is_free_within_two_seconds(
    finished: Path, tmp_path: Path
) -> None:
    words = ("sample", finished / "store.zarr", "-o", tmp_path / "run", *JOB, "--sampler", "hmc")
    many = [*PROGRAM, *map(str, words), "--draws", "200000"]
    with subprocess.Popen(many, stderr=subprocess.DEVNULL) as process:
        while not RunDirectory.exists(tmp_path / "run"):
            assert process.poll() is None
            time.sleep(0.05)
        assert 75 == streammc(*words, "--draws", "200000").code
        process.kill()
        process.wait()
    started = time.monotonic()
    with RunDirectory.open(tmp_path / "run").lock():
        assert time.monotonic() - started < 2.0


@pytest.mark.trust(43)
@pytest.mark.parametrize("change", ["rows", "version"])
def test_a_run_of_other_rows_or_of_another_version_of_the_format_is_left_alone(
    change: str, finished: Path, tmp_path: Path
) -> None:
    run, store = tmp_path / "run", tmp_path / "store.zarr"
    shutil.copytree(finished / "run", run)
    shutil.copytree(finished / "store.zarr", store)
    if change == "rows":
        shutil.rmtree(store)
        words = ("--rows", "20000", "--dim", "4", "--seed", "6", "--quiet")
        assert 0 == streammc("simulate", "logistic", store, *words).code
    else:
        root = json.loads((run / "zarr.json").read_text())
        text = (run / "zarr.json").read_text()
        found = root["attributes"]["streammc"]["format"]
        newer = text.replace(f'"format":{found}', f'"format":{found + 1}')
        newer = newer.replace(f'"format": {found}', f'"format": {found + 1}')
        assert newer != text
        (run / "zarr.json").write_text(newer)
    before = snapshot(run)
    done = streammc("sample", store, "-o", run, *JOB, "--draws", "90")
    assert (78 if change == "rows" else 65) == done.code, done.err
    assert 1 == len(done.err.splitlines())
    assert before == snapshot(run)


def limits_of_memory(name: str, limit: int) -> Iterator[Path]:
    """Make a memory cgroup of either version; yield its folder, and remove it."""
    root = Path("/sys/fs/cgroup")
    versions = ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max"))
    for parent, file in versions:
        group = parent / name
        try:
            group.mkdir()
            (group / file).write_text(str(limit))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    pytest.skip("no memory cgroups to make here: needs root")


@pytest.mark.trust(45)
@pytest.mark.slow
def test_a_memory_limit_ends_a_job_cleanly_and_the_job_goes_on_without_it(
    finished: Path, tmp_path: Path
) -> None:
    words = ("sample", finished / "store.zarr", *FEW, "--sampler", "hmc")
    codes = {}
    for megabytes in np.geomspace(60, 600, rounds(3, 10)).astype(int):
        run = tmp_path / f"run-{megabytes}"
        name = f"streammc-{os.getpid()}-{megabytes}"
        for group in limits_of_memory(name, int(megabytes) << 20):
            enter = lambda group=group: (group / "cgroup.procs").write_text(str(os.getpid()))  # noqa: E731
            done = limited(*words, "-o", run, prepare=enter)
            codes[int(megabytes)] = done.code
            assert done.code in (0, 71, 137, -signal.SIGKILL), (megabytes, done.err)
            assert "Traceback" not in done.err
        assert 0 == streammc(*words, "-o", run).code
        assert 1 == len({digest(run), digest(tmp_path / f"run-{min(codes)}")})
    assert codes[min(codes)] != 0, codes
    assert codes[max(codes)] == 0, codes


@pytest.fixture(scope="session")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that gives a process a wrong clock."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to make a wrong clock")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


DAY = 86_400
CLOCKS = {
    "a day back in the middle": {"CLOCK_CALLS": "2000", "CLOCK_STEP": str(-DAY)},
    "ten years on": {"CLOCK_OFFSET": str(3653 * DAY)},
    "a day back": {"CLOCK_OFFSET": str(-DAY)},
    "after 2038": {"CLOCK_OFFSET": str(5000 * DAY)},
    "ten years on in the middle": {"CLOCK_CALLS": "2000", "CLOCK_STEP": str(3653 * DAY)},
    "SOURCE_DATE_EPOCH": {"SOURCE_DATE_EPOCH": "0"},
}


def shown_clock(library: Path, clock: Mapping[str, str]) -> float:
    """Return the time that a process with a wrong clock shows after many calls."""
    code = "import time\nfor _ in range(5000): now = time.time()\nprint(now)"
    env = {**os.environ, **clock, "LD_PRELOAD": str(library)}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    return float(shown.stdout)


@pytest.mark.trust(46)
@pytest.mark.parametrize(
    "name",
    [
        name if number < 1 else pytest.param(name, marks=pytest.mark.slow)
        for number, name in enumerate(CLOCKS)
    ],
)
def test_a_wrong_clock_changes_no_draw_and_no_duration_is_negative(
    name: str, wrong_clock: Path, finished: Path, tmp_path: Path
) -> None:
    clock = CLOCKS[name]
    if "SOURCE_DATE_EPOCH" not in clock:  # the library works
        assert abs(shown_clock(wrong_clock, clock) - time.time()) > DAY / 2
    env = {**clock, "LD_PRELOAD": str(wrong_clock)}
    run = tmp_path / "run"
    words = ("sample", finished / "store.zarr", "-o", run, *JOB, "--json", "--draws")
    half = program(*words, "30", env=env)
    assert 0 == half.code, half.err
    whole = program(*words, "60", env=env)
    assert 0 == whole.code, whole.err
    assert digest(finished / "run") == digest(run)
    seconds = {key: s for key, s in whole.json["sampling"].items() if key.endswith("seconds")}
    assert seconds
    assert all(0 <= value < 300 for value in seconds.values() if value is not None), seconds


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


ENVIRONMENTS = {
    "few files": 0,
    "no home": 0,
    "umask 077": 0,
    "files of 4 kB": 74,
    "a plain locale": 0,
    "standard output closed": 0,
    "no terminal": 0,
    "folder deleted": 66,
    "read-only": 73,
    "full temporary folder": 0,
}


@pytest.mark.trust(47)
@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_mean_environment_is_no_matter_or_one_line(
    name: str, finished: Path, tmp_path: Path
) -> None:
    gone, out = tmp_path / "gone", tmp_path / "out"
    for folder in (gone, out):
        folder.mkdir()
    env: dict[str, str] = {}
    prepare: dict[str, Callable[[], object]] = {
        "few files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        "umask 077": lambda: os.umask(0o077),
        "files of 4 kB": small_files,
        "standard output closed": lambda: os.close(1),
        "no terminal": os.setsid,
        "folder deleted": gone.rmdir,
    }
    if name == "no home":
        env = {"HOME": "/nonexistent"}
    if name == "a plain locale":
        env = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    before: list[str] = []
    if name in ("read-only", "full temporary folder"):
        where, options = (out, "ro,size=1m") if name == "read-only" else (gone, "size=4k")
        script = f'mount -t tmpfs -o {options} none {shlex.quote(str(where))} && exec "$@"'
        before = ["unshare", "-m", "sh", "-c", script, "sh"]
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no mounts of its own here: needs root")
        env = {} if name == "read-only" else {"TMPDIR": str(gone)}
    words = ["sample", finished / "store.zarr", "-o", out / "run", *FEW]
    done = subprocess.run(
        [*before, *PROGRAM, *map(str, words)],
        env={**os.environ, **env},
        cwd=gone,
        preexec_fn=prepare.get(name),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ENVIRONMENTS[name] == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert 1 == len(done.stderr.splitlines()), done.stderr
        named = "current folder" if name == "folder deleted" else str(out)
        assert named in done.stderr
    else:
        assert digest(finished / "run") == digest(out / "run")
    if name == "umask 077":
        assert not (out / "run" / "zarr.json").stat().st_mode & 0o077


@pytest.mark.trust(44)
@pytest.mark.trust(48)
@pytest.mark.slow
def test_every_failure_of_the_command_line_is_json_with_the_code_of_the_process() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
        from bench.messages.check import AREAS, cases_of
        from bench.messages.inputs import make_inputs

        for name in [name for name in os.environ if name.startswith("STREAMMC_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            make_inputs()
            codes = set()
            for case in [case for area in AREAS for case in cases_of(area)]:
                words = shlex.split(case)
                if words[0] != "streammc" or "--" in words:
                    continue
                known = set(os.listdir())
                done = streammc(*words[1:], "--json")
                for left in set(os.listdir()) - known:
                    path = Path(left)
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                error = json.loads(done.out)["error"]
                assert (done.code, True) == (error["exit_code"], done.code != 0), case
                assert error["code"], case
                assert error["message"], case
                codes.add(done.code)
        assert codes >= {2, 65, 66, 69, 73, 78}, codes


@pytest.mark.trust(44)
def test_a_command_ends_with_0_only_if_its_result_is_there_and_verifies(
    finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    again = ("sample", finished / "store.zarr", "-o", run, *FEW)
    assert 0 == streammc(*again).code
    chunk = run / "posterior" / "beta" / "c.0.1.0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert 65 == streammc(*again).code
    chunk.unlink()
    assert 65 == streammc(*again).code
