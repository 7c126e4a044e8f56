"""What ``fit`` cannot do is refused in one line before the long read; Ctrl-C keeps the draws.

By command and in Python, on a table that is read in order.
"""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import streammc as command

import streammc
from streammc.errors import SamplingWarning, StreammcError
from streammc.priors import flat, uniform
from streammc.samplers.factorised import pool
from streammc.stores.ingest import ingestion, streamed_table
from streammc.stores.ingest.streamed_table import StreamedTable
from streammc.trace.run_directory import RunDirectory

SIZES = {"draws": 200, "warmup": 200, "chains": 2, "seed": 1}
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
N = 3000


@pytest.fixture
def columns():
    rng = np.random.default_rng(3)
    x = rng.normal(size=N)
    y = (rng.logistic(size=N) < x).astype(int)
    return {"x": x, "twice": 2.0 * x, "y": y, "apart": (x > 0.0).astype(int), "z": np.exp(x)}


@pytest.fixture
def path(columns, tmp_path):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.fixture
def drawn(monkeypatch):
    """Let nothing fit in memory; return the list of reads that drew rows for chains."""
    monkeypatch.setattr(ingestion, "available_memory", lambda: 2000)
    reads, reduce = [], StreamedTable.reduce

    def counted(self, task, **options):
        reads.append(task)
        return reduce(self, task, **options)

    monkeypatch.setattr(StreamedTable, "reduce", counted)
    return reads


