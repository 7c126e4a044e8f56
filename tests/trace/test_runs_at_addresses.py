"""A run at an address: what its commits promise to readers, resumers and other writers."""

import os
from contextlib import suppress

import fault_proxy
import numpy as np
import obstore
import pytest
from checks_of_trust import rounds
from object_store import forget_connections, forget_runs

import streammc
from streammc.errors import (
    BusyError,
    ConfigError,
    MissingError,
    OutputError,
    StoreError,
    UnavailableError,
)
from streammc.stores.cloud import staged_run
from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.requests import connect
from streammc.stores.cloud.staged_run import POINTER, Version
from streammc.trace import places
from streammc.trace.run_directory import RunDirectory


@pytest.fixture
def far(bucket):
    return f"{bucket.address}/runs/one"


@pytest.fixture
def near(job, tmp_path):
    """Digest of the same job in a local folder."""
    return job.sample(tmp_path / "near").digest()


def plain(address):
    """Return the client of a bucket, and the prefix of an address in it."""
    root = store_root(address)
    return connect(root.scheme, root.bucket), root.prefix


def objects(address):
    """Return size by key of the objects below an address."""
    client, prefix = plain(address)
    return {
        each["path"].removeprefix(f"{prefix}/"): each["size"]
        for batch in obstore.list(client, prefix)
        for each in batch
    }


def through(proxy, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    forget_connections()


class Killed(BaseException):
    """End of a process that cleans up nothing."""


def stop_after(commits):
    """Return a callback that ends the job after some commits of this process."""
    left = [commits]

    def committed(run):
        places.flush(run.path)
        left[0] -= 1
        if not left[0]:
            raise Killed

    return committed


def test_run_at_an_address_has_the_digest_of_a_local_run(job, far, near):
    run = job.sample(far)
    assert near == run.digest()
    forget_runs()
    again = RunDirectory.open(far)
    assert again.path != run.path
    assert near == again.digest()
    job.check_prefix(again)
    assert far == again.place


def test_address_has_the_pointer_and_the_objects_that_it_names_alone(job, far):
    job.sample(far)
    pointer, _ = staged_run.read_pointer(store_root(far))
    assert {POINTER, *pointer.keys()} == objects(far).keys()
    assert {each.key: each.size for each in (*pointer.state, *pointer.others)} == {
        key: size for key, size in objects(far).items() if key != POINTER
    }


def test_files_that_a_fresh_machine_fetches_are_those_of_the_writer(job, far):
    run = job.sample(far)
    forget_runs()
    again = RunDirectory.open(far)
    lock = {os.path.join("checkpoint", "lock")}
    of_writer, fetched = (
        {
            path.relative_to(each.path).as_posix(): path.read_bytes()
            for path in each.path.rglob("*")
            if path.is_file()
        }
        for each in (run, again)
    )
    assert fetched == {name: data for name, data in of_writer.items() if name not in lock}


def test_each_commit_can_be_continued_on_another_machine(job, far, near):
    sessions = 0
    while True:
        sessions += 1
        with suppress(Killed):
            job.sample(far, committed=stop_after(1))
            break
        forget_runs()
        job.check_prefix(RunDirectory.open(far))
    assert sessions == 7  # six intervals, and a session that finds them all
    assert near == RunDirectory.open(far).digest()
    forget_runs()
    job.sample(far, draws=47)
    job.check_prefix(RunDirectory.open(far))


def test_commit_without_its_pointer_is_seen_by_nobody(job, far, near, monkeypatch):
    put, count = staged_run.put_pointer, [0]

    def dies(*arguments):
        count[0] += 1
        if count[0] == 4:
            raise Killed
        return put(*arguments)

    monkeypatch.setattr(staged_run, "put_pointer", dies)
    with (
        pytest.raises(Killed),
        RunDirectory.hold(far, identity=job.IDENTITY, **job.plan()) as writer,
    ):
        places.flush(writer.path)  # or the copy of the new run takes the first commit along
        while True:
            job.step(writer)
            places.flush(writer.path)
    assert writer.generation == 3
    monkeypatch.setattr(staged_run, "put_pointer", put)
    forget_runs()
    reader = RunDirectory.open(far)
    assert reader.generation == 2
    job.check_prefix(reader)
    left = objects(far).keys() - {POINTER} - staged_run.read_pointer(store_root(far))[0].keys()
    assert left  # of the commit whose pointer is missing
    assert near == job.sample(far).digest()
    assert not left & objects(far).keys()  # the next writer deletes them


@pytest.mark.trust(29)
def test_of_two_writers_of_one_run_the_second_to_commit_is_busy(job, far, near, record_property):
    races = rounds(3, 100)
    for number in range(races):
        place = f"{far}-{number}"
        job.create(place)
        forget_runs()
        with pytest.raises(BusyError, match="another commit") as caught:  # noqa: SIM117
            with RunDirectory.hold(place, identity=job.IDENTITY, **job.plan()) as second:
                forget_runs()
                first = job.sample(place)
                job.step(second)
                places.flush(second.path)
        assert 75 == caught.value.exit_code
        assert place in str(caught.value)
        pointer, _ = staged_run.read_pointer(store_root(place))
        assert {POINTER, *pointer.keys()} == objects(place).keys()
        forget_runs()
        assert near == first.digest() == RunDirectory.open(place).digest()
    record_property("figure", f"of two writers of a run at an address, {races} of {races} lost")


@pytest.mark.trust(29)
def test_writers_without_a_condition_lose_commits_that_were_durable(
    job, far, monkeypatch, record_property
):
    monkeypatch.setattr(Version, "condition", lambda self: "overwrite")
    job.create(far)
    forget_runs()
    with RunDirectory.hold(far, identity=job.IDENTITY, **job.plan()) as second:
        forget_runs()
        first = job.sample(far)
        job.step(second)
        places.flush(second.path)
    forget_runs()
    assert RunDirectory.open(far).generation < first.durable_generation
    record_property("caught", "a pointer that is put without a condition")


def test_writer_that_lost_starts_again_from_the_commit_of_the_other(job, far, near):
    job.create(far)
    forget_runs()
    with suppress(BusyError), RunDirectory.hold(far, identity=job.IDENTITY, **job.plan()) as second:
        mine = dict(places._places)
        forget_runs()
        job.sample(far)
        job.step(second)
    places._places.update(mine)
    assert near == job.sample(far).digest()


def lost_pointer():
    """Lose the answer to every first try to put a pointer."""
    tries = {"n": 0}

    def choose(method, path):
        if method != "PUT" or not path.endswith(POINTER):
            return None
        tries["n"] += 1
        return "lost" if tries["n"] % 2 else None

    return choose


@pytest.mark.trust(28)
def test_lost_answer_to_the_put_of_a_pointer_is_recognised(job, bucket, far, near, monkeypatch):
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lost_pointer()) as proxy:
        through(proxy, monkeypatch)
        done = job.sample(far, committed=lambda run: places.flush(run.path))
        assert near == done.digest()
        assert proxy.faults["lost"] >= 7  # the setup, and six intervals
        forget_runs()
        assert near == RunDirectory.open(far).digest()


