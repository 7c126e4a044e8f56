"""An S3 server on loopback for tests, with credentials that must appear nowhere."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

import pytest

KEY_ID = "CANARYKEYIDCANARY"
SECRET = "canary+secret/canary0123456789"


class Bucket(NamedTuple):
    """A bucket of the server."""

    address: str
    """``s3://NAME``."""
    endpoint: str


def variables(endpoint: str) -> dict[str, str]:
    """Return the environment of a client of the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "STREAMMC_CLOUD_SECONDS": "20",
    }


def forget_connections() -> None:
    """Drop the connections of this process, which belong to an endpoint."""
    from streammc.stores.cloud.requests import connect

    connect.cache_clear()


def forget_runs() -> None:
    """Drop the local copies of runs at addresses, as if this were another machine."""
    from streammc.trace import places

    places._places.clear()


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server in a thread; yield its address."""
    server = pytest.importorskip("moto.server", reason="moto's S3 server is not installed")
    pytest.importorskip("obstore", reason="obstore is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        running.stop()


def new_bucket(endpoint: str) -> Bucket:
    """Make a bucket of its own."""
    import obstore
    from obstore.store import S3Store

    name = f"rows-{uuid4().hex[:12]}"
    plain = S3Store(
        name,
        endpoint=endpoint,
        access_key_id=KEY_ID,
        secret_access_key=SECRET,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
    connection.request("PUT", f"/{name}", headers={"Host": endpoint.removeprefix("http://")})
    assert connection.getresponse().status == 200
    connection.close()
    obstore.put(plain, "elsewhere", b"an object of another program")
    return Bucket(f"s3://{name}", endpoint)
