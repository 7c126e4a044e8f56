"""Check 16: twelve bugs, each planted in the package, are caught by a check from 1 to 13.

A bug is a change of one place of the source, made in the memory of a process that runs one test,
which has to fail; without a bug the same tests have to pass. The process loads the compiled code of
the package, and keeps what it compiles itself in a cache of its own (``tests/planted_bug.py``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks_of_trust import marked
from quick import quick

from streammc.numerics.dispatchers import cache_dir

ROOT = Path(__file__).resolve().parents[2]
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
    compiled: bool = True
    """Whether the place is in compiled code, which is then compiled again."""


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
        "    return GAMMA, -log_rate, 1.0 / rate, shape,",
        "    return GAMMA, -log_rate, 1.0 / rate, shape - 1.0,",
        CLOSED_FORM,
        "gamma_poisson",
        compiled=False,
    ),
    "prior dropped": Bug(
        f"{HAMILTONIAN}/problem.py",
        "        prior=model.prior_table(cv.labels),\n        constants=model.constants,\n"
        "        n_linear=model.n_linear,\n        order=_NOT_EXPANDED,",
        "        prior=0.0 * model.prior_table(cv.labels),\n        constants=model.constants,\n"
        "        n_linear=model.n_linear,\n        order=_NOT_EXPANDED,",
        CLOSED_FORM,
        "gamma_poisson",
        compiled=False,
    ),
    "likelihood^1.02": Bug(
        f"{HAMILTONIAN}/kernel.py",
        "        self.problem = problem\n",
        "        self.problem = problem\n        problem.certain.weight[:] *= 1.02\n",
        EVERY_SAMPLER,
        "hmc",
        compiled=False,
    ),
    "no Hastings term": Bug(
        "streammc/samplers/metropolis/loop.py",
        "values.ratio = langevin_ratio(",
        "values.ratio = 0.0 * langevin_ratio(",
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
        "streammc/samplers/common/chains.py",
        '        out: dict[str, NDArray[Any]] = {"theta": theta}\n',
        "        moved = np.append(True, np.diff(theta[:, 0]) != 0.0)\n"
        "        theta = theta[moved][np.arange(n) * int(moved.sum()) // n]\n"
        '        out: dict[str, NDArray[Any]] = {"theta": theta}\n',
        EVERY_SAMPLER,
        "mh",
        compiled=False,
    ),
    "adaptation never frozen": Bug(
        f"{HAMILTONIAN}/kernel.py",
        "            tuned if warmup else 0,\n",
        "            tuned,\n",
        f"{INVARIANT}::test_what_warmup_tunes_is_frozen_after_it",
        "hmc",
        compiled=False,
    ),
    "last partial chunk dropped": Bug(
        "stores/rows/row_blocks.py",
        "                y = response[:m]\n",
        "                m = m if m == self.chunk_rows else 0\n                y = response[:m]\n",
        EVERY_ROW,
        compiled=False,
    ),
    "chunk counted twice": Bug(
        "stores/reduction.py",
        "    pieces = block.pieces()\n",
        "    pieces = block.pieces()\n    if block.index == 1:\n"
        "        pieces = iter([*pieces, *block.pieces()])\n",
        EVERY_ROW,
        compiled=False,
    ),
    "chains share a seed": Bug(
        "streammc/rng.py",
        "spawn_key=(chain, int(role), *part)",
        "spawn_key=(0, int(role), *part)",
        "trust/test_streams.py::test_streams_of_chains_and_roles_share_no_number",
        compiled=False,
    ),
    "sign ignored": Bug(
        "streammc/diagnostics/summary.py",
        "    mean_sign = float(sign.mean())\n",
        "    sign = np.abs(sign)\n    mean_sign = float(sign.mean())\n",
        "samplers/hamiltonian/test_signed.py::test_summary_of_the_draws_covers_the_posterior",
        "fixed bound",
        compiled=False,
    ),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of compiled code: links to that of the package, and what bugs change."""
    folder = tmp_path_factory.mktemp("cache")
    ours = folder / "streammc" / Path(cache_dir()).name
    ours.mkdir(parents=True, mode=0o700)
    for known in Path(cache_dir()).iterdir():
        (ours / known.name).symlink_to(known)
    return folder


def failures(cache: Path, bug: Bug | None, *tests: str) -> list[str]:
    """Run tests with a bug or without; return those that failed, all by what they assert."""
    env = os.environ | {"STREAMMC_CACHE_DIR": str(cache), "COLUMNS": "1000"}
    env.pop("STREAMMC_TRUST", None)
    planted = [bug.file, bug.right, bug.wrong] if bug else ["-", "", ""]
    if bug and not bug.compiled:
        planted.insert(0, "--interpreted")
    options = ("-q", "-rfE", "-p", "no:cacheprovider")
    done = subprocess.run(
        [
            *(sys.executable, "tests/planted_bug.py", *planted, *options),
            *(f"tests/{test}" for test in tests),
        ],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1), said
    assert "\nERROR" not in said, said  # a test that could not run has caught nothing
    assert done.stdout.count("passed") or done.stdout.count("failed"), said
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    for line in failed:
        assert re.search(r" - (assert |AssertionError|Failed: )", line), line
    return [line.split()[1] for line in failed]


def killer(bug: Bug) -> str:
    return f"{bug.test}[{bug.case}]" if bug.case else bug.test


def test_every_bug_has_a_test_of_a_check_up_to_13() -> None:
    tests = {test for number in range(1, 14) for test in marked()[number]}
    assert {bug.test for bug in BUGS.values()} <= tests
    assert 12 == len(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_the_place_of_a_bug_stands_once_in_its_file(name: str) -> None:
    bug = BUGS[name]
    assert 1 == (ROOT / bug.file).read_text(encoding="utf-8").count(bug.right)


@pytest.mark.trust(16)
@pytest.mark.parametrize(
    "name", quick(BUGS, "last partial chunk dropped", "chunk counted twice", "chains share a seed")
)
def test_a_planted_bug_is_caught(name: str, cache: Path, record_property: Record) -> None:
    assert failures(cache, BUGS[name], killer(BUGS[name]))
    record_property("caught", name)


@pytest.mark.trust(16)
@pytest.mark.slow
def test_the_same_tests_pass_without_a_bug(cache: Path, record_property: Record) -> None:
    tests = sorted({killer(bug) for bug in BUGS.values()})
    assert [] == failures(cache, None, *tests)
    record_property("figure", f"{len(BUGS)} bugs planted; none found in the package itself")
