from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from streammc.errors import AccessError, ConfigError, StorageIOError, StoreError
from streammc.stores.format.objects import (
    checksum_file,
    local_path,
    parse_json,
    read_file,
    translate,
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1, "a": 2}', "repeated key"),
        (b'{"a": NaN}', "constant NaN"),
        (b'{"a": "\xff"}', "utf-8"),
        (b'{"a": ', "Expecting value"),
        (b"[1]", "found list"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "integer string"),
    ],
)
def test_strange_json_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        parse_json(content, "a document")


@pytest.mark.parametrize("url", ["s3://bucket/x", "https://me:secret@host/x", "file:///tmp/x"])
def test_a_url_is_refused_without_its_credentials(url: str) -> None:
    with pytest.raises(ConfigError, match="a path on this machine") as caught:
        local_path(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_value_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="expected a path"):
        local_path(path)


def test_checksum_in_pieces_is_the_checksum_of_the_whole(tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, (8 << 20) + 17, dtype=np.uint8)
    (tmp_path / "x").write_bytes(content.tobytes())
    whole = read_file(tmp_path, "x", np.empty(content.size, np.uint8))
    assert whole == checksum_file(tmp_path, "x", content.size)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EACCES, AccessError), (errno.EIO, StorageIOError), (errno.ENOENT, StoreError)],
)
def test_operating_system_errors_become_store_errors(code: int, kind: type[Exception]) -> None:
    assert type(translate(OSError(code, os.strerror(code)), "'x'")) is kind
