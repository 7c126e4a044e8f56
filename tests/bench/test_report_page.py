"""The report in a browser; skipped where there is no Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.browser import axe_source, browser, messages_and_requests, violations, width_of

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser() is None, reason="no Chromium"),
]

BAD = (
    '<!DOCTYPE html><html><head><title>x</title></head><body><h1>a</h1><p style="width:900px">b</p>'
    '<img src="http://127.0.0.1:9/a.png"><script>console.error("broken")</script></body></html>'
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bench.report_page import made

    return made(tmp_path_factory.mktemp("report"))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    (tmp_path / "bad.html").write_text(BAD)
    return tmp_path / "bad.html"


def test_report_logs_nothing_and_asks_for_nothing(page: Path) -> None:
    assert ([], []) == messages_and_requests(page)


def test_messages_and_requests_are_seen(bad: Path) -> None:
    messages, requests = messages_and_requests(bad)
    assert "broken" in messages
    assert "http://127.0.0.1:9/a.png" in requests


def test_report_fits_a_telephone(page: Path) -> None:
    assert width_of(page, 400) == 400


def test_a_page_that_is_too_wide_is_seen(bad: Path) -> None:
    assert width_of(bad, 400) > 800


@pytest.mark.skipif(axe_source() is None, reason="no axe-core: make browser")
@pytest.mark.parametrize("dark", [False, True])
def test_report_is_accessible(page: Path, dark: bool) -> None:
    assert [] == violations(page, axe_source() or "", dark=dark)


@pytest.mark.skipif(axe_source() is None, reason="no axe-core: make browser")
def test_a_page_that_is_not_accessible_is_seen(bad: Path) -> None:
    assert "image-alt" in {found["id"] for found in violations(bad, axe_source() or "")}
