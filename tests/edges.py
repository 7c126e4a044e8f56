"""List the statistical assertions that sit near their bound, over several seeds.

Draws differ between processors, so an assertion that passes by little here fails elsewhere.
``python tests/edges.py [--seeds 0 1 2] [--within 0.2] [pytest arguments]`` runs the tests once per
seed: seed 0 is the seed in the tests, the others are mixed into every integer seed of NumPy and of
the package. Every comparison in an assertion is measured: ``a < b`` uses the share a / b of its
bound, and ``a <= b + 4.5 * c`` the share (a - b) / (4.5 c). A comparison with the same share under
all seeds is not statistical. Listed are the others above a share of 1 - within, and the tests that
fail. A test of exact numbers for one seed fails under the other seeds by design.

The module is also the pytest plugin that the script loads into the runs.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import json
import operator
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SEED, FOLDER = "STREAMMC_EDGES_SEED", "STREAMMC_EDGES_FOLDER"
OPERATORS = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq,
}  # fmt: skip
NOISE = ("4.5 *", "* 4.5", "Z *", "LIMIT *")
"""A term of a bound with one of these in its source is noise; the other term is an offset."""
HELPER = "compare_and_record"


class Sum(NamedTuple):
    """A bound ``offset + noise``."""

    offset: Any
    noise: Any


def share(lesser: Any, greater: Any) -> float:
    """Return the largest share of its bound that ``lesser < greater`` uses; 0 where none is."""
    if isinstance(greater, Sum):
        lesser, greater = lesser - greater.offset, greater.noise
    elif isinstance(lesser, Sum):
        lesser, greater = lesser.noise, greater - lesser.offset
    low, high = np.broadcast_arrays(np.asarray(lesser), np.asarray(greater))
    if low.dtype.kind not in "iuf" or high.dtype.kind not in "iuf" or not low.size:
        return 0.0
    low, high = low.astype(float), high.astype(float)
    swapped = (low < 0.0) & (high < 0.0)
    low, high = np.where(swapped, -high, low), np.where(swapped, -low, high)
    sound = (low > 0.0) & (high > 0.0) & np.isfinite(low) & np.isfinite(high)
    return float(np.max(low[sound] / high[sound], initial=0.0))


def measured(name: str, left: Any, right: Any) -> float:
    """Return the share that one comparison uses; 0 for comparisons of other things."""
    try:
        if name == "Eq":
            known = right if hasattr(right, "tolerance") else left
            value = left if known is right else right
            return share(abs(value - known.expected), known.tolerance)
        return share(left, right) if name.startswith("Lt") else share(right, left)
    except (AttributeError, TypeError, ValueError):
        return 0.0


class Recorder:
    """Pytest plugin: shares and failures of one run, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}.jsonl"
        self.test = ""
        self.shares: dict[str, float] = {}

    def compare(self, names: str, source: str, *operands: Any) -> Any:
        """Return the value of a comparison, chained or not, and record the share it uses."""
        values = [x.offset + x.noise if isinstance(x, Sum) else x for x in operands]
        result: Any = True
        for k, name in enumerate(names.split()):
            result = OPERATORS[name](values[k], values[k + 1])
            found = measured(name, operands[k], operands[k + 1])
            self.shares[source] = max(self.shares.get(source, 0.0), found)
            if k + 2 < len(values) and not result:
                break
        return result

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test, self.shares = nodeid, {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write(report.nodeid, report.when + " failed", 9.9)
        if report.when == "call":
            for source, found in self.shares.items():
                self._write(report.nodeid, source, found)

    def _write(self, test: str, source: str, found: float) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([test, source, found]) + "\n")


