"""Stopping rule of a run: draws until effective sample size and R-hat keep their limits.

The rule is checked at numbers of draws that follow from the settings of the run alone, so a run
that is killed and resumed stops at the same draw as one that is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from streammc.errors import ConfigError


def check_limits(
    parameters: Mapping[str, Mapping[str, float | None]], limits: Mapping[str, float]
) -> dict[str, Any]:
    """Return limit, worst value and verdict of each limit, and whether all are kept.

    ``parameters`` are label -> statistics; one without a finite statistic fails. Limits: ``rhat``,
    the largest R-hat; ``ess``, the smallest effective sample size: bulk, tail, and for the standard
    deviation.
    """
    result: dict[str, Any] = {"passed": True}
    for name, limit in limits.items():
        columns = ("r_hat",) if name == "rhat" else ("ess_bulk", "ess_tail", "ess_sd")
        # Statistics of an earlier version have no ess_sd.
        values = [p[column] for p in parameters.values() for column in columns if column in p]
        known = [v for v in values if v is not None and math.isfinite(v)]
        worst = (max if name == "rhat" else min)(known, default=None)
        complete = len(known) == len(values)
        margin = math.nan if worst is None else (worst - limit) * (-1 if name == "rhat" else 1)
        passed = complete and margin >= 0.0
        result[name] = {"limit": limit, "found": worst, "passed": passed}
        result["passed"] = result["passed"] and passed
    return result


def missed_limits(checked: Mapping[str, Any]) -> str:
    """Return the text about the limits that a result of :func:`check_limits` misses."""
    return "; ".join(
        _missed(name, entry["found"], entry["limit"])
        for name, entry in checked.items()
        if isinstance(entry, Mapping) and entry.get("passed") is False
    )


def _missed(name: str, worst: float | None, limit: float) -> str:
    """Return the limit and the value found, with digits that tell them apart."""
    if worst is None or (worst <= limit if name == "rhat" else worst >= limit):
        return f"{name} unknown for some parameters, asked for {limit:.10g}"
    digits = next((n for n in range(4, 17) if f"{worst:.{n}g}" != f"{limit:.{n}g}"), 17)
    return f"{name} {worst:.{digits}g}, asked for {limit:.10g}"


MOST_DRAWS: Final = 100_000
"""Draws per chain at which a run ends whose rule names no other number."""
GROWTH: Final = 10
"""Between two checks the draws grow by one part in ten, or by one interval."""
KEYS: Final = ("ess", "rhat", "time", "draws")
_UNITS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME: Final = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*(s|min|h|d)?")


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """Limits that end a run: on the draws (``ess``, ``rhat``), on time, on their number.

    Made by :meth:`parse`.
    """

    ess: float | None = None
    """Least effective sample size of every parameter: bulk, tail, standard deviation."""
    rhat: float | None = None
    """Largest R-hat of every parameter."""
    seconds: float | None = None
    """Longest time of warm-up and draws, over all attempts."""
    draws: int = MOST_DRAWS
    """Most draws per chain."""

    @classmethod
    def parse(cls, value: Any) -> StopRule | None:
        """Return the rule of a text ``ess=1000,rhat=1.01,time=2h,draws=50000``, or of a mapping.

        ``None`` for ``None``. Times are seconds, or numbers with the unit s, min, h or d.
        ConfigError if a key is unknown or comes twice, a value is out of range, or neither ``ess``
        nor ``rhat`` is there.
        """
        if value is None or isinstance(value, StopRule):
            return value
        pairs = _pairs(value)
        numbers = {name: _number(name, each) for name, each in pairs.items()}
        if "ess" not in numbers and "rhat" not in numbers:
            raise ConfigError(
                f"expected stop to have a limit ess or rhat, found {value!r}: add one, since time "
                "and draws say nothing of what the draws are worth"
            )
        draws = int(numbers.get("draws", MOST_DRAWS))
        return cls(
            ess=numbers.get("ess"),
            rhat=numbers.get("rhat"),
            seconds=numbers.get("time"),
            draws=draws,
        )

    @property
    def limits(self) -> dict[str, float]:
        """Limits on the statistics of every parameter, as ``check_limits`` takes them."""
        both = {"rhat": self.rhat, "ess": self.ess}
        return {name: limit for name, limit in both.items() if limit is not None}

    def describe(self) -> dict[str, Any]:
        """Return the rule as JSON, which :meth:`parse` takes."""
        time = {} if self.seconds is None else {"time": self.seconds}
        return {**self.limits, **time, "draws": self.draws}

    def text(self) -> str:
        """Return the rule as text, which :meth:`parse` takes."""
        return ",".join(f"{name}={each:.10g}" for name, each in self.describe().items())

    def next_check(self, interval: int, first: int, done: int) -> int:
        """Return the number of draws, ``done`` or more, at which the rule is checked.

        All are per chain: ``interval`` those between two commits of the run, at which checks are,
        and ``first`` those that were asked for, at which the first is.
        """
        intervals = -(-first // interval)
        while intervals * interval < done:
            intervals += max(1, intervals // GROWTH)
        least = -(-done // interval) * interval
        return max(min(intervals * interval, self.most(interval, first)), least)

    def most(self, interval: int, first: int) -> int:
        """Return the number of draws per chain, whole intervals, at which the rule gives up."""
        return max(self.draws // interval, -(-first // interval)) * interval

    def out_of_time(self, clock: Mapping[str, float]) -> bool:
        """Return whether the seconds of warm-up and draws are used up."""
        return self.seconds is not None and sum(clock.values()) >= self.seconds

    def verdict(
        self,
        parameters: Mapping[str, Mapping[str, float | None]],
        draws: int,
        *,
        interval: int,
        first: int,
    ) -> dict[str, Any]:
        """Return what ended a run, as JSON for its summary.

        ``parameters`` are label -> statistics of its ``draws``. ``passed`` says whether the draws
        keep the limits, also where time has ended the run before a check.
        """
        checked = check_limits(parameters, self.limits)
        passed = bool(checked.pop("passed"))
        ended_by = "draws" if draws >= self.most(interval, first) else "time"
        if passed and draws == self.next_check(interval, first, draws):
            ended_by = "rule"
        return {
            "rule": self.describe(),
            "passed": passed,
            "ended_by": ended_by,
            "draws": draws,
            **checked,
        }


def missed_text(stop: Mapping[str, Any]) -> str:
    """Return what ended a run before its rule was met, and what to do, from its ``verdict``."""
    rule = StopRule.parse(stop["rule"])
    assert rule is not None
    end = f"after {stop['draws']} draws per chain, the most that it allows: give it more draws"
    if stop["ended_by"] == "time":
        end = f"by time, {rule.seconds:g} s, at {stop['draws']} draws per chain: give it more time"
    return f"the stopping rule is not met ({missed_limits(stop)}); the run was ended {end}"


def _pairs(value: Any) -> dict[str, Any]:
    """Return the entries of a rule by key."""
    if isinstance(value, Mapping):
        pairs = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, str):
        parts = (part.partition("=") for part in value.split(","))
        pairs = [(key.strip(), text.strip()) for key, _, text in parts]
    else:
        raise ConfigError(
            f"expected stop to be a text or a mapping, found {type(value).__name__}: write "
            "'ess=1000,rhat=1.01'"
        )
    entries: dict[str, Any] = {}
    for key, each in pairs:
        if key not in KEYS:
            known = ", ".join(f"{name}=..." for name in KEYS)
            raise ConfigError(f"expected {known} in stop, found {key!r}: choose from them")
        if key in entries:
            raise ConfigError(f"expected {key} once in stop, found it again: keep one")
        entries[key] = each
    return entries


def _number(name: str, value: Any) -> float:
    """Return the value of an entry, times in seconds."""
    text = value.strip() if isinstance(value, str) else value
    number = math.nan
    if isinstance(text, str):
        unit = _TIME.fullmatch(text) if name == "time" else None
        with suppress(ValueError):
            number = float(unit[1]) * _UNITS[unit[2] or "s"] if unit else float(text)
    elif isinstance(text, int | float) and not isinstance(text, bool):
        number = float(text)
    least = 1.0 if name == "rhat" else 0.0
    if not (math.isfinite(number) and number > least) or (
        name == "draws" and (number != int(number) or number > 10**9)
    ):
        kind = {
            "draws": "a whole number above 0",
            "time": "a time above 0, such as 2h",
            "rhat": "a number above 1",
            "ess": "a number above 0",
        }[name]
        raise ConfigError(f"expected {name} of stop to be {kind}, found {value!r}: give one")
    return number
