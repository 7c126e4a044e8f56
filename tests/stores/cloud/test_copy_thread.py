"""The thread that copies commits: order, merging, limits and errors."""

from __future__ import annotations

import threading

import pytest

from streammc.errors import UnavailableError
from streammc.stores.cloud import staged_run
from streammc.stores.cloud.staged_run import CopyThread
from streammc.trace.places import Changes


def change(generation: int, **others: bytes) -> Changes:
    return Changes(generation, {"zarr.json": str(generation).encode()}, others)


class Slow:
    """A copy that waits until it is let go."""

    def __init__(self) -> None:
        self.copied: list[Changes] = []
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, changed: Changes) -> None:
        self.began.release()
        assert self.go.acquire(timeout=10)
        self.copied.append(changed)


def test_commits_that_wait_are_copied_as_one_with_all_their_files() -> None:
    slow = Slow()
    thread = CopyThread(slow)
    thread.send(change(1, a=b"1"))
    assert slow.began.acquire(timeout=10)
    for generation, others in ((2, {"b": b"2"}), (3, {"b": b"3", "c": b"3"})):
        thread.send(change(generation, **others))
    slow.go.release(2)
    thread.end()
    assert [change(1, a=b"1"), change(3, b=b"3", c=b"3")] == slow.copied


def test_sender_waits_while_too_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_run, "MOST_BYTES", 10)
    slow, sent = Slow(), threading.Event()
    thread = CopyThread(slow)
    thread.send(change(1))
    assert slow.began.acquire(timeout=10)
    thread.send(change(2, a=b"twelve bytes"))

    def third() -> None:
        thread.send(change(3))
        sent.set()

    sender = threading.Thread(target=third)
    sender.start()
    assert not sent.wait(0.2)
    slow.go.release()
    assert sent.wait(10)
    slow.go.release(2)
    sender.join()
    thread.end()
    assert [1, 2, 3] == [each.generation for each in slow.copied]


def test_error_of_a_copy_is_raised_at_the_next_call_and_nothing_more_is_copied() -> None:
    calls: list[int] = []

    def fails(changed: Changes) -> None:
        calls.append(changed.generation)
        raise UnavailableError("no answer")

    thread = CopyThread(fails)
    thread.send(change(1))
    for call in (thread.flush, lambda: thread.send(change(2)), thread.end):
        with pytest.raises(UnavailableError, match="no answer"):
            call()
    assert [1] == calls
