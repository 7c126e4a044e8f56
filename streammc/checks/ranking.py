"""Models ranked by their leave-one-out scores, with paired standard errors of differences.

Differences between two models are taken row by row, in the same rows: what makes a row hard for
both leaves the standard error of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammc.checks.difference_estimate import Estimate, paired_difference
from streammc.checks.scoring import Scored, ScoreRequest, Scoring, score_together
from streammc.errors import IdentityError, ModelError
from streammc.likelihood.data_views import by_group
from streammc.models.base import ColumnsModel
from streammc.prediction.predictors import rows_of_run
from streammc.protocols import Dataset, Model, PassTask, RowBlock
from streammc.trace.run_directory import RunDirectory

_MASK = (1 << 64) - 1


class ResponseDigest(PassTask[int]):
    """``PassTask`` that sums a hash of (position, response, weight) over rows, modulo 2^64.

    The sum does not depend on chunks, which differ between stores of different width.
    """

    def map(self, block: RowBlock) -> int:
        """Return the sum over the rows of a block."""
        at = np.arange(block.start, block.start + len(block.y), dtype=np.uint64)
        mixed = _mixed(at)
        for part in (block.y, block.weight):
            values = np.asarray(part, dtype=np.float64) + 0.0  # one zero
            mixed = _mixed(mixed + values.view(np.uint64))
        return int(mixed.sum(dtype=np.uint64))

    def combine(self, left: int, right: int) -> int:
        """Return the sum over two neighbouring blocks."""
        return (left + right) & _MASK


def response_digest(table: Dataset, scheduler: Any = None) -> int:
    """Return the digest of the responses and weights of a table, from one pass."""
    return table.reduce(ResponseDigest(), scheduler=scheduler)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 (Steele, Lea and Flood 2014) of values (m,)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


class Candidate(NamedTuple):
    """A run with its model and store."""

    path: str
    run: RunDirectory
    model: Model
    store: Any


def ranked(candidates: Sequence[Candidate], request: ScoreRequest) -> list[dict[str, Any]]:
    """Return the scores of runs, the best first, with differences from it.

    Where one run is too large to evaluate every row, the same sample of rows is evaluated for all.
    The result is JSON: the facts of ``streammc.score``, ``run`` as given, and ``difference``: an
    estimate of ``elpd_loo`` less that of the best, with paired ``se`` and ``sampling_se``.
    IdentityError if the runs are of other rows, or leave out other units; ModelError if
    log-likelihoods of the models are not comparable.
    """
    require_same_rows(candidates, request.scheduler)
    scorings = [Scoring(each.run, each.model, each.store, request) for each in candidates]
    pairs = list(zip(candidates, score_together(scorings, request), strict=True))
    for candidate, scored in pairs[1:]:
        first = pairs[0][1].facts["left_out"]
        if scored.facts["left_out"] != first:
            raise IdentityError(
                f"expected runs that leave out the same unit, found {scored.facts['left_out']} in "
                f"{candidate.path!r} and {first} in {pairs[0][0].path!r}: weights are trials of a "
                "binomial row, and observations of others; compare models of one family"
            )
    pairs.sort(key=lambda pair: -pair[1].facts["elpd_loo"]["estimate"])
    best = pairs[0][1]
    return [
        {**scored.facts, "run": each.path, "difference": difference(scored, best).to_json()}
        for each, scored in pairs
    ]


def difference(scored: Scored, best: Scored) -> Estimate:
    """Return ``elpd_loo`` of a run less that of another, evaluated in the same rows."""
    away = scored.terms.elpd - best.terms.elpd
    surrogate, whole = None, 0.0
    if scored.surrogate is not None and best.surrogate is not None:
        assert scored.sums is not None
        assert best.sums is not None
        surrogate = scored.surrogate[:, 0] - best.surrogate[:, 0]
        whole = float(scored.sums.total[0] - best.sums.total[0])
    return paired_difference(away, surrogate, whole, scored.terms.observations, scored.sample)


def require_same_rows(candidates: Sequence[Candidate], scheduler: Any = None) -> None:
    """Refuse runs whose rows, responses or units differ, or whose densities have other constants.

    Stores of one table with different formulas may be compared: the responses and weights of
    all rows are read, and must agree at every position.
    """
    first = candidates[0]
    base = rows_of_run(first.run, first.store)
    units = by_group(base, first.model)[0]
    digest = None
    for each in candidates[1:]:
        table = rows_of_run(each.run, each.store)
        own = by_group(table, each.model)[0]
        pair = f"in {each.path!r}", f"in {first.path!r}"
        if own.unit_name != units.unit_name:
            raise IdentityError(
                f"expected runs that leave out the same unit, found a {own.unit_name} {pair[0]} "
                f"and a {units.unit_name} {pair[1]}: compare mixed models of the same groups, or "
                "models without groups"
            )
        _require_constants(base, (first, each))
        _require_one_kind(table, base, (first, each))
        if table.fingerprint == base.fingerprint:
            continue
        for what, ours, theirs in (
            ("rows", table.n_rows, base.n_rows),
            ("response", table.response, base.response),
        ):
            if ours != theirs:
                raise IdentityError(
                    f"expected runs on the same {what}, found {ours!r} {pair[0]} and {theirs!r} "
                    f"{pair[1]}: compare runs on the same rows"
                )
        offset, other = own.unit_offset, units.unit_offset
        if offset is not None and not np.array_equal(offset, np.asarray(other)):
            raise IdentityError(
                f"expected the same groups in the same order, found others {pair[0]} than "
                f"{pair[1]}: compare runs on the same rows"
            )
        digest = response_digest(base, scheduler) if digest is None else digest
        if response_digest(table, scheduler) != digest:
            raise IdentityError(
                "expected the same responses and weights in the same order, found others "
                f"{pair[0]} than {pair[1]}: compare runs on the same rows, such as those of one "
                "file ingested with the same seed"
            )


def _require_one_kind(table: Any, base: Any, pair: tuple[Candidate, Candidate]) -> None:
    """Refuse models of the columns beside models of a response, or of the columns of two stores."""
    of_columns = [isinstance(each.model, ColumnsModel) for each in pair]
    if any(of_columns) and (not all(of_columns) or table.fingerprint != base.fingerprint):
        raise IdentityError(
            f"expected models of the same observations, found {pair[0].model.name!r} in "
            f"{pair[0].path!r} and {pair[1].model.name!r} in {pair[1].path!r}: compare models of "
            "the columns with others of the same store"
        )


def _require_constants(table: Any, pair: tuple[Candidate, Candidate]) -> None:
    """Refuse shares of trials in two families of which one leaves a constant out."""
    names = {each.model.of_a_row.name for each in pair}
    in_order = {"binomial", "beta-binomial"}  # both are of the trials in their order
    if table.attributes.get("trials") and names & in_order and not names <= in_order:
        raise ModelError(
            f"expected one family for shares of trials, found {' and '.join(sorted(names))} in "
            f"{pair[0].path!r} and {pair[1].path!r}: binomial and beta-binomial leave out the "
            "number of ways to order trials, so that other densities cannot be compared; compare "
            "runs of these two"
        )
