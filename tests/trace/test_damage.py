import io
import json
import os
import pickle
import random
import re
import shutil
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from checks_of_trust import rounds

from streammc.errors import MissingError, StoreError
from streammc.trace.datatree import open_run
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import root_document
from streammc.trace.zarr_files import crc32c

OBJECTS = (
    "zarr.json",
    "posterior/zarr.json",
    "posterior/beta/zarr.json",
    "posterior/beta/c.0.0.0",
    "posterior/beta/c.0.3.0",  # the last chunk, half of it padding
    "posterior/feature/c.0",
    "posterior/chain/c.0",
    "posterior/draw/c.1",
    "sample_stats/lp/c.0.2",
    "sample_stats/diverging/c.0.1",
    "sample_stats/n_steps/c.0.0",
    "warmup_posterior/log_sigma/c.0.1",
    "constant_data/theta_star/c.0",
    "audit/log_weight/c.0.0",
    "checkpoint/6.npz",
    "checkpoint/zarr.json",
)
CHUNKS = [name for name in OBJECTS if "/c." in name]


def read_all(job, path):
    """Return everything a run gives away, as text."""
    run = RunDirectory.open(path)
    arrays, meta = run.checkpoint()
    tree = open_run(path).load()
    job.check_prefix(run)
    whole = {"/".join([g, str(n)]): v for g in tree.groups for n, v in tree[g].variables.items()}
    content = {key: (v.dims, v.dtype.name, v.values.tolist()) for key, v in whole.items()}
    found = [sorted(content.items()), run.attributes, run.identity, meta, run.labels]
    return repr((found, {k: v.tolist() for k, v in arrays.items()}))


@pytest.mark.trust(20)
@pytest.mark.parametrize("name", OBJECTS)
def test_a_flipped_bit_is_found_or_harmless(job, finished, name):
    right, where = read_all(job, finished), finished / name
    good, draw = where.read_bytes(), random.Random(name)
    for _ in range(rounds(5, 20)):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(5)
        where.write_bytes(bad)
        with suppress(StoreError):
            assert read_all(job, finished) == right
            continue
        with pytest.raises(StoreError, match=re.escape(str(where))):
            read_all(job, finished)
    where.write_bytes(good)
    assert read_all(job, finished) == right


