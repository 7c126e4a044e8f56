"""MINTEE: the mixture of 50 components of Li and Wong 2017, sections 5.3 and A.2.2.

Run as ``python -m bench.papers.mint.mintee WORK [--write] [--full] [--threads N]``; WORK
keeps the runs.
The bench of MINT calls :func:`measure` and :func:`section` for its part (c); by itself it
prints the section. ``--full`` draws 300,000 states of the lowest chain of the continued ladder.
Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.papers.drawing import BLUE, GREEN, GREY, RED, new_figure, save
from bench.papers.markdown import number, table
from bench.papers.measures import Array
from bench.papers.mint.mintee_text import AFTER, BEFORE
from bench.papers.records import log
from streammc import from_arrays
from streammc.models import gaussian_mixture
from streammc.priors import flat
from streammc.runs.setup import decide
from streammc.samplers import mintee
from streammc.samplers.common.sampler import RunRequest

N, D = 100_000, 50
MEANS = np.array([2.0] + [0.0] * (D - 1))
PRINTED = {"subset_size": 1000, "n_levels": 7, "jump_probability": 0.1}
CONTINUED: dict[str, Any] = {"subset_size": 1000, "jump_probability": 0.5}
ESTIMATORS: dict[str, tuple[dict[str, Any], int, int]] = {
    "carried, as printed": (
        {**PRINTED, "energy": "carried", "control_variate": "none"},
        6000,
        1000,
    ),
    "carried, control variates": ({**PRINTED, "energy": "carried"}, 6000, 1000),
    "shared": ({**PRINTED, "energy": "shared"}, 6000, 1000),
    "subset": ({**PRINTED, "energy": "subset"}, 6000, 1000),
    "full": ({**PRINTED, "energy": "full"}, 1000, 300),
    "subset, continued by 1.4": ({**CONTINUED, "energy": "subset"}, 6000, 1000),
}
"""Options, warm-up and draws; of one chain."""
LADDER = "full, continued by 2"
FULL = {**CONTINUED, "energy": "full", "growth": 2.0}
WARMUP, CHAINS = 6000, 3
DRAWS, PIECE = 10_000, 100
FEWER = "full, continued by 2, 10,000 points"
FEWER_WARMUP, FEWER_DRAWS, FEWER_POINTS = 20_000, 40_000, 10_000


def observations(n: int = N) -> Array:
    """Return (n,) observations of the mixture at theta* = 2 e_1."""
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(n)
    return np.asarray(noise + MEANS[rng.integers(0, D, n)])


def chain(
    options: dict[str, Any], warmup: int, draws: int, index: int, n: int = N
) -> dict[str, Any]:
    """Run a chain; return its positions, what it counted, and where its rings have been."""
    data = from_arrays(observations(n)[:, None], np.zeros(n))
    model = gaussian_mixture(D, prior=flat())
    sampler = mintee(covariance="identity", start=0.0, **options)
    request = RunRequest(data, model, sampler, warmup=warmup)
    setup = decide(request)
    shared = sampler.problem(request, setup)
    kernel: Any = shared.kernel(1, index)
    kernel.initialise()
    begun = perf_counter()
    kernel.advance(warmup, True)
    warm = perf_counter() - begun
    theta = np.concatenate(
        [kernel.advance(min(PIECE, draws - s), False)["theta"] for s in range(0, draws, PIECE)]
    )
    rings = kernel.rings
    here = np.arange(rings.value.shape[2]) < rings.held[:, :, None]
    held = [len(np.unique(rings.z[k][here[k]].argmax(axis=1))) for k in range(1, len(rings.held))]
    # Energies of all rows at some states of the rings: what a level really targets.
    true = [0.0] * (len(held) + 1)
    lowest = -float(shared.at_reference.sum())  # type: ignore[attr-defined]
    for k in range(1, len(true)):
        z = rings.z[k][here[k]]
        some = z[:: max(len(z) // 40, 1)] + shared.base.theta_star  # type: ignore[attr-defined]
        energies = [-shared.log_likelihood(shared.full, n, t) - lowest for t in some]  # type: ignore[attr-defined]
        true[k] = float(np.mean(energies) / kernel.levels.temperature[k])
    return {
        "theta": theta.astype(np.float32),
        "tallies": {name: np.asarray(v).tolist() for name, v in kernel.tallies().items()},
        "modes_in_rings": held,
        "energy": true,
        "warmup_seconds": warm,
        "seconds": perf_counter() - begun,
    }


def runs(
    work: Path,
    name: str,
    options: dict[str, Any],
    warmup: int,
    draws: int,
    count: int,
    threads: int,
    n: int = N,
) -> tuple[Array, list[dict[str, Any]]]:
    """Run chains, or read those that were kept; return positions and what was counted."""
    path = work / f"mintee-{name.replace(', ', '-').replace(' ', '-')}-{draws}.npz"
    if not path.exists():
        log(f"mintee, {name}: {count} x {draws:,} draws")
        work.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda c: chain(options, warmup, draws, c, n), range(count)))
        theta = np.stack([one.pop("theta") for one in found])
        np.savez(path, theta=theta, facts=json.dumps(found))
    with np.load(path) as held:
        return held["theta"], json.loads(str(held["facts"]))


def facts(theta: Array, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the tables say of the chains of one ladder, averaged over them."""
    mode = theta.argmax(axis=2)
    away = theta[:, :, 0] > 1.0
    tallies = {
        name: np.mean([one["tallies"][name] for one in found], axis=0)
        for name in found[0]["tallies"]
    }
    per_chain = away.mean(axis=1)
    return {
        "draws": int(mode.size),
        "chains": len(theta),
        "modes": len(np.unique(mode)),
        "visits": np.bincount(mode.ravel(), minlength=D).tolist(),
        "switches": int((np.diff(mode, axis=1) != 0).sum()),
        "away": float(per_chain.mean()),
        "modes_in_rings": np.mean([one["modes_in_rings"] for one in found], axis=0).tolist(),
        "energy": np.mean([one["energy"] for one in found], axis=0).tolist(),
        "seconds": max(one["seconds"] for one in found),
        **{
            name: tallies[name].tolist()
            for name in (
                "temperature", "rows", "acceptance_rate", "jump_rate", "ring_percent", "step_size",
            )
        },
    }  # fmt: skip


