"""Kill a writer at system calls that change the disk, and look at what is left.

A program of its own, because it forks. Prints one JSON object: kills per job.
``python crash_points.py FOLDER FIRST STRIDE`` kills at call FIRST, FIRST + STRIDE, ...
``python crash_points.py FOLDER SECONDS...`` kills after that time.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import example_job as job

from streammc.trace.run_directory import RunDirectory

CALLS = ("write", "fsync", "replace", "mkdir", "unlink")


# A killed process loses nothing that it has written: only a power cut needs fsync.
os.fsync = lambda descriptor: None


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(n):
    """Make the ``n``-th call that changes the disk the last; a write is torn in two."""
    count = itertools.count(1)  # files are written by threads

    def counted(name, call):
        def wrapper(*args, **kwargs):
            if next(count) == n:
                if name == "write":
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                die()
            return call(*args, **kwargs)

        return wrapper

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


def crash(path, arrange):
    """Run the job in a child; return (whether it was killed, draws it reported)."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        real_write = os.write
        arrange()
        job.sample(
            path, draws(path), lambda run: real_write(sender, f"{run.generation}\n".encode())
        )
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as reported:
        lines = reported.read().split()
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status != 0, int(lines[-1]) if lines else 0


def draws(path):
    """Return 33 for a fresh run, 55 for the extension of one of 33: both end short."""
    return 55 if path.name == "extended" else 33


def examine(path, reported, whole):
    if RunDirectory.exists(path):
        run = RunDirectory.open(path)
        job.check_prefix(run)
        assert run.generation >= reported, (run.generation, reported)
        assert run.committed_warmup % job.INTERVAL == 0
    else:
        assert not reported
    resumed = job.sample(path, draws(path))
    job.check_prefix(RunDirectory.open(path))
    assert resumed.digest() == whole
    for name in os.listdir(path / "checkpoint"):
        assert name.endswith((".npz", ".json", "lock", ".partial")), name


def main(folder, times, first, stride):
    results = {}
    for name in ("fresh", "extended"):
        path = folder / name
        whole = job.sample(folder / f"whole-{name}", draws(path)).digest()
        plans = [lambda n=n: die_at(n) for n in range(first, 10_000, stride)] if stride else []
        plans += [lambda s=s: signal.setitimer(signal.ITIMER_REAL, s) for s in times]
        killed = 0
        for arrange in plans:
            shutil.rmtree(path, ignore_errors=True)
            if name == "extended":
                shutil.copytree(folder / "whole-fresh", path)
            was_killed, reported = crash(path, arrange)
            if stride and not was_killed:
                break  # the job has fewer calls than that
            examine(path, reported, whole)
            killed += was_killed
        results[name] = killed
    print(json.dumps(results))


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, lambda *_: die())
    where, *numbers = sys.argv[1:]
    if "." in numbers[0]:
        main(Path(where), [float(n) for n in numbers], 0, 0)
    else:
        main(Path(where), [], int(numbers[0]), int(numbers[1]))
