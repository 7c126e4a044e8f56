"""Copies of stores, runs and results with one thing wrong each."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import google_crc32c

from streammc.stores.format.layout import MANIFEST
from streammc.stores.format.manifest import Entry, make_manifest, read_manifest
from streammc.trace.zarr_files import seal, unseal

Change = Callable[[dict[str, Any]], Any]


def own(**changes: Any) -> Change:
    """Return a change of the attributes that a store keeps of itself."""
    return lambda found: found["attributes"]["streammc"].update(changes)


def chunks(*shape: int) -> Change:
    """Return a change of the chunk shape of an array."""
    return lambda found: found["chunk_grid"]["configuration"].update(chunk_shape=list(shape))


def formula(**changes: Any) -> Change:
    """Return a change of the formula that a store was made with."""
    return lambda found: found["attributes"]["streammc"]["formula"].update(changes)


DOCUMENTS: Final[tuple[tuple[str, str, str, Change], ...]] = (
    ("version.zarr", "flights.zarr", "zarr.json", own(format=9)),
    ("rows.zarr", "flights.zarr", "zarr.json", own(n_rows=300)),
    ("names.zarr", "raw.zarr", "zarr.json", own(features=["a", "b"])),
    ("renamed.zarr", "flights.zarr", "zarr.json", own(features=["Intercept", "a", "b"])),
    ("group.zarr", "flights.zarr", "zarr.json", lambda found: found.update(node_type="array")),
    ("foreign.zarr", "flights.zarr", "zarr.json", lambda found: found.update(attributes={})),
    ("dtype.zarr", "flights.zarr", "X/zarr.json", lambda found: found.update(data_type="int8")),
    ("shape.zarr", "flights.zarr", "X/zarr.json", lambda found: found.update(shape=[400])),
    ("negative.zarr", "flights.zarr", "X/zarr.json", lambda found: found.update(shape=[-1, 3])),
    ("columns.zarr", "flights.zarr", "X/zarr.json", chunks(400, 2)),
    ("codec.zarr", "flights.zarr", "X/zarr.json", lambda found: found.update(codecs=["zstd"])),
    ("shorter.zarr", "flights.zarr", "y/zarr.json", lambda found: found.update(shape=[300])),
    ("chunk.zarr", "flights.zarr", "y/zarr.json", chunks(4096)),
    ("large.zarr", "flights.zarr", "X/zarr.json", chunks(2**30, 3)),
    ("many.zarr", "column.zarr", "X/zarr.json", lambda found: (chunks(1, 1)(found), found.update(shape=[10**8, 1]))),
    ("odd.zarr", "column.zarr", "X/zarr.json", chunks(100, 1)),
    ("fill.zarr", "flights.zarr", "X/zarr.json", lambda found: found.update(fill_value=1)),
    ("expression.zarr", "formula.zarr", "zarr.json", formula(text="late ~ exit(1)")),
    ("text-formula.zarr", "flights.zarr", "zarr.json", own(formula=3)),
    ("no-text.zarr", "formula.zarr", "zarr.json", formula(text=3)),
    ("kinds.zarr", "formula.zarr", "zarr.json", formula(columns={"carrier": "music"})),
    ("no-kinds.zarr", "formula.zarr", "zarr.json", formula(columns={})),
    ("states.zarr", "formula.zarr", "zarr.json", formula(states={"week": {}})),
    ("groups-attribute.zarr", "groups.zarr", "zarr.json", own(groups={"column": 3})),
    ("groups-number.zarr", "groups.zarr", "group/zarr.json", lambda found: found.update(shape=[2, 2])),
    ("groups-chunk.zarr", "groups.zarr", "group_offset/zarr.json", chunks(2)),
    ("factors.zarr", "flights.zarr", "zarr.json", own(factors=[{"column": "g", "first": 9}])),
    ("designs.zarr", "flights.zarr", "zarr.json", own(designs=[{"parameter": "sigma"}])),
    ("designs-columns.zarr", "formula.zarr", "zarr.json", own(designs=[
        {"parameter": name, "formula": f"{name or 'late'} ~ gone", "columns": ["gone"]}
        for name in ("", "sigma")
    ])),
    ("factors-formula.zarr", "formula.zarr", "zarr.json", formula(factors=["week"])),
    ("codes-attribute.zarr", "coded.zarr", "zarr.json", own(codes=[{"column": "g", "first": 9}])),
    ("codes-number.zarr", "coded.zarr", "zarr.json", lambda found: found["attributes"]["streammc"].pop("codes")),
    ("no-states.zarr", "formula.zarr", "zarr.json", formula(states={})),
)  # fmt: skip
"""A copy, what it is a copy of, the document that is changed, and how."""

RUNS: Final[tuple[tuple[str, str, Change], ...]] = (
    ("old-run", "run", lambda found: found.update(format=0)),
    ("counts-run", "run", lambda found: found["committed"].update(warmup=99)),
    ("keys-run", "run", lambda found: found.pop("draws")),
    ("labels-run", "run", lambda found: found.update(labels=3)),
    ("other-run-model", "run", lambda found: found["identity"]["model"].update(name="logit")),
    ("other-store-run", "run", lambda found: found["identity"].update(store="0" * 64)),
    ("old-cv.zarr", "cv.zarr", lambda found: found.update(format=0)),
    ("shapes-cv.zarr", "cv.zarr", lambda found: found["arrays"]["factor"].update(shape=[3])),
    ("types-cv.zarr", "cv.zarr", lambda found: found["arrays"]["factor"].update(dtype="O")),
)
"""A copy of a run or of control variates, and a change of its sealed state."""


META: Final[tuple[tuple[str, str, Change], ...]] = (
    ("kind-cv.zarr", "cv.zarr", lambda found: found.update(kind="weights")),
    ("keys-cv.zarr", "cv.zarr", lambda found: found.pop("model_digest")),
    ("rows-cv.zarr", "cv.zarr", lambda found: found.update(n_rows=7)),
)
"""A copy of control variates, and a change of what they say of themselves."""


def break_copies() -> None:
    """Make the damaged copies in the current folder."""
    for name, source, key, change in DOCUMENTS:
        edit_store(copy(source, name), key, change)
    for name, source, change in META:
        edit_sealed(copy(source, name) / "zarr.json", change, meta=True)
    for name, source, change in RUNS:
        edit_sealed(copy(source, name) / "zarr.json", change)
    for name, key in (
        ("no-manifest.zarr", MANIFEST), ("no-chunk.zarr", "y/c.0"), ("no-group.zarr", "zarr.json"),
        ("no-member.zarr", "X/zarr.json"),
    ):  # fmt: skip
        (copy("flights.zarr", name) / key).unlink()
    change_byte(copy("flights.zarr", "byte.zarr") / "X/c.0.0")
    change_byte(copy("groups.zarr", "groups-byte.zarr") / "group_offset/c.0")
    codes = copy("coded.zarr", "codes-level.zarr") / "codes/c.0.0"
    codes.write_bytes(b"\xff" * codes.stat().st_size)
    reseal(Path("codes-level.zarr"), "codes/c.0.0")
    offset = copy("groups.zarr", "groups-offset.zarr")
    (offset / "group_offset/c.0").write_bytes(bytes(32))
    reseal(offset, "group_offset/c.0")
    (copy("flights.zarr", "short.zarr") / "y/c.0").write_bytes(b"")
    (copy("flights.zarr", "no-json.zarr") / MANIFEST).write_text("{")
    (copy("flights.zarr", "list.zarr") / MANIFEST).write_text("[]")
    (copy("flights.zarr", "twice.zarr") / MANIFEST).write_text('{"a": 1, "a": 2}')
    manifest = json.loads(Path("flights.zarr", MANIFEST).read_text())
    for name, change in (
        ("manifest-version.zarr", {"format": 9}), ("fingerprint.zarr", {"fingerprint": "0" * 64}),
        ("entries.zarr", {"objects": {"X/c.0.0": 3}}), ("inputs.zarr", {"inputs": [[]]}),
    ):  # fmt: skip
        text = json.dumps({**manifest, **change})
        (copy("flights.zarr", name) / MANIFEST).write_text(text)
    link = copy("flights.zarr", "link.zarr")
    shutil.move(link / "y/c.0", "moved")
    os.symlink(Path("moved").resolve(), link / "y/c.0")
    folder = copy("flights.zarr", "folder.zarr")
    (folder / "y/c.0").unlink()
    (folder / "y/c.0").mkdir()
    (folder / "y/c.0/inner").write_text("")
    linked = copy("flights.zarr", "linked.zarr")
    shutil.move(linked / "y", "moved-y")
    os.symlink(Path("moved-y").resolve(), linked / "y")
    extra = copy("flights.zarr", "extra.zarr")
    entries = {**read_manifest(extra).entries, "z/c.0": Entry(1, 1)}
    (extra / MANIFEST).write_bytes(make_manifest(entries).encode())
    meta = copy("flights.zarr", "meta-link.zarr")
    shutil.move(meta / "zarr.json", "moved.json")
    os.symlink(Path("moved.json").resolve(), meta / "zarr.json")
    folder = copy("flights.zarr", "meta-folder.zarr")
    (folder / "zarr.json").unlink()
    (folder / "zarr.json").mkdir()
    spaces = copy("flights.zarr", "meta-byte.zarr") / "X/zarr.json"
    spaces.write_bytes(spaces.read_bytes().replace(b"\n", b" ", 1))
    v2 = Path("v2.zarr")
    v2.mkdir()
    (v2 / ".zgroup").write_text('{"zarr_format": 2}')
    copy("flights.zarr", "begun.zarr")  # beside a receipt of a command that was killed
    asked = {"kind": "logistic", "rows": 50, "dim": 2, "seed": 1, "chunk_rows": None}
    receipt = {"asked": {"command": "simulate", **asked, "dtype": "float32"}, "result": None}
    Path("begun.zarr.config.json").write_text(json.dumps(receipt))
    _break_runs()


def _break_runs() -> None:
    change_byte(copy("run", "byte-run") / "posterior/beta/c.0.0.0")
    # At a fixed place: the length of the document, and of half of it, differs from run to run.
    change_byte(copy("run", "edited-run") / "zarr.json", at=200)
    for checkpoint in (copy("warming", "checkpoint-run") / "checkpoint").glob("*.npz"):
        change_byte(checkpoint)
    (copy("run", "no-draws-run") / "posterior/beta/c.0.0.0").unlink()
    (copy("run", "no-constant-run") / "constant_data/theta_star/c.0").unlink()
    for checkpoint in (copy("warming", "no-checkpoint-run") / "checkpoint").glob("*.npz"):
        checkpoint.unlink()
    (copy("run", "no-root-run") / "zarr.json").unlink()
    (copy("run", "short-run") / "posterior/beta/c.0.0.0").write_bytes(b"")
    (copy("run", "long-run") / "posterior/beta/c.0.0.0").write_bytes(bytes(10**6))
    change_byte(copy("cv.zarr", "byte-cv.zarr") / "hessian/c.0.0")
    (copy("cv.zarr", "no-array-cv.zarr") / "hessian/c.0.0").unlink()
    change_byte(copy("predictions.zarr", "byte-predictions.zarr") / "mean/c.0")
    (copy("predictions.zarr", "no-array-predictions.zarr") / "mean/c.0").unlink()
    kind = copy("predictions.zarr", "kind-predictions.zarr") / "zarr.json"
    edit_sealed(kind, lambda found: found.update(format=9))
    shutil.copy("predictions.zarr.config.json", "byte-predictions.zarr.config.json")


def change_byte(path: Path, at: int | None = None) -> None:
    """Change one byte of a file: in the middle, or at a place."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(bytes(content))


