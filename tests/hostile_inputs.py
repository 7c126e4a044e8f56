"""Stores, runs, jobs, formulas, priors and tables that try to run code, for check 51."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tampering import edit, seal


class Planted:
    """A pickle that creates the file ``canary`` in the current folder."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch canary",)


PICKLE = pickle.dumps(Planted())
CODE = "__import__('os').system('touch canary')"

Plant = Callable[[Path], object]


def in_array(folder: str, *path: Any, value: Any) -> Plant:
    def mutate(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return lambda here: edit(here / "store.zarr", folder, mutate)


def append_codec(codec: dict[str, Any]) -> Plant:
    return lambda here: edit(
        here / "store.zarr", "X/zarr.json", lambda document: document["codecs"].append(codec)
    )


def replaced(*parts: str, by: bytes = PICKLE, sealed: bool = False) -> Plant:
    def plant(here: Path) -> None:
        path = next(iter(sorted((here / parts[0]).glob("/".join(parts[1:])))))
        path.write_bytes(by)
        if sealed:
            seal(here / parts[0], str(path.relative_to(here / parts[0])))

    return plant


def version_two(here: Path) -> None:
    store = here / "store.zarr"
    (store / "zarr.json").unlink()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    array = {"zarr_format": 2, "shape": [9], "chunks": [9], "dtype": "|O", "fill_value": None}
    array |= {"order": "C", "compressor": None, "filters": [{"id": "pickle", "protocol": 5}]}
    (store / "X" / ".zarray").write_text(json.dumps(array))
    (store / "X" / "0.0").write_bytes(PICKLE)


def in_run(*names: str, value: Any) -> Plant:
    def plant(here: Path) -> None:
        path = here / "run" / "zarr.json"
        document = inner = json.loads(path.read_text())
        for name in names[:-1]:
            inner = inner[name]
        inner[names[-1]] = value
        path.write_text(json.dumps(document))

    return plant


def job(text: str) -> Plant:
    return lambda here: (here / "job.toml").write_text(text)


def nothing(here: Path) -> None:
    """Leave the inputs alone: the words are hostile."""


SAMPLE = ("sample", "store.zarr", "-o", "out", "--model", "logistic", "--seed", "1")
RESUME = ("resume", "run", "--draws", "70")
INGEST = ("ingest", "t.csv", "new.zarr", "--response", "y")
IDENTITY = ("attributes", "streammc", "identity")
JOB = (
    '[source]\nstore = "store.zarr"\n[model]\nname = "{}"\n'
    '[priors]\n"*" = "{}"\n[outputs]\nrun = "of"\n'
)
PICKLE_CODEC = {"name": "numcodecs.pickle", "configuration": {}}
OBJECTS = io.BytesIO()
np.save(OBJECTS, np.array([Planted()], dtype=object), allow_pickle=True)

HOSTILE: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "store: codec pickle": (append_codec({"name": "pickle", "configuration": {}}), SAMPLE),
    "store: codec numcodecs.pickle": (append_codec(PICKLE_CODEC), SAMPLE),
    "store: codec named as code": (append_codec({"name": CODE, "configuration": {}}), SAMPLE),
    "store: objects": (in_array("X/zarr.json", "data_type", value="object"), SAMPLE),
    "store: type named as code": (in_array("X/zarr.json", "data_type", value=CODE), SAMPLE),
    "store: zarr 2 with a filter of pickles": (version_two, SAMPLE),
    "store: chunk is a pickle": (replaced("store.zarr", "X", "c.0.0"), SAMPLE),
    "store: sealed chunk is a pickle": (replaced("store.zarr", "X", "c.0.0", sealed=True), SAMPLE),
    "store: root is a pickle": (replaced("store.zarr", "zarr.json"), SAMPLE),
    "store: manifest is a pickle": (replaced("store.zarr", "streammc-manifest.json"), SAMPLE),
    "store: names are objects": (
        replaced("store.zarr", "feature", "c.0", by=OBJECTS.getvalue(), sealed=True), SAMPLE,
    ),
    "store: attributes are code": (
        in_array("zarr.json", "attributes", "streammc", value={"!!python/object/apply": CODE}),
        SAMPLE,
    ),
    "run: root is a pickle": (replaced("run", "zarr.json"), RESUME),
    "run: checkpoint is a pickle": (replaced("run", "checkpoint", "*"), RESUME),
    "run: draws are a pickle": (replaced("run", "posterior", "beta", "c.0.0.0"), RESUME),
    "run: settings are a pickle": (replaced("run", "config.json"), RESUME),
    "run: another model's address": (
        in_run(*IDENTITY, "model", value={"name": "os:system"}), RESUME,
    ),
    "run: sampler named as code": (
        in_run(*IDENTITY, "sampler", value={"name": CODE}), RESUME,
    ),
    "run: settings name code": (
        replaced("run", "config.json", by=b'{"model": "os:system", "store": "store.zarr"}'), RESUME,
    ),
    "control variates: a pickle": (
        replaced("run", "control-variates.zarr", "zarr.json"), RESUME,
    ),
    "job: a model's address": (job(JOB.format("os:system", "normal(0, 1)")), ("run", "job.toml")),
    "job: prior is code": (job(JOB.format("logistic", CODE)), ("run", "job.toml")),
    "job: a tag of YAML": (job("!!python/object/apply:os.system ['touch canary']"),
                           ("run", "job.toml")),
    "job: a pickle": (lambda here: (here / "job.toml").write_bytes(PICKLE), ("run", "job.toml")),
    "configuration: a tag of YAML": (
        job("!!python/object/apply:os.system ['touch canary']"), (*SAMPLE, "--config", "job.toml"),
    ),
    "model: an address without permission": (nothing, (*SAMPLE[:-3], "os:system")),
    "prior: a call": (nothing, (*SAMPLE, "--prior", f"x1={CODE}")),
    "prior: a call within a prior": (nothing, (*SAMPLE, "--prior", f"x1=normal({CODE})")),
    "option: a call": (nothing, (*SAMPLE, "--option", f"order={CODE}")),
    "formula: import": (nothing, (*INGEST[:3], "--formula", f"y ~ {CODE}")),
    "formula: import in I()": (nothing, (*INGEST[:3], "--formula", f"y ~ I({CODE})")),
    "formula: Python in braces": (nothing, (*INGEST[:3], "--formula", f"y ~ {{{CODE}}}")),
    "formula: classes": (
        nothing, (*INGEST[:3], "--formula", "y ~ I(().__class__.__base__.__subclasses__())"),
    ),
    "formula: eval": (nothing, (*INGEST[:3], "--formula", f'y ~ eval("{CODE}")')),
    "formula: lambda": (nothing, (*INGEST[:3], "--formula", f"y ~ I((lambda: {CODE})())")),
    "table: a pickle": (lambda here: (here / "t.csv").write_bytes(PICKLE), INGEST),
    "table: an array of objects": (
        lambda here: (here / "t.csv").write_bytes(OBJECTS.getvalue()), INGEST,
    ),
    "table: column named as code": (
        lambda here: (here / "t.csv").write_text(f'y,"{CODE}"\n0,a\n1,b\n'), INGEST,
    ),
}  # fmt: skip
