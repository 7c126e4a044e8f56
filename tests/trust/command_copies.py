"""Start copies of a command at once: ``python command_copies.py FOLDER ROUNDS`` prints JSON.

A program of its own, because it forks. Every copy must end with 0, or with 75 because another is at
work; after that the command gives the result that it gives alone.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from command_kills import WORDS, content, run, start

from streammc.cli import main as command


def table():
    """Write a table of 20,000 rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 3))
    y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.5, -0.5, 0.2]))
    np.savetxt("t.csv", np.c_[y, X], delimiter=",", header="y,a,b,c", comments="", fmt="%.5g")


def main(folder, rounds):
    os.chdir(folder)
    table()
    for words in (WORDS["ingest"].format("s.zarr"), WORDS["sample"].format("run")):
        run(words)
    expected = {}
    for name, words in WORDS.items():
        with redirect_stdout(io.StringIO()):
            assert command(words.format(f"whole-{name}").split()) == 0
        expected[name] = content(Path(f"whole-{name}"))
    generator, codes, copies = random.Random(1), Counter(), 0
    for number in range(rounds):
        name, path = list(WORDS)[number % len(WORDS)], Path(f"out-{number}")
        count = generator.randint(2, 8)
        children = [start(WORDS[name].format(path), False) for _ in range(count)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        said = [line for line in Path("out").read_text().splitlines() if "streammc: " in line]
        assert set(ended) <= {0, 75}, (name, ended, said[-1:])
        assert 0 in ended or name == "ingest", (name, ended)
        codes.update(map(str, ended))
        copies += count
        run(WORDS[name].format(path))
        assert content(path) == expected[name], name
        shutil.rmtree(path)
    print(json.dumps({"copies": copies, "codes": codes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
