"""A job on a system without the functions that only Linux has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TAKEN = """
import builtins, fcntl, mmap, os, sys
taken = {
    os: ["posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "O_DIRECT",
         "POSIX_FADV_DONTNEED", "POSIX_FADV_WILLNEED", "O_TMPFILE", "preadv"],
    mmap: ["MAP_NORESERVE", "MAP_POPULATE", "MADV_POPULATE_READ", "MADV_DONTFORK"],
    fcntl: ["F_SETPIPE_SZ", "F_ADD_SEALS"],
}
for module, names in taken.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
real = builtins.open
def without_proc(file, *arguments, **options):
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("streammc") and str(file).startswith("/proc"):
        raise FileNotFoundError(file)
    return real(file, *arguments, **options)
builtins.open = without_proc
"""

JOB = """
import numpy as np
import streammc
rng = np.random.default_rng(1)
x = rng.normal(size=(6000, 2))
late = rng.random(6000) < 1 / (1 + np.exp(-x[:, 0]))
rows = zip(*x.T, late, strict=True)
with open("rows.csv", "w") as file:
    file.write("a,b,late\\n" + "".join(f"{a},{b},{int(y)}\\n" for a, b, y in rows))
streammc.ingest("rows.csv", "rows.zarr", response="late")
store = streammc.open_store("rows.zarr")
for sampler in (streammc.samplers.hmc_ecs(), streammc.samplers.hmc()):
    path = f"run-{sampler.name}"
    options = {"chains": 2, "draws": 100, "warmup": 200, "seed": 1, "audit": True}
    run = streammc.sample(store, streammc.models.logistic(), sampler=sampler, path=path, **options)
    found = streammc.facts(run)["summary"]
    assert abs(found["parameters"]["beta[a]"]["mean"] - 1.0) < 0.2, found["parameters"]
    assert (found["audit"] is not None) == (sampler.name == "hmc-ecs")
predictions = streammc.predict(path, store, "predictions.zarr")
assert np.isfinite(predictions["mean"]).all()
print("done")
"""


@pytest.mark.slow
def test_a_job_needs_nothing_that_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(TAKEN + JOB)
    command = [sys.executable, "-W", "ignore", "job.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr[-3000:]
