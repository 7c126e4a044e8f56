"""The first rows of the tables of a job, from which its sizes are foretold before any ingest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streammc.cli.jobs.job_file import JobFile
from streammc.cli.jobs.problems import Problem, RefusedJob
from streammc.errors import StreammcError

ROWS: Final = 5000
FIRST_DRAW: Final = "the first draw"
"""End of the time that can be foretold without the passes."""
_BLOCK: Final = 1 << 20
_COMPRESSED: Final = (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
"""First bytes of files of gzip, bzip2, zstd and lz4."""
_INGEST_BYTES: Final = 5e7
"""Bytes of a store that ingest writes in a second of one core, as measured of 2e6 flights."""
_ID_BYTES: Final = 8
"""Bytes of the id of a row, its position in the tables."""


@dataclass(frozen=True)
class FirstRows:
    """A data set of the first rows, and the number of all rows."""

    dataset: Any
    """``None`` if these rows alone cannot be ingested."""
    n_rows: int
    seen: int
    """The number of first rows."""
    exact: bool
    """Whether the number of rows is known, not estimated from the sizes of files."""
    fault: str | None = None
    source_bytes: int | None = None
    """Bytes of the tables; ``None`` if they are not known."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on disk."""
        return 0 if self.dataset is None else int(self.dataset.rows().row_bytes) + _ID_BYTES

    def ingest_facts(self) -> dict[str, Any]:
        """Return rows, columns, disk and time of the ingest."""
        size = self.n_rows * self.row_bytes
        if self.dataset is None:
            return {"rows": self.n_rows}
        return {
            "rows": self.n_rows,
            "rows_estimated": not self.exact,
            "columns": self.dataset.n_features,
            "disk_bytes": size,
            "seconds": size / _INGEST_BYTES,
        }

    def notes(self) -> list[str]:
        """Return why these rows cannot be ingested, and whether the store is far larger."""
        from streammc.stores.ingest.value_checks import LARGE_BYTES, TIMES_SOURCE, bytes_text

        found = [] if self.fault is None else [self.fault]
        size, source = self.n_rows * self.row_bytes, self.source_bytes
        if source and size >= LARGE_BYTES and size > TIMES_SOURCE * source:
            found.append(
                f"the store takes about {bytes_text(size)}, {size / source:.0f} times its tables "
                f"of {bytes_text(source)}: see codes_above, layout and compression of [ingest]"
            )
        return found

    def run_facts(self, model: Any, nodes: Any, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return passes, memory, disk and time before the first draw of a run on all rows.

        ``sizes`` has ``chains``, ``warmup``, ``draws`` and ``stop``.
        """
        if self.dataset is None:
            return {}
        from streammc.cli.execute import run_bytes
        from streammc.likelihood.grouped import by_group
        from streammc.likelihood.pass_cost import pass_cost
        from streammc.numerics.process_limits import available_threads

        dataset, model = by_group(self.dataset, model, nodes)
        cost = pass_cost(
            self.n_rows,
            dataset.n_features,
            predictors=(model.n_linear, model.n_scalar),
            threads=available_threads(),
        )
        stop = sizes["stop"]
        draws = sizes["draws"] if stop is None else max(sizes["draws"], stop.draws)
        iterations = sizes["chains"] * (draws + sizes["warmup"])
        return {
            "rows": self.n_rows,
            "passes": cost.passes,
            "seconds": cost.seconds,
            "until": FIRST_DRAW,
            "memory_bytes": cost.memory_bytes,
            "disk_bytes": run_bytes(int(model.dim(dataset.n_features)), iterations),
        }


def first_rows(path: str, job: JobFile, options: Mapping[str, Any]) -> FirstRows:
    """Return the first rows of the tables of the job in a file, as a data set in memory.

    ``options`` are those of ``ingest``.

    Raises
    ------
    RefusedJob
        If the tables have no more rows, and cannot be ingested.
    """
    from streammc.stores.ingest.ingestion import from_table
    from streammc.stores.sources.tables import open_table

    files = list(job.source.files or ())
    source = open_table(files, options["missing"])
    words = {name for name in source.names if any(map(_is_text, source.types_of(name)))}
    batches = source.batches(list(source.names), ROWS, text=frozenset(words))
    batch = next(batches, None)
    # A file without the number of its rows is known as a whole if there is one batch.
    whole = source.n_rows is None and (batch is None or batch.num_rows <= ROWS)
    whole = whole and next(batches, None) is None
    head = None if batch is None else _table(source.names, batch.slice(0, ROWS))
    seen = 0 if head is None else head.num_rows
    exact = whole or source.n_rows is not None
    n_rows = seen if whole else source.n_rows
    if n_rows is None:
        n_rows = _estimated(source.paths, seen, 0 if head is None else head.nbytes)
    names = ("like", "layout", "compression", "missing")
    used = {name: value for name, value in options.items() if name not in names}
    fault = None
    dataset = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = from_table(head if seen else files, **used)
    except StreammcError as error:
        if seen == n_rows:
            raise RefusedJob(path, [Problem.of_error("ingest", error)]) from None
        fault = f"the first {seen:,} rows alone cannot be ingested as asked: {error}"
    size = None if options.get("compression") else source.n_bytes
    return FirstRows(dataset, n_rows, seen, exact, fault, size)


def _table(names: Sequence[str], batch: Any) -> Any:
    """Return a batch as an Arrow table; text that was read as bytes becomes text."""
    import pyarrow as pa

    columns = zip(names, batch.columns, strict=True)
    return pa.table(
        {
            name: each.cast(pa.string()) if pa.types.is_binary(each.type) else each
            for name, each in columns
        }
    )


def _is_text(kind: Any) -> bool:
    """Return whether an Arrow type is that of text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _estimated(files: list[str], seen: int, size: int) -> int:
    """Return the number of rows of text files by their sizes.

    Of a compressed file by the ``size`` of the ``seen`` rows in memory, without compression.
    """
    from streammc.stores.sources.input_files import input_stamp, open_input

    total = 0.0
    for path in files:
        with open_input(path) as file:
            block = file.read(_BLOCK)
        lines = block.count(b"\n")
        text = lines and not block.startswith(_COMPRESSED)
        per_row = len(block) / lines if text else size / max(seen, 1)
        total += input_stamp(path).size / max(per_row, 1.0)
    return max(seen, int(total))
