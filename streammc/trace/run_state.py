"""The state of a run on disk: the layout of its arrays, and how much of each is committed.

Arrays are parameters named as in ArviZ, statistics and coordinates:
``beta[Intercept], beta[distance], sigma`` becomes the variables ``beta`` (chain, draw,
feature) and ``sigma`` (chain, draw), so that ArviZ shows the labels of the model.

The group ``posterior`` has the draws on the scale of the table. Where the sampler drew on the
scale of standardised columns, its own draws are the groups ``sampled_posterior`` and
``warmup_sampled_posterior``: a run of format 2. A run of format 1 has them in ``posterior`` and
``warmup_posterior``: its columns are not standardised, or an earlier version made it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.errors import ConfigError, StoreError
from streammc.models.table_scale import INTERCEPT, ScaleBlock, blocks_from_description, transform
from streammc.trace.zarr_files import (
    ArraySpec,
    StoredArray,
    check_name,
    dtype_name,
    group_document,
    seal,
    stored_from_entry,
)

PHASES: Final = ("warmup", "draws")
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "warmup": ("warmup_posterior", "warmup_sample_stats"),
    "draws": ("posterior", "sample_stats"),
}
"""Names of the groups of each phase: parameters, statistics."""
SAMPLED: Final[Mapping[str, str]] = {
    "warmup": "warmup_sampled_posterior",
    "draws": "sampled_posterior",
}
"""Names of the groups of what the sampler drew, where ``posterior`` is on another scale."""
SAMPLES: Final = (*GROUPS["draws"], *GROUPS["warmup"])
"""Names of the groups with the draws of a sampler, as digests have them."""
OWN: Final = (*SAMPLES, *SAMPLED.values())
"""Names of the groups that a run writes by itself."""
SAMPLE_DIMS: Final = ("chain", "draw")
FEATURE: Final = "feature"
PARAMETER: Final = "parameter"

Dimensioned = tuple[Sequence[str], NDArray[Any]]
"""Names of the dimensions of an array, and its values."""

_LABEL: Final = re.compile(r"([^\[\]]+)\[(.*)\]", re.DOTALL)


@dataclass(frozen=True)
class Variable:
    """A posterior variable and its columns of theta."""

    name: str
    columns: tuple[int, ...]
    dim: str | None
    """Name of its own dimension; ``None`` for a scalar."""
    coordinate: tuple[str, ...]
    """Labels along ``dim``."""


@dataclass(frozen=True)
class TableScale:
    """Transformation of the draws of a run to the scale of its table."""

    design: Mapping[str, Any]
    """``features`` and ``standardization`` of the store."""
    blocks: tuple[ScaleBlock, ...]
    variables: tuple[Variable, ...]
    """Those of the group ``posterior``."""

    def draws(self, theta: NDArray[np.float64], labels: Sequence[str]) -> NDArray[np.float64]:
        """Return draws (chain, draw, d), with a label each, on the table's scale."""
        return transform(theta, labels, self.design, self.blocks)[0]


def table_scale(attributes: Mapping[str, Any], labels: Sequence[str]) -> TableScale | None:
    """Return the transformation that the attributes of a run describe.

    ``None`` if its columns are not standardised, or an earlier version did not describe it.
    """
    design, described = attributes.get("design") or {}, attributes.get("table_scale")
    standardization = design.get("standardization")
    if not described or standardization is None:
        return None
    mean, scale = (np.asarray(standardization[key]) for key in ("mean", "scale"))
    if not mean.any() and (scale == 1.0).all():
        return None
    blocks = blocks_from_description(described)
    nothing = np.empty((1, 0, len(labels)))
    names = transform(nothing, labels, design, blocks)[1]
    return TableScale(design, blocks, _variables(names, tuple(design["features"])))