def overlap(shape: float, hot: float, width: float = 10.0) -> tuple[float, float]:
    """Return what of level 1 lies in ring 0, and the mean probability of a jump from ring 1.

    In closed form: where the volume below an energy h grows as ``h^shape``, h has the density
    ``h^(shape - 1) exp(-max(h, H) / T)``, the chi-square of ``2 shape`` dimensions for H = 0.
    Level 0 is at T = 1 and level 1 at ``hot``; ring 0 ends at ``width``, ring 1 at
    ``width (1 + hot)``.
    """
    h = np.linspace(0.0, 20.0 * shape * hot, 400_001)[1:]
    cold = np.exp((shape - 1.0) * np.log(h) - h)
    warm = (shape - 1.0) * np.log(h) - np.maximum(h, width) / hot
    warm = np.exp(warm - warm.max())
    below = float(warm[h < width].sum() / warm.sum())
    ring = (h >= width) & (h < width * (1.0 + hot))
    inside, weight = h[ring], warm[ring] / warm[ring].sum()
    start = cold[ring] > 1e-12 * cold.max()
    jumped = [
        weight @ np.exp(np.minimum((now - inside) * (1.0 - 1.0 / hot), 0.0))
        for now in inside[start][::10]
    ]
    return below, float(np.average(jumped, weights=cold[ring][start][::10]))


