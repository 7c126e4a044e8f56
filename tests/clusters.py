"""A Dask scheduler and workers as processes on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import streammc as package
from streammc.protocols import PassTask, RowBlock
from streammc.stores.store import Store

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; from distributed.cli.{0} import main; sys.exit(main())",
]
SECONDS = 90.0
TLS = "DASK_DISTRIBUTED__COMM__TLS__"


class Cluster:
    """A scheduler, and worker processes that can be killed."""

    def __init__(
        self, folder: Path, env: dict[str, str], protocol: str, host: str, within: str
    ) -> None:
        path = str(Path(__file__).parent)
        self.folder, self.env = folder, {**os.environ, "PYTHONPATH": path, **env}
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._log = open(folder / "log", "wb")  # noqa: SIM115
        words = ["--port", "0", "--host", host, "--dashboard-address", "127.0.0.1:0"]
        words += ["--protocol", protocol, "--scheduler-file", str(self.file)]
        self.scheduler = self._start("dask_scheduler", words, _in_network(within))
        self.address = str(self._document()["address"])

    def _start(
        self, name: str, words: Sequence[str], before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        command = [*before, *PROGRAM[:2], PROGRAM[2].format(name), *words]
        return subprocess.Popen(
            command, env=self.env, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def _document(self) -> Any:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                return json.loads(self.file.read_text())
            except (OSError, ValueError):
                time.sleep(0.1)
        raise TimeoutError((self.folder / "log").read_text())

    def add(
        self,
        *words: str,
        nanny: bool = False,
        env: dict[str, str] | None = None,
        within: str = "",
    ) -> None:
        """Start a worker of one thread; ``within`` names a network of its own."""
        for name, text in (env or {}).items():
            self.env[name] = f"{text}:{self.env[name]}" if name == "PYTHONPATH" else text
        words = ("--nthreads", "1", "--dashboard-address", "127.0.0.1:0", *words)
        local = ["--local-directory", str(self.folder / f"worker-{len(self.workers)}")]
        kind = "--nanny" if nanny else "--no-nanny"
        before = _in_network(within)
        self.workers.append(
            self._start("dask_worker", [self.address, kind, *local, *words], before)
        )

    def close(self) -> None:
        """End all processes, also those that are stopped."""
        for process in (*self.workers, self.scheduler):
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
        self._log.close()

    def log(self) -> str:
        return (self.folder / "log").read_text()


def _in_network(name: str) -> list[str]:
    """Return the words before a command that run it in a network namespace; none without one."""
    return ["ip", "netns", "exec", name] if name else []


class Slow(PassTask[np.ndarray]):
    """Sums of rows, a tenth of a second a block; one block kills its worker, if it is told to."""

    def __init__(self, folder: Path, kills: int | None = None, seconds: float = 0.1) -> None:
        self.folder, self.kills, self.seconds = folder, kills, seconds

    def map(self, block: RowBlock) -> np.ndarray:
        (self.folder / f"{block.index}-{os.getpid()}").touch()
        time.sleep(self.seconds)
        if block.index == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.array([len(block.y), block.X.sum(dtype=np.float64), block.y.sum()])

    def combine(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left + right


class Poison(Slow):
    """Sums of rows; block 3 kills its worker while a file says so."""

    def map(self, block: RowBlock) -> np.ndarray:
        if block.index == 3 and (self.folder.parent / "poison").exists():
            time.sleep(1.0)  # the others are done before
            os.kill(os.getpid(), signal.SIGKILL)
        return super().map(block)


class Hungry(Slow):
    """Sums of rows; one block fills the memory of its worker, slowly enough to be seen."""

    def map(self, block: RowBlock) -> np.ndarray:
        kept = []
        while block.index == 3:
            kept.append(np.ones(4 << 20))
            time.sleep(0.02)
        return super().map(block)


class Hoarding(PassTask[np.ndarray]):
    """Number of rows; a worker keeps the blocks that it has read."""

    kept: ClassVar[list[np.ndarray]] = []

    def map(self, block: RowBlock) -> np.ndarray:
        self.kept.append(np.array(block.X))
        return np.array([len(block.y)])

    def combine(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left + right


def begun(folder: Path) -> None:
    """Wait until a block has begun."""
    until = time.monotonic() + 60
    while not any(folder.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.02)


@contextmanager
def cluster(
    folder: Path,
    workers: int = 2,
    env: dict[str, str] | None = None,
    protocol: str = "tcp",
    host: str = "127.0.0.1",
    within: str = "",
) -> Iterator[Cluster]:
    """Start a cluster; end it when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder, env or {}, protocol, host, within)
    try:
        for _ in range(workers):
            made.add()
        yield made
    finally:
        made.close()


def write_store(path: Path | str, rows: int = 80_000, chunk_rows: int = 4096) -> Path | str:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3))
    y = rng.uniform(size=len(x)) < 1.0 / (1.0 + np.exp(-x[:, 0]))
    table = {f"x{j}": x[:, j] for j in range(3)} | {"y": y.astype(int)}
    package.ingest(table, path, response="y", chunk_rows=chunk_rows)
    return path


def sums(folder: Path, dataset: Store) -> tuple[Slow, np.ndarray]:
    """Return a slow task, and its sums by one thread."""
    folder.mkdir()
    task = Slow(folder)
    expected = dataset.reduce(Slow(folder, seconds=0.0), scheduler="sync")
    for path in folder.iterdir():
        path.unlink()
    return task, expected


def wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)
