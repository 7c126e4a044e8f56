"""A read-only S3 server of the files of a folder, on loopback, so that no side waits for it.

    python bench/s3_files.py FOLDER [GBIT MS]

With GBIT and MS the answers share a link of so many gigabits a second, and begin so many
milliseconds after the request. The folders in FOLDER are the buckets. Objects are sent by
``sendfile``; GET with ranges, HEAD and ListObjectsV2 are answered, and credentials are not looked
at. Prints its port.
"""

from __future__ import annotations

import os
import sys
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SLICE = 256 << 10


class Link:
    """A link that all answers share: who sends waits until what was sent before is through."""

    def __init__(self, gbit: float, milliseconds: float) -> None:
        self.seconds_per_byte, self.latency = 8e-9 / gbit, milliseconds / 1000
        self._free, self._lock = 0.0, Lock()

    def send(self, size: int) -> None:
        """Return when ``size`` bytes more are through."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size * self.seconds_per_byte
            until = self._free
        time.sleep(max(until - time.monotonic(), 0.0))


class Handler(BaseHTTPRequestHandler):
    """Answers from the files of ``root``, over ``link``."""

    protocol_version = "HTTP/1.1"
    root = Path()
    link: Link | None = None

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer with the headers of a file."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer with a file, a part of it, or a list."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        path = self.root / unquote(parts.path).strip("/")
        if "list-type" in query:
            self._list(path, query.get("prefix", [""])[0])
        elif path.is_file():
            self._file(path)
        else:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, path: Path) -> None:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            first, last = 0, found.st_size - 1
            asked = self.headers.get("Range")
            if asked:
                start, _, end = asked.removeprefix("bytes=").partition("-")
                first = int(start) if start else found.st_size - int(end)
                last = min(int(end), last) if start and end else last
            if self.link is not None:
                time.sleep(self.link.latency)
            self.send_response_only(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{found.st_size}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("ETag", f'"{found.st_size:x}-{found.st_mtime_ns:x}"')
            self.send_header("Last-Modified", formatdate(found.st_mtime, usegmt=True))
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.flush()
            while first <= last:
                size = last + 1 - first
                if self.link is not None:
                    size = min(size, SLICE)
                    self.link.send(size)
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, size)

    def _list(self, bucket: Path, prefix: str) -> None:
        entries = []
        for path in sorted(bucket.rglob("*")):
            key = path.relative_to(bucket).as_posix()
            if path.is_file() and key.startswith(prefix):
                found = path.stat()
                entries.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{found.st_size}</Size>"
                    f'<ETag>"{found.st_size:x}-{found.st_mtime_ns:x}"</ETag>'
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}"
        self._send(200, f"{body}<KeyCount>{len(entries)}</KeyCount></ListBucketResult>".encode())


class Server(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Print nothing when a client leaves."""


if __name__ == "__main__":
    Handler.root = Path(sys.argv[1])
    if sys.argv[2:]:
        Handler.link = Link(float(sys.argv[2]), float(sys.argv[3]))
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
