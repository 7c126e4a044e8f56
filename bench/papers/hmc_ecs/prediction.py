"""Figures 3 and 6: the ROC curve of test rows, and predicted against realised failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.special import expit

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.measures import Array, Run

DRAWS = 100
GROUPS = 100
PIECE = 65_536
RATES = np.linspace(0.0, 1.0, 201)


def thinned(run: Run, count: int = DRAWS) -> Array:
    """Return (count, d) draws, evenly spaced."""
    flat = run.draws.reshape(-1, run.draws.shape[-1])
    chosen: Array = flat[np.linspace(0, len(flat) - 1, count).astype(int)]
    return chosen


def _blocks(store: Any) -> Iterator[tuple[int, Array, Array]]:
    """Yield the first row, the design and the response of every piece of a store."""
    X, y = store.rows().arrays[:2]
    for start in range(0, store.n_rows, PIECE):
        stop = min(start + PIECE, store.n_rows)
        yield start, np.asarray(X[start:stop], np.float32), np.asarray(y[start:stop], np.float64)


def roc(store: Any, run: Run) -> dict[str, Any]:
    """Return true-positive rates at ``RATES`` by draw (mean, 5 %, 95 %) and the area."""
    theta = thinned(run).astype(np.float32)
    parts = [(X @ theta.T, y) for _, X, y in _blocks(store)]
    scores, y = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    curves, areas = [], []
    for s in range(len(theta)):
        hits = y[np.argsort(-scores[:, s], kind="stable")]
        true, false = np.cumsum(hits) / hits.sum(), np.cumsum(1 - hits) / (1 - hits).sum()
        curves.append(np.interp(RATES, np.r_[0.0, false], np.r_[0.0, true]))
        areas.append(float(np.trapezoid(np.r_[0.0, true], np.r_[0.0, false])))
    band = np.quantile(curves, [0.05, 0.95], axis=0)
    low, high = np.quantile(areas, [0.05, 0.95])
    return {
        "mean": np.mean(curves, axis=0),
        "band": band,
        "auc": float(np.mean(areas)),
        "auc_low": float(low),
        "auc_high": float(high),
    }


def draw_roc(curves: dict[str, dict[str, Any]], full: str, path: Path) -> dict[str, Any]:
    """Draw each curve over that of HMC; return areas and largest distances."""
    others = [name for name in curves if name != full]
    figure, axes = new_figure(1, len(others), 3.1 * len(others), 3.0, sharey=True)
    truth, result = curves[full], {}
    for panel, name in zip(axes[0], others, strict=True):
        mine = curves[name]
        panel.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=":")
        panel.plot(RATES, truth["mean"], color=RED, lw=3.2, alpha=0.45, label=full)
        panel.fill_between(RATES, *mine["band"], color=GREEN, alpha=0.3, lw=0)
        panel.plot(RATES, mine["mean"], color=GREEN, lw=1.0, ls="--", label=name)
        panel.legend(fontsize=7, frameon=False, loc="lower right")
        panel.set_xlabel("false positive rate", fontsize=8)
    axes[0, 0].set_ylabel("true positive rate", fontsize=8)
    save(figure, path)
    for name, mine in curves.items():
        result[name] = {key: mine[key] for key in ("auc", "auc_low", "auc_high")}
        result[name]["distance"] = float(np.abs(mine["mean"] - truth["mean"]).max())
    return result


def groups(table: Path, column: str) -> tuple[Array, Array]:
    """Return the group of every row, in equal parts by ``column``, and the group means of it."""
    values = pq.read_table(table, columns=[column])[column].to_numpy()
    order = np.argsort(values, kind="stable")
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.arange(len(values)) * GROUPS // len(values)
    return group, np.bincount(group, values, GROUPS) / np.bincount(group, minlength=GROUPS)


def calibration(store: Any, group: Array, runs: dict[str, Run]) -> dict[str, Any]:
    """Return realised frequencies and predicted means by group (mean, 5 %, 95 %) by run."""
    thetas = {name: thinned(run).astype(np.float32) for name, run in runs.items()}
    count = np.bincount(group, minlength=GROUPS).astype(float)
    realised = np.zeros(GROUPS)
    totals = {name: np.zeros((GROUPS, len(theta))) for name, theta in thetas.items()}
    for start, X, y in _blocks(store):
        mine = group[start : start + len(y)]
        realised += np.bincount(mine, y, GROUPS)
        order = np.argsort(mine, kind="stable")
        present, first = np.unique(mine[order], return_index=True)
        for name, theta in thetas.items():
            chance = expit(X @ theta.T)[order]
            totals[name][present] += np.add.reduceat(chance, first, axis=0)
    found: dict[str, Any] = {"realised": realised / count}
    for name, total in totals.items():
        predicted = total / count[:, None]
        low, high = np.quantile(predicted, [0.05, 0.95], axis=1)
        found[name] = {"mean": predicted.mean(axis=1), "low": low, "high": high}
    return found


def draw_calibration(at: Array, found: dict[str, Any], column: str, path: Path) -> dict[str, Any]:
    """Draw realised and predicted failures against the covariate; return the distances."""
    names = [name for name in found if name != "realised"]
    figure, axes = new_figure(1, len(names), 3.6 * len(names), 3.0, sharey=True)
    for panel, name in zip(axes[0], names, strict=True):
        mine = found[name]
        panel.plot(at, 100 * found["realised"], "o", color=BLUE, ms=3, mew=0, label="realised")
        panel.fill_between(at, 100 * mine["low"], 100 * mine["high"], color=GREEN, alpha=0.35, lw=0)
        panel.plot(at, 100 * mine["mean"], color=GREEN, lw=1.2, label=f"predicted, {name}")
        panel.legend(fontsize=7, frameon=False)
        panel.set_xlabel(f"{column} ratio", fontsize=8)
    axes[0, 0].set_ylabel("failures, %", fontsize=8)
    save(figure, path)
    one, other = (found[name] for name in names[:2])
    return {
        "difference": float(np.abs(one["mean"] - other["mean"]).max()),
        "band": float(np.median(one["high"] - one["low"])),
        "inside": float(np.mean(_covered(found["realised"], one))),
    }


def _covered(realised: Array, mine: dict[str, Array]) -> Array:
    inside: Array = (realised >= mine["low"]) & (realised <= mine["high"])
    return inside
