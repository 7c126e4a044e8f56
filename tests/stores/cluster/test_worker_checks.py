"""Checks of the workers before the first task, with answers as workers could give them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed.comm.core import CommClosedError

from streammc.errors import BusyError, IdentityError, OutOfMemoryError, StoreError
from streammc.stores import dask_cluster
from streammc.stores.dask_cluster import Need, describe_worker, require_workers, versions


class Client:
    """A client of workers that answer what they are told to."""

    def __init__(self, answers):
        self.answers = answers
        self.scheduler = SimpleNamespace(address="tcp://127.0.0.1:1")
        self.asked = 0

    def wait_for_workers(self, n, timeout):
        pass

    def scheduler_info(self, n_workers):
        return {"workers": dict.fromkeys(self.answers)}

    def _run(self):
        """Stand for what asks the workers: ``sync`` is given it."""

    def sync(self, run, function, *arguments, workers, on_error, callback_timeout):
        self.asked += 1
        if function is not describe_worker:
            return dict.fromkeys(workers, "there")
        return {worker: self.answers[worker] for worker in workers}


def answer(**changes):
    return {
        "versions": versions(),
        "fault": None,
        "memory": 4 << 30,
        "threads": 2,
        **changes,
    }


@pytest.mark.trust(35, caught="one package of one worker with another version")
@pytest.mark.parametrize("name", ["python", "numpy", "numba", "zarr", "streammc"])
def test_each_other_version_is_refused_with_the_worker_that_has_it(name):
    other = answer(versions=versions() | {name: "0.0"})
    client = Client({"tcp://a:1": answer(), "tcp://b:1": other})
    with pytest.raises(IdentityError, match=rf"tcp://b:1: {name} 0.0 \|") as caught:
        require_workers(client, Need())
    assert "tcp://a:1" not in str(caught.value)


def test_workers_of_an_earlier_version_do_not_answer_and_are_refused():
    client = Client({"tcp://a:1": ModuleNotFoundError("streammc.stores.cluster")})
    with pytest.raises(IdentityError, match=r"does not answer \(ModuleNotFoundError\)"):
        require_workers(client, Need())


def test_a_worker_that_dies_while_it_is_asked_is_no_other_version():
    client = Client({"tcp://a:1": answer(), "tcp://b:1": CommClosedError()})
    require_workers(client, Need())
    asked = client.asked
    require_workers(client, Need())  # it may have been a short break: it is asked again
    assert asked < client.asked


def test_a_worker_without_the_store_is_refused(tmp_path, shared_sample):
    store = str(shared_sample.path)
    assert describe_worker(Need(store, "0" * 64))["fault"].startswith("another store there")
    gone = Need(str(tmp_path / "none.zarr"), "0" * 64)
    fault = describe_worker(gone)["fault"]
    assert "no store that it can read" in fault
    with pytest.raises(StoreError, match="the same store at the same path"):
        require_workers(Client({"tcp://a:1": answer(fault=fault)}), gone)


def test_a_folder_that_is_not_shared_is_refused(tmp_path):
    need = Need(shared=str(tmp_path / "mark"))
    fault = describe_worker(need)["fault"]
    with pytest.raises(StoreError, match="on storage that worker tcp://a:1 shares"):
        require_workers(Client({"tcp://a:1": answer(fault=fault)}), need)
    (tmp_path / "mark").touch()
    assert describe_worker(need)["fault"] is None


def test_too_little_memory_is_refused_with_need_and_limit():
    client = Client({"tcp://a:1": answer(memory=1 << 30)})
    with pytest.raises(OutOfMemoryError, match=r"at least 2.1 GB .* limit of 1.1 GB"):
        require_workers(client, Need(chunk_bytes=270 << 20))
    require_workers(client, Need(chunk_bytes=50 << 20))
    require_workers(Client({"tcp://a:1": answer(memory=None)}), Need(chunk_bytes=270 << 20))


def test_workers_are_asked_once_and_new_ones_when_they_come():
    client = Client({"tcp://a:1": answer()})
    require_workers(client, Need())
    asked = client.asked
    require_workers(client, Need())
    assert asked == client.asked
    client.answers["tcp://b:1"] = answer(versions=versions() | {"numpy": "0"})
    with pytest.raises(IdentityError, match=r"tcp://b:1: numpy 0"):
        require_workers(client, Need())


def test_a_worker_that_comes_during_a_pass_compares_versions_itself():
    dask_cluster.same_versions(tuple(versions().items()))
    with pytest.raises(IdentityError, match=r"found numpy \S+ on "):
        dask_cluster.same_versions((("numpy", "0.0"),))


def test_a_worker_that_hangs_is_not_waited_for():
    client = Client({"tcp://a:1": answer()})

    def hang(*_, **__):
        raise TimeoutError

    client.sync = hang
    with pytest.raises(BusyError, match="check for workers that hang"):
        require_workers(client, Need())


@pytest.mark.trust(32)
@pytest.mark.parametrize(
    ("memory", "expected"), [(8 << 30, "check these files"), (500 << 20, "found a limit of")]
)
def test_a_task_that_kills_workers_is_named(memory, expected):
    worker = SimpleNamespace(memory_limit=memory, nthreads=1, address="tcp://a:1")
    error = SimpleNamespace(task="x-map-3", last_worker=worker, allowed_failures=3)
    found = dask_cluster._killed(error, lambda key: f"block {key[-1]}", Need(chunk_bytes=1 << 20))
    assert "block 3" in str(found)
    assert "4 workers died" in str(found)
    assert expected in str(found)
    assert found.exit_code == (70 if memory > 1 << 30 else 71)
