"""Measured tables are written between the marks of the one page that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    found = tmp_path / "measurements", tmp_path / "explanation"
    for folder in found:
        folder.mkdir()
        (folder / "a.md").write_text(
            f"# A\n\n<!-- {folder.name} -->\n<!-- /{folder.name} -->\nend\n"
        )
    monkeypatch.setattr(page, "FOLDERS", found)
    return found


def test_the_page_with_the_marks_gets_the_lines(folders: tuple[Path, Path]) -> None:
    for _ in range(2):
        page.publish("a.md", "explanation", ["| x |"])
    assert (
        "<!-- explanation -->\n\n| x |\n\n<!-- /explanation -->\nend\n"
        in (folders[1] / "a.md").read_text()
    )
    assert "| x |" not in (folders[0] / "a.md").read_text()


def test_marks_that_no_page_or_two_pages_have_are_refused(folders: tuple[Path, Path]) -> None:
    with pytest.raises(SystemExit, match="<!-- other -->"):
        page.publish("a.md", "other", [])
    (folders[1] / "a.md").write_text((folders[0] / "a.md").read_text())
    with pytest.raises(SystemExit, match=r"in one page a\.md"):
        page.publish("a.md", "measurements", [])