@pytest.mark.trust(28)
def test_writer_that_does_not_read_back_takes_its_own_pointer_for_anothers(
    job, bucket, far, monkeypatch
):
    read = staged_run._read
    other = Version('"of another writer"', None)
    monkeypatch.setattr(staged_run, "_read", lambda folder: read(folder) and (b"", other))
    monkeypatch.setattr(staged_run, "read_pointer", lambda folder: None)
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lost_pointer()) as proxy:
        through(proxy, monkeypatch)
        with pytest.raises(BusyError):
            job.sample(far)


@pytest.mark.trust(28)
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_faults_change_no_byte_of_a_run_at_an_address(
    rate, job, bucket, far, near, monkeypatch, record_property
):
    host, faults, runs = bucket.endpoint.removeprefix("http://"), 0, rounds(3, 50)
    for seed in range(5, 5 + runs):  # of which the first ones meet faults early
        choose = fault_proxy.at_rate(rate, seed, *fault_proxy.FAULTS, "lost")
        with fault_proxy.FaultProxy(host, choose) as proxy:
            through(proxy, monkeypatch)
            for commits in (2, 99):  # stopped after two commits, resumed on another machine
                forget_runs()
                with suppress(Killed):
                    job.sample(f"{far}-{seed}", committed=stop_after(commits))
            forget_runs()
            assert near == RunDirectory.open(f"{far}-{seed}").digest()
        faults += sum(proxy.faults.values())
    assert faults >= (2 if rate < 0.1 else 10)
    record_property("figure", f"{runs} runs at an address, {faults} faults: the same digest")


def named(far, kind):
    pointer, _ = staged_run.read_pointer(store_root(far))
    return [each.key for each in getattr(pointer, kind)]


