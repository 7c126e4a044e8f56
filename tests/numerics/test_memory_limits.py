"""Limits on memory, as ``ulimit`` and control groups state them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from streammc.errors import OutOfMemoryError
from streammc.numerics import process_limits
from streammc.numerics.process_limits import check_process_limits, free_within_limits


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Limits of a process by the number of the resource; unlimited at first."""
    found = {resource.RLIMIT_DATA: resource.RLIM_INFINITY, resource.RLIMIT_AS: -1}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (found[kind], -1))
    return found


@pytest.mark.parametrize(("kind", "option"), [("DATA", "-d"), ("AS", "-v")])
def test_a_limit_below_what_libraries_need_is_refused_with_its_option(
    kind: str, option: str, limits: dict[int, int]
) -> None:
    check_process_limits()
    limits[getattr(resource, f"RLIMIT_{kind}")] = 1 << 50
    check_process_limits()
    limits[getattr(resource, f"RLIMIT_{kind}")] = 50 << 20
    with pytest.raises(OutOfMemoryError, match=rf"a limit of 50 MB \(ulimit {option}\): raise"):
        check_process_limits()


def test_the_memory_that_a_limit_leaves_is_what_is_not_yet_used(
    limits: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_limits, "_free_in_group", lambda line: None)
    assert free_within_limits() is None
    limits[resource.RLIMIT_DATA] = 1 << 50
    left = free_within_limits()
    assert left is not None
    assert (1 << 50) - (8 << 30) < left < 1 << 50
    limits[resource.RLIMIT_AS] = 1 << 10
    assert 0 == free_within_limits()


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        (
            "4:memory:/job",
            "memory/job",
            {
                "memory.limit_in_bytes": "1000",
                "memory.usage_in_bytes": "700",
                "memory.stat": "cache 5\ntotal_inactive_file 100\n",
            },
        ),
        (
            "0::/job",
            "job",
            {
                "memory.max": "1000",
                "memory.current": "700",
                "memory.stat": "anon 5\ninactive_file 100\n",
            },
        ),
    ],
    ids=["version 1", "version 2"],
)
def test_a_control_group_leaves_its_limit_less_what_cannot_be_reclaimed(
    line: str,
    folder: str,
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        process_limits, "Path", lambda *parts: tmp_path.joinpath(*(p.strip("/") for p in parts))
    )
    group = tmp_path / "sys/fs/cgroup" / folder
    assert process_limits._free_in_group(line) is None
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name).write_text(text)
    assert 400 == process_limits._free_in_group(line)
    (group / next(iter(files))).write_text("max")
    assert process_limits._free_in_group(line) is None
