"""An HTTP proxy on loopback that forwards to a server and spoils some of the answers."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

FAULTS = ("status", "reset", "truncated", "stall")


class FaultProxy:
    """Forwards to ``backend``; ``choose(method, path)`` names the fault of a request, or ``None``.

    ``status`` answers 503 at once, ``reset`` breaks the connection before an answer,
    ``truncated`` within the body, ``stall`` answers ``stall_seconds`` late, ``lost`` forwards and
    then breaks the connection, ``forbidden`` answers 403 and ``gone`` 404, ``unconditional``
    forwards without the conditions of a put.
    """

    def __init__(
        self,
        backend: str,
        choose: Callable[[str, str], str | None],
        secret: str = "",
        stall_seconds: float = 0.05,
    ) -> None:
        self.faults: Counter[str] = Counter()
        self.requests: list[tuple[str, str, str | None]] = []
        """Method, path and range of every request."""
        lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

            def forward(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                with lock:
                    proxy.requests.append((self.command, self.path, self.headers.get("Range")))
                    fault = choose(self.command, self.path)
                    if fault is not None:
                        proxy.faults[fault] += 1
                if fault == "stall":
                    time.sleep(stall_seconds)
                if fault == "reset":
                    self.cut()
                    return
                if fault in ("status", "forbidden", "gone"):
                    status = {"status": 503, "forbidden": 403, "gone": 404}[fault]
                    # Services repeat parts of a request in their errors.
                    text = f"<Error><Code>Fault</Code><Message>{secret}</Message></Error>".encode()
                    self.answer(status, [], text, self.command != "HEAD")
                    return
                headers_sent = dict(self.headers)
                if fault == "unconditional":
                    for name in [each for each in headers_sent if each.lower().startswith("if-")]:
                        del headers_sent[name]
                connection = http.client.HTTPConnection(backend, timeout=30)
                connection.request(self.command, self.path, body, headers_sent)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                if fault == "lost":
                    self.cut()
                    return
                headers = [
                    (name, value)
                    for name, value in answer.getheaders()
                    if name.lower() not in ("content-length", "connection", "transfer-encoding")
                ]
                if self.command == "HEAD":
                    headers.append(("Content-Length", answer.getheader("Content-Length") or "0"))
                    self.answer(answer.status, headers, b"", False)
                    return
                half = fault == "truncated" and len(content) > 1
                self.answer(answer.status, headers, content, True, half)
                if half:
                    self.cut()

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward

            def answer(
                self,
                status: int,
                headers: list[tuple[str, str]],
                content: bytes,
                body: bool,
                half: bool = False,
            ) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                if body:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if half else content if body else b"")

            def cut(self) -> None:
                """Close the connection with a reset."""
                self.wfile.flush()
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                self.close_connection = True

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Print nothing: broken connections are what this server is for."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Serve in a thread."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def at_rate(rate: float, seed: int, *faults: str) -> Callable[[str, str], str | None]:
    """Return a choice of faults for this share of the requests."""
    generator = random.Random(seed)

    def choose(method: str, path: str) -> str | None:
        return generator.choice(faults) if generator.random() < rate else None

    return choose
