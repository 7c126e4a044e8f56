"""Check 16: twelve bugs, each planted in a copy of the package, are caught by a check from 1 to 13.

A bug is a change of one place of the source. Each is tried with one test that has to fail; the same
tests have to pass on a copy without a bug. A copy loads the compiled code of the package, and keeps
what it compiles itself in a cache of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks_of_trust import marked
from quick import quick

from streammc.numerics.compile_cache import cache_dir

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("streammc", "stores", "cli", "tests", "pyproject.toml")
Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Bug:
    """One place of the source and what is written there instead, and the test that must fail."""

    file: str
    right: str
    wrong: str
    test: str
    case: str = ""
    """Parameters of the test, as pytest writes them."""


INVARIANT = "trust/test_invariant_targets.py"
EVERY_SAMPLER = f"{INVARIANT}::test_every_sampler_of_the_posterior_leaves_it_invariant"
CLOSED_FORM = "trust/test_conjugate_models.py::test_draws_are_those_of_the_closed_form"
EVERY_ROW = "stores/full_pass/test_full_pass.py::test_every_row_is_seen_once"
HAMILTONIAN = "streammc/samplers/hamiltonian"
BUGS = {
    "accept rule flipped": Bug(
        "streammc/samplers/metropolis/mh.py",
        "return ACCEPT if accepts(",
        "return REJECT if accepts(",
        EVERY_SAMPLER,
        "mh",
    ),
    "no Jacobian": Bug(
        "streammc/priors/densities.py",
        "        location=-log_rate,\n        scale=1.0 / rate,\n        shape=shape,",
        "        location=-log_rate,\n        scale=1.0 / rate,\n        shape=shape - 1.0,",
        CLOSED_FORM,
        "gamma_poisson",
    ),
    "prior dropped": Bug(
        f"{HAMILTONIAN}/problem.py",
        "        model.prior_table(cv.labels),\n        model.constants,\n        model.n_linear,\n"
        "        _NOT_EXPANDED,",
        "        0.0 * model.prior_table(cv.labels),\n        model.constants,\n"
        "        model.n_linear,\n        _NOT_EXPANDED,",
        CLOSED_FORM,
        "gamma_poisson",
    ),
    "likelihood^1.02": Bug(
        f"{HAMILTONIAN}/kernel.py",
        "        self.problem = problem\n",
        "        self.problem = problem\n        problem.certain.weight[:] *= 1.02\n",
        EVERY_SAMPLER,
        "hmc",
    ),
    "no Hastings term": Bug(
        "streammc/samplers/metropolis/proposal.py",
        "values[RATIO] = langevin_ratio(",
        "values[RATIO] = 0.0 * langevin_ratio(",
        EVERY_SAMPLER,
        "mh",
    ),
    "current likelihood refreshed": Bug(
        f"{HAMILTONIAN}/transition.py",
        "    if math.log(rng.random()) < log_ratio:  # a NaN ratio is a rejection",
        "    if math.log(rng.random()) < log_ratio + 1e9:",
        "samplers/test_own_target.py::test_draws_match_the_perturbed_target",
        "order 1",
    ),
    "rejected draws not recorded": Bug(
        "streammc/samplers/common/chain.py",
        '        out: dict[str, NDArray[Any]] = {"theta": theta}\n',
        "        moved = np.append(True, np.diff(theta[:, 0]) != 0.0)\n"
        "        theta = theta[moved][np.arange(n) * int(moved.sum()) // n]\n"
        '        out: dict[str, NDArray[Any]] = {"theta": theta}\n',
        EVERY_SAMPLER,
        "mh",
    ),
    "adaptation never frozen": Bug(
        f"{HAMILTONIAN}/kernel.py",
        "adapt = (2 if problem.step_size is None else 1) if warmup else 0",
        "adapt = 2 if problem.step_size is None else 1",
        f"{INVARIANT}::test_step_sizes_are_frozen_after_warmup",
        "hmc",
    ),
    "last partial chunk dropped": Bug(
        "stores/full_pass/row_blocks.py",
        "                y = response[:m]\n",
        "                if m < self.chunk_rows:\n                    continue\n"
        "                y = response[:m]\n",
        EVERY_ROW,
    ),
    "chunk counted twice": Bug(
        "stores/full_pass/block_tasks.py",
        "    pieces = block.pieces()\n",
        "    pieces = block.pieces()\n    if block.index == 1:\n"
        "        pieces = iter([*pieces, *block.pieces()])\n",
        EVERY_ROW,
    ),
    "chains share a seed": Bug(
        "streammc/rng.py",
        "spawn_key=(chain, int(role), *part)",
        "spawn_key=(0, int(role), *part)",
        "trust/test_streams.py::test_streams_of_chains_and_roles_share_no_number",
    ),
    "sign ignored": Bug(
        "streammc/diagnostics/signed.py",
        "    mean_sign = float(sign.mean())\n",
        "    sign = np.abs(sign)\n    mean_sign = float(sign.mean())\n",
        "samplers/hamiltonian/test_signed.py::test_summary_of_the_draws_covers_the_posterior",
        "fixed bound",
    ),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its tests, and a cache of compiled code that begins as ours."""
    folder = tmp_path_factory.mktemp("copied")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, folder / name)
    cache = folder / "cache" / "streammc" / Path(cache_dir()).name
    cache.mkdir(parents=True, mode=0o700)
    for known in Path(cache_dir()).iterdir():
        (cache / known.name).symlink_to(known)
    return folder


def failed(folder: Path, *tests: str) -> list[str]:
    """Run tests on a copy of the package; return those that failed, not those with an error."""
    env = os.environ | {"STREAMMC_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("STREAMMC_TRUST", None)
    program = "import streammc, sys, pytest; assert streammc.__file__.startswith(sys.argv[1]); "
    program += "sys.exit(pytest.main(sys.argv[2:]))"
    words = ["-q", "-rf", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), *words],
        cwd=folder, env=env, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "error" not in done.stdout.splitlines()[-1], done.stdout
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")]


def killer(bug: Bug) -> str:
    return f"{bug.test}[{bug.case}]" if bug.case else bug.test


def test_every_bug_has_a_test_of_a_check_up_to_13() -> None:
    tests = {test for number in range(1, 14) for test in marked()[number]}
    assert {bug.test for bug in BUGS.values()} <= tests
    assert 12 == len(BUGS)


@pytest.mark.trust(16)
@pytest.mark.parametrize(
    "name", quick(BUGS, "last partial chunk dropped", "chains share a seed", "prior dropped")
)
def test_a_planted_bug_is_caught(name: str, copied: Path, record_property: Record) -> None:
    bug = BUGS[name]
    path = copied / bug.file
    before, stamp = path.read_text(encoding="utf-8"), path.stat()
    assert 1 == before.count(bug.right)
    path.write_text(before.replace(bug.right, bug.wrong), encoding="utf-8")
    try:
        found = failed(copied, killer(bug))
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert found
    record_property("caught", name)


@pytest.mark.trust(16)
@pytest.mark.slow
def test_the_same_tests_pass_without_a_bug(copied: Path, record_property: Record) -> None:
    tests = sorted({killer(bug) for bug in BUGS.values()})
    assert [] == failed(copied, *tests)
    record_property("figure", f"{len(BUGS)} bugs planted; none found in the package itself")
