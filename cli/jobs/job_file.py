"""The keys of ``job.toml``: dataclasses that parse it, and of which its JSON Schema is made.

A key that a command has as an option names it: the stage of the job passes the value on, and the
schema takes its description from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

SAME: Final = "same"
"""The option of a key is the one with its name."""


def key(
    text: str = "", *, option: str | None = SAME, path: bool = False, **bounds: float | int
) -> Any:
    """Return the field of a key that can be left out.

    Parameters
    ----------
    text
        Description; without one it is that of the option.
    option
        Option of the command of the section; ``None``: it has none.
    path
        Whether the value is a path, relative to the folder of the file.
    bounds
        ``minimum``, ``exclusiveMinimum`` and the like, as in JSON Schema.
    """
    return field(default=None, metadata=_metadata(text, option, path, bounds))


def required(text: str = "", *, option: str | None = SAME, path: bool = False) -> Any:
    """Return the field of a key that must be there."""
    return field(metadata=_metadata(text, option, path, {}))


def _metadata(text: str, option: str | None, path: bool, bounds: Mapping[str, Any]) -> Any:
    return {"text": text, "option": option, "path": path, "bounds": dict(bounds)}


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows: tables to ingest, or a store that exists."""

    command: ClassVar[str] = "ingest"
    files: tuple[str, ...] | None = key(
        "CSV, Parquet or Arrow files, folders of them, patterns such as 'flights-*.parquet', or "
        "addresses of these (s3://bucket/flights); folders name=value are columns.",
        option=None,
        path=True,
    )
    store: str | None = key(
        "A store that exists, or its address, in place of files.", option=None, path=True
    )
    append: tuple[str, ...] | None = key(
        "Files of new rows, or patterns that may find none yet: those that the store does not have "
        "are appended as its next generation. Outputs then have {generation} in their paths.",
        option=None,
        path=True,
    )


@dataclass(frozen=True, kw_only=True)
class Ingest:
    """How the tables become a store."""

    command: ClassVar[str] = "ingest"
    formula: str | None = key()
    response: str | None = key()
    features: tuple[str, ...] | None = key()
    offset: str | None = key()
    weight: str | None = key()
    trials: str | None = key()
    group: str | None = key()
    group_as: tuple[str, ...] | None = key()
    row_id: str | None = key()
    shuffle: bool | None = key()
    seed: int | None = key(minimum=0)
    dtype: Literal["float32", "float64"] | None = key()
    standardize: bool | None = key()
    intercept: bool | None = key()
    drop_missing: bool | None = key()
    missing: tuple[str, ...] | None = key()
    codes_above: int | None = key(minimum=0)
    chunk_rows: int | None = key(minimum=1)
    layout: Literal["local", "cloud"] | None = key()
    compression: Literal["zstd"] | None = key()


@dataclass(frozen=True, kw_only=True)
class Model:
    """The likelihood."""

    command: ClassVar[str] = "sample"
    name: str = required(option="model")
    prior_scale: float | None = key(exclusiveMinimum=0)
    options: Mapping[str, Any] | None = key("Options of the model.", option="option")


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How the posterior is sampled."""

    command: ClassVar[str] = "sample"
    name: str | None = key(option="sampler")
    draws: int | None = key(minimum=1)
    warmup: int | None = key(minimum=1)
    chains: int | None = key(minimum=1)
    seed: int = field(
        default=0, metadata=_metadata("Seed of all draws.", SAME, False, {"minimum": 0})
    )
    temperature: float | str | None = key()
    subsample_size: int | None = key(minimum=1)
    n_blocks: int | None = key(minimum=1)
    unit_rows: int | None = key(minimum=1)
    step_size: float | None = key(exclusiveMinimum=0)
    trajectory_length: float | None = key(exclusiveMinimum=0)
    audit: bool | None = key()
    options: Mapping[str, Any] | None = key("Any other option of the sampler.", option="option")


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Until when draws are made."""

    command: ClassVar[str] = "sample"
    ess: float | None = key(
        "Least effective sample size of every parameter.", option=None, exclusiveMinimum=0
    )
    rhat: float | None = key("Largest R-hat of every parameter.", option=None, exclusiveMinimum=1)
    time: str | float | None = key(
        "Longest time of warm-up and draws: seconds, or a text such as '2h'.", option=None
    )
    draws: int | None = key("Most draws per chain.", option=None, minimum=1)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Scores of the model on the rows it was fitted to, each left out."""

    command: ClassVar[str] = "score"
    draws: int | None = key(option="score-draws", minimum=100)
    rows: int | None = key(option="score-rows", minimum=100)
    seed: int | None = key(option="score-seed", minimum=0)


@dataclass(frozen=True, kw_only=True)
class Predict:
    """The rows that are predicted: by default those of the job's own store."""

    command: ClassVar[str] = "predict"
    files: tuple[str, ...] | None = key(
        "Tables with the same columns, ingested like the job's own.", option=None, path=True
    )
    store: str | None = key("A store that exists, in place of files.", option=None, path=True)
    draws: int | None = key(option="predict-draws", minimum=2)
    interval: float | None = key(exclusiveMinimum=0, exclusiveMaximum=1)
    by: str | None = key()
    bins: int | None = key(minimum=1)
    new_groups: Literal["integrate", "refuse"] | None = key()


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where results go; paths are relative to the folder of the file."""

    command: ClassVar[str] = "sample"
    run: str = required(
        "The run: draws, checkpoints and summary; a path or an address.", option="output", path=True
    )
    store: str | None = key("The store made of source.files.", option=None, path=True)
    control_variates: str | None = key(
        "Control variates, kept apart for other runs; by default in the run.",
        option="control-variates",
        path=True,
    )
    scores: str | None = key("Scores, JSON; none without this key.", option=None, path=True)
    rows: str | None = key("The store made of predict.files.", option=None, path=True)
    predictions: str | None = key("Predictions; none without this key.", option=None, path=True)
    report: str | None = key("A page about the run, HTML; none without.", option=None, path=True)
    summary: str = field(
        default="summary.json",
        metadata=_metadata("JSON file with the end of the job.", None, True, {}),
    )


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """A job of streammc: from tables to a posterior and predictions."""

    source: Source
    ingest: Ingest | None = None
    model: Model
    priors: Mapping[str, str] | None = key(
        "Priors by parameter name or pattern, '*' for all other coefficients.", option=None
    )
    sampler: Sampler | None = None
    stop: Stop | None = None
    score: Score | None = None
    predict: Predict | None = None
    outputs: Outputs
