"""Write ``format-N.tar.xz``: one small result of each kind, and what is read from it.

``python tests/trust/make_golden.py N`` is run once for each released format. Later versions of
streammc must read the same from the archive (``test_formats.py``); it is never made again.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from streammc.cli import main as command
from streammc.control_variates.expansion import ControlVariates
from streammc.protocols import PassTask
from streammc.stores import open_store
from streammc.stores.store import verify
from streammc.trace.datatree import open_rows, open_run
from streammc.trace.run_directory import RunDirectory

HERE = Path(__file__).resolve().parent
MADE = """
ingest t.csv store --formula y~C(g) --seed 1
ingest t.csv shards --response y --features x --layout cloud --seed 1
summarize store -o cv --model logistic
sample store -o run --model logistic --sampler hmc --chains 1 --warmup 20 --draws 30 --seed 1
predict run store -o predictions
""".strip().splitlines()


class Sums(PassTask[Any]):
    """Sums over the rows of a store: of each column, and of the response."""

    def map(self, block: Any) -> Any:
        return np.append(np.asarray(block.X, np.float64).sum(axis=0), float(block.y.sum()))

    def combine(self, left: Any, right: Any) -> Any:
        return left + right


def read(folder: Path) -> dict[str, Any]:
    """Return what streammc reads from the results in a folder, exactly."""
    found: dict[str, Any] = {}
    for name in ("store", "shards"):
        store = open_store(folder / name)
        sums = store.reduce(Sums(), scheduler="sync")
        found[name] = {
            "ok": verify(folder / name)["ok"],
            "fingerprint": store.fingerprint,
            "features": list(store.feature_names),
            "sums": [float(each).hex() for each in sums],
        }
    found["cv"] = ControlVariates.open(folder / "cv").digest()
    run = RunDirectory.open(folder / "run")
    tree = open_run(folder / "run")
    sampled = "sampled_posterior" if "sampled_posterior" in tree.children else "posterior"
    draws = tree[sampled]["beta"].values
    found["run"] = {"digest": run.digest(), "beta": exact(draws), "draws": run.committed_draws}
    found["run"]["checkpoint"] = sorted((run.checkpoint() or ({}, {}))[0])
    predictions = open_rows(folder / "predictions", verify=True)
    found["predictions"] = exact(predictions["mean"].values)
    return found


def exact(values: Any) -> list[str]:
    """Return shape, sum and last element of an array, without rounding."""
    array = np.asarray(values, dtype=np.float64)
    return [str(array.shape), float(array.sum()).hex(), float(array.flat[-1]).hex()]


def main(version: str) -> None:
    archive = HERE / f"format-{version}.tar.xz"
    if archive.exists():
        raise SystemExit(f"expected no {archive} yet, found one: it is never made again")
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        rng = np.random.default_rng(1)
        rows = [f"{rng.integers(2)},{rng.normal():.4f},{'ab'[i % 2]}" for i in range(40)]
        Path("t.csv").write_text("\n".join(["y,x,g", *rows]) + "\n")
        for words in MADE:
            assert command([*words.split(), "--quiet"]) == 0
        for path in Path().glob("*.config.json"):
            path.unlink()
        Path("t.csv").unlink()
        Path("expected.json").write_text(json.dumps(read(Path()), indent=1))
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for path in sorted(Path().iterdir()):
                tar.add(path)


if __name__ == "__main__":
    main(sys.argv[1])
