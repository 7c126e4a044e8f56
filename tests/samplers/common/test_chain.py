from __future__ import annotations

import pytest
from problems import Small, kernel_problem

from streammc.numerics.jit import f8, jit
from streammc.samplers.hamiltonian import kernel, transition


@jit(f8(f8))
def loop(x):  # type: ignore[no-untyped-def]
    return x


def test_a_chain_is_compiled_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "run", loop)
    assert not loop.is_ready
    kernel.HamiltonianKernel(kernel_problem(Small()), seed=1, chain=0)
    assert loop.is_ready
