from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from streammc.samplers.common.chains import Chains

CHAINS = 4


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_chains_run_on_usable_cores_and_share_them(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    seen: set[int] = set()

    def initialise() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.05)

    def kernel(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(initialise=initialise)

    problem: Any = SimpleNamespace(kernel=kernel)
    chains = Chains(problem, seed=1, chains=CHAINS)
    chains.initialise()
    chains.close()
    assert min(cores, CHAINS) == len(seen)
    assert {max(cores // CHAINS, 1)} == {kernel.threads for kernel in chains.kernels}