@dataclass(frozen=True)
class Layout:
    """Description of a run's arrays that stays the same while the run grows."""

    labels: tuple[str, ...]
    features: tuple[str, ...]
    chains: int
    interval: int
    stats: Mapping[str, str]
    """dtype name of each statistic."""
    variables: tuple[Variable, ...]
    table: TableScale | None = None
    """``None``: the draws are on the scale of the table."""

    def sampled(self, phase: str) -> str:
        """Return the name of the group of what the sampler drew in a phase."""
        return GROUPS[phase][0] if self.table is None else SAMPLED[phase]

    def parameters(self, phase: str) -> dict[str, tuple[Variable, ...]]:
        """Return the groups of parameters of a phase, and the variables of each."""
        groups = {self.sampled(phase): self.variables}
        if self.table is not None and phase == "draws":
            groups[GROUPS[phase][0]] = self.table.variables
        return groups

    def groups(self, phase: str) -> tuple[str, ...]:
        """Return the names of the groups of a phase, that of the statistics last."""
        return (*self.parameters(phase), GROUPS[phase][1])

    def growing(self, phase: str, length: int) -> dict[str, ArraySpec]:
        """Return ``group/name`` -> spec of the arrays of a phase with ``length`` draws."""
        c, k = self.chains, self.interval
        specs = {}
        for group, variables in self.parameters(phase).items():
            for variable in variables:
                inner = (len(variable.columns),) if variable.dim else ()
                dims = (*SAMPLE_DIMS, variable.dim) if variable.dim else SAMPLE_DIMS
                specs[f"{group}/{variable.name}"] = ArraySpec(
                    (c, length, *inner), (c, k, *inner), "float64", dims, axis=1
                )
        for name, dtype in self.stats.items():
            key = f"{GROUPS[phase][1]}/{name}"
            specs[key] = ArraySpec((c, length), (c, k), dtype, SAMPLE_DIMS, axis=1)
        for group in self.groups(phase):
            specs[f"{group}/draw"] = ArraySpec((length,), (k,), "int64", ("draw",))
        return specs

    def fixed(self, phase: str) -> dict[str, NDArray[Any]]:
        """Return ``group/name`` -> values of the coordinates of a phase, which are written once."""
        arrays: dict[str, NDArray[Any]] = {
            f"{group}/chain": np.arange(self.chains) for group in self.groups(phase)
        }
        for group, variables in self.parameters(phase).items():
            for variable in variables:
                if variable.dim is not None:
                    texts = np.array(variable.coordinate, dtype=np.str_)
                    arrays[f"{group}/{variable.dim}"] = texts
        return arrays

    def interval_arrays(
        self,
        phase: str,
        start: int,
        theta: NDArray[np.float64],
        stats: Mapping[str, Any],
        only: Collection[str] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return ``group/name`` -> values of one interval from draw ``start`` on.

        With ``only`` those of these groups.
        """
        arrays: dict[str, NDArray[Any]] = {}
        sampled, statistics = self.sampled(phase), GROUPS[phase][1]
        groups = [each for each in self.groups(phase) if only is None or each in only]
        for group in groups:
            if group == statistics:
                arrays |= {f"{group}/{name}": np.asarray(stats[name]) for name in self.stats}
                continue
            values = theta
            if self.table is not None and group != sampled:
                values = self.table.draws(theta, self.labels)
            for variable in self.parameters(phase)[group]:
                block = values[:, :, variable.columns]
                arrays[f"{group}/{variable.name}"] = block if variable.dim else block[:, :, 0]
        for group in groups:
            arrays[f"{group}/draw"] = np.arange(start, start + theta.shape[1])
        return arrays


def make_layout(
    labels: Sequence[str],
    features: Sequence[str],
    chains: int,
    interval: int,
    stats: Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
) -> Layout:
    """Return the layout of a run.

    Parameters
    ----------
    labels
        One ArviZ label per component of theta; ``name[entry]`` or ``name``.
    features
        Feature names. A variable whose entries are exactly these has the dimension
        ``feature``, any other variable ``<name>_dim``.
    chains
        Number of chains.
    interval
        Number of draws in one commit.
    stats
        dtype of each statistic.
    attributes
        Attributes of the run, of which ``table_scale`` and ``design`` describe the draws on the
        scale of the table; ``None``: they are on it.

    Raises
    ------
    ConfigError
        If a name cannot be stored, or two names are the same.
    """
    if chains < 1 or interval < 1:
        raise ConfigError(
            f"expected chains and interval >= 1, found {chains} and {interval}: give 1 or more"
        )
    _check_names(stats)
    kinds = {name: dtype_name(dtype) for name, dtype in stats.items()}
    table = None if attributes is None else table_scale(attributes, labels)
    variables = _variables(labels, tuple(features))
    return Layout(tuple(labels), tuple(features), chains, interval, kinds, variables, table)


def _check_names(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that an array beside ``chain`` and ``draw`` cannot have."""
    for name in names:
        check_name(name)
        if name in SAMPLE_DIMS:
            raise ConfigError(f"expected a name other than {name!r}: rename it")


def _variables(labels: Sequence[str], features: tuple[str, ...]) -> tuple[Variable, ...]:
    """Return the variables of a group of parameters with these labels."""
    entries: dict[str, list[tuple[int, str | None]]] = {}
    for column, label in enumerate(labels):
        found = _LABEL.fullmatch(label)
        name, entry = (found[1], found[2]) if found else (label, None)
        entries.setdefault(name, []).append((column, entry))
    variables = [_variable(name, found, features) for name, found in entries.items()]
    by_feature = [v.coordinate for v in variables if v.dim == FEATURE]
    variables = [
        # Coefficients with an intercept that the scale of the table brings, beside others without.
        replace(v, dim=f"{v.name}_dim") if v.dim == FEATURE and v.coordinate != by_feature[0] else v
        for v in variables
    ]
    taken = [v.name for v in variables] + [v.dim for v in variables if v.dim]
    _check_names(taken)
    if {v.name for v in variables} & {v.dim for v in variables}:
        raise ConfigError(
            f"expected parameters named unlike dimensions, found {taken}: rename them"
        )
    return tuple(variables)


def _variable(
    name: str, found: Sequence[tuple[int, str | None]], features: tuple[str, ...]
) -> Variable:
    columns = tuple(column for column, _ in found)
    texts = tuple(entry for _, entry in found if entry is not None)
    if not texts and len(found) == 1:
        return Variable(name, columns, None, ())
    if len(texts) != len(found) or len({*texts}) != len(texts):
        raise ConfigError(
            f"expected labels {name}[...] that differ, or {name} once, found {len(found)} of "
            f"which {len({*texts})} differ: rename the features"
        )
    by_feature = texts in (features, (INTERCEPT, *features))
    return Variable(name, columns, FEATURE if by_feature else f"{name}_dim", texts)


def layout_from_json(
    stored: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
) -> Layout:
    """Return the layout from the JSON of :func:`layout_to_json`, or raise StoreError."""
    try:
        return make_layout(
            stored["labels"],
            stored["features"],
            stored["chains"],
            stored["interval"],
            stored["stats"],
            attributes,
        )
    except (ConfigError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"expected a run written by streammc, found {error}: restore the run from a copy"
        ) from error


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """Return a layout as JSON, for :func:`layout_from_json`."""
    return {
        "labels": list(layout.labels),
        "features": list(layout.features),
        "chains": layout.chains,
        "interval": layout.interval,
        "stats": dict(layout.stats),
    }


def initial_arrays(
    layout: Layout, phases: Sequence[str], constant_data: Mapping[str, Any]
) -> dict[str, Dimensioned]:
    """Return ``group/name`` -> (dims, values) of the arrays that are written when a run starts.

    ``constant_data`` maps names to values or to ``(dims, values)``.
    """
    arrays: dict[str, Dimensioned] = {
        key: ((key.rpartition("/")[2],), values)
        for phase in phases
        for key, values in layout.fixed(phase).items()
    }
    for name, values in constant_data.items():
        check_name(name)
        dims, array = _dimensioned(name, values, layout)
        arrays[f"constant_data/{name}"] = dims, array
        for dim, labels in ((FEATURE, layout.features), (PARAMETER, layout.labels)):
            if dim in dims:
                arrays[f"constant_data/{dim}"] = (dim,), np.array(labels, dtype=np.str_)
    return arrays


def _dimensioned(name: str, values: Any, layout: Layout) -> Dimensioned:
    """Return ``(dims, values)``; without dims, a vector as long as the features gets theirs.

    So does one as long as the parameters; any other array has dimensions of its own.
    """
    if isinstance(values, tuple):
        dims, array = values
        return tuple(dims), np.asarray(array)
    array = np.asarray(values)
    if array.shape == (len(layout.features),):
        return (FEATURE,), array
    if array.shape == (len(layout.labels),):
        return (PARAMETER,), array
    if array.ndim == 1:
        return (f"{name}_dim",), array
    return tuple(f"{name}_dim_{axis}" for axis in range(array.ndim)), array


FORMAT: Final = 2
"""Highest format of a run. Format 1 has no draws on a scale of their own."""
KIND: Final = "run"


@dataclass(frozen=True)
class Mark:
    """A checkpoint file, and the committed iterations and draws before it."""

    generation: int
    """Number of the commit that wrote it, which names the file."""
    warmup: int
    draws: int
    size: int
    """Bytes of the file."""
    crc32c: int


class NextInterval(NamedTuple):
    """The draws that are committed next."""

    phase: str
    start: int
    length: int
    """Number of draws; 0 if all are committed."""
    whole: int
    """Number of whole intervals from ``start`` to the end of the phase."""


@dataclass(frozen=True)
class RunState:
    """Immutable layout, plan and commit of a run; each commit makes a new state."""

    layout: Layout
    identity: Mapping[str, Any]
    """JSON of everything that determines the draws, except their number."""
    warmup: int
    """Planned number of warm-up iterations."""
    draws: int
    """Planned number of draws."""
    generation: int
    """Number of the last commit, 0 before the first; no relation to generations of a store."""
    committed: Mapping[str, int]
    """Phase -> number of committed iterations."""
    sums: Mapping[str, tuple[int, int]]
    """``group/name`` -> checksum over the full chunks, and over all committed draws."""
    marks: tuple[Mark, ...]
    """Checkpoints that are kept, the newest last."""
    fixed: Mapping[str, StoredArray]
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

    def next_interval(self) -> NextInterval:
        """Return phase, first draw and length of the next interval."""
        phase = self.phase()
        start = self.next_start(phase)
        left = self.planned(phase) - start
        interval = self.layout.interval
        return NextInterval(phase, start, min(interval, left), left // interval)

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
    nodes: dict[str, Any] = dict.fromkeys(state.groups(), group_document({}))
    nodes |= {key: spec.document() for key, spec in sorted(state.specs().items())}
    return seal(attributes, own_entries(state), nodes)


def own_entries(state: RunState) -> dict[str, Any]:
    """Return a state as JSON, for :func:`state_from_json`."""
    return {
        "format": 1 if state.layout.table is None else FORMAT,
        "kind": KIND,
        "generation": state.generation,
        "identity": dict(state.identity),
        **layout_to_json(state.layout),
        "warmup": state.warmup,
        "draws": state.draws,
        "committed": dict(state.committed),
        "sums": {key: list(pair) for key, pair in state.sums.items()},
        "checkpoints": [vars(mark) for mark in state.marks],
        "fixed": {key: array.entry() for key, array in state.fixed.items()},
    }


def state_from_json(own: Mapping[str, Any], attributes: Mapping[str, Any], where: Any) -> RunState:
    """Return the state from the JSON ``own`` and the attributes of a root document.

    Raises
    ------
    StoreError
        If its kind or format is another, or its entries contradict each other.
    """
    version = own.get("format")
    if own.get("kind") != KIND or type(version) is not int or not 1 <= version <= FORMAT:
        raise StoreError(
            f"expected a run of format 1 to {FORMAT} in {where}, found kind {own.get('kind')!r}, "
            f"format {version!r}: choose another path, or update streammc"
        )
    try:
        state = RunState(
            layout=layout_from_json(own, attributes if version > 1 else None),
            identity=dict(own["identity"]),
            warmup=int(own["warmup"]),
            draws=int(own["draws"]),
            generation=int(own["generation"]),
            committed={phase: int(own["committed"][phase]) for phase in PHASES},
            sums={key: (int(full), int(every)) for key, (full, every) in own["sums"].items()},
            marks=tuple(
                Mark(**{k: int(v) for k, v in mark.items()}) for mark in own["checkpoints"]
            ),
            fixed={key: stored_from_entry(key, entry) for key, entry in own["fixed"].items()},
        )
        whole = (
            0 <= state.committed["warmup"] <= state.warmup
            and state.committed["draws"] >= 0
            and set(state.sums) == set(state.growing())
            and not set(state.sums) & set(state.fixed)
            and (version == 1) == (state.layout.table is None)
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
