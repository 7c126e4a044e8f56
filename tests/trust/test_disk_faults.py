"""Full disks, input and output errors, file systems without locks: checks 25, 26 and 42."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, snapshot, streammc

from streammc.errors import BusyError, StorageIOError
from streammc.stores import open_store
from streammc.stores.format.partial import PartialDirectory
from streammc.trace.run_directory import RunDirectory

Recorded = Callable[[str, object], None]
JOB_WORDS = (*JOB, "--draws", "600", "--sampler", "hmc")


def digest(path: Path) -> str:
    found = streammc("verify", path, "--json")
    assert 0 == found.code, found.err
    return str(found.json.get("digest") or open_store(path).fingerprint)


def spaces() -> list[str]:
    """Return the words before a command that give it mounts of its own."""
    words = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of its own here")
    return words


SWEEP = """
mount -t tmpfs -o size={size}k none {disk} || exit 99
{first}
echo code $?
du -s --apparent-size -k {disk}
mount -o remount,size=64m {disk} || exit 99
{first}
echo code $?
cp -r {disk}/out {kept}
"""


@pytest.mark.trust(25)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "store"])
def test_a_disk_that_is_full_ends_a_command_and_grown_the_same_command_goes_on(
    kind: str, finished: Path, tmp_path: Path, record_property: Recorded
) -> None:
    before, disk, whole = spaces(), tmp_path / "disk", tmp_path / "whole"
    disk.mkdir()
    words = {
        "run": ("sample", str(finished / "store.zarr"), "-o", "{}", *JOB_WORDS),
        "store": (
            "simulate",
            "logistic",
            "{}",
            *["--rows", "20000", "--dim", "4", "--seed", "3", "--quiet"],
        ),
    }[kind]
    filled = lambda path: [word.replace("{}", str(path)) for word in words]  # noqa: E731
    assert 0 == streammc(*filled(whole)).code
    expected, full = digest(whole), 0
    needed = sum(size for size, _ in snapshot(whole).values()) // 1024
    steps = rounds(3, 20)
    for step in range(steps):
        kept, size = tmp_path / f"kept-{step}", 40 + needed * step // steps
        script = SWEEP.format(
            size=size,
            disk=shlex.quote(str(disk)),
            kept=shlex.quote(str(kept)),
            first=shlex.join([*PROGRAM, *filled(disk / "out")]),
        )
        done = subprocess.run([*before, "sh", "-c", script], capture_output=True, text=True)
        codes = [int(each) for each in re.findall(r"^code (\d+)$", done.stdout, re.M)]
        assert codes[0] in (0, 73, 74), (size, done.stderr)
        assert 0 == codes[1], (size, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("streammc: ")]
        if codes[0]:
            full += 1
            errors = [line for line in lines if "warning" not in line]
            assert 1 == len(errors), done.stderr
            assert str(disk) in errors[0], errors
        assert "Traceback" not in done.stderr
        assert expected == digest(kept)
        shutil.rmtree(kept)
    assert full >= steps // 2
    record_property("caught", f"{kind}: a disk that lacks a {steps}th of the room")
    record_property(
        "figure",
        f"{kind}: {steps} of {steps} sizes of a disk, {full} of them too small: one line, and the "
        "same result when there is room",
    )


FAULTS = ("read", "write", "fsync", "close", "pread64", "rename")


@pytest.mark.trust(26, caught="one read, write, fsync, close or rename that fails")
@pytest.mark.slow
def test_an_error_of_the_disk_ends_a_command_or_changes_nothing(
    finished: Path, tmp_path: Path, record_property: Recorded
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    if subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    whole, store = tmp_path / "whole", finished / "store.zarr"
    assert 0 == streammc("sample", store, "-o", whole, *JOB_WORDS).code
    expected, run = digest(whole), tmp_path / "run"
    names = [path.relative_to(whole) for path in whole.rglob("*")]
    paths = [
        run,
        *(run / name for name in names),
        *(run / "checkpoint" / f"{i}.partial" for i in (0, 1)),
    ]
    paths += list(store.rglob("*"))
    traced = [word for path in paths for word in ("-P", str(path))]
    generator, found = random.Random(1), Counter[str]()
    for number in range(tried := rounds(6, 30)):
        call = FAULTS[number % len(FAULTS)]
        at = generator.randrange(1, 12)
        words = ["-f", "-qq", "-o", str(tmp_path / "trace"), *traced, "-e", f"trace={call}"]
        words += ["-e", f"inject={call}:error=EIO:when={at}"]
        done = subprocess.run(
            ["strace", *words, *PROGRAM, "sample", store, "-o", run, *JOB_WORDS],
            capture_output=True,
            text=True,
            check=False,
        )
        hit = "INJECTED" in (tmp_path / "trace").read_text()
        assert "Traceback" not in done.stderr, (call, at, done.stderr)
        assert done.returncode in ((0, 74) if hit else (0,)), (call, at, done.stderr)
        if done.returncode:
            assert 1 == len(done.stderr.splitlines()), done.stderr
        if call == "fsync" and hit:
            assert 74 == done.returncode, "a failed fsync counts as success"
        if done.returncode == 0:
            assert expected == digest(run), (call, at)
        assert 0 == streammc("sample", store, "-o", run, *JOB_WORDS).code
        assert expected == digest(run), (call, at)
        shutil.rmtree(run)
        found[f"{'hit' if hit else 'not reached'}, exit {done.returncode}"] += 1
    assert any(what.startswith("hit") for what in found)
    what = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    record_property("figure", f"{tried} of {tried} errors: {what}; draws the same after each")


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP], ids=["ENOLCK", "EOPNOTSUPP"])
def without_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.trust(42)
def test_a_file_system_without_locks_is_worked_on(
    without_locks: None, finished: Path, tmp_path: Path
) -> None:
    words = ("--rows", "5000", "--dim", "2", "--seed", "5", "--quiet")
    store, run = tmp_path / "store", tmp_path / "run"
    assert 0 == streammc("simulate", "logistic", store, *words).code
    done = streammc("sample", store, "-o", run, *JOB, "--draws", "60")
    assert 0 == done.code, done.err
    done = streammc("predict", run, store, "-o", tmp_path / "p", "--quiet")
    assert 0 == done.code, done.err


@pytest.mark.trust(42)
def test_without_locks_the_mark_of_a_living_writer_keeps_others_away(
    without_locks: None, tmp_path: Path
) -> None:
    first = PartialDirectory(tmp_path / "store", ["X"])
    renamed = first.root.with_name("store.partial-1")  # that of another process
    first.root.rename(renamed)
    with pytest.raises(BusyError, match="lives"):
        PartialDirectory(tmp_path / "store", ["X"])
    renamed.rename(first.root)
    first.discard()
    assert [] == os.listdir(tmp_path)


def test_a_lock_that_fails_otherwise_is_an_io_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(StorageIOError, match="lock"),
        RunDirectory.hold(tmp_path / "run", identity={}),
    ):
        pass


@pytest.mark.trust(47)
@pytest.mark.slow
def test_a_run_on_a_read_only_disk_is_read_and_not_resumed(finished: Path, tmp_path: Path) -> None:
    before = spaces()
    disk = tmp_path / "disk"
    shutil.copytree(finished, disk)
    mount = f'mount --bind {disk} {disk} && mount -o remount,ro,bind {disk} && exec "$@"'
    run, store = disk / "run", disk / "store.zarr"
    for words, code in (
        (("info", run), 0),
        (("diagnose", run), 0),
        (("verify", run), 0),
        (("sample", store, "-o", run, *JOB, "--draws", "60"), 0),  # finished: nothing to do
        (("sample", store, "-o", run, *JOB, "--draws", "90"), 74),
        (("resume", run), 0),
    ):
        done = subprocess.run(
            [*before, "sh", "-c", mount, "sh", *PROGRAM, *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert code == done.returncode, (words, done.stderr)
        assert "Traceback" not in done.stderr
        if code:
            assert 1 == len(done.stderr.splitlines())
            assert str(run) in done.stderr


def test_a_store_replaced_between_pass_and_sampling_is_refused(tmp_path: Path) -> None:
    words = ("--dim", "2", "--quiet", "--rows", "5000", "--seed")
    store, cv, run = tmp_path / "store", tmp_path / "cv", tmp_path / "run"
    assert 0 == streammc("simulate", "logistic", store, *words, "5").code
    assert 0 == streammc("summarize", store, "-o", cv, "--model", "logistic", "--quiet").code
    assert 0 == streammc("simulate", "logistic", store, *words, "6", "--overwrite").code
    done = streammc("sample", store, "-o", run, *JOB, "--draws", "60", "--control-variates", cv)
    assert done.code in (65, 78), done.err
    assert 1 == len(done.err.splitlines())
    assert not RunDirectory.exists(run)
