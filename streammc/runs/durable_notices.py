"""Notices of commits to the listener of a run, each once its commit cannot be lost."""

from __future__ import annotations

from typing import Any

from streammc.samplers.common.sampler import RunRequest
from streammc.trace.run_directory import RunDirectory


class DurableNotices:
    """Notices of the commits of a run, in their order.

    Commits at an address are copied in the background: a notice waits until its commit is there.

    Parameters
    ----------
    run
        The run.
    request
        Its request, with the listener.
    """

    def __init__(self, run: RunDirectory, request: RunRequest) -> None:
        self.request = request
        self._run = run
        self._later: list[tuple[int, tuple[Any, ...]]] = []

    def __call__(self, *notice: Any) -> None:
        """Tell of the last commit, if it is durable, or at a later call."""
        self._later.append((self._run.generation, notice))
        self.durable()

    def durable(self) -> None:
        """Tell of the commits that have become durable."""
        done = self._run.durable_generation
        while self._later and self._later[0][0] <= done:
            self.request.notify(*self._later.pop(0)[1])