class Measure(ast.NodeTransformer):
    """Comparisons of numbers within assertions become calls that record them."""

    inside = False

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.inside = True
        node.test = self.visit(node.test)
        self.inside = False
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        names = [type(op).__name__ for op in node.ops]
        if not self.inside or not set(names) <= set(OPERATORS):
            return self.generic_visit(node)
        source = f"{node.lineno}: {ast.unparse(node)}"
        self.generic_visit(node)
        if "Eq" in names and (len(names) > 1 or "approx(" not in source):
            return node
        operands = [self._split(each) for each in (node.left, *node.comparators)]
        parts = [ast.Constant(" ".join(names)), ast.Constant(source), *operands]
        call = ast.Call(ast.Name(HELPER, ast.Load()), parts, [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def _split(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            terms = [node.left, node.right]
            noisy = [any(word in ast.unparse(term) for word in NOISE) for term in terms]
            if noisy in ([True, False], [False, True]):
                terms = terms if noisy[1] else terms[::-1]
                return ast.Call(ast.Name(HELPER + "_sum", ast.Load()), terms, [])
        return node


def shift_seeds(seed: int) -> None:
    """Mix ``seed`` into every integer seed that NumPy is given from here on."""
    default_rng, sequence = np.random.default_rng, np.random.SeedSequence

    def mixed(value: Any) -> Any:
        if isinstance(value, int | np.integer):
            return [int(value), seed]
        return [*value, seed] if isinstance(value, list | tuple | np.ndarray) else value

    class ShiftedSequence(sequence):  # type: ignore[misc,valid-type]
        def __init__(self, entropy: Any = None, **options: Any) -> None:
            super().__init__(mixed(entropy), **options)

    np.random.default_rng = lambda value=None: default_rng(mixed(value))
    np.random.SeedSequence = ShiftedSequence


def is_test(path: str | Path) -> bool:
    """Return whether ``path`` is a test module; pytest rewrites plugins as well."""
    return Path(path).name.startswith("test_")


def pytest_configure(config: Any) -> None:
    """Measure the assertions of every test module that is imported from here on."""
    from _pytest.assertion import rewrite

    recorder = Recorder(Path(os.environ[FOLDER]))
    config.pluginmanager.register(recorder)
    setattr(builtins, HELPER, recorder.compare)
    setattr(builtins, HELPER + "_sum", Sum)
    original, read = rewrite.rewrite_asserts, rewrite._read_pyc

    def rewrite_asserts(module: ast.Module, source: bytes, path: str, *rest: Any) -> None:
        if is_test(path):
            Measure().visit(module)
        original(module, source, path, *rest)

    # What pytest has compiled before does not measure, and what is compiled here is not kept.
    rewrite.rewrite_asserts = rewrite_asserts
    rewrite._read_pyc = lambda path, *rest: None if is_test(path) else read(path, *rest)
    sys.dont_write_bytecode = True
    if seed := int(os.environ[SEED]):
        shift_seeds(seed)


def run(seed: int, words: list[str]) -> dict[tuple[str, str], float]:
    """Run pytest under one seed; return the share of each (test, comparison)."""
    here = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        with contextlib.suppress(KeyboardInterrupt):  # what was measured until then is listed
            subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "edges", "-q", "--tb=line", *words],
                env={**os.environ, "PYTHONPATH": path, SEED: str(seed), FOLDER: folder},
                check=False,
            )
        found: dict[tuple[str, str], float] = {}
        for file in Path(folder).glob("*.jsonl"):
            for line in file.read_text().splitlines():
                test, source, value = json.loads(line)
                found[test, source] = max(value, found.get((test, source), 0.0))
    return found


def main() -> None:
    """Print one line per comparison near its bound, the nearest first."""
    parser = argparse.ArgumentParser(description="List statistical tests near their bound.")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--within", type=float, default=0.2)
    arguments, words = parser.parse_known_args()
    shares: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for seed in arguments.seeds:
        for key, value in run(seed, words).items():
            shares[key][seed] = value
    near = {
        key: by_seed
        for key, by_seed in shares.items()
        if max(by_seed.values()) > 1.0 - arguments.within
        and (len(set(by_seed.values())) > 1 or key[1].endswith(" failed"))
    }
    print(f"\n{len(near)} of {len(shares)} comparisons within {arguments.within:g} of their bound")
    for (test, source), by_seed in sorted(near.items(), key=lambda each: -max(each[1].values())):
        listed = ", ".join(f"seed {seed}: {value:.3f}" for seed, value in by_seed.items())
        print(f"{test}\n    {source}\n    {listed}")


if __name__ == "__main__":
    main()
