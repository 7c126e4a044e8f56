"""Kill commands at random instants, and give the same command again.

A program of its own, because it forks: ``python command_kills.py FOLDER KILLS [torn]`` prints a
JSON object for each of ``ingest``, ``summarize``, ``sample`` and ``predict``. With ``torn``, runs
write their root document in place and in two parts, as a program would that knows no better: the
kills must then be seen.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from streammc.cli import main as command
from streammc.errors import StreammcError
from streammc.trace import commit
from streammc.trace.run_directory import RunDirectory
from streammc.unfinished import SUFFIX

JOB = ("--model", "logistic", "--seed", "1", "--chains", "2", "--warmup", "200", "--quiet")
DRAWS = ("--draws", "2000", "--sampler", "hmc")
WORDS = {
    "ingest": "ingest t.csv {} --response y --seed 1 --chunk-rows 1000 --quiet",
    "summarize": "summarize s.zarr -o {} --model logistic --quiet",
    "sample": f"sample s.zarr -o {{}} {' '.join((*JOB, *DRAWS))}",
    "predict": "predict run s.zarr -o {} --quiet",
}


def torn_root(path, state, attributes, expected):
    """Write the root document in place, in two parts."""
    data = commit.root_document(state, attributes)
    with open(path / "zarr.json", "wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        time.sleep(0.05)
        file.write(data[len(data) // 2 :])
    return commit.root_stamp(path)


def start(words, torn):
    """Start a command in a process group of its own; return its id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        if torn:
            commit.commit_root = torn_root
        with open("out", "a") as out, redirect_stdout(out), redirect_stderr(out):
            code = command(words.split())
    finally:
        os._exit(code)


def run(words):
    """Run a command to its end; return its seconds."""
    begun = time.monotonic()
    _, status = os.waitpid(start(words, False), 0)
    assert os.waitstatus_to_exitcode(status) == 0, (words, Path("out").read_text()[-2000:])
    return time.monotonic() - begun


def verified(path):
    """Return the answer of ``verify``, for what has a digest or fingerprint of its own."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert command(["verify", str(path), "--json"]) == 0, out.getvalue()
    return json.loads(out.getvalue())


def content(path):
    """Return all of a result that is not a time: the draws of a run, else every file."""
    if RunDirectory.exists(path) and (path / "posterior").is_dir():
        run = RunDirectory.open(path)
        assert "summary" in run.attributes
        return run.digest()
    assert verified(path)["ok"]
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ("zarr.json", "streammc-manifest.json")
    }


def committed(path):
    """Return the committed draws of a run, and their number; none without one."""
    if not (RunDirectory.exists(path) and (path / "posterior").is_dir()):
        return 0, None
    run = RunDirectory.open(path)
    return run.committed_draws, run.draws_matrix("draws")


def killed(name, kills, torn):
    """Kill a command at instants spread over its time; return what became of it."""
    whole = Path(f"whole-{name}")
    run(WORDS[name].format(whole))
    shutil.rmtree(whole)
    seconds, expected = run(WORDS[name].format(whole)), content(whole)
    generator, found = random.Random(name), {"killed": 0, "identical": 0, "draws kept": 0}
    for number in range(kills):
        path = Path(f"{name}-{number}")
        child = start(WORDS[name].format(path), torn)
        time.sleep(seconds * (number + generator.random()) / kills)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child, signal.SIGKILL)  # before it made its group, or a zombie
        _, status = os.waitpid(child, 0)
        found["killed"] += os.WIFSIGNALED(status)
        done, draws = committed(path) if name == "sample" else (0, None)
        run(WORDS[name].format(path))
        assert content(path) == expected, path
        found["identical"] += 1
        if done:
            again = RunDirectory.open(path).draws_matrix("draws")[:, :done]
            assert np.array_equal(draws[:, :done], again)
            found["draws kept"] += done
        left = {each for each in os.listdir() if each.startswith((f"{path}.", f".{path}."))}
        assert all(each.endswith((".config.json", SUFFIX)) for each in left), left
        shutil.rmtree(path)
        Path(f"{path}.config.json").unlink(missing_ok=True)
    return found


def main(folder, kills, torn):
    os.chdir(folder)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 3))
    y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.5, -0.5, 0.2]))
    np.savetxt("t.csv", np.c_[y, X], delimiter=",", header="y,a,b,c", comments="", fmt="%.5g")
    for words in (WORDS["ingest"].format("s.zarr"), WORDS["sample"].format("run")):
        run(words)
    for name, words in WORDS.items():  # children need not load compiled code
        with redirect_stdout(io.StringIO()):
            assert command(words.format(f"warm-{name}").split()) == 0
    for name in ["sample"] if torn else WORDS:
        try:
            print(json.dumps({name: killed(name, kills, torn)}), flush=True)
        except (StreammcError, AssertionError) as error:
            if not torn:
                raise
            print(json.dumps({name: {"caught": str(error)[:200]}}), flush=True)
    for path in Path().glob(f".*{SUFFIX}"):
        os.utime(path, (0, 0))
    assert command(["gc", ".", "--json"]) == 0
    assert not list(Path().glob(f".*{SUFFIX}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "torn" in sys.argv)
