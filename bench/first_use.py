"""How much processor time the first use takes: functions compiled, and seconds of each.

    python bench/first_use.py [--plain] [--all] [--top 30]

An empty cache, and a first ``sample()`` of a logistic regression of 20,000 rows with ``auto``, or
with ``--all`` the compilation of every function of the package. ``--plain``: without the private
classes of numba (``streammc.numerics.numba_internals``). Prints the seconds of the import, of the
whole, and those of LLVM and of numba's own passes; then the functions, with the number of their
specialisations and the seconds of each without those that it calls.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import codegen, compiler, event, typed_passes

seconds: dict[str, float] = defaultdict(float)
functions: dict[str, float] = defaultdict(float)
counts: Counter[str] = Counter()
nested: list[float] = []


def exclusive(call: Callable[[], Any], *labels: tuple[dict[str, float], str]) -> Any:
    """Call; add the processor time without that of nested calls of this function."""
    begun = time.thread_time()
    nested.append(0.0)
    try:
        return call()
    finally:
        spent = time.thread_time() - begun
        own = spent - nested.pop()
        if nested:
            nested[-1] += spent
        for table, label in labels:
            table[label] += own


def time_method(owner: Any, name: str, label: str) -> None:
    """Time a method under a label."""
    plain = getattr(owner, name)

    def timed(self: Any, *arguments: Any) -> Any:
        return exclusive(lambda: plain(self, *arguments), (seconds, label))

    setattr(owner, name, timed)


class Listener(event.Listener):
    """Seconds of each function, callees included or not."""

    def __init__(self) -> None:
        self.open: list[list[float]] = []

    def on_start(self, event: Any) -> None:
        """Begin a function."""
        self.open.append([time.process_time(), 0.0])

    def on_end(self, event: Any) -> None:
        """End a function."""
        begun, inner = self.open.pop()
        spent = time.process_time() - begun
        if self.open:
            self.open[-1][1] += spent
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__qualname__}".removeprefix("streammc.")
        functions[name] += spent - inner
        counts[name] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--top", type=int, default=30)
    options = parser.parse_args()
    library = codegen.CPUCodeLibrary
    for name in ("_optimize_functions", "_optimize_final_module"):
        time_method(library, name, "LLVM's optimisation")
    time_method(codegen.JITCodeLibrary, "_finalize_specific", "machine code")
    time_method(typed_passes.BaseTypeInference, "run_pass", "type inference")
    time_method(typed_passes.BaseNativeLowering, "run_pass", "lowering")
    time_method(compiler.CompilerBase, "_compile_core", "other passes")
    event.register("numba:compile", Listener())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STREAMMC_CACHE_DIR"] = folder
        if options.plain:
            numba.__version__ += ".plain"
        begun = time.process_time()
        import streammc
        from streammc.numerics.compile_ahead import compiled_modules
        from streammc.numerics.dispatchers import compile_ahead

        if options.all:
            compile_ahead(*compiled_modules())
        else:
            rng = np.random.default_rng(1)
            X = np.c_[np.ones(20_000), rng.normal(size=(20_000, 5))]
            y = (rng.random(20_000) < 0.4).astype(float)
            model = streammc.models.logistic(prior=streammc.priors.normal(scale=10.0))
            streammc.sample(streammc.from_arrays(X, y), model, seed=1, draws=50, warmup=50)
        whole = time.process_time() - begun
    print(f"{whole:.1f} CPU s, {counts.total()} specialisations of {len(counts)} functions")
    for label, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{spent:7.2f}  {label}")
    for label, spent in sorted(functions.items(), key=lambda item: -item[1])[: options.top]:
        print(f"{spent:7.2f} {counts[label]:3d} {label}")


if __name__ == "__main__":
    main()
