from __future__ import annotations

import threading
import time

import pytest

from streammc.stores.in_threads import in_threads


def test_every_item_is_done_once() -> None:
    done: list[int] = []
    in_threads(lambda item: item * item, range(50), 3, done.append)
    assert [item * item for item in range(50)] == sorted(done)


def test_items_are_taken_a_few_ahead_of_the_work() -> None:
    gate = threading.Event()
    taken: list[int] = []

    def items() -> object:
        for item in range(100):
            taken.append(item)
            yield item

    def work(item: int) -> int:
        gate.wait(10.0)
        return item

    runner = threading.Thread(target=in_threads, args=(work, items(), 2, lambda _: None))
    runner.start()
    time.sleep(0.2)
    ahead = len(taken)
    gate.set()
    runner.join()
    assert 2 <= ahead <= 6
    assert 100 == len(taken)


@pytest.mark.parametrize("where", ["function", "finished"])
def test_workers_stop_after_an_error(where: str) -> None:
    ended: list[int] = []

    def work(item: int) -> int:
        if where == "function" and item == 5:
            raise KeyError
        time.sleep(0.01)
        ended.append(item)
        return item

    def finished(item: int) -> None:
        if where == "finished":
            raise KeyError

    with pytest.raises(KeyError):
        in_threads(work, range(1000), 4, finished)
    count = len(ended)
    time.sleep(0.1)
    assert count == len(ended) < 40