def copy(source: str, target: str) -> Path:
    """Copy a directory, and return the copy."""
    shutil.copytree(source, target)
    return Path(target)


def edit_store(root: Path, key: str, change: Change) -> None:
    """Change a document of a store, with its copy in the group and its checksum."""
    document = json.loads((root / key).read_text())
    change(document)
    (root / key).write_text(json.dumps(document))
    if "/" in key:
        group = json.loads((root / "zarr.json").read_text())
        group["consolidated_metadata"]["metadata"][key.split("/")[0]] = document
        (root / "zarr.json").write_text(json.dumps(group))
    for changed in {key, "zarr.json"}:
        reseal(root, changed)


def reseal(root: Path, key: str) -> None:
    """Make the manifest agree with an object that was changed."""
    entries = dict(read_manifest(root).entries)
    content = (root / key).read_bytes()
    entries[key] = Entry(len(content), google_crc32c.value(content))
    (root / MANIFEST).write_bytes(make_manifest(entries).encode())


def edit_sealed(path: Path, change: Change, *, meta: bool = False) -> None:
    """Change the state in a sealed document, or the attributes beside it, with its checksum."""
    attributes, state = unseal(path.read_bytes(), path)
    change(attributes if meta else state)
    nodes = json.loads(path.read_bytes()).get("consolidated_metadata", {}).get("metadata")
    path.write_bytes(seal(attributes, state, nodes))
