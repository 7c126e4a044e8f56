# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Out of core: a table larger than the memory
#
# A store of 1.2 GB is sampled by a process that may have 1 GB of memory of its own, and uses less
# than half of it. The limit is one of the operating system (`RLIMIT_DATA`, on Linux), so that a
# program that loads the table ends with a MemoryError. Pages of the store that the process maps
# are not its own: the system drops them when others need the memory.

# %%
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import streammc

folder = Path(tempfile.mkdtemp(prefix="out-of-core-"))
LIMIT = 1_000_000_000
ROWS, COLUMNS = 15_000_000, 20

# %% [markdown]
# ## A store larger than the limit
#
# The simulation `logistic`: chunks of rows are drawn, checked, and written in turn.

# %%
streammc.simulate("logistic", folder / "rows.zarr", ROWS, COLUMNS, seed=1)
store = streammc.open_store(folder / "rows.zarr")
size = sum(path.stat().st_size for path in (folder / "rows.zarr").rglob("*") if path.is_file())
print(f"{store.n_rows:,} rows, {size / 1e9:.2f} GB; the limit is {LIMIT / 1e9:.2f} GB")
assert size > 1.2 * LIMIT

# %% [markdown]
# ## A process with a limit
#
# The process below sets the limit before it imports anything else. This one watches it: `RssAnon`
# of `/proc/PID/status` is its anonymous memory, that which no file is behind.

# %%
BEGIN = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
import json
import numpy as np
import streammc
folder = sys.argv[1]
store = streammc.open_store(folder + "/rows.zarr")
"""


def limited(code):
    """Run code under the limit; return its result, its errors and its memory over time in MB."""
    command = [sys.executable, "-c", BEGIN + code, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=os.environ | {"OPENBLAS_NUM_THREADS": "2"}, **pipes)
    began, memory = time.monotonic(), []
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        for line in lines:
            if line.startswith("RssAnon"):
                memory.append((time.monotonic() - began, int(line.split()[1]) / 1000.0))
        time.sleep(0.02)
    output, errors = process.communicate()
    result = json.loads(output.splitlines()[-1]) if process.returncode == 0 else None
    return result, errors, pd.DataFrame(memory, columns=["seconds", "MB"])


# %% [markdown]
# An array of the whole table does not fit.

# %%
_, errors, _ = limited("""
whole = np.ones((store.n_rows, store.n_features), np.float32)
print(json.dumps("loaded"))
""")
print(errors.splitlines()[-1])
assert "Unable to allocate" in errors

# %% [markdown]
# ## The posterior under the limit
#
# Every stage in one process: full passes, four chains of `hmc-ecs`, the audit, and predictions of
# all rows from 20 draws. `scheduler=2` keeps passes to two threads: each has a block of rows in
# memory.

# %%
result, errors, memory = limited("""
model = streammc.models.logistic(prior=streammc.priors.normal(scale=10.0))
run = streammc.sample(store, model, path=folder + "/run", seed=1, audit=True, scheduler=2)
predictions = streammc.predict(
    run, store, folder + "/predictions.zarr", draws=20, scheduler=2
)
sampling = streammc.facts(run)["summary"]["sampling"]
print(json.dumps(sampling | {"verdict": run.attrs["verdict"], "auc": predictions.attrs["auc"]}))
""")
assert result is not None, errors
peak = memory["MB"].max()
print(result["verdict"])
print(f"peak of the anonymous memory {peak:.0f} MB, {peak * 1e6 / size:.0%} of the store")
assert peak * 1e6 < 0.5 * LIMIT
assert result["sampler"] == "hmc-ecs"

# %%
fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.plot(memory["seconds"], memory["MB"], label="anonymous memory")
ax.axhline(LIMIT / 1e6, color="C3", linestyle="--", label="limit")
ax.axhline(size / 1e6, color="0.4", linestyle=":", label="size of the store")
ax.set_ylim(0, 1.15 * size / 1e6)
ax.set_xlabel("seconds")
ax.set_ylabel("MB")
ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.65))
plt.show()

# %% [markdown]
# ## What it read
#
# The passes read every row; an iteration reads a few. The truth of the simulation lies inside the
# 99.9 % intervals of its coefficients.

# %%
print(f"{result['passes']} passes, {result['rows_per_iteration']:.0f} rows an iteration")
assert result["rows_per_iteration"] < 1000
run = streammc.open_run(folder / "run")
truth = store.attributes["simulation"]
beta = run["posterior"]["beta"]
low, high = beta.quantile([0.0005, 0.9995], dim=("chain", "draw"))
shown = pd.DataFrame({"truth": truth["theta"], "low": low, "high": high}, index=beta.feature.values)
assert ((shown["low"] < shown["truth"]) & (shown["truth"] < shown["high"])).all()
shown.head().round(5)

# %%
shutil.rmtree(folder)
