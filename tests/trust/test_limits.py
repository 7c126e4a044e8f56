"""Limits, clocks and odd environments of one job: checks 45 to 47."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, digest, limited, program, streammc

from streammc.numerics.dispatchers import cache_dir

FEW = (*JOB, "--draws", "60")
Record = Callable[[str, object], None]


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


@pytest.mark.trust(45, caught="a process that the kernel kills for its memory")
@pytest.mark.slow
def test_a_memory_limit_ends_a_job_cleanly_and_the_job_goes_on_without_it(
    finished: Path, tmp_path: Path, record_property: Record
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
    ends = ", ".join(f"{megabytes} MB {code}" for megabytes, code in codes.items())
    record_property("figure", f"memory cgroups: exit codes {ends}; all resumed with the same draws")


@pytest.mark.trust(45)
@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [("DATA", 900), ("AS", 2400)])
def test_a_limit_of_the_shell_on_memory_is_exit_code_71_or_no_matter(
    limit: str, most: int, finished: Path, tmp_path: Path, record_property: Record
) -> None:
    words = ("sample", finished / "store.zarr", *FEW, "--sampler", "hmc")
    codes = {}
    for megabytes in np.geomspace(30, most, rounds(3, 12)).astype(int):
        size, run = int(megabytes) << 20, tmp_path / f"run-{megabytes}"
        kind = getattr(resource, f"RLIMIT_{limit}")
        prepare = lambda kind=kind, size=size: resource.setrlimit(kind, (size, size))  # noqa: E731
        done = limited(*words, "-o", run, prepare=prepare)
        codes[int(megabytes)] = done.code
        assert done.code in (0, 71), (megabytes, done.err)
        if done.code:
            assert 1 == len(done.err.splitlines()), done.err
        assert 0 == streammc(*words, "-o", run).code
        assert 1 == len({digest(run), digest(tmp_path / f"run-{min(codes)}")})
    assert (71, 0) == (codes[min(codes)], codes[max(codes)]), codes
    refused = max(megabytes for megabytes, code in codes.items() if code)
    record_property("figure", f"RLIMIT_{limit}: one line and 71 up to {refused} MB, then 0")


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


@pytest.mark.trust(46, caught="a clock that goes back a day in the middle")
@pytest.mark.slow
@pytest.mark.parametrize("name", CLOCKS)
def test_a_wrong_clock_changes_no_draw_and_no_duration_is_negative(
    name: str, wrong_clock: Path, finished: Path, tmp_path: Path, record_property: Record
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
    record_property("figure", f"{name}: the same draws")


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


@pytest.mark.trust(47, caught="files of at most 4 kB")
@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_mean_environment_is_no_matter_or_one_line(
    name: str, finished: Path, tmp_path: Path, record_property: Record
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
        kept = Path(cache_dir()).parents[1]
        env = {"HOME": "/nonexistent", "STREAMMC_CACHE_DIR": str(kept)}
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
    record_property("figure", f"{name}: {done.returncode}")
    if name == "umask 077":
        assert not (out / "run" / "zarr.json").stat().st_mode & 0o077
