"""Settings of the commands that are stages of a job, too: their arguments and options.

A field with ``key`` is one of ``job.toml``, in the table that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streammc.cli.options import CodeOption, ModelOptions, ShowOptions, VerboseOption, argument
from streammc.samplers.common.sampler import RunOptions, TemperatureOption
from streammc.settings import IntervalOption, OverwriteOption, PassOptions, setting
from streammc.stores.ingest.table_options import LayoutOptions, LikeOption, TableOptions

if TYPE_CHECKING:
    from streammc.checks.scoring import ScoreRequest


@dataclass(frozen=True, kw_only=True)
class AppendOptions:
    """Options of rows that are added to a store."""

    append: bool = setting(
        False, "Add the rows to STORE, in its columns and scale.", environment=False
    )
    again: bool = setting(
        False, "With --append: also rows of files that STORE has.", environment=False
    )


@dataclass(frozen=True, kw_only=True)
class IngestSettings(TableOptions, LikeOption, LayoutOptions, AppendOptions, OverwriteOption):
    """Settings of ``streammc ingest``."""

    sources: tuple[str, ...] = argument("store", (), several=True)
    store: str = argument("store")


@dataclass(frozen=True, kw_only=True)
class SummarizeSettings(TemperatureOption, PassOptions, OverwriteOption, ModelOptions):
    """Settings of ``streammc summarize``."""

    store: str = argument("store")
    output: str | None = setting(
        None, "Path of the result; default: NAME.cv.zarr beside STORE.", kind="path", short=["-o"]
    )
    passes: int | None = setting(
        None, "Full passes; default: until certified.", minimum=1, most=1000
    )
    order: Literal["0", "1", "2"] = setting("2", "Order of the control variates.")
    option: tuple[tuple[str, Any], ...] = setting(
        (), "Any other option of the model.", kind="option", multiple=True
    )
    update: str | None = setting(
        None,
        "Control variates from before rows were appended; default: those at --output.",
        kind="path",
    )


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """Options of samplers that have a flag of their own; ``--option`` takes the others."""

    subsample_size: int | None = setting(
        None, "Rows m; default: automatic.", minimum=1, auto=True, key="sampler"
    )
    n_blocks: int | None = setting(
        None, "Blocks G; default: automatic.", minimum=1, auto=True, key="sampler"
    )
    unit_rows: int | None = setting(
        None, "Rows b of a unit; automatic.", minimum=1, auto=True, key="sampler"
    )
    step_size: float | None = setting(
        None, "Default: automatic.", exclusiveMinimum=0, auto=True, key="sampler"
    )
    trajectory_length: float | None = setting(
        None, "Fixed; in posterior sd.", exclusiveMinimum=0, auto=True, key="sampler"
    )


@dataclass(frozen=True, kw_only=True)
class SamplerChoice:
    """The sampler of a run, and where it begins."""

    sampler: str = setting("auto", "auto or see `streammc samplers`.", key="sampler.name")
    option: tuple[tuple[str, Any], ...] = setting(
        (), "Any other option of sampler or model.", kind="option", multiple=True
    )
    control_variates: str | None = setting(None, "From `streammc summarize`.", kind="path")
    start_from: str | None = setting(None, "An earlier run: begin at its posterior.", kind="run")
    audit: bool | None = setting(None, "Default: if it costs less than the draws.", key="sampler")


@dataclass(frozen=True, kw_only=True)
class SampleSettings(
    ModelOptions, SamplerChoice, RunOptions, SamplerOptions, ShowOptions, VerboseOption
):
    """Settings of ``streammc sample``."""

    store: str = argument("store")
    output: str = setting(
        help="Directory or address of the run.", kind="run", short=["-o"], recorded=False
    )
    dry_run: bool = setting(
        False, "Print a forecast of the run; draw nothing.", environment=False, recorded=False
    )


@dataclass(frozen=True, kw_only=True)
class FitSettings(
    ModelOptions,
    SamplerChoice,
    RunOptions,
    SamplerOptions,
    ShowOptions,
    VerboseOption,
    TableOptions,
):
    """Settings of ``streammc fit``; ``--seed`` is that of the draws."""

    table: tuple[str, ...] = argument("store", several=True)
    output: str = setting(
        help="Directory or address of the run.", kind="run", short=["-o"], recorded=False
    )
    store: str | None = setting(
        None, "Keep the rows in a store, for predictions and further runs.", kind="store"
    )


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Options of scores."""

    score_draws: int = setting(
        1000, "Number of draws, thinned from all chains.", minimum=100, key="score.draws"
    )
    score_rows: int | None = setting(
        None,
        "Rows to evaluate at every draw; by default all, or 10,000 of a large table.",
        minimum=100,
        key="score.rows",
    )
    score_seed: int = setting(0, "Seed of the sample of rows.", minimum=0, key="score.seed")

    def request(self, where: Any) -> ScoreRequest:
        """Return the request of the scores; ``where`` is their scheduler."""
        from streammc.checks.scoring import ScoreRequest

        return ScoreRequest(
            draws=self.score_draws,
            rows=self.score_rows,
            seed=self.score_seed,
            scheduler=where,
            progress=None,
        )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(ScoreOptions, PassOptions, OverwriteOption, CodeOption):
    """Settings of ``streammc score``."""

    run: str = argument("run")
    store: str | None = argument("store", None)
    output: str | None = setting(
        None, "JSON file to make, with the terms by row.", kind="path", short=["-o"]
    )


@dataclass(frozen=True, kw_only=True)
class PredictSettings(IntervalOption, PassOptions, OverwriteOption, CodeOption):
    """Settings of ``streammc predict``."""

    run: str = argument("run")
    store: str = argument("store")
    output: str = setting(help="FILE.zarr, .csv or .parquet to make.", kind="rows", short=["-o"])
    predict_draws: int | None = setting(
        None,
        "Number of draws, thinned from all chains; 200 by default, 100 of a mixed model.",
        minimum=2,
        key="predict.draws",
    )
    by: str | None = setting(
        None, "Compare with the response by groups of this column.", metavar="COLUMN", key="predict"
    )
    bins: int = setting(100, "Number of groups.", minimum=1, most=10**5, key="predict")
    probabilities: bool = setting(
        False, "Probabilities of the categories, in place of their mean number.", key="predict"
    )
    new_groups: Literal["integrate", "refuse"] = setting(
        "integrate", "Rows of groups that a mixed model has not seen.", key="predict"
    )
    trained_on: str | None = setting(
        None,
        "Of a mixed model: the store of its run, if it has moved, or the fitted table.",
        kind="store",
    )


@dataclass(frozen=True, kw_only=True)
class ReportSettings(IntervalOption, OverwriteOption):
    """Settings of ``streammc report``."""

    run: str = argument("run")
    store: str | None = argument("path", None)
    output: str = setting(help="HTML file to make.", kind="path", short=["-o"])
    predictions: tuple[str, ...] = setting(
        (),
        "Predictions of the run to show; may be given several times.",
        kind="path",
        multiple=True,
        environment=False,
    )
