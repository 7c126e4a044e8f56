"""Sources are known by path, size and times, and by their contents where a stamp is in doubt."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import streammc

import streammc as library
from streammc.stores.sources.input_files import content_crc, input_record, same_input, with_crc


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(path: Path, rows: int = 50) -> Path:
    lines = [f"{i % 2},{i * 0.5 + i % 3},{(i * 7) % 11}" for i in range(rows)]
    path.write_text("\n".join(["late,distance,hour", *lines]) + "\n")
    return path


def replaced(source: Path, content: bytes) -> None:
    """Put another file of the same length and modification time in the place of a source."""
    before = source.stat()
    other = source.with_suffix(".other")
    other.write_bytes(content)
    assert before.st_size == other.stat().st_size
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, source)


def test_a_source_replaced_by_one_of_its_size_and_time_is_another_source(here: Path) -> None:
    source = table(here / "t.csv")
    words = ("ingest", source, "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    lines = source.read_bytes().splitlines(keepends=True)
    replaced(source, b"".join([lines[0], *reversed(lines[1:])]))
    refused = streammc(*words, "--quiet")
    assert 78 == refused.code
    assert "another file of the same size and modification time in its place" in refused.err
    assert "touch" not in refused.err


@pytest.mark.parametrize("change", ["chmod", "copy", "link"])
@pytest.mark.parametrize("pattern", ["t.csv", "*.csv", "."])
def test_a_source_with_another_mode_or_inode_and_the_same_rows_is_the_same(
    here: Path, tmp_path: Path, change: str, pattern: str
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    source = table(folder / "t.csv")
    words = ("ingest", folder / pattern, here / "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    if change == "chmod":
        source.chmod(0o600)
    elif change == "link":
        os.link(source, here / "link.csv")
    else:
        kept = folder.stat()
        replaced(source, source.read_bytes())
        os.utime(folder, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    os.chdir(folder)  # relative or absolute is the same
    again = streammc("ingest", pattern, *words[2:])
    assert 0 == again.code, again.err
    assert "already there" in again.err
    receipt = json.loads((here / "t.zarr.config.json").read_text())
    assert isinstance(receipt["contents"][0], str)
    assert 0 == streammc(*words).code


def test_a_receipt_without_the_state_of_its_source_is_still_recognised(here: Path) -> None:
    source = table(here / "t.csv")
    words = ("ingest", source, "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    receipt = here / "t.zarr.config.json"
    text = json.loads(receipt.read_text())
    del text["contents"], text["asked"]["sources"][0]["state"]
    receipt.write_text(json.dumps(text))
    assert 0 == streammc(*words).code


def reverse(source: Path) -> None:
    """Put the same table with its rows in reverse order in the place of a source."""
    lines = source.read_bytes().splitlines(keepends=True)
    replaced(source, b"".join([lines[0], *reversed(lines[1:])]))


def appended(source: Path) -> list[int]:
    """Append a file, and return the rows of each generation."""
    done = streammc("ingest", "--append", source, "t.zarr", "--quiet")
    assert 0 == done.code, done.err
    kept = library.open_store("t.zarr").attributes["generations"]
    return [each["n_rows"] for each in kept]


def test_an_appended_file_with_another_mode_or_inode_is_not_appended_again(here: Path) -> None:
    first, more = table(here / "t.csv"), table(here / "more.csv", 30)
    assert 0 == streammc("ingest", first, "t.zarr", "--response", "late").code
    assert [50, 30] == appended(more)
    more.chmod(0o600)
    assert [50, 30] == appended(more)
    replaced(more, more.read_bytes())
    assert [50, 30] == appended(more)


def test_other_rows_in_a_file_of_the_same_size_and_time_are_appended(here: Path) -> None:
    first, more = table(here / "t.csv"), table(here / "more.csv", 30)
    assert 0 == streammc("ingest", first, "t.zarr", "--response", "late").code
    assert [50, 30] == appended(more)
    reverse(more)
    assert [50, 30, 30] == appended(more)


def test_a_record_says_whether_a_file_is_the_same(here: Path) -> None:
    source = table(here / "t.csv")
    record = with_crc(input_record(str(source)))
    assert content_crc(str(source)) == record["crc32c"]
    assert same_input(record, str(source))
    source.chmod(0o600)
    assert same_input(record, str(source))
    assert not same_input({**record, "crc32c": None}, str(source))
    earlier = {name: record[name] for name in ("path", "bytes", "modified_ns")}
    assert same_input(earlier, str(source))
    reverse(source)
    assert not same_input(record, str(source))


def test_a_file_that_is_another_one_by_now_has_no_checksum(here: Path) -> None:
    source = table(here / "t.csv")
    record = input_record(str(source))
    source.chmod(0o600)
    assert with_crc(record)["crc32c"] is None


@pytest.mark.parametrize("source", ["t.csv", "*.csv", "."])
def test_a_folder_reached_by_a_link_is_the_same_folder(here: Path, source: str) -> None:
    (here / "tables").mkdir()
    table(here / "tables" / "t.csv")
    (here / "link").symlink_to("tables")
    words = ("--response", "late", "--json")
    first = streammc("ingest", here / "tables" / source, "t.zarr", *words)
    for folder in ("link", "tables", "link"):
        again = streammc("ingest", here / folder / source, "t.zarr", *words)
        assert (0, first.json) == (again.code, again.json), again.err
        assert "already there" in again.err
    table(here / "tables" / "t.csv", 60)
    assert 78 == streammc("ingest", here / "link" / source, "t.zarr", *words).code


def test_a_receipt_with_links_of_before_is_still_recognised(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streammc.cli import input_description

    (here / "tables").mkdir()
    source = table(here / "tables" / "t.csv")
    (here / "link").symlink_to("tables")
    words = ("ingest", here / "link" / "t.csv", "t.zarr", "--response", "late")
    with monkeypatch.context() as patch:
        patch.setattr(input_description, "_place", input_description._named_place)
        patch.setattr(
            input_description.input_contents,
            "__defaults__",
            (input_description._named_place,),
        )
        assert 0 == streammc(*words).code
    assert 0 == streammc(*words).code
    reverse(source)
    assert 78 == streammc(*words).code


def test_another_source_is_named_with_the_one_it_was(here: Path) -> None:
    table(here / "t.csv")
    table(here / "other.csv")
    assert 0 == streammc("ingest", "t.csv", "t.zarr", "--response", "late").code
    done = streammc("ingest", "other.csv", "t.zarr", "--response", "late", "--quiet")
    assert f"found other 'sources', '{here}/other.csv' in place of '{here}/t.csv': " in done.err
    done = streammc("ingest", "t.csv", "other.csv", "t.zarr", "--response", "late", "--quiet")
    assert f"found other 'sources', '{here}/other.csv' in place of none: choose" in done.err
    long = here / ("x" * 120)
    long.mkdir()
    table(long / "t.csv")
    done = streammc("ingest", long / "t.csv", "t.zarr", "--response", "late", "--quiet")
    assert f"other 'sources', '...{'x' * 91}/t.csv' in place of" in done.err
