"""Web servers that send a reader elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from command_line import streammc


@contextmanager
def server(host: str, status: int, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve one answer for every path; yield the address and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            if location:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", "2")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"{}")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    made = ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield f"http://{host}:{made.server_port}", asked
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.mark.trust(50)
def test_a_redirect_to_a_file_is_not_followed() -> None:
    with server("127.0.0.1", 302, "file:///etc") as (address, asked):
        done = streammc("info", f"{address}/t.zarr")
    assert 69 == done.code, done.err
    assert asked
    assert "status 302" in done.err
    assert 1 == len(done.err.splitlines())


@pytest.mark.trust(50)
def test_what_a_redirect_leads_to_is_not_shown_and_no_store() -> None:
    with (
        server("127.0.0.1", 200) as (far, seen),
        server("127.0.0.1", 302, far) as (address, _),
    ):
        done = streammc("info", f"{address}/t.zarr")
    assert (65, "") == (done.code, done.out)
    assert seen
    assert "{}" not in done.err
    assert 1 == len(done.err.splitlines())
