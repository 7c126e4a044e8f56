"""Two factors that cross, 40 x 25 levels: posteriors of ``gibbs`` beside NUTS on all effects.

    python bench/crossed_nuts.py --peer PYTHON [--write] [--only NAME ...]

PYTHON has NumPyro. NUTS samples every effect, non-centred, in double precision, four chains one
after the other. z is the difference of two means in Monte Carlo standard errors, of all parameters
and of the effects of all levels; sds are compared of the parameters. In the partner, ``broken``,
NUTS has the responses of other rows in the order of the first ones. ``--write`` puts the table into
docs/measurements/crossed.md, which keeps the lines of other families.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

TABLES = ("balanced", "unbalanced", "levels of one row", "items with tau near 0")
FAMILIES = ("gaussian", "logistic", "poisson", "probit", "negative_binomial", "student_t")
CASES = [(family, TABLES[1]) for family in FAMILIES]
CASES += [(family, each) for family in ("gaussian", "logistic", "poisson") for each in TABLES[::2]]
CASES += [(family, TABLES[3]) for family in ("gaussian", "logistic", "poisson")]
CASES += [("logistic", "broken")]


def table_of(family: str, kind: str) -> dict[str, Any]:
    """Return rows of 40 users and 25 items."""
    rng = np.random.default_rng(11)
    n = 1000
    if kind == "balanced":
        user, item = np.repeat(np.arange(40), 25), np.tile(np.arange(25), 40)
    else:
        user = np.minimum((rng.pareto(1.0, n) * 6).astype(int), 39)
        item = np.minimum((rng.pareto(1.2, n) * 5).astype(int), 24)
        user[:40], item[:25] = np.arange(40), np.arange(25)
    if kind == "levels of one row":  # of the last 20 users, and of the last 10 items
        user[user >= 20], item[item >= 15] = 0, 0
        user[:20], item[20:30] = np.arange(20, 40), np.arange(15, 25)
    x = rng.normal(size=n)
    tau = 0.02 if kind == "items with tau near 0" else 0.5
    eta = 0.2 + 0.4 * x + 0.7 * rng.normal(size=40)[user] + tau * rng.normal(size=25)[item]
    if family == "gaussian":
        y = eta + 0.8 * rng.normal(size=n)
    elif family == "student_t":
        y = eta + 0.8 * rng.standard_t(4.0, n)
    elif family == "poisson":
        y = rng.poisson(np.exp(eta))
    elif family == "negative_binomial":
        y = rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n))
    elif family == "probit":
        y = rng.normal(size=n) < eta
    else:
        y = rng.logistic(size=n) < eta
    return {"y": y.astype(float), "x": x, "user": user, "item": item}


def nuts(path: str, family: str) -> None:
    """Print mean, sd and Monte Carlo error of each number, by NumPyro."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    rows = {name: jnp.asarray(each) for name, each in np.load(path).items()}

    def model() -> None:
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        eta = beta[0] + beta[1] * rows["x"]
        for name, size in (("user", 40), ("item", 25)):
            tau = numpyro.sample(f"tau[{name}]", dist.HalfNormal(1.0))
            v = numpyro.sample(f"v_{name}", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
            u = numpyro.deterministic(f"u_{name}", tau * v)
            eta = eta + u[rows[name]]
        if family in ("gaussian", "student_t"):
            sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 0.5))
        if family == "gaussian":
            of_row = dist.Normal(eta, sigma)
        elif family == "student_t":
            of_row = dist.StudentT(numpyro.sample("nu", dist.LogNormal(1.5, 0.3)), eta, sigma)
        elif family == "poisson":
            of_row = dist.Poisson(jnp.exp(eta))
        elif family == "negative_binomial":
            phi = numpyro.sample("phi", dist.HalfNormal(3.0))
            of_row = dist.NegativeBinomial2(jnp.exp(eta), phi)
        elif family == "probit":
            of_row = dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(eta))
        else:
            of_row = dist.Bernoulli(logits=eta)
        numpyro.sample("y", of_row, obs=rows["y"])

    sampler = MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=1000, num_samples=1500, num_chains=4,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.PRNGKey(1))
    draws = {name: np.asarray(x) for name, x in sampler.get_samples(group_by_chain=True).items()}
    named: dict[str, Any] = {}
    for name, each in draws.items():
        if each.ndim == 2:
            named[name] = each
        elif name[:2] != "v_":
            named |= {f"{name}[{k}]": each[..., k] for k in range(each.shape[-1])}
    table = summary(named)
    print(json.dumps({
        name: [float(row["mean"]), float(row["std"]), float(row["std"] / np.sqrt(row["n_eff"]))]
        for name, row in table.items()
    }))  # fmt: skip