@pytest.mark.trust(20)
@pytest.mark.parametrize("name", [*CHUNKS, "zarr.json", "checkpoint/6.npz"])
def test_a_file_of_another_length_is_found(job, finished, name):
    where = finished / name
    good = where.read_bytes()
    for bad in (b"", good[:3], good[:-1], good[: len(good) // 2], good + b"\0"):
        where.write_bytes(bad)
        with pytest.raises(StoreError) as caught:
            read_all(job, finished)
        assert str(where) in str(caught.value)


@pytest.mark.trust(53)
@pytest.mark.parametrize("name", [*CHUNKS, "zarr.json", "checkpoint/6.npz"])
@pytest.mark.parametrize("kind", ["missing", "directory", "link", "fifo"])
def test_directory_link_or_pipe_in_place_of_a_file_is_found(job, finished, name, kind):
    where = finished / name
    os.rename(where, finished / "kept")
    if kind == "directory":
        where.mkdir()
    elif kind == "link":
        where.symlink_to(finished / "kept")
    elif kind == "fifo":
        os.mkfifo(where)
    with pytest.raises(StoreError) as caught:
        read_all(job, finished)
    assert str(where if name != "zarr.json" or kind != "missing" else finished) in str(caught.value)


@pytest.mark.trust(21)
@pytest.mark.parametrize("array", ["posterior/beta/c.0.{}.0", "sample_stats/diverging/c.0.{}"])
def test_swapped_chunks_are_found(job, finished, array):
    first, second = (finished / array.format(i) for i in (0, 2))
    first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
    assert first_bytes != second_bytes
    first.write_bytes(second_bytes)
    second.write_bytes(first_bytes)
    with pytest.raises(StoreError, match="in their place"):
        RunDirectory.open(finished)


@pytest.mark.trust(21)
def test_a_chunk_of_another_run_is_found(job, finished, tmp_path):
    other = job.create(tmp_path / "other")
    with other.lock():
        stats = {name: v[:, ::-1] for name, v in job.stats("warmup", 0, 10).items()}
        other.append("warmup", job.theta("warmup", 0, 10)[:, ::-1], stats, job.state("warmup", 10))
    name = "warmup_posterior/beta/c.0.0.0"
    shutil.copy(other.path / name, finished / name)
    with pytest.raises(StoreError, match="warmup_posterior/beta"):
        RunDirectory.open(finished)


@pytest.mark.trust(21)
def test_an_older_checkpoint_in_place_of_the_last_is_found(job, finished):
    shutil.copy(finished / "checkpoint/5.npz", finished / "checkpoint/6.npz")
    with pytest.raises(StoreError, match=r"6\.npz"):
        RunDirectory.open(finished).checkpoint()


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def hostile_files(canary):
    objects = io.BytesIO()
    np.savez(objects, **{"meta.json": np.array([Canary(canary)], dtype=object)})
    inside = io.BytesIO()
    good = np.frombuffer(b"{}", dtype=np.uint8)
    np.savez(inside, **{"meta.json": good, "array.x": np.array([Canary(canary)], dtype=object)})
    single = io.BytesIO()
    np.save(single, np.array([Canary(canary)], dtype=object))
    return {
        "pickle": pickle.dumps(Canary(canary)),
        "npz of a pickle": objects.getvalue(),
        "npz with a pickle": inside.getvalue(),
        "npy of a pickle": single.getvalue(),
        "empty": b"",
        "json": b"[]",
    }


@pytest.mark.parametrize("kind", [*hostile_files("unused")])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_checkpoint_replaced_by_a_pickle_runs_nothing(job, tmp_path, kind, recorded):
    path, canary = tmp_path / "run", tmp_path / "canary"
    run = job.sample(path)
    data = hostile_files(canary)[kind]
    (path / "checkpoint/6.npz").write_bytes(data)
    if recorded:  # by somebody who can also write the root
        state = run._state
        *marks, last = state.marks
        last = replace(last, size=len(data), crc32c=crc32c(data))
        state = replace(state, marks=(*marks, last))
        (path / "zarr.json").write_bytes(root_document(state, run.attributes))
    seen = []
    sys.addaudithook(lambda event, args: seen.append(event) if "pickle" in event else None)
    with pytest.raises(StoreError, match=r"6\.npz"):
        RunDirectory.open(path).checkpoint()
    assert seen == []
    assert not canary.exists()
    # The partner: loaded carelessly, these files do run code.
    if "pickle" in kind:
        with pytest.raises((ValueError, AttributeError, KeyError, TypeError, FileExistsError)):
            loaded = np.load(path / "checkpoint/6.npz", allow_pickle=True)
            [loaded[name] for name in loaded.files]
            raise KeyError
        assert canary.exists()


def sealed_with(run, **changes):
    """Return a root document with a right checksum and wrong content."""
    document = json.loads(root_document(run._state, run.attributes))
    document["attributes"]["streammc"].update(changes)
    own = document["attributes"]["streammc"]
    own["checksum"] = "00000000"
    text = json.dumps(document).encode()
    return text.replace(b"00000000", f"{crc32c(text):08x}".encode(), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"kind": "store"},
        {"chains": 2**62},
        {"chains": -1},
        {"interval": 0},
        {"interval": 2**62},
        {"labels": ["../../escape"]},
        {"labels": ["a/b"]},
        {"labels": 3},
        {"stats": {"lp": "object"}},
        {"stats": {"../lp": "float64"}},
        {"committed": {"warmup": 30, "draws": 35}},
        {"committed": {"warmup": 20, "draws": -5}},
        {"committed": {"warmup": 20, "draws": 10**15}},
        {"committed": {}},
        {"sums": {}},
        {"checkpoints": [{"generation": "../../x"}]},
        {"fixed": {"../../etc/passwd": {}}},
        {
            "fixed": {
                "a/b": {"shape": [2**62], "dtype": "float64", "dims": ["x"], "size": 9, "crc32c": 1}
            }
        },
        {
            "fixed": {
                "a/b": {"shape": [1.5], "dtype": "float64", "dims": ["x"], "size": 16, "crc32c": 1}
            }
        },
        {
            "fixed": {
                "a/b": {"shape": [1], "dtype": "object", "dims": ["x"], "size": 12, "crc32c": 1}
            }
        },
        {"fixed": None},
    ],
    ids=str,
)
def test_a_hostile_root_is_refused_before_anything_is_allocated(job, tmp_path, changes):
    run = job.sample(tmp_path / "run")
    (run.path / "zarr.json").write_bytes(sealed_with(run))
    RunDirectory.open(run.path)
    (run.path / "zarr.json").write_bytes(sealed_with(run, **changes))
    with pytest.raises(StoreError) as caught:
        RunDirectory.open(run.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\xfe", b"null", b"[" * 10**5),
        b'{"zarr_format": 3, "node_type": "group"}',
        b'{"attributes": {"streammc": {"checksum": "00000000"',
    ],
)
def test_foreign_root_metadata_is_refused(tmp_path, content):
    (tmp_path / "zarr.json").write_bytes(content)
    with pytest.raises(StoreError):
        RunDirectory.open(tmp_path)


def test_missing_path_and_plain_file_are_no_run(tmp_path):
    with pytest.raises(MissingError, match="found nothing"):
        RunDirectory.open(tmp_path / "run")
    (tmp_path / "run").write_text("text")
    with pytest.raises(StoreError, match="found a file: not a streammc run"):
        RunDirectory.open(tmp_path / "run")
