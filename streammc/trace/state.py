"""The state in the root document of a run, which alone defines the committed arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from streammc.errors import StoreError
from streammc.trace.codec import NUMERIC, STRING, ArraySpec, check_name, consolidated, document
from streammc.trace.layout import PHASES, Layout, layout_from_json, layout_to_json
from streammc.trace.sealed import seal

FORMAT: Final = 1
KIND: Final = "run"


@dataclass(frozen=True)
class Mark:
    """A checkpoint file, and the committed iterations and draws before it."""

    generation: int
    warmup: int
    draws: int
    size: int
    crc32c: int


@dataclass(frozen=True)
class FixedArray:
    """An array of one chunk, written once."""

    spec: ArraySpec
    size: int
    crc32c: int


@dataclass(frozen=True)
class RunState:
    """Immutable layout, plan and commit of a run; each commit makes a new state."""

    layout: Layout
    identity: Mapping[str, Any]
    warmup: int
    """Planned number of warm-up iterations."""
    draws: int
    """Planned number of draws."""
    generation: int
    committed: Mapping[str, int]
    """Phase -> number of committed iterations."""
    sums: Mapping[str, tuple[int, int]]
    """``group/name`` -> checksum over the full chunks, and over all committed draws."""
    marks: tuple[Mark, ...]
    fixed: Mapping[str, FixedArray]
    """``group/name`` -> array written once."""

    def phases(self) -> tuple[str, ...]:
        """Return the phases of the run: no ``warmup`` without warm-up iterations."""
        return PHASES if self.warmup else PHASES[1:]

    def planned(self, phase: str) -> int:
        """Return the planned number of iterations of a phase."""
        return self.warmup if phase == "warmup" else self.draws

    def next_start(self, phase: str) -> int:
        """Return the index of the first draw of the next interval of a phase.

        If the last chunk is short, this is the start of that chunk: a longer run computes the
        chunk again, beginning with the same draws.
        """
        done = self.committed[phase]
        return done if done >= self.planned(phase) else done - done % self.layout.interval

    def phase(self) -> str:
        """Return the phase of the next interval; ``draws`` also if all are committed."""
        return "warmup" if self.committed["warmup"] < self.warmup else "draws"

    def mark(self) -> Mark | None:
        """Return the checkpoint from which the next interval continues."""
        place = self.next_start("warmup"), self.next_start("draws")
        return next((m for m in reversed(self.marks) if (m.warmup, m.draws) == place), None)

    def growing(self) -> dict[str, ArraySpec]:
        """Return ``group/name`` -> spec of every growing array, with committed shapes."""
        return {
            key: spec
            for phase in self.phases()
            for key, spec in self.layout.growing(phase, self.committed[phase]).items()
        }

    def specs(self) -> dict[str, ArraySpec]:
        """Return ``group/name`` -> spec of every array."""
        return self.growing() | {key: array.spec for key, array in self.fixed.items()}

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        return sorted({key.partition("/")[0] for key in self.specs()})

    def with_mark(self, mark: Mark) -> RunState:
        """Return the state with a new checkpoint, and drop the marks no longer needed.

        Kept are the last two and the one at the start of the last short chunk.
        """
        state = replace(self, marks=(*self.marks, mark))
        kept = {m.generation for m in state.marks[-2:]}
        start = self.committed["draws"] - self.committed["draws"] % self.layout.interval
        kept |= {m.generation for m in state.marks if (m.warmup, m.draws) == (self.warmup, start)}
        return replace(state, marks=tuple(m for m in state.marks if m.generation in kept))


def root_document(state: RunState, attributes: Mapping[str, Any]) -> bytes:
    """Return the root ``zarr.json``: attributes, state and consolidated metadata."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    metadata: dict[str, Any] = dict.fromkeys(state.groups(), group)
    metadata |= {key: document(spec) for key, spec in sorted(state.specs().items())}
    return seal(attributes, own_entries(state), consolidated(metadata))


def own_entries(state: RunState) -> dict[str, Any]:
    """Return a state as JSON, for :func:`state_from_json`."""
    return {
        "format": FORMAT,
        "kind": KIND,
        "generation": state.generation,
        "identity": dict(state.identity),
        **layout_to_json(state.layout),
        "warmup": state.warmup,
        "draws": state.draws,
        "committed": dict(state.committed),
        "sums": {key: list(pair) for key, pair in state.sums.items()},
        "checkpoints": [vars(mark) for mark in state.marks],
        "fixed": {
            key: {
                "shape": list(array.spec.shape),
                "dtype": array.spec.dtype,
                "dims": list(array.spec.dims),
                "size": array.size,
                "crc32c": array.crc32c,
            }
            for key, array in state.fixed.items()
        },
    }


def state_from_json(own: Mapping[str, Any], where: Any) -> RunState:
    """Return the state from the JSON ``own`` of a root document.

    Raises
    ------
    StoreError
        If its kind or format is another, or its entries contradict each other.
    """
    if own.get("kind") != KIND or own.get("format") != FORMAT:
        raise StoreError(
            f"expected a run of format {FORMAT} in {where}, found kind {own.get('kind')!r}, format "
            f"{own.get('format')!r}: choose another path, or update streammc"
        )
    try:
        state = RunState(
            layout=layout_from_json(own),
            identity=dict(own["identity"]),
            warmup=int(own["warmup"]),
            draws=int(own["draws"]),
            generation=int(own["generation"]),
            committed={phase: int(own["committed"][phase]) for phase in PHASES},
            sums={key: (int(full), int(every)) for key, (full, every) in own["sums"].items()},
            marks=tuple(
                Mark(**{k: int(v) for k, v in mark.items()}) for mark in own["checkpoints"]
            ),
            fixed={key: _fixed(key, entry) for key, entry in own["fixed"].items()},
        )
        whole = (
            0 <= state.committed["warmup"] <= state.warmup
            and state.committed["draws"] >= 0
            and set(state.sums) == set(state.growing())
            and not set(state.sums) & set(state.fixed)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"expected a run written by streammc in {where}, found {error}"
            ": restore the file from a copy"
        ) from error
    if not whole:
        raise StoreError(
            f"expected counts and arrays that agree in {where}, found {dict(own)!r:.200}"
            ": restore the file from a copy"
        )
    return state


def _fixed(key: str, entry: Mapping[str, Any]) -> FixedArray:
    for part in key.split("/"):
        check_name(part, StoreError)
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if dtype not in (*NUMERIC, STRING) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"array {key} of {dtype!r:.40} {shape!r:.80}")
    spec = ArraySpec(shape, shape, dtype, tuple(entry["dims"]))
    if dtype != STRING and int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize + 4 != int(
        entry["size"]
    ):
        raise ValueError(f"array {key} of {entry['size']} bytes and shape {shape!r:.80}")
    return FixedArray(spec, int(entry["size"]), int(entry["crc32c"]))


def new_state(layout: Layout, identity: Mapping[str, Any], warmup: int, draws: int) -> RunState:
    """Return the state of a new run: generation 0, without committed draws."""
    empty = RunState(
        layout=layout,
        identity=json.loads(json.dumps(dict(identity), allow_nan=False)),
        warmup=warmup,
        draws=draws,
        generation=0,
        committed=dict.fromkeys(PHASES, 0),
        sums={},
        marks=(),
        fixed={},
    )
    return replace(empty, sums=dict.fromkeys(empty.growing(), (0, 0)))