def gibbs(table: dict[str, Any], family: str) -> dict[str, list[float]]:
    """Return mean, sd and Monte Carlo error of each number, by streammc."""
    import streammc
    from streammc.diagnostics.summary import draws_and_labels, summarize_draws
    from streammc.priors import half_normal, lognormal, normal

    prior: Any = {"beta*": normal(1.0), "tau*": half_normal(1.0)}
    prior |= {"sigma": lognormal(0.0, 0.5)} if family in ("gaussian", "student_t") else {}
    prior |= {"nu": lognormal(1.5, 0.3)} if family == "student_t" else {}
    prior |= {"phi": half_normal(3.0)} if family == "negative_binomial" else {}
    model = getattr(streammc.models, family)(prior=prior)
    with tempfile.TemporaryDirectory() as folder:
        store = streammc.from_table(
            table, formula="y ~ x + (1 | user) + (1 | item)", standardize=False, dtype="float64",
            group_as={"user": "crossed", "item": "crossed"}, path=f"{folder}/t.zarr",
        )  # fmt: skip
        tree = streammc.sample(
            store, model, seed=2, chains=4, draws=10_000, warmup=500, path=f"{folder}/run",
            sampler=streammc.samplers.gibbs(effect_draws=2_500),
        )  # fmt: skip
        rows = summarize_draws(*draws_and_labels(tree))
        for name, levels in (("user", 40), ("item", 25)):
            labels = [str(k) for k in range(levels)]
            draws = streammc.effect_draws(f"{folder}/run", store, labels, factor=name, draws=10_000)
            values = draws["u"].transpose("chain", "draw", "group", "effect").to_numpy()[..., 0]
            rows |= summarize_draws(values, [f"u_{name}[{k}]" for k in labels])
    out = {name: [row["mean"], row["sd"], row["mcse_mean"]] for name, row in rows.items()}
    of_nuts = {"beta[Intercept]": "beta[0]", "beta[x]": "beta[1]"}
    return {of_nuts.get(name, name): row for name, row in out.items()}


def start(family: str, kind: str) -> str:
    """Return the first cell of the line of a case."""
    return f"| `{family}`, {kind}"


def main() -> None:
    """Compare the cases that are asked for."""
    if sys.argv[1:2] == ["nuts"]:
        nuts(*sys.argv[2:])
        return
    from page import machine, publish, published, short

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    table_of_page = published("crossed.md", "nuts")
    lines = {each.split(" | ")[0]: each for each in table_of_page if each.startswith("| `")}
    for family, kind in CASES:
        if asked.only and family not in asked.only:
            continue
        table = table_of(family, "unbalanced" if kind == "broken" else kind)
        with tempfile.TemporaryDirectory() as folder:
            given = table | ({"y": np.roll(table["y"], 1)} if kind == "broken" else {})
            np.savez(f"{folder}/t.npz", **given)
            command = [asked.peer, __file__, "nuts", f"{folder}/t.npz", family]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        theirs, ours = json.loads(out.splitlines()[-1]), gibbs(table, family)
        z = {
            name: (ours[name][0] - theirs[name][0]) / np.hypot(ours[name][2], theirs[name][2])
            for name in theirs
        }
        small = [name for name in theirs if name[:2] != "u_"]
        sd = max(abs(ours[name][1] / theirs[name][1] - 1.0) for name in small)
        of_small = max(abs(z[name]) for name in small)
        of_levels = max(abs(z[name]) for name in z if name[:2] == "u_")
        tau = f"{ours['tau[item]'][0]:.3f}, {theirs['tau[item]'][0]:.3f}"
        ess = [min((row[each][1] / row[each][2]) ** 2 for each in small) for row in (ours, theirs)]
        least = f"{ess[0]:,.0f}, {ess[1]:,.0f}"
        cells = [short(of_small), short(of_levels), short(sd), tau, least]
        lines[start(family, kind)] = f"{' | '.join([start(family, kind), *cells])} |"
        print(lines[start(family, kind)], flush=True)
    if asked.write:
        head = (
            "| table | largest z of parameters | of 65 effects | largest difference of sds "
            "| mean of `tau[item]`, both | least ess of a mean, of 40,000 and 6,000 |"
        )
        ordered = [lines[start(*case)] for case in CASES if start(*case) in lines]
        publish("crossed.md", "nuts", [f"{machine()}.", "", head, "|" + "---|" * 6, *ordered])


if __name__ == "__main__":
    main()