STORE = r"--store NAME\.zarr, in Python store="
REFUSED = {
    "a family without a bound": ("z ~ x", "gamma", {}, rf"bounded third derivative .* {STORE}"),
    "a named sampler without a bound": (
        "z ~ x", "gamma", {"sampler": "smh"}, "bounded third derivative .* use hmc-ecs, or hmc",
    ),
    "a sampler of rows at random": ("y ~ x", "logistic", {"sampler": "hmc"}, rf"hmc, .* {STORE}"),
    "no curvature": ("y ~ x + twice", "logistic", {"prior": flat()}, r"a mode.* proper prior"),
    "an improper posterior": ("apart ~ x", "logistic", {"prior": flat()}, r"a mode.* proper prior"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_smh_cannot_sample_is_refused_before_rows_are_drawn(case, path, drawn, tmp_path):
    formula, family, options, said = REFUSED[case]
    run = tmp_path / "run"
    with pytest.raises(StreammcError, match=said) as refused:
        streammc.fit(path, formula, family, path=run, **options, **SIZES)
    assert "\n" not in str(refused.value)
    words = ["--sampler", options["sampler"]] if "sampler" in options else []
    words += ["--prior", "flat()"] if "prior" in options else []
    done = command("fit", path, "-o", run, "--formula", formula, "--model", family, *words, *FLAGS)
    assert done.code == refused.value.exit_code
    assert str(refused.value) in done.err
    assert "PoolTask" not in repr(drawn)
    assert len(drawn) == 0 or "prior" in options
    assert not run.exists()


def test_a_prior_that_no_gaussian_approximates_is_refused_before_the_run_is_made(
    path, drawn, tmp_path
):
    with pytest.raises(StreammcError, match=r"too far from normal for smh; use hmc-ecs, or hmc"):
        streammc.fit(
            path, "y ~ x", "logistic", prior=uniform(-0.8, 0.8), path=tmp_path / "run", **SIZES
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("sampler", ["auto", "smh"])
def test_a_pool_too_small_for_an_iteration_is_refused_before_the_run_is_made(
    sampler, path, drawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(pool, "memory_limit", lambda: 10_000)
    run = tmp_path / "run"
    with pytest.raises(StreammcError, match=rf"MB of rows .* use fewer chains; or .* {STORE}"):
        streammc.fit(path, "y ~ x", "logistic", path=run, sampler=sampler, **SIZES)
    words = ("--formula", "y ~ x", "--model", "logistic", "--sampler", sampler, *FLAGS)
    done = command("fit", path, "-o", run, *words)
    assert done.code == 71
    assert len(done.err.strip().splitlines()[-1:]) == 1
    assert not run.exists()


def test_what_can_be_read_only_once_is_refused(columns, path, tmp_path):
    def blocks():
        yield from pa.table(columns).to_batches()

    with open(path, "rb") as file:
        for table in (blocks(), file):
            with pytest.raises(StreammcError, match="only once, save it as a file or collect it"):
                streammc.fit(table, "y ~ x", "logistic", **SIZES)
    words = ("-o", tmp_path / "run", "--formula", "y ~ x", "--model", "logistic")
    standard = command("fit", "-", *words)
    assert standard.code == 65
    assert "found '-', the standard input, which can be read only once" in standard.err
    os.mkfifo(tmp_path / "pipe.csv")
    pipe = command("fit", tmp_path / "pipe.csv", *words)
    assert pipe.code == 65
    assert "found a pipe or device: it is read more than once, save it as a file" in pipe.err
    assert not (tmp_path / "run").exists()


def test_a_stream_of_batches_is_kept_and_fitted(columns):
    reader = pa.table(columns).to_reader(max_chunksize=500)
    tree = streammc.fit(reader, "y ~ x", "logistic", **SIZES)
    whole = streammc.fit(columns, "y ~ x", "logistic", **SIZES)
    assert np.array_equal(tree["posterior"]["beta"], whole["posterior"]["beta"])


@pytest.fixture
def control_c(monkeypatch):
    """Send this process SIGINT after the first commit of draws, once.

    A shell has its background jobs ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    append, sent = RunDirectory.append, []

    def interrupted(run, phase, *those):
        append(run, phase, *those)
        if phase == "draws" and not sent:
            sent.append(phase)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunDirectory, "append", interrupted)
    yield
    signal.signal(signal.SIGINT, before)


LONG = {**SIZES, "draws": 30_000}


def test_control_c_keeps_the_draws_of_a_table_that_is_read_in_order(
    path, drawn, control_c, tmp_path
):
    run, words = tmp_path / "run", ("--formula", "y ~ x", "--model", "logistic")
    flags = [*FLAGS, "--draws", str(LONG["draws"]), "--log-format", "json"]  # commits intervals
    stopped = command("fit", path, "-o", run, *words, *flags)
    assert stopped.code == 130
    assert "Traceback" not in stopped.err
    kept = RunDirectory.open(run).draws_matrix()
    assert 0 < kept.shape[1] < LONG["draws"]
    assert command("fit", path, "-o", run, *words, *flags).code == 0
    whole = RunDirectory.open(run).draws_matrix()
    assert whole.shape[1] == LONG["draws"]
    assert np.array_equal(whole[:, : kept.shape[1]], kept)
    tree = streammc.fit(path, "y ~ x", "logistic", **LONG)
    assert np.array_equal(tree["sampled_posterior"]["beta"], whole)


def test_control_c_in_python_returns_the_draws_so_far(path, drawn, control_c, tmp_path):
    options = {"path": tmp_path / "run", "progress": lambda *_: None, **LONG}
    with pytest.warns(SamplingWarning, match=r"interrupted: each chain has .* draws"):
        tree = streammc.fit(path, "y ~ x", "logistic", **options)
    assert 0 < tree["posterior"].sizes["draw"] < LONG["draws"]


def test_control_c_ends_a_pass_over_a_table_that_is_read_in_order(path, drawn, monkeypatch):
    monkeypatch.setattr(streamed_table, "_BLOCK_BYTES", 2**10)
    begun, reduce_block = [], streamed_table.reduce_block

    def counted(task, block):
        if not begun:
            signal.raise_signal(signal.SIGINT)
        begun.append(block.index)
        return reduce_block(task, block)

    monkeypatch.setattr(streamed_table, "reduce_block", counted)
    with pytest.raises(KeyboardInterrupt):
        streammc.fit(path, "y ~ x", "logistic", scheduler="sync", **SIZES)
    assert 0 < len(begun) < 10


def test_the_same_command_resumes_the_same_table_alone(path, columns, drawn, control_c, tmp_path):
    run, words = tmp_path / "run", ("--formula", "y ~ x", "--model", "logistic")
    flags = [*FLAGS, "--draws", str(LONG["draws"]), "--log-format", "json"]
    assert command("fit", path, "-o", run, *words, *flags).code == 130
    kept = RunDirectory.open(run).digest()
    content = path.read_bytes()
    columns["x"][17] += 1.0
    pq.write_table(pa.table(columns), path)
    other = command("fit", path, "-o", run, *words, *flags)
    assert other.code == 78
    assert "expected a run of the same job, found another one: store is" in other.err
    assert RunDirectory.open(run).digest() == kept
    path.unlink()
    (tmp_path / "moved.parquet").write_bytes(content)
    assert command("fit", tmp_path / "moved.parquet", "-o", run, *words, *flags).code == 0
