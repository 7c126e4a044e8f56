"""The metadata of a store, read as untrusted JSON before anything is allocated.

A document is accepted if it equals the one that this version writes for the same
shapes, dtypes and chunks; the error names the first field that differs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from streammc.errors import StoreError
from streammc.numerics.coded_matrix import MOST_COLUMNS
from streammc.stores.cloud.address import Root
from streammc.stores.format.generations import good_generations
from streammc.stores.format.layout import (
    CODES,
    CROSSED,
    DENSE_FEATURE,
    FEATURE_KEY,
    FORMAT,
    GROUP,
    GROUP_DTYPES,
    GROUP_OFFSET,
    LEVEL,
    LEVEL_LABEL,
    MAX_CHUNK_BYTES,
    MAX_CHUNKS,
    MAX_FEATURES,
    MAX_LEVELS,
    MAX_ROWS,
    MEMBER_DTYPES,
    METADATA,
    ROW_MULTIPLE,
    TEXT_MEMBERS,
    Layout,
    Member,
    choose_chunk_rows,
)
from streammc.stores.format.objects import exists, has_array, parse_json, read_object, read_small
from streammc.stores.format.shards import Shards
from streammc.trace.zarr_files import (
    STRING,
    array_document,
    crc_bytes,
    encode_texts,
    group_document,
    raw_codec,
)

ATTRIBUTE: Final = "streammc"
_DIMENSIONS: Final = {GROUP: "group", GROUP_OFFSET: "group_bound"}
"""Dimension of an array; all others have the dimension ``row``."""


def store_attributes(given: dict[str, Any], features: list[str], layout: Layout) -> dict[str, Any]:
    """Return the group attribute ``streammc`` of a new store: ``given``, sizes and defaults."""
    return {
        "format": FORMAT,
        "n_rows": layout.n_rows,
        "response": None,
        "features": features,
        "intercept": False,
        "standardization": None,
        "formula": None,
        "shuffle_seed": False,
        "sources": [],
        **given,
        "dtype": layout.members[0].dtype,
    }


def store_documents(attributes: dict[str, Any], layout: Layout) -> dict[str, dict[str, Any]]:
    """Return every ``zarr.json`` of a store by key, the root last."""
    root = root_document(attributes, layout)
    nodes = root["consolidated_metadata"]["metadata"]
    return {f"{name}/{METADATA}": node for name, node in nodes.items()} | {METADATA: root}


def member_document(member: Member, layout: Layout) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array of rows or of groups."""
    codecs = [raw_codec(member.dtype)]
    if layout.shards is not None:
        codecs = layout.shards.codecs(codecs, member.columns)
    names = [_DIMENSIONS.get(member.name, "row")]
    if member.name.startswith(LEVEL_LABEL):
        names = [member.name.replace(LEVEL_LABEL, LEVEL)]
    if member.name == "X":
        names.append("feature" if layout.member(CODES) is None else DENSE_FEATURE)
    elif member.columns is not None:
        other = {CODES: "coded_factor", LEVEL: "crossed_factor"}
        names.append(other.get(member.name, f"{member.name}_byte"))
    shape, chunk = member.shape(layout.n_rows), member.shape(layout.chunk_rows)
    fill = 0.0 if np.dtype(member.dtype).kind == "f" else 0
    return array_document(shape, chunk, member.dtype, names, codecs, fill)


def feature_document(n_features: int) -> dict[str, Any]:
    """Return the ``zarr.json`` of the coordinate ``feature``."""
    text = {"name": "vlen-utf8", "configuration": {}}
    shape = [n_features]
    return array_document(shape, shape, STRING, ["feature"], [text, {"name": "crc32c"}], "")


