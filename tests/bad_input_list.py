"""The list of bad inputs of check 50: what each of the 64 must come to, and where it is tried.

A number has cases of the tables of tests/cli, which are tried by ``tests/trust/test_bad_input.py``
with their time and memory, or names tests elsewhere, which carry the number of the check.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent


def loaded(path: str) -> ModuleType:
    """Return a file of tests as a module, for its tables of cases."""
    name = f"cases_of_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


VALUES, STORES = "cli/test_bad_values.py::", "cli/test_bad_stores.py::"
LINES, FOREIGN = "cli/test_bad_inputs.py::", "stores/foreign/test_foreign_table.py::"
SETTINGS: Final = "cli/test_configuration.py::"
REMOTE, SHARDS = "stores/cloud/test_remote_store.py::", "stores/format/test_shards.py::"

LISTED: Final[dict[int, tuple[str, tuple[str, ...]]]] = {
    1: ("NaN in a predictor", ("ingest: NaN in a predictor", "ingest: null in a predictor")),
    2: ("NaN in the response", (
        "ingest: NaN in the response",
        f"{VALUES}test_missing_rows_are_dropped_and_counted_where_allowed",
    )),
    3: ("infinity", ("ingest: infinity",)),
    4: ("NaN in the last row", ("ingest: NaN in the last row",)),
    5: ("-0.0 and subnormals", (f"{VALUES}test_negative_zeros_and_subnormals_count_as_zero",)),
    6: ("squares that overflow", ("ingest: squares that overflow",)),
    7: ("mean 1e9, sd 1e-3", ("works: few digits of variation",)),
    8: ("constant column", ("works: constant column",)),
    9: ("equal and collinear columns", ("works: two equal columns", "works: collinear columns")),
    10: ("labels {1, 2}, {-1, 1}", ("model: labels {1, 2}", "model: labels {-1, 1}")),
    11: ("impossible counts", ("model: negative counts", "model: fractional counts")),
    12: ("counts above 2**53", ("model: counts above 2**53",)),
    13: ("perfect separation", ("works: perfect separation",)),
    14: ("no rows", ("ingest: no rows", "ingest: no rows but missing ones")),
    15: ("one row", ("works: one row", f"{VALUES}test_a_single_row_has_an_r_hat_and_finite_draws")),
    16: ("fewer rows than columns", ("works: fewer rows than columns",)),
    17: ("weights", ("ingest: negative weights", "ingest: NaN weights", "works: weights of zero")),
    18: ("row ids", ("stores/ingest/test_row_ids.py::test_invalid_row_ids_are_named",)),
    19: ("rows in another order", (
        "runs/test_row_order.py::test_draws_match_quadrature_for_any_order_and_run_length",
    )),
    20: ("a fill value that is a value", (
        f"{STORES}test_chunk_of_zeros_is_written_and_noticed_when_deleted",
    )),
    21: ("shape 2**62", ("metadata: shape 2**62",)),
    22: ("shape 10**30", ("metadata: shape 10**30",)),
    23: ("shape -1, 1.5, text", (
        "metadata: shape -1", "metadata: shape 1.5", "metadata: shape of text",
    )),
    24: ("chunks of no rows", ("metadata: chunks of no rows",)),
    25: ("chunks of 2**40 rows", ("metadata: chunks of 2**40 rows",)),
    26: ("a billion chunks", ("metadata: a billion chunks of one row",)),
    27: ("arrays of unequal length", ("metadata: arrays of unequal length",)),
    28: ("wrong rank", ("metadata: wrong rank",)),
    29: ("JSON", (
        "metadata: truncated JSON", "metadata: JSON that is not UTF-8",
        "metadata: JSON of a gigabyte", "metadata: JSON of depth 100,000",
        "metadata: JSON with a repeated key",
    )),
    30: ("an unknown codec", ("metadata: an unknown codec",)),
    31: ("pickles and objects", ("metadata: the pickle codec", "metadata: objects")),
    32: ("a zstd bomb", ("metadata: a zstd bomb",)),
    33: ("a zstd frame of another length", (
        f"{SHARDS}test_compressed_piece_of_another_length_is_refused_before_it_is_decoded",
    )),
    34: ("a byte more or less", ("chunk: one byte more", "chunk: one byte less")),
    35: ("a wrong checksum", ("chunk: a wrong checksum", "chunk: swapped")),
    36: ("overlapping pieces of a shard", (
        f"{SHARDS}test_index_that_misses_overlaps_or_points_outside_is_refused",
    )),
    37: ("a missing chunk", ("chunk: missing",)),
    38: ("other kinds of numbers", (
        "metadata: big-endian", "metadata: half precision",
        f"{VALUES}test_narrow_types_keep_their_values",
        f"{FOREIGN}test_dtypes_are_converted_exactly",
    )),
    39: ("integers that are rounded", (
        "ingest: integers that float64 rounds", "ingest: unsigned integers above 2**63",
    )),
    40: ("dates, text, complex numbers", (
        "ingest: dates", "ingest: text", "ingest: lists", "ingest: binary",
        "metadata: complex numbers", "metadata: dates",
    )),
    41: ("zarr version 2", (
        "metadata: zarr version 2",
        f"{FOREIGN}test_draws_from_a_foreign_group_are_those_of_an_ingested_copy",
    )),
    42: ("contradicting metadata", ("metadata: consolidated metadata that contradict",)),
    43: ("a store that changed", (
        f"{STORES}test_control_variates_of_rows_that_changed_are_refused",
        f"{STORES}test_control_variates_of_another_store_are_refused",
    )),
    44: ("a link out of the store", ("chunk: a link out of the store", "chunk: a linked folder")),
    45: ("pipe, device, folder for a chunk", (
        "chunk: a pipe", "chunk: a device", "chunk: a directory",
    )),
    46: ("a missing path", (
        "line: sample nowhere -o out --model logistic",
        "line: ingest nowhere.csv out --response y",
    )),
    47: ("a file for a folder", ("line: sample t.csv -o out --model logistic",)),
    48: ("no permission", (f"{LINES}test_no_permission_to_read_is_77",)),
    49: ("output inside an input", (
        "line: sample store.zarr -o store.zarr --model logistic",
        "line: sample store.zarr -o store.zarr/run --model logistic",
    )),
    50: ("output of another job", ("line: sample store.zarr -o run --model logistic --seed 2",)),
    51: ("odd names", (
        f"{LINES}test_odd_file_names_work",
        f"{LINES}test_file_names_that_are_not_utf8_work_or_are_refused",
    )),
    52: ("an unknown scheme", ("line: info gopher://host/x",)),
    53: ("credentials in an address", (
        "line: sample s3://key:hunter2@bucket/x -o out --model logistic",
    )),
    54: ("403, 404, 503", (
        f"{REMOTE}test_chunk_that_is_forbidden_or_missing_is_an_error_and_never_zeros",
        f"{REMOTE}test_dead_service_ends_within_the_budget_and_without_its_words",
    )),
    55: ("redirects", (
        "stores/cloud/test_redirects.py::test_a_redirect_to_a_file_is_not_followed",
        "stores/cloud/test_redirects.py::test_what_a_redirect_leads_to_is_not_shown_and_no_store",
    )),
    56: ("counts", (
        "line: --draws 0", "line: --draws 1.5", f"line: --draws {10**12}", "line: --warmup -1",
        "line: --chains 0",
    )),
    57: ("seeds", ("line: --seed -1", f"line: --seed {2**64}", "line: --seed 1.5")),
    58: ("step sizes", ("line: --step-size 0", "line: --step-size nan", "line: --step-size inf")),
    59: ("subsamples", ("line: --subsample-size 0", "line: --subsample-size 3001")),
    60: ("priors", ("line: --prior-scale 0", "line: --prior-scale nan")),
    61: ("a start without a likelihood", (
        "runs/test_not_a_number.py::test_model_without_a_finite_log_likelihood_is_refused",
    )),
    62: ("NaN for some theta", (
        "runs/test_not_a_number.py::test_proposals_with_nan_log_likelihood_are_rejected_and_counted",
    )),
    63: ("keys of a configuration", (f"{SETTINGS}test_a_faulty_file_is_refused_with_78",)),
    64: ("a later format, a tag of YAML", (
        "metadata: a later format", f"{SETTINGS}test_a_faulty_file_is_refused_with_78",
    )),
}  # fmt: skip
"""By number: what is wrong, and the cases and tests."""
