"""Addresses of clusters: what is taken for one, and what is refused."""

from __future__ import annotations

import json

import pytest

from streammc.errors import ConfigError, MissingError
from streammc.stores.dask_cluster import ClusterAddress, is_loopback, names_cluster, scheduler_url


@pytest.mark.parametrize(
    "text",
    ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tcp://[::1]:8786", "tls://far.example:8786"],
)
def test_loopback_and_tls_are_taken(text):
    assert text == scheduler_url(ClusterAddress(text))
    assert names_cluster(text)


@pytest.mark.trust(55)
@pytest.mark.parametrize(
    "host", ["10.0.0.1", "far.example", "0.0.0.0", "[2001:db8::1]", "127.0.0.1.far.example"]
)
def test_plain_addresses_of_other_machines_are_refused_unless_insisted(host):
    text = f"tcp://{host}:8786"
    with pytest.raises(ConfigError, match="--insecure-cluster"):
        scheduler_url(ClusterAddress(text))
    assert text == scheduler_url(ClusterAddress(text, insecure=True))


@pytest.mark.parametrize(
    "text", ["tcp://", "tcp://host", "tcp://host:port", "tcp://user:secret@host:1", "http://a:1"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match=r"expected a scheduler tcp://HOST:PORT"):
        scheduler_url(ClusterAddress(text, insecure=True))


def test_a_scheduler_file_gives_the_address(tmp_path):
    path = tmp_path / "scheduler.json"
    with pytest.raises(MissingError, match="--scheduler-file"):
        scheduler_url(ClusterAddress(str(path)))
    path.write_text(json.dumps({"address": "tcp://127.0.0.1:5", "id": "x"}))
    assert scheduler_url(ClusterAddress(str(path))) == "tcp://127.0.0.1:5"
    path.write_text(json.dumps({"address": "tcp://10.0.0.1:5"}))
    with pytest.raises(ConfigError, match="--insecure-cluster"):
        scheduler_url(ClusterAddress(str(path)))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"address": 5}', "\x00"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="expected the JSON of a Dask scheduler"):
        scheduler_url(ClusterAddress(str(path)))


def test_local_workers_are_counted():
    assert ClusterAddress("local:3").local_workers == 3
    assert ClusterAddress("local:0").local_workers == 0
    assert ClusterAddress("tcp://127.0.0.1:1").local_workers == 0
    assert is_loopback("127.3.2.1")
    assert not is_loopback("128.0.0.1")
