"""Progress on stderr: a bar on a terminal, otherwise one line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from streammc.cli.output import Output, number
from streammc.cli.signals import Interruption

_SECONDS: Final = 5.0
_UNITS: Final = {
    "pass": " blocks",
    "audit": " blocks",
    "predict": " blocks",
    "warmup": " iterations",
    "newton": " evaluations",
    "plan": " points",
}
_PHASE_NAMES: Final = {
    "pass": "full pass",
    "warmup": "warm-up",
    "newton": "Newton's method",
    "plan": "tails of the plan",
}
_SHOWN: Final = {
    "acceptance_rate": "accepted",
    "log_lik_variance": "variance",
    "step_size": "step",
}
_IN_BLOCKS: Final = ("pass", "audit", "predict")
_IN_ROWS: Final = ("formula", "scan", "shuffle", "write")
"""Phases whose progress is counted in rows."""
_POLLED: Final = ("start", "warmup", "draws")
"""Phases in which the chains poll the interruption themselves."""


class Progress:
    """Progress callback ``progress(phase, done, total, facts)`` of sampling and of the passes.

    Parameters
    ----------
    output
        Printer; nothing is shown under ``--quiet``.
    interruption
        Checked at every call, so that a pass can end between two blocks.
    """

    def __init__(self, output: Output, interruption: Interruption | None = None) -> None:
        self._output = output
        self._interruption = interruption
        self._lock = threading.RLock()
        self._phase = ""
        self._done = 0
        self._rows, self._counted = 0, ""
        self._dataset: Any = None
        self._began = self._last_output = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        """Make the bar, if there is a terminal; the first phase shows it."""
        plain = self._output.quiet or self._output.log_format == "json"
        if not plain and sys.stderr.isatty():
            self._bar = _terminal_bar()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bar from the terminal."""
        self.hide()
        self._bar = None

    def hide(self) -> None:
        """Remove the bar before a result is printed; the next phase shows a new one."""
        with self._lock:
            if self._output.live is not None:
                self._output.live = None
                self._bar.stop()
                self._bar = _terminal_bar()
                self._output.heartbeat.pause(False)

    def __call__(
        self, phase: str, done: int, total: int | None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Show that ``done`` of ``total`` (``None``: unknown) are done."""
        if self._interruption is not None and phase not in _POLLED:
            self._interruption.check()
        facts = self._amounts(phase, done, total, facts or {})
        self._beat(phase, done, total, facts)
        if self._output.quiet:
            return
        if phase == "start":
            self._output.note(_start(facts), phase=phase, **facts)
            return
        if phase == "forecast":
            others = {name: value for name, value in facts.items() if name != "text"}
            self._output.note(facts["text"], phase=phase, **others)
            return
        if phase == "stop":
            self._output.note(_checked(done, facts), phase=phase, **facts)
            return
        with self._lock:
            now = time.monotonic()
            fresh = phase != self._phase or done < self._done
            if fresh:
                self._phase, self._began, self._last_output = phase, now, now
            self._done = done
            if self._bar is not None:
                self._show(fresh, done, total, facts)
            elif now - self._last_output >= _SECONDS or (
                done == total and now - self._began >= 1.0
            ):
                self._last_output = now
                self._print_line(now - self._began, done, total, facts)

    def _beat(self, phase: str, done: int, total: int | None, facts: Mapping[str, Any]) -> None:
        """Tell the file of ``--heartbeat``; ``draws`` are those of each chain."""
        made = {}
        if phase == "start":
            made = {"draws": facts.get("draws_done", 0)}
        elif phase in ("draws", "stop"):
            made = {"draws": done}
        self._output.beat(phase=phase, done=done, total=total, **made)

    def _amounts(
        self, phase: str, done: int, total: int | None, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the facts with the rows and bytes that this phase has read so far."""
        if phase in _IN_ROWS:
            self._rows = done
        elif phase in _IN_BLOCKS and self._dataset is not None and total:
            self._rows = self._dataset.n_rows * done // total
        elif "rows" in facts:
            self._rows = facts["rows"] + (self._rows if phase == self._counted else 0)
        else:
            return dict(facts)
        self._counted = phase
        if self._dataset is None:
            return {**facts, "rows": self._rows}
        size = self._rows * self._dataset.rows().row_bytes
        return {**facts, "rows": self._rows, "bytes": size}

    def reads(self, dataset: Any) -> None:
        """Name the data set that the work reads, to report rows and bytes."""
        self._dataset = dataset

    def of(self, phase: str) -> Callable[[int, int], None]:
        """Return a callback ``progress(done, total)`` for one phase."""
        return lambda done, total: self(phase, done, total)

    def _show(self, fresh: bool, done: int, total: int | None, facts: Mapping[str, Any]) -> None:
        words = _PHASE_NAMES.get(self._phase, self._phase)
        if self._output.live is None:
            self._output.heartbeat.pause(True)
            self._bar.start()
            console = self._bar.console
            self._output.live = lambda line: console.print(line, markup=False, highlight=False)
        if fresh:
            self._task = self._bar.add_task(words, total=total, facts=[])
        self._bar.update(self._task, completed=done, total=total, facts=_ways(facts))

    def _print_line(
        self, seconds: float, done: int, total: int | None, facts: Mapping[str, Any]
    ) -> None:
        words, unit = _PHASE_NAMES.get(self._phase, self._phase), _UNITS.get(self._phase, "")
        left = seconds * (total - done) / done if done and total else None
        of = f"/{total:,}" if total else ""
        rest = f", about {left:.0f} s left" if left else ""
        brief = _brief(facts)
        details = f", {brief}" if brief else ""
        self._output.note(
            f"{words} {done:,}{of}{unit}, {seconds:.0f} s{rest}{details}",
            phase=self._phase,
            done=done,
            total=total,
            seconds=round(seconds, 1),
            **facts,
        )


def _start(facts: Mapping[str, Any]) -> str:
    """Return the note at the start of sampling: new or continued, and the planned sizes."""
    if not facts:
        return "sampling begins"
    warmup, draws = (f"{facts[name]:,}" for name in ("warmup", "draws"))
    chains = f"{facts['chains']} chain{'' if facts['chains'] == 1 else 's'}"
    plan = f"{chains} of {warmup} warm-up iterations and {draws} draws"
    before = [
        f"{facts[name]:,} {words}"
        for name, words in (("warmup_done", "warm-up iterations"), ("draws_done", "draws"))
        if facts[name]
    ]
    if facts.get("stop"):
        plan = f"{plan}, then on until {facts['stop']}"
    if not before:
        return f"sampling begins: {plan}"
    return f"sampling goes on: {plan}, of which {' and '.join(before)} are there"


def _checked(draws: int, verdict: Mapping[str, Any]) -> str:
    """Return the note about a check of the stopping rule."""
    found = [
        f"{name} {number(verdict[name]['found'])} for {verdict[name]['limit']:.10g}"
        for name in ("rhat", "ess")
        if name in verdict
    ]
    end = "the stopping rule is met" if verdict["passed"] else "more draws are needed"
    return f"{draws:,} draws per chain: {', '.join(found)}; {end}"


def _brief(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number(facts[name], 3)}" for name in _SHOWN if name in facts)


def _ways(facts: Mapping[str, Any]) -> list[str]:
    """Return texts of the facts of falling length: full names, short names, then fewer facts."""
    short = [f"{word} {number(facts[name], 2)}" for name, word in _SHOWN.items() if name in facts]
    return [_brief(facts), *(", ".join(short[:n]) for n in range(len(short), 0, -1))]


def _terminal_bar() -> Any:
    from rich.console import Console

    from streammc.cli.terminal_bar import TerminalBar

    return TerminalBar(Console(stderr=True))
