"""Fixtures of all tests: the optional folder of real data sets, and other users."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

LONGEST_FIRST = tuple(
    f"tests/{name}.py"
    for name in (
        "trust/test_histories",
        "trust/test_seeded_bugs",
        "examples/test_flights",
        "trust/test_cluster_faults",
        "docs/test_how_to_commands",
        "samplers/hamiltonian/test_trajectories",
        "samplers/hamiltonian/test_group_target",
        "trust/test_stopped_jobs",
        "runs/test_posteriordb",
        "samplers/test_groups",
        "samplers/test_families",
        "stores/cluster/test_clusters",
        "trust/test_left_behind",
        "samplers/metropolis/test_mh_minibatch",
        "samplers/metropolis/test_metropolis_runs",
        "docs/test_site",
        "trust/test_limits",
        "samplers/tempering/test_joint_parallel",
        "runs/test_real_data",
        "samplers/metropolis/test_metropolis",
        "samplers/test_own_target",
        "samplers/test_joint_invariance",
        "trust/test_secrets_and_sockets",
        "trust/test_broken_models",
        "cli/test_mixed_models",
        "trust/test_invariant_targets",
        "trust/test_calibration",
        "cli/jobs/test_run",
        "cli/jobs/test_job_inputs",
    )
)
"""Files of more than 15 CPU seconds: if one began last, one process would end alone with it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an end to the time that tests may take, for machines with a limit of their own."""
    parser.addoption("--until", type=float, help="skip what has not begun by then: date +%%s")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose time has passed, before its fixtures are made."""
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("NOT RUN: the machine was too slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(place)))


def pytest_collection_finish() -> None:
    """Leave the ten thousand collected tests out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of real data sets, from STREAMMC_TEST_DATA or beside the repository."""
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("STREAMMC_TEST_DATA", default)).resolve()
    if not folder.is_dir():
        pytest.skip("real data sets are not here: set STREAMMC_TEST_DATA")
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="session")
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """An identity that permissions apply to; for root, that of nobody.

    What is imported lazily must have been imported before: nobody may not read it.
    """

    @contextmanager
    def drop() -> Iterator[None]:
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        try:
            yield
        finally:
            os.seteuid(user)

    return drop


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Give a test that has passed the ``figure`` and the ``caught`` of its marks ``trust``."""
    if call.when == "call" and call.excinfo is None:
        for mark in item.iter_markers("trust"):
            item.user_properties.extend(mark.kwargs.items())