def measure(work: Path, *, full: bool = False, threads: int = 3) -> dict[str, Any]:
    """Return what the section shows, running what is not in ``work``."""
    result: dict[str, Any] = {"ladders": {}}
    for name, (options, warmup, draws) in ESTIMATORS.items():
        theta, found = runs(work, name, options, warmup, draws, 1, 1)
        result["ladders"][name] = facts(theta, found)
    draws = 300_000 // CHAINS if full else DRAWS
    theta, found = runs(work, LADDER, FULL, WARMUP, draws, CHAINS, threads)
    result["ladders"][LADDER] = facts(theta, found)
    settings = (FULL, FEWER_WARMUP, FEWER_DRAWS, CHAINS, threads, FEWER_POINTS)
    result["ladders"][FEWER] = facts(*runs(work, FEWER, *settings))
    x = observations()
    variance = float(
        np.var(np.log(0.98 * np.exp(-0.5 * x**2) + 0.02 * np.exp(-0.5 * (x - 2.0) ** 2)))
    )
    result["noise"] = {str(m): float(m**0.99 * variance) for m in (1000, 5378)}
    result["overlap"] = {str(shape): overlap(shape, 19.41) for shape in (13, 25)}
    edges = np.linspace(-0.8, 2.8, 91)
    result["histogram"] = np.histogram(theta[:, :, 0], edges)[0].tolist()
    return result


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the first coordinate of the lowest chain, its visits, and modes by level."""
    lower = result["ladders"][LADDER]
    figure, axes = new_figure(1, 3, 9.0, 2.6)
    edges = np.linspace(-0.8, 2.8, 91)
    counts = np.array(result["histogram"], dtype=float)
    axes[0, 0].bar(edges[:-1], np.maximum(counts, 0.5), np.diff(edges), align="edge", color=GREEN)
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_xlabel("first coordinate of the lowest chain", fontsize=8)
    axes[0, 1].bar(np.arange(D), np.array(lower["visits"]) / lower["draws"], color=GREEN)
    axes[0, 1].axhline(1.0 / D, color=GREY, lw=1)
    axes[0, 1].set_xlabel("mode", fontsize=8)
    axes[0, 1].set_title("share of the draws", fontsize=8)
    for name, colour in (("carried, as printed", RED), ("shared", BLUE), (LADDER, GREEN)):
        one = result["ladders"][name]
        heat = one["temperature"]
        axes[0, 2].plot(heat, [one["modes"], *one["modes_in_rings"]], "o-", ms=3, color=colour)
    axes[0, 2].set_xscale("log")
    axes[0, 2].set_xlabel("temperature", fontsize=8)
    axes[0, 2].set_title("modes seen: red carried, blue shared, green ours", fontsize=8)
    save(figure, path)


def section(result: dict[str, Any], picture: str = "mint/mintee.png") -> list[str]:
    """Return the lines of the page."""
    ladders = result["ladders"]
    words = {
        "noise": [result["noise"][m] for m in ("1000", "5378")],
        "overlap": [*result["overlap"]["13"], *result["overlap"]["25"]],
        "jump": CONTINUED["jump_probability"],
    }
    lines = [*BEFORE.format(**words).splitlines(), ""]
    rows = []
    for name, one in ladders.items():
        heated = int(np.argmin(np.abs(np.log(np.array(one["temperature"]) / 19.41))))
        ratio = (1.0 - one["away"]) / one["away"] if one["away"] > 0.0 else None
        rows.append([
            name, f"{one['draws']:,}", str(one["modes"]), number(ratio, 3), str(one["switches"]),
            number(one["jump_rate"][0], 2), number(one["modes_in_rings"][heated - 1], 2),
            number(one["energy"][heated], 3), f"{one['seconds']:.0f}",
        ])  # fmt: skip
    rows.append(["published", "300,000", "50", "about 50", "–", "–", "–", "–", "–"])
    head = (
        "energy", "draws", "modes", "ratio", "changes of mode", "jump rate", "modes near T = 19.41",
        "(h − H₀)/T there", "seconds",
    )  # fmt: skip
    lines += [*table(head, rows), ""]
    lower = ladders[LADDER]
    lines += [f"The ladder continued to T = 1, *{LADDER}*: the lowest levels of "
              f"{lower['chains']} chains saw {lower['modes']} of {D} modes in {lower['draws']:,} "
              f"draws, and changed mode {lower['switches']:,} times."]  # fmt: skip
    if lower["modes"] < D:
        lines += ["", f"The {D} modes that are published were not reached in so many draws."]
    lines += ["", f"![The lowest chain]({picture})", "", *AFTER.splitlines()]
    return lines


def main() -> None:
    """Measure, print the section, and draw its picture if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--write", type=Path, help="folder for mintee.md and mintee.png")
    options = parser.parse_args()
    result = measure(options.work, full=options.full, threads=options.threads)
    lines = section(result, "mintee.png")
    sys.stdout.write("\n".join(lines) + "\n")
    if options.write is not None:
        draw(result, options.write / "mintee.png")
        (options.write / "mintee.md").write_text("\n".join(lines) + "\n")
        (options.write / "mintee.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
