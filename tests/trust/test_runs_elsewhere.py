"""Programs that write a run at an address and are killed, stopped, or meet another one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks_of_trust import JOB, rounds
from command_line import PROGRAM, streammc
from fault_proxy import FaultProxy
from object_store import Bucket, forget_runs

from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.staged_run import read_pointer

WORDS = (*JOB, "--sampler", "hmc-ecs", "--draws", "600", "--json")


def begin(*words: str | Path, endpoint: str) -> subprocess.Popen[str]:
    """Start a command as a program that reaches the object store at ``endpoint``."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, words)],
        env={**os.environ, "AWS_ENDPOINT_URL": endpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def digest(run: str | Path) -> str:
    forget_runs()
    found: str = streammc("verify", run, "--json").json["digest"]
    return found


@pytest.fixture(scope="module")
def expected(finished: Path) -> str:
    """Digest of the job in a local folder."""
    done = streammc("sample", finished / "store.zarr", "-o", finished / "near", *WORDS)
    assert 0 == done.code, done.err
    return digest(finished / "near")


def killer(number: int, forwarded: bool) -> tuple[Callable[[str, str], str | None], list[Any]]:
    """Return a choice of faults that kills a program at its request ``number``, and its place.

    ``forwarded``: whether the object store still gets the request.
    """
    state: list[Any] = [None, 0]

    def choose(method: str, path: str) -> str | None:
        state[1] += 1
        if state[1] < number:
            return None
        if state[1] == number:
            state[0].kill()
        return "lost" if forwarded else "reset"

    return choose, state


@pytest.mark.slow
@pytest.mark.trust(28)
def test_program_killed_at_any_request_is_resumed_on_another_machine(
    finished: Path, expected: str, bucket: Bucket, record_property: Callable[[str, object], None]
) -> None:
    host, store = bucket.endpoint.removeprefix("http://"), finished / "store.zarr"
    generator, kills, committed = random.Random(11), rounds(2, 20), 0
    with FaultProxy(host, lambda *_: None) as proxy:  # how many requests a whole run makes
        whole = begin("sample", store, "-o", f"{bucket.address}/whole", *WORDS, endpoint=proxy.url)
        text = whole.communicate(timeout=120)
        assert 0 == whole.returncode, text
        requests = len(proxy.requests)
    for kill in range(kills):
        far = f"{bucket.address}/run-{kill}"
        choose, state = killer(generator.randint(2, requests - 2), generator.random() < 0.5)
        with FaultProxy(host, choose) as proxy:
            state[0] = begin("sample", store, "-o", far, *WORDS, endpoint=proxy.url)
            state[0].communicate(timeout=120)
        assert -signal.SIGKILL == state[0].returncode
        left = read_pointer(store_root(far))
        committed += left is not None and left[0].generation > 0
        forget_runs()
        done = streammc("sample", store, "-o", far, *WORDS)
        assert 0 == done.code, done.err
        assert expected == digest(far)
    assert committed
    record_property(
        "figure", f"{kills} of {kills} killed runs at an address resumed with the same digest"
    )


@pytest.mark.trust(29)
@pytest.mark.slow
def test_of_two_programs_that_write_one_run_one_is_busy_and_the_draws_are_whole(
    finished: Path, expected: str, bucket: Bucket
) -> None:
    store = finished / "store.zarr"
    for race in range(rounds(1, 10)):
        far = f"{bucket.address}/race-{race}"
        both = [
            begin("sample", store, "-o", far, *WORDS, endpoint=bucket.endpoint) for _ in range(2)
        ]
        texts = [each.communicate(timeout=120) for each in both]
        codes = sorted(each.returncode for each in both)
        # One may have been over before the other began: then there was nothing to do.
        assert codes in ([0, 75], [0, 0]), texts
        if codes == [0, 75]:
            loser = next(text for text, each in zip(texts, both, strict=True) if each.returncode)
            assert far in loser[1]
            assert 75 == json.loads(loser[0])["error"]["exit_code"]
        assert expected == digest(far)


@pytest.mark.slow
def test_sigterm_ends_a_program_within_ten_seconds_with_its_last_commit_durable(
    finished: Path, bucket: Bucket, tmp_path: Path
) -> None:
    store, far, beats = finished / "store.zarr", f"{bucket.address}/run", tmp_path / "beats.json"
    words = (*JOB, "--sampler", "hmc-ecs", "--draws", "200000", "--json")
    told, sent = 0, 0.0
    host, beating = bucket.endpoint.removeprefix("http://"), (*words, "--heartbeat", beats)

    def choose(method: str, path: str) -> str | None:
        """Send the signal during the first request after draws were told of: most are to come."""
        nonlocal told, sent
        if not told and beats.exists():
            told = json.loads(beats.read_text()).get("draws") or 0
            if told:
                program.send_signal(signal.SIGTERM)
                sent = time.monotonic()
        return None

    with FaultProxy(host, choose) as proxy:
        program = begin("sample", store, "-o", far, *beating, endpoint=proxy.url)
        text = program.communicate(timeout=60)
    assert 143 == program.returncode, text
    assert time.monotonic() - sent < 10.0
    forget_runs()
    left = streammc("info", far, "--json").json
    assert told <= left["draws"] < 200_000
    near = tmp_path / "near"
    for run in (far, near):
        done = streammc("sample", store, "-o", run, *words)
        assert 0 == done.code, done.err
    assert digest(near) == digest(far)


@pytest.mark.slow
def test_heartbeat_tells_of_no_draw_that_the_address_has_not(
    finished: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """The object store takes two seconds for a pointer: the heartbeat waits for it."""
    store, far, beats = finished / "store.zarr", f"{bucket.address}/run", tmp_path / "beats.json"
    host, stop, ahead = bucket.endpoint.removeprefix("http://"), threading.Event(), []

    def watch() -> None:
        while not stop.wait(0.05):
            if beats.exists():
                told = json.loads(beats.read_text()).get("draws") or 0
                found = read_pointer(store_root(far))
                # 60 iterations of warm-up are two intervals; an interval is 75 draws.
                durable = 0 if found is None else max(found[0].generation - 1, 0) * 75
                ahead.append((told, durable))

    def choose(method: str, path: str) -> str | None:
        return "stall" if method == "PUT" and path.endswith("run.json") else None

    thread = threading.Thread(target=watch)
    with FaultProxy(host, choose, stall_seconds=1.0) as proxy:
        thread.start()
        words = (*WORDS, "--heartbeat", beats)
        program = begin("sample", store, "-o", far, *words, endpoint=proxy.url)
        text = program.communicate(timeout=120)
        stop.set()
        thread.join()
    assert 0 == program.returncode, text
    assert any(told for told, _ in ahead)
    assert all(told <= durable for told, durable in ahead), ahead