def root_document(attributes: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the root ``zarr.json`` with the other documents consolidated into it."""
    nodes = {member.name: member_document(member, own) for member, own in layout.all_members}
    nodes["feature"] = feature_document(len(attributes["features"]))
    return group_document({ATTRIBUTE: attributes}, nodes)


def encode_document(document: dict[str, Any]) -> bytes:
    """Return a ``zarr.json`` as text.

    Raises
    ------
    StoreError
        If an attribute is no JSON.
    """
    try:
        text = json.dumps(document, allow_nan=False, indent=1, ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"expected JSON as attributes of a store: {error}"
            "; pass numbers, text, lists and mappings"
        ) from error
    return text.encode() + b"\n"


def read_schema(root: Root) -> tuple[dict[str, Any], Layout]:
    """Return the group attribute ``streammc`` and the layout of the store at ``root``.

    Raises
    ------
    StoreError
        If a document is missing, not of this format, out of limits or contradicts another.
    """
    if not exists(root, METADATA):
        found = "a zarr v2 store" if exists(root, ".zgroup") else "none"
        raise StoreError(
            f"expected {METADATA!r} in {str(root)!r}, found {found}: "
            "not a streammc store; make one with 'streammc ingest'"
        )
    group = _read(root, METADATA)
    attributes = _attributes(group, root)
    members = []
    present = [name for name in MEMBER_DTYPES if name == "X" or has_array(root, name)]
    groups = _lengths(attributes)
    for name in (*present, *groups, "feature"):
        if isinstance(root, Path) and ((root / name).is_symlink() or not (root / name).is_dir()):
            raise StoreError(
                f"expected {name!r} in store {str(root)!r} to be a directory of its own: "
                "copy or make the store again"
            )
    for name in present:
        members.append(_member(_read(root, f"{name}/{METADATA}"), name, root))
    layout = _combine(members, root)
    layout = replace(layout, groups=_groups(groups, root))
    _check_codes(attributes, layout, root)
    columns = (members[0][0].columns or 0) + n_coded(attributes)
    for member, own in layout.all_members:
        key = f"{member.name}/{METADATA}"
        _same(_read(root, key), member_document(member, own), root, key)
    if attributes["n_rows"] != layout.n_rows:
        raise _wrong(root, METADATA, "n_rows", layout.n_rows, attributes["n_rows"])
    if len(attributes["features"]) != columns:
        raise _wrong(root, METADATA, "features", columns, len(attributes["features"]))
    _same(_read(root, f"feature/{METADATA}"), feature_document(columns), root, "feature/zarr.json")
    _same(group, root_document(attributes, layout), root, METADATA)
    return attributes, layout


def check_attributes(attributes: dict[str, Any], what: str) -> None:
    """Check the keys of the group attribute ``streammc`` that every reader needs.

    Raises
    ------
    StoreError
        If a key is missing or its value is of the wrong kind.
    """

    def require(key: str, good: bool, expected: str) -> None:
        if not good:
            found = repr(attributes.get(key))[:100]
            raise StoreError(
                f"expected {expected} as {key!r} in {what}, found {found}"
                ": make the store again, or use the version that made it"
            )

    version = attributes.get("format")
    require("format", version == FORMAT and type(version) is int, f"{FORMAT}")
    rows = attributes.get("n_rows")
    require("n_rows", type(rows) is int and 0 < rows <= MAX_ROWS, "a positive integer")
    names = attributes.get("features")
    good = isinstance(names, list) and 0 < len(names) <= MAX_FEATURES
    good = good and all(isinstance(name, str) and _encodable(name) for name in names or ())
    require("features", good and len(set(names or ())) == len(names or ()), "different names")
    response = attributes.get("response")
    require("response", response is None or isinstance(response, str), "a name or null")
    require("intercept", isinstance(attributes.get("intercept"), bool), "true or false")
    table = attributes.get("standardization")
    good = table is None or (
        isinstance(table, dict)
        and all(_numbers(table.get(key), len(names or ())) for key in ("mean", "scale"))
        and min(table["scale"]) > 0
    )
    require("standardization", good, "null or a mean and a positive scale per feature")
    require("codes", good_codes(attributes), "columns of each coded factor in the features")
    require("groups", good_groups(attributes), "null or a column, terms and sizes of groups")
    require(CROSSED, good_crossed(attributes), "a column, levels and effects of each factor")
    formula = attributes.get("formula")
    if formula is not None:
        from streammc.stores.formula.fitted import check_document

        check_document(formula, what)
    if "generations" in attributes:
        require("generations", good_generations(attributes), "generations that add up to n_rows")
    if "designs" in attributes:
        from streammc.stores.formula.fitted import good_designs

        require("designs", good_designs(attributes), "columns of each formula in the features")
    if "factors" in attributes:
        from streammc.stores.formula.fitted import good_factors

        require("factors", good_factors(attributes), "columns of each factor in the features")


def _encodable(name: str) -> bool:
    try:
        return len(name.encode()) <= 4096
    except UnicodeEncodeError:
        return False


def _numbers(values: Any, length: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == length
        and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    )


def _attributes(group: dict[str, Any], root: Root) -> dict[str, Any]:
    if group.get("zarr_format") != 3 or group.get("node_type") != "group":
        raise StoreError(
            f"expected a zarr v3 group in {str(root)!r}, found none: not a streammc store; "
            "make one with 'streammc ingest'"
        )
    outer = group.get("attributes")
    attributes = outer.get(ATTRIBUTE) if isinstance(outer, dict) else None
    if not isinstance(attributes, dict):
        raise StoreError(
            f"expected the attribute {ATTRIBUTE!r} in {str(root)!r}, found none: "
            "not a streammc store; make one with 'streammc ingest'"
        )
    check_attributes(attributes, f"{METADATA!r} of store {str(root)!r}")
    return attributes


def _member(
    document: dict[str, Any], name: str, root: Root
) -> tuple[Member, int, int, Shards | None]:
    """Return the array that a document describes, its rows, rows per chunk and shards.

    Only what the layout follows from is checked here; :func:`read_schema` then compares the whole
    document with the one that this version writes.
    """
    key = f"{name}/{METADATA}"
    dtype = document.get("data_type")
    labels = name.startswith(LEVEL_LABEL)
    allowed = GROUP_DTYPES[GROUP] if labels else (MEMBER_DTYPES | GROUP_DTYPES)[name]
    if dtype not in allowed:
        raise _wrong(root, key, "data_type", " or ".join(allowed), dtype)
    texts = (name in TEXT_MEMBERS or labels) and dtype == "uint8"
    ndim = 2 if name in ("X", CODES, LEVEL) or texts else 1
    shape = _extent(document.get("shape"), ndim, root, key, "shape")
    grid = document.get("chunk_grid")
    configuration = grid.get("configuration") if isinstance(grid, dict) else None
    chunk = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
    chunks = _extent(chunk, ndim, root, key, "chunk_shape")
    columns = shape[1] if ndim == 2 else None
    if columns is not None and (columns > MAX_FEATURES or chunks[1] != columns):
        raise _wrong(root, key, "chunk_shape", f"all of at most {MAX_FEATURES} columns", chunks)
    codecs = document.get("codecs")
    shards = None if name in GROUP_DTYPES or labels else shards_of(codecs, chunks[0])
    if shards is None:
        for codec in codecs if isinstance(codecs, list) else [None]:
            label = codec.get("name") if isinstance(codec, dict) else codec
            if label != "bytes":
                raise _wrong(root, key, "codec", "bytes", label)
    return Member(name, np.dtype(dtype).name, columns), shape[0], chunks[0], shards


def _check_codes(attributes: dict[str, Any], layout: Layout, root: Root) -> None:
    """Refuse codes and levels that the attributes do not describe, or that are missing."""
    for name, key in ((CODES, CODES), (LEVEL, CROSSED)):
        member = layout.member(name)
        found = 0 if member is None else member.columns or 0
        expected = len(attributes.get(key, ()))
        if found != expected:
            raise _wrong(root, METADATA, key, f"{found} factors as the array has", expected)


def label_names(attributes: Mapping[str, Any]) -> list[str]:
    """Return the names of the arrays with the labels of factors that cross."""
    return [f"{LEVEL_LABEL}_{number}" for number in range(len(attributes.get(CROSSED, ())))]


def _lengths(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the lengths of the arrays with an entry for each group, or level of a factor."""
    groups, lengths = attributes.get("groups"), {}
    if groups:
        lengths = {GROUP_OFFSET: groups["n_groups"] + 1, GROUP: groups["n_groups"]}
    stated = attributes.get(CROSSED, ())
    labels = zip(label_names(attributes), stated, strict=True)
    return lengths | {name: each["levels"] for name, each in labels}


def _groups(lengths: Mapping[str, int], root: Root) -> tuple[Layout, ...]:
    """Return the layouts of the arrays of groups and levels; refuse arrays of another length."""
    layouts = []
    for name, length in lengths.items():
        key = f"{name}/{METADATA}"
        member, found, chunk, _ = _member(_read(root, key), name, root)
        if found != length:
            raise _wrong(root, key, "shape", f"{length} as the attributes have", found)
        expected = min(length, choose_chunk_rows(member.row_bytes))
        if chunk != expected:
            raise _wrong(root, key, "chunk_shape", expected, chunk)
        layouts.append(Layout(length, chunk, (member,)))
    return tuple(layouts)


def _extent(value: Any, ndim: int, root: Root, key: str, field: str) -> list[int]:
    if not (isinstance(value, list) and len(value) == ndim):
        raise _wrong(root, key, field, f"{ndim} positive integers", value)
    if not all(type(item) is int and 0 < item <= MAX_ROWS for item in value):
        raise _wrong(root, key, field, f"positive integers up to {MAX_ROWS}", value)
    return value


def _combine(members: list[tuple[Member, int, int, Shards | None]], root: Root) -> Layout:
    """Return the common layout of all arrays; refuse arrays of different rows or chunks."""
    _, rows, chunk, shards = members[0]
    for member, other_rows, other_chunk, other_shards in members:
        key = f"{member.name}/{METADATA}"
        if other_rows != rows:
            raise _wrong(root, key, "shape", f"{rows} rows as X has", other_rows)
        if other_chunk != chunk:
            raise _wrong(root, key, "chunk_shape", f"{chunk} rows as X has", other_chunk)
        if other_shards != shards:
            raise _wrong(root, key, "codecs", "the shards that X has", other_shards)
        if chunk * member.row_bytes > MAX_CHUNK_BYTES:
            limit = f"chunks of at most {MAX_CHUNK_BYTES >> 20} MB"
            raise _wrong(root, key, "chunk_shape", limit, f"{chunk} rows")
    layout = Layout(rows, chunk, tuple(member for member, *_ in members), shards=shards)
    if layout.n_chunks * len(members) > MAX_CHUNKS:
        raise StoreError(
            f"expected at most {MAX_CHUNKS} chunk files in store {str(root)!r}, found "
            f"{layout.n_chunks * len(members)}: make it again with a larger --chunk-rows"
        )
    if shards is None and chunk % ROW_MULTIPLE and layout.n_chunks > 1:
        raise _wrong(root, "X/zarr.json", "chunk_shape", f"a multiple of {ROW_MULTIPLE}", chunk)
    return layout


def _read(root: Root, key: str) -> dict[str, Any]:
    return parse_json(read_small(root, key), f"{key!r} of store {str(root)!r}")


def _same(found: dict[str, Any], expected: dict[str, Any], root: Root, key: str) -> None:
    for field in sorted({*found, *expected}):
        if found.get(field) != expected.get(field):
            raise _wrong(root, key, field, expected.get(field), found.get(field))


def _wrong(root: Root, key: str, field: str, expected: Any, found: Any) -> StoreError:
    return StoreError(
        f"expected {str(expected)[:100]} as {field!r} in {key!r} of store {str(root)!r}, "
        f"found {repr(found)[:100]}: copy or make the store again, with one version"
    )


def check_features(root: Root, names: list[str]) -> None:
    """Refuse a coordinate ``feature`` that differs from the names in the group attribute."""
    expected = feature_chunk(names)
    content = np.empty(len(expected), np.uint8)
    read_object(root, FEATURE_KEY, content)
    if content[:-4].tobytes() != expected[:-4]:  # without the CRC-32C at the end
        raise StoreError(
            f"expected the names in {FEATURE_KEY!r} of store {str(root)!r} to be those in "
            f"{METADATA!r}: copy or make the store again"
        )


def feature_chunk(names: list[str]) -> bytes:
    """Return the content of the coordinate ``feature``."""
    content = encode_texts(names)
    return content + crc_bytes(content)


def good_codes(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``codes``, if there is one, fits the features of a store."""
    if CODES not in attributes:
        return True
    stated = attributes[CODES]
    if not isinstance(stated, list) or not stated:
        return False
    end = coded = 0
    for each in stated:
        if not isinstance(each, dict) or not isinstance(each.get("column"), str):
            return False
        first, columns = each.get("first"), each.get("columns")
        if type(first) is not int or type(columns) is not int:
            return False
        if first < end or not 0 < columns <= MOST_COLUMNS:
            return False
        end, coded = first + columns, coded + columns
    return end <= len(attributes["features"]) and coded < len(attributes["features"])


def n_coded(attributes: Mapping[str, Any]) -> int:
    """Return the number of columns that codes stand for."""
    return sum(each["columns"] for each in attributes.get(CODES, ()))


def good_groups(attributes: dict[str, Any]) -> bool:
    """Return whether the attribute ``groups``, if there is one, fits rows and features."""
    groups = attributes.get("groups")
    if groups is None:
        return True
    if not isinstance(groups, dict) or not isinstance(groups.get("column"), str):
        return False
    terms, sizes = groups.get("terms"), [groups.get("n_groups"), groups.get("largest")]
    return (
        isinstance(terms, list)
        and terms[:1] == ["1"]
        and len(terms) <= 2
        and all(term in attributes["features"] for term in terms[1:])
        and isinstance(groups.get("correlated"), bool)
        and all(type(size) is int and 0 < size <= attributes["n_rows"] for size in sizes)
    )


def good_crossed(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attribute ``crossed``, if there is one, has different factors."""
    if CROSSED not in attributes:
        return True
    stated = attributes[CROSSED]
    if not isinstance(stated, list) or not stated:
        return False
    names = [each.get("column") for each in stated if isinstance(each, dict)]
    return (
        len(names) == len(stated)
        and all(isinstance(name, str) for name in names)
        and len({*names}) == len(names)
        and all(type(each.get("levels")) is int for each in stated)
        and all(0 < each["levels"] <= MAX_LEVELS for each in stated)
        and all(_good_effects(each, attributes["features"]) for each in stated)
    )


def _good_effects(stated: Mapping[str, Any], features: Sequence[str]) -> bool:
    """Return whether terms of a factor are an intercept, if they are stated, and columns."""
    if "terms" not in stated:
        return True
    terms = stated["terms"]
    return (
        isinstance(stated.get("correlated"), bool)
        and isinstance(terms, list)
        and len(terms) > 0
        and all(isinstance(term, str) for term in terms)
        and len({*terms}) == len(terms)
        and {*terms} <= {"1", *features}
        and "1" not in terms[1:]
    )


def shards_of(codecs: Any, chunk_rows: int) -> Shards | None:
    """Return the shards that ``codecs`` of ``zarr.json`` describe; ``None`` without shards.

    ``chunk_rows`` are the rows of a shard, which must be whole inner chunks.
    """
    first = codecs[0] if isinstance(codecs, list) and codecs else None
    own = first.get("configuration") if isinstance(first, dict) else None
    shape = own.get("chunk_shape") if isinstance(own, dict) else None
    rows = shape[0] if isinstance(shape, list) and shape else None
    if type(rows) is not int or not 0 < rows <= chunk_rows or chunk_rows % rows:
        return None
    inner = own.get("codecs") if isinstance(own, dict) else None
    names = [each.get("name") for each in inner or () if isinstance(each, dict)]
    return Shards(rows, "zstd" in names)
