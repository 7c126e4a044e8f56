"""Random histories of operations on one folder, against a model that is a few tuples.

A program of its own, because it forks: ``python histories.py EXAMPLES STEPS [forget]`` runs a
state machine of hypothesis with ingest, append, summarize, sample, crash, reopen, gc, verify and
copy. With ``forget``, a crash loses a run, as a program without order would: the machine must find
it.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streammc.control_variates import compute
from streammc.control_variates.expansion import ControlVariates
from streammc.errors import IdentityError, MissingError
from streammc.models import logistic
from streammc.runs.job import run_job
from streammc.samplers import hmc
from streammc.samplers.common.sampler import RunRequest
from streammc.stores import open_store
from streammc.stores.ingest.append import append
from streammc.stores.ingest.ingestion import ingest
from streammc.stores.store import verify
from streammc.trace.collection import collect
from streammc.trace.run_directory import RunDirectory

CALLS = ("write", "fsync", "rename", "replace", "mkdir", "link", "unlink", "rmdir", "symlink")
FORGET = "forget" in sys.argv
TABLES = Path(tempfile.mkdtemp(prefix="histories-"))
SEEN: dict[object, object] = {}
"""What each history gave when it happened first: it must give the same again."""
DONE: Counter[str] = Counter()


@cache
def table(seed: int) -> str:
    """Write a small table; return its path."""
    rng = np.random.default_rng(seed)
    path = TABLES / f"{seed}.csv"
    rows = np.c_[rng.integers(0, 2, 60), rng.normal(size=60)]
    np.savetxt(path, rows, delimiter=",", header="y,x", comments="", fmt="%.4g")
    return str(path)


def same(key: object, value: object) -> None:
    """Require that a history gives what it gave before."""
    assert SEEN.setdefault(key, value) == value, key


def die_at(number: int) -> None:
    """Make the ``number``-th call that changes the disk the last; a write is torn in two."""
    count = itertools.count(1)

    def counted(name, call):
        def wrapper(*arguments, **options):
            if next(count) == number:
                if name == "write":
                    call(arguments[0], bytes(arguments[1])[: len(bytes(arguments[1])) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


class Histories(RuleBasedStateMachine):
    """A folder, and what should be in it."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-"))
        self.rows = ()
        """Seeds of the tables in the store, in their order."""
        self.summed = None
        """Rows of the control variates."""
        self.run = None
        """Rows and draws of the run."""

    def teardown(self):
        """Look at everything once more."""
        self.look()
        shutil.rmtree(self.folder)

    store = property(lambda self: self.folder / "store")
    cv = property(lambda self: self.folder / "cv")
    path = property(lambda self: self.folder / "run")

    def do_ingest(self, seed):
        ingest(table(seed), self.store, response="y", seed=1)

    def do_append(self, seed):
        append(table(seed), self.store, seed=1)

    def do_summarize(self, _):
        compute(open_store(self.store), logistic(), scheduler="sync").save(self.cv)

    def do_sample(self, draws):
        options = {"sampler": hmc(), "chains": 1, "warmup": 20, "seed": 1, "audit": False}
        request = RunRequest(
            open_store(self.store), logistic(), path=self.path, draws=draws, **options
        )
        run_job(request)

    @initialize(seed=st.integers(0, 2))
    def ingest(self, seed):
        """Make the store."""
        self.do_ingest(seed)
        self.rows = (seed,)
        DONE["ingest"] += 1

    @precondition(lambda self: self.rows)
    @rule(seed=st.integers(3, 5))
    def append(self, seed):
        """Add rows; files that are there already are left."""
        self.do_append(seed)
        if seed not in self.rows:
            self.rows += (seed,)
        DONE["append"] += 1

    @precondition(lambda self: self.rows)
    @rule()
    def summarize(self):
        """Make control variates."""
        self.do_summarize(None)
        self.summed = self.rows
        DONE["summarize"] += 1

    @precondition(lambda self: self.rows)
    @rule(more=st.integers(1, 60))
    def sample(self, more):
        """Draw, or go on; a run of other rows is refused and left."""
        DONE["sample"] += 1
        if self.run is not None and self.run[0] != self.rows:
            before = RunDirectory.open(self.path).digest()
            try:
                self.do_sample(self.run[1] + more)
            except IdentityError:
                assert before == RunDirectory.open(self.path).digest()
                return
            raise AssertionError("a run of other rows went on")
        draws = more + (self.run[1] if self.run else 0)
        self.do_sample(draws)
        self.run = self.rows, draws

    @precondition(lambda self: self.rows)
    @rule(
        what=st.sampled_from(["append", "summarize", "sample"]),
        seed=st.integers(3, 5),
        number=st.integers(1, 150),
    )
    def crash(self, what, seed, number):
        """Kill an operation at a call; it has happened as a whole, or in whole intervals."""
        DONE["crash"] += 1
        if what == "sample" and self.run is not None and self.run[0] != self.rows:
            return
        draws = (self.run[1] if self.run else 0) + 60
        argument = {"append": seed, "summarize": None, "sample": draws}[what]
        child = os.fork()
        if child == 0:
            die_at(number)
            getattr(self, f"do_{what}")(argument)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
        whole = status == 0
        if what == "append" and seed not in self.rows:
            if len(open_store(self.store).attributes.get("generations", [0])) > len(self.rows):
                self.rows += (seed,)
            else:
                assert not whole
        elif what == "summarize":
            same_as_before = self.summed == self.rows
            if whole or (not same_as_before and self.now_summed() == self.rows):
                self.summed = self.rows
        elif what == "sample":
            self.after_sampling(draws, whole)

    def now_summed(self):
        """Return the rows of the control variates on disk, if there are any."""
        try:
            digest = ControlVariates.open(self.cv).fingerprint
        except MissingError:
            return None
        return self.rows if open_store(self.store).fingerprint in digest else self.summed

    def after_sampling(self, draws, whole):
        """Set the draws of the run to those on disk: as many as before, or more."""
        if not RunDirectory.exists(self.path):
            assert not whole
            assert self.run is None
            return
        if FORGET and not whole and self.run:
            shutil.rmtree(self.path)
            return
        there = RunDirectory.open(self.path).committed_draws
        assert there >= (self.run[1] if self.run else 0)
        assert there == draws or not whole
        self.run = self.rows, there

    @rule()
    def reopen(self):
        """Open everything, and compare it with the model."""
        DONE["reopen"] += 1
        self.look()

    def look(self):
        """Compare what is on disk with the model."""
        if self.rows:
            store = open_store(self.store)
            assert store.n_rows == 60 * len(self.rows)
            same(("store", self.rows), store.fingerprint)
        if self.summed:
            same(("cv", self.summed), ControlVariates.open(self.cv).digest())
        if self.run:
            run = RunDirectory.open(self.path)
            assert run.committed_draws == self.run[1]
            draws = run.draws_matrix("draws")[0]
            key = ("draws", self.run[0])
            known = SEEN.get(key, draws[:0])
            shared = min(len(known), len(draws))
            assert np.array_equal(known[:shared], draws[:shared]), key
            SEEN[key] = max(known, draws, key=len)

    @rule()
    def gc(self):
        """Remove debris; then there is none, and results are as they were."""
        DONE["gc"] += 1
        found = collect(self.folder, dry_run=False)
        assert [] == found["kept"]
        left = {path.name for path in self.folder.iterdir()}
        # A folder whose writer was killed before it could mark it is empty, and nobody's.
        empty = {name for name in left if not any((self.folder / name).iterdir())}
        assert left - empty <= {"store", "cv", "run"}, left
        self.look()

    @rule()
    def verify(self):
        """Check every byte."""
        DONE["verify"] += 1
        if self.rows:
            assert verify(self.store)["ok"]
        self.look()

    @rule()
    def copy(self):
        """Go on in a copy of the folder."""
        DONE["copy"] += 1
        other = Path(tempfile.mkdtemp(prefix="history-"))
        shutil.copytree(self.folder, other, dirs_exist_ok=True)
        shutil.rmtree(self.folder)
        self.folder = other


def main(examples: int, steps: int) -> None:
    warnings.simplefilter("ignore")
    for seed in range(6):
        table(seed)  # here, not in a child: a store knows the time of its files
    os.fsync = lambda descriptor: None  # a killed process loses nothing: only a power cut would
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        # A fault that is planted needs no smallest history.
        phases=[Phase.generate] if FORGET else list(Phase),
        report_multiple_bugs=not FORGET,
    )
    try:
        run_state_machine_as_test(Histories, settings=options)
    finally:
        shutil.rmtree(TABLES)
    print(json.dumps(DONE))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
