"""Job files with one fault each, for the cases."""

from __future__ import annotations

from pathlib import Path
from typing import Final

JOB: Final = """
[source]
files = ["flights.csv"]
[ingest]
response = "late"
features = ["distance", "hour"]
[model]
name = "logistic"
[priors]
distance = "normal(0, 1)"
[sampler]
draws = 20
warmup = 20
chains = 2
[outputs]
store = "of-job.zarr"
run = "of-job"
"""

FAULTS: Final = {
    "key": ("draws = 20", "drwas = 20"),
    "table": ("[sampler]", "[samplr]"),
    "type": ("draws = 20", 'draws = "many"'),
    "range": ("draws = 20", "draws = 0"),
    "large": ("chains = 2", "chains = 5000"),
    "list": ('["flights.csv"]', '"flights.csv"'),
    "word": ('response = "late"', 'response = "late"\ndtype = "float16"'),
    "twice": ("[ingest]", "[ingest]\ndrop-missing = true\ndrop_missing = true"),
    "missing-key": ('name = "logistic"', ""),
    "missing-table": ('[model]\nname = "logistic"', ""),
    "no-file": ("flights.csv", "nowhere.csv"),
    "both": ("[ingest]", 'store = "flights.zarr"\n[ingest]'),
    "no-store": ('files = ["flights.csv"]', 'store = "nowhere.zarr"'),
    "no-output": ('store = "of-job.zarr"', ""),
    "same-output": ('run = "of-job"', 'run = "of-job.zarr"'),
    "reserved": ('run = "of-job"', 'run = "of-job.partial-7"'),
    "far-report": ('run = "of-job"', 'run = "of-job"\nreport = "s3://bucket/report.html"'),
    "far-run": ('"of-job"', '"s3://key:secret@bucket/run"'),
    "rows": ('run = "of-job"', 'run = "of-job"\nrows = "new.zarr"'),
    "predict": ("[outputs]", '[predict]\nfiles = ["new.csv"]\n[outputs]'),
    "stop": ("[outputs]", '[stop]\ntime = "2h"\n[outputs]'),
    "prior": ("normal(0, 1)", "normol(0, 1)"),
    "model": ('"logistic"', '"logit"'),
    "code": ('"logistic"', '"own:build"'),
    "sampler": ("draws = 20", 'name = "hmcc"'),
    "option": ("draws = 20", "options = {banana = 1}"),
    "column": ('"late"', '"lat"'),
    "feature": ('"hour"]', '"houre"]'),
    "formula": ('response = "late"\nfeatures = ["distance", "hour"]', 'formula = "late ~ houre"'),
    "syntax": ('response = "late"\nfeatures = ["distance", "hour"]', 'formula = "late ~ (hour"'),
    "text": ("features = ", 'weight = "carrier"\nfeatures = '),
    "other-run": ('run = "of-job"', 'run = "run"'),
    "other-store": ("of-job.zarr", "other.zarr"),
    "append": ('["flights.csv"]', '["flights.csv"]\nappend = ["new-*.csv"]'),
    "generation": ('"of-job"', '"of-job-{generation}"'),
    "grown-store": ('"of-job.zarr"', '"of-{generation}.zarr"'),
}
GROWING: Final = """
[source]
store = "flights.zarr"
append = ["other.zarr"]
[model]
name = "logistic"
[outputs]
control_variates = "of-job.cv.zarr"
run = "of-job-{generation}"
"""


def write_jobs() -> None:
    """Write ``job-NAME.toml`` beside the tables, for every fault."""
    for name, (old, new) in FAULTS.items():
        if old not in JOB:
            raise RuntimeError(f"job {name}: {old!r} is not in it")
        Path(f"job-{name}.toml").write_text(JOB.replace(old, new, 1))
    Path("job-broken.toml").write_text("[source\n")
    Path("job-folder.toml").write_text(GROWING)
