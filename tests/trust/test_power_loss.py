"""Power loss: copies of a disk at random instants, as it would be found after a cut: check 19."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from checks_of_trust import rounds

from streammc.errors import StreammcError
from streammc.stores import open_store
from streammc.stores.store import verify
from streammc.trace.run_directory import RunDirectory

Recorded = Callable[[str, object], None]
WRITER = Path(__file__).with_name("power_writer.py")
SIZE = "48M"
DRAWS = 1000


class Cut(NamedTuple):
    """A copy of the disk, and the lines that had been printed before."""

    image: Path
    said: list[str]


@contextmanager
def mounted(image: Path, where: Path) -> Iterator[Path]:
    """Mount an image; a journal that was cut is replayed, and nothing is written by a timer."""
    where.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-o", "loop,commit=300", image, where], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("no images to mount here: needs root and loop devices")
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


def new_image(path: Path) -> Path:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    subprocess.run(["truncate", "-s", SIZE, path], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-J", "size=4", path], check=True)
    return path


def make_tables(folder: Path) -> Path:
    """Write two tables, once: a store knows the time of its files."""
    rng = np.random.default_rng(1)
    for name, rows in () if (folder / "t.csv").exists() else (("t", 500), ("more", 100)):
        table = np.c_[rng.integers(0, 2, rows), rng.normal(size=rows)]
        path = folder / f"{name}.csv"
        np.savetxt(path, table, delimiter=",", header="y,x", comments="", fmt="%.4g")
    return folder


def write(tables: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, WRITER, tables, folder, str(DRAWS), *words]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)


def listen(lines: Iterable[str], said: list[str]) -> None:
    for line in lines:
        said.append(line)


def cut_at_random(folder: Path, count: int, *words: str) -> list[Cut]:
    """Write to an image, and copy it at random instants, the writer standing still."""
    image, cuts, said = new_image(folder / "image"), [], [""]
    tables, generator = make_tables(folder), random.Random(1)
    with mounted(image, folder / "disk") as disk:
        process = write(tables, disk, *words)
        assert process.stdout is not None
        reader = threading.Thread(target=listen, args=(process.stdout, said))
        reader.start()
        try:
            last = DRAWS // 10 + 2
            for goal in sorted(generator.sample(range(2, last), count)):
                while process.poll() is None and sum(line[:3] == "run" for line in said) < goal:
                    time.sleep(0.002)
                time.sleep(generator.random() * 0.02)
                if process.poll() is not None:
                    break
                os.kill(process.pid, signal.SIGSTOP)
                lines = list(said)
                copy = folder / f"cut-{len(cuts)}"
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
                os.kill(process.pid, signal.SIGCONT)
                cuts.append(Cut(copy, lines))
        finally:
            process.wait()
            reader.join()
            process.stdout.close()
        assert 0 == process.returncode
    return cuts


def lost(disk: Path, said: list[str]) -> list[str]:
    """Return what was said to be committed and is not there, or not whole."""
    found = []
    fingerprints: dict[str, list[str]] = {}
    for line in said:
        kind, *words = line.split() or [""]
        if kind == "store":
            fingerprints.setdefault(words[0], []).append(words[1])
    runs = [int(line.split()[1]) for line in said if line.startswith("run")]
    try:
        if runs and RunDirectory.open(disk / "run").generation < runs[-1]:
            found.append(f"generation {runs[-1]} of the run")
    except StreammcError as error:
        found.append(f"the run: {error}")
    for name, known in fingerprints.items():
        try:
            whole = verify(disk / name)["ok"]
            if not whole or (len(known) > 1 and open_store(disk / name).fingerprint != known[-1]):
                found.append(f"store {name}")
        except StreammcError as error:
            found.append(f"store {name}: {error}")
    return found


def digests(disk: Path) -> dict[str, str]:
    stores = {path.name: open_store(path).fingerprint for path in sorted(disk.glob("store-*"))}
    return {**stores, "run": RunDirectory.open(disk / "run").digest()}


@pytest.mark.trust(19)
@pytest.mark.slow
def test_after_a_power_cut_every_commit_is_there_and_the_job_goes_on_the_same(
    tmp_path: Path, record_property: Recorded
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    write(make_tables(tmp_path), whole).communicate()
    expected = digests(whole)
    cuts = cut_at_random(tmp_path, rounds(4, 50))
    assert len(cuts) >= rounds(4, 50) * 0.9
    commits = 0
    for cut in cuts:
        with mounted(cut.image, tmp_path / "disk") as disk:
            assert [] == lost(disk, cut.said)
            process = write(tmp_path, disk)
            process.communicate()
            assert 0 == process.returncode
            assert expected == digests(disk)
        cut.image.unlink()
        commits += len(cut.said) - 1
    record_property(
        "figure",
        f"{len(cuts)} of {len(cuts)} cuts: mounted, verified and gone on with the same digests; "
        f"{commits} of {commits} commits that had been said were there",
    )


@pytest.mark.trust(19)
@pytest.mark.slow
def test_without_fsync_a_power_cut_loses_commits(tmp_path: Path, record_property: Recorded) -> None:
    failed = 0
    cuts = cut_at_random(tmp_path, 4, "no-fsync")
    for cut in cuts:
        with mounted(cut.image, tmp_path / "disk") as disk:
            failed += bool(lost(disk, cut.said))
    assert failed == len(cuts) > 0
    record_property("caught", f"fsync that does nothing: {failed} of {failed} cuts lost commits")
