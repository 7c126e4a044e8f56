"""Encoding of new rows for prediction, in the columns and on the scale of a store."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from streammc.docstrings import documented
from streammc.errors import ConfigError, DataError
from streammc.protocols import Matrix, Vector
from streammc.stores.formula.encoded_blocks import FormulaRows, RowReport
from streammc.stores.formula.fitted import Design, factor_node, read_design
from streammc.stores.ingest.columns import INTERCEPT
from streammc.stores.ingest.faults import Faults
from streammc.stores.ingest.ingest_options import MISSING
from streammc.stores.ingest.table_blocks import block_rows
from streammc.stores.sources.tables import open_table
from streammc.unfinished import marked_folder


class NewRows(NamedTuple):
    """A block of encoded rows of a table."""

    start: int
    """Number of the first row."""
    X: Matrix
    """(m, q) float64, the features of the store."""
    offset: Vector
    """(m,) float64; zeros without an offset."""


@documented()
def encode_rows(attributes: Mapping[str, Any], table: Any) -> Iterator[NewRows]:
    """Yield the rows of a table in the columns of a store, a few megabytes at a time.

    Parameters
    ----------
    attributes
        ``Store.attributes``: features, standardisation, and the formula, which is checked
        again.
    table : path, table, or list of them
        As for ``ingest``; only the columns on the right side of the formula are needed.

    Raises
    ------
    StoreError
        If the formula of the store is not allowed, or damaged.
    DataError
        If a column does not exist, or a value is missing, infinite, of an unknown level or
        outside the bounds of the fitted formula: the message names column, row and value.

    Warns
    -----
    UserWarning
        If a CSV file has quoted values that may be rows between two stray quotes.
    """
    if not isinstance(attributes, Mapping) or not {"formula", "features"} <= {*attributes}:
        raise ConfigError(
            f"expected the attributes of a store, found {type(attributes).__name__}: "
            "pass store.attributes"
        )
    document = attributes["formula"]
    names = [name for name in attributes["features"] if name != INTERCEPT]
    offset = attributes.get("offset")
    if document is None:
        design, used = None, [*names, *([offset] if offset else [])]
        others: list[str] = []
    else:
        design = read_design(document, "the store")
        used = design.table_columns
        others = [] if design.terms.offsets or not offset else [offset]
    if not used:
        raise DataError(
            "expected a store with features, found the intercept alone: make it with features"
        )
    with marked_folder("streammc-") as folder:
        opened = open_table(table, attributes.get(MISSING))
        rows = FormulaRows(opened, used, others, folder / "table", fitted=True)
        rows.check_kinds(design)
        if design is not None:
            nodes = [*design.terms.factors, *map(factor_node, design.factors)]
            rows.check_text([*nodes, *design.terms.offsets], None)
            rows.fill_missing(design.stand_ins)
        faults = Faults()
        step = block_rows(max(len(names), len(rows.names)))
        for start, raw in rows.checked(faults, drop_missing=False):
            for low in range(0, raw.shape[1], step):
                if not faults:
                    piece = raw[:, low : low + step]
                    encoded = _encode(attributes, design, rows, start + low, piece, faults)
                    if not faults:
                        yield encoded
        faults.refuse(rows.table.locate)
        for line in rows.table.warnings():
            warnings.warn(line, stacklevel=2)


def _encode(
    attributes: Mapping[str, Any],
    design: Design | None,
    rows: FormulaRows,
    start: int,
    raw: Matrix,
    faults: Faults,
) -> NewRows:
    keep, values = rows.in_use(raw)
    report = RowReport(faults, start, keep)
    offset = np.zeros(keep.size)
    if design is None:
        n_features = len(attributes["features"]) - attributes["intercept"]
        columns = raw[:n_features]
    else:
        columns = np.empty((len(design.names), keep.size))
        design.encode(values, report, columns)
        for name, column in zip(design.names, columns, strict=True):
            report("undefined results", name, ~np.isfinite(column), column)
        offset += design.offset(values, report)
    column_offset = values.get(attributes.get("offset") or "")
    if isinstance(column_offset, np.ndarray):
        offset += column_offset
    X = np.ones((keep.size, len(attributes["features"])))
    X[:, attributes["intercept"] :] = columns.T
    table = attributes["standardization"]
    if table is not None:
        X = (X - np.asarray(table["mean"])) / np.asarray(table["scale"])
    return NewRows(start, X, offset)