@pytest.mark.parametrize("kind", ["state", "others"])
@pytest.mark.parametrize("fault", ["missing", "flipped", "shorter", "swapped"])
def test_object_that_is_not_the_one_of_the_pointer_is_refused(kind, fault, job, far):
    job.sample(far)
    client, prefix = plain(far)
    key = f"{prefix}/{named(far, kind)[0]}"
    content = bytearray(obstore.get(client, key).bytes())
    if fault == "missing":
        obstore.delete(client, key)
    else:
        content[len(content) // 2] ^= 1
        other = bytes(obstore.get(client, f"{prefix}/{named(far, 'others')[-1]}").bytes())
        changed = {"flipped": bytes(content), "shorter": bytes(content[:-1]), "swapped": other}
        obstore.put(client, key, changed[fault])
    forget_runs()
    for use in (RunDirectory.open, streammc.open_run, job.sample):
        with pytest.raises(StoreError, match="expected the object 'objects/") as caught:
            use(far)
        assert far in str(caught.value)


def test_damaged_pointer_is_refused_by_name(job, far):
    job.sample(far)
    client, prefix = plain(far)
    content = bytearray(obstore.get(client, f"{prefix}/{POINTER}").bytes())
    content[-20] ^= 1
    obstore.put(client, f"{prefix}/{POINTER}", bytes(content))
    forget_runs()
    with pytest.raises(StoreError, match=r"run\.json as it was written, found another checksum"):
        RunDirectory.open(far)


def test_reader_that_meets_a_commit_reads_the_pointer_again(job, far, near, monkeypatch):
    with suppress(Killed):
        job.sample(far, committed=stop_after(2))
    stale = staged_run.read_pointer(store_root(far))
    job.sample(far)  # the objects of the earlier state are deleted
    answers, read = [stale], staged_run.read_pointer
    monkeypatch.setattr(
        staged_run, "read_pointer", lambda folder: answers.pop() if answers else read(folder)
    )
    forget_runs()
    assert near == RunDirectory.open(far).digest()
    assert not answers


def test_open_tree_keeps_its_draws_while_the_run_goes_on(job, far):
    with suppress(Killed):
        job.sample(far, committed=stop_after(4))
    forget_runs()
    tree = streammc.open_run(far)
    mine = dict(places._places)
    forget_runs()
    job.sample(far)
    places._places.update(mine)
    later = streammc.open_run(far)
    n = tree.posterior.sizes["draw"]
    assert (20, 35) == (n, later.posterior.sizes["draw"])
    np.testing.assert_array_equal(job.theta("draws", 0, n)[:, :, 2], tree.posterior.log_sigma)
    assert far == tree.encoding["source"]


def test_store_that_fails_for_good_ends_the_run_and_keeps_what_is_durable(
    job, bucket, far, near, monkeypatch
):
    monkeypatch.setenv("STREAMMC_CLOUD_SECONDS", "0.3")
    failing = [False]
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lambda *_: "status" if failing[0] else None) as proxy:
        through(proxy, monkeypatch)

        def committed(run):
            places.flush(run.path)
            failing[0] = run.generation == 3

        with pytest.raises(UnavailableError):
            job.sample(far, committed=committed)
        failing[0] = False
        forget_runs()
        assert RunDirectory.open(far).generation == 3
        assert near == job.sample(far).digest()


def test_generation_counts_as_durable_once_its_pointer_is_put(job, far, monkeypatch):
    put, allowed = staged_run.put_pointer, []

    def slow(*arguments):
        while not allowed:
            os.sched_yield()
        return put(*arguments)

    with RunDirectory.hold(far, identity=job.IDENTITY, **job.plan()) as run:
        places.flush(run.path)
        monkeypatch.setattr(staged_run, "put_pointer", slow)
        job.step(run)
        job.step(run)
        assert (2, 0) == (run.generation, run.durable_generation)
        allowed.append(True)
        places.flush(run.path)
        assert run.durable_generation == 2


def test_service_that_ignores_conditions_is_refused(job, bucket, far, monkeypatch):
    host = bucket.endpoint.removeprefix("http://")
    with fault_proxy.FaultProxy(host, lambda *_: "unconditional") as proxy:
        through(proxy, monkeypatch)
        folder = places.run_folder(far)
        with pytest.raises(UnavailableError, match="conditional puts"):
            places.require_writable(folder)
        assert {} == objects(far)


def test_address_of_something_else_is_refused(bucket, job):
    with pytest.raises(OutputError, match="other objects"):
        places.require_writable(places.run_folder(bucket.address))
    with pytest.raises(MissingError, match=f"a run at {bucket.address}/none"):
        RunDirectory.open(f"{bucket.address}/none")
    with pytest.raises(MissingError, match="bucket"):
        RunDirectory.open("s3://no-such-bucket-here/run")


def test_overwrite_is_refused_at_an_address(far, job):
    job.sample(far)
    with pytest.raises(ConfigError, match="--overwrite"):
        places.require_writable(places.run_folder(far), overwrite=True)


def test_run_that_is_discarded_stays_until_the_next_commit_replaces_it(job, far, near):
    job.sample(far)
    with RunDirectory.open(far).lock() as run:
        run.discard()
    forget_runs()
    assert near == RunDirectory.open(far).digest()
    with RunDirectory.open(far).lock() as run:
        run.discard()
    before = objects(far).keys() - {POINTER}
    assert near == job.sample(far).digest()
    assert not before & objects(far).keys()
    forget_runs()
    assert near == RunDirectory.open(far).digest()


def test_address_of_a_file_is_a_path(job, tmp_path, near):
    assert near == job.sample(f"file://{tmp_path}/run").digest()
    assert (tmp_path / "run" / "zarr.json").exists()


def test_run_that_was_opened_before_a_newer_fetch_is_not_written(job, far, near):
    job.create(far)
    earlier = RunDirectory.open(far)
    mine = dict(places._places)
    forget_runs()
    job.sample(far)  # on another machine
    places._places.update(mine)
    assert near == RunDirectory.open(far).digest()
    with pytest.raises(BusyError, match="open the run again"), earlier.lock():
        pass
    forget_runs()
    assert near == RunDirectory.open(far).digest()
