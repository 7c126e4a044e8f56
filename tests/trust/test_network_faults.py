"""Networks that fail: checks 34 and 37."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks_of_trust import rounds
from clusters import cluster, sums

from streammc.stores.store import open_store

pytest.importorskip("distributed")


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Return the names of two networks with a cable between them: 10.213.77.1 and 10.213.77.2.

    Nothing is changed in the network of this machine.
    """
    near, far = (f"streammc-{os.getpid()}-{side}" for side in ("near", "far"))
    if shutil.which("ip") is None or os.geteuid() or ip("ip", "netns", "add", near).returncode:
        pytest.skip("no network namespaces here: needs root and iproute2")
    try:
        assert not ip("ip", "netns", "add", far).returncode
        cable = ("ip", "-n", near, "link", "add", "cable0", "type", "veth", "peer", "name")
        if ip(*cable, "cable0", "netns", far).returncode:
            pytest.skip("no virtual network cables here")
        for number, name in enumerate((near, far), 1):
            for words in (
                ("addr", "add", f"10.213.77.{number}/24", "dev", "cable0"),
                ("link", "set", "cable0", "up"),
                ("link", "set", "lo", "up"),
            ):
                assert not ip("ip", "-n", name, *words).returncode
        yield near, far
    finally:
        ip("ip", "netns", "del", near)
        ip("ip", "netns", "del", far)


PASS = """
import sys
from pathlib import Path
from clusters import Slow
from distributed import Client
from streammc.stores.dask_cluster import ClusterAddress
from streammc.stores.store import open_store
store, folder, address = sys.argv[1:]
with Client(address, set_as_default=False) as client:
    client.wait_for_workers(2, timeout=60)
task = Slow(Path(folder))
where = ClusterAddress(address, insecure=True)
print(open_store(store).reduce(task, scheduler=where).tobytes().hex())
"""


def start_pass(network: str, store: Path, folder: Path, address: str) -> subprocess.Popen[str]:
    """Start a program in a network that prints the sums of a store."""
    words = ["ip", "netns", "exec", network, sys.executable, "-c", PASS, str(store), str(folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    pipe = subprocess.PIPE
    return subprocess.Popen([*words, address], stdout=pipe, stderr=pipe, text=True, env=env)


@pytest.mark.trust(34, figure="a cable that is out: the same bits within 65 s")
@pytest.mark.slow
def test_a_worker_that_cannot_be_reached_any_more_is_given_up(
    store: Path, tmp_path: Path, networks: tuple[str, str]
) -> None:
    near, far = networks
    task, expected = sums(tmp_path / "seen", open_store(store))
    settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}
    here = {"env": settings, "host": "10.213.77.1", "within": near}
    with cluster(tmp_path / "cluster", workers=0, **here) as made:
        made.add("--host", "10.213.77.1", within=near)
        made.add("--host", "10.213.77.2", within=far)
        process = start_pass(near, store, task.folder, made.address)
        until = time.monotonic() + 90
        while len({path.name.split("-")[1] for path in task.folder.iterdir()}) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        started = time.monotonic()
        assert not ip("ip", "-n", far, "link", "set", "cable0", "down").returncode
        out, err = process.communicate(timeout=90)
        assert time.monotonic() - started < 65
    assert expected.tobytes().hex() == out.strip(), err


@pytest.mark.trust(
    37,
    figure="delay and loss on the link to the workers: the same bits",
    caught="packets that are dropped",
)
@pytest.mark.slow
def test_delay_and_loss_on_the_network_change_no_bit(
    store: Path, tmp_path: Path, networks: tuple[str, str]
) -> None:
    near, far = networks
    task, expected = sums(tmp_path / "seen", open_store(store))
    disc = ("tc", "-n", far, "qdisc", "add", "dev", "cable0", "root")
    # A kernel without netem: a narrow link delays, and a cable that is out for moments loses.
    narrow = ("tbf", "rate", "4mbit", "burst", "16kb", "latency", "20ms")
    emulated = not ip(*disc, "netem", "delay", "100ms", "loss", "2%").returncode
    if not emulated and ip(*disc, *narrow).returncode:
        pytest.skip("no tc here")
    with cluster(tmp_path / "cluster", workers=0, host="10.213.77.1", within=near) as made:
        for _ in range(2):
            made.add("--host", "10.213.77.2", within=far)
        for _ in range(rounds(1, 5)):
            process = start_pass(near, store, task.folder, made.address)
            while process.poll() is None:
                time.sleep(1.0)
                if not emulated:
                    ip("ip", "-n", far, "link", "set", "cable0", "down")
                    time.sleep(0.15)
                    ip("ip", "-n", far, "link", "set", "cable0", "up")
            out, err = process.communicate()
            assert expected.tobytes().hex() == out.strip(), err
    sent = ip("tc", "-n", far, "-s", "qdisc", "show", "dev", "cable0").stdout
    assert int(sent.split("dropped ")[1].split(",")[0]) > 0 or not emulated, sent
