"""``fit`` of thirteen real tables has the means of ingest and sample, by another way there.

``fit`` reads the table in order and draws with ``smh``, that of ``htru2`` in memory with ``hmc``;
the other way makes a store in random order and draws with what ``sample`` chooses, from another
seed.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streammc
from streammc.stores.ingest import ingestion

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::streammc.errors.SamplingWarning"),
]

Z = 4.5
SIZES = {"draws": 1000, "warmup": 600, "chains": 2}


class Table(NamedTuple):
    file: str
    """CSV file, without its suffix; empty: arrays."""
    family: str
    formula: str
    trials: str | None = None
    sampler: str = "smh"


TABLES = {
    "flights200k": Table("", "logistic", "late ~ distance + time + I(time**2)"),
    "htru2": Table("", "logistic", "y ~ " + " + ".join(f"x{j}" for j in range(8)), sampler="hmc"),
    "higgs11k": Table("", "logistic", "y ~ " + " + ".join(f"x{j}" for j in range(28))),
    "kin40k": Table("", "gaussian", "y ~ " + " + ".join(f"x{j}" for j in range(8))),
    "fretpl_claimnumber": Table("", "poisson", "claim_number ~ driver_age"),
    "bike_hour": Table(
        "bike_hour/bike_sharing_demand",
        "poisson",
        "count ~ C(hour) + temp + humidity + windspeed + workingday",
    ),
    "norauto": Table(
        "norauto/norauto",
        "poisson",
        "NbClaim ~ Male + Young + C(DistLimit) + C(GeoRegion) + offset(log(Expo))",
    ),
    "diamonds": Table("diamonds/diamonds", "exponential", "price ~ log(carat) + C(cut)"),
    "cbpp": Table("grouped/cbpp", "binomial", "incidence ~ C(period)", "size"),
    "Contraception": Table(
        "grouped/Contraception", "probit", 'I(use == "Y") ~ C(livch) + age + I(age**2) + C(urban)'
    ),
    "VerbAgg": Table(
        "grouped/VerbAgg",
        "logistic",
        'I(r2 == "Y") ~ Anger + C(Gender) + C(btype) + C(situ) + C(mode)',
    ),
    "toenail": Table(
        "grouped/toenail", "probit", 'I(outcome == "none or mild") ~ treatment * time'
    ),
    "InstEval": Table("grouped/InstEval", "gaussian", "y ~ C(studage) + C(lectage) + service"),
}


def columns(name, data_folder):
    with np.load(data_folder / name / "data.npz") as file:
        if name == "flights200k":
            time = file["time"].astype(float)
            return {"late": (file["delay"] > 15) + 0, "distance": file["distance"], "time": time}
        if name == "fretpl_claimnumber":
            return dict(file)
        return {"y": file["y"]} | {f"x{j}": x for j, x in enumerate(file["X"].T)}


def path_of(name, data_folder, folder):
    """Return the CSV file of a table, or a Parquet file of its arrays."""
    if TABLES[name].file:
        return data_folder / f"{TABLES[name].file}.csv.gz"
    pq.write_table(pa.table(columns(name, data_folder)), folder / "t.parquet")
    return folder / "t.parquet"


def fitted(path, table, monkeypatch):
    if table.sampler == "smh":
        monkeypatch.setattr(ingestion, "available_memory", lambda: 1000)
    return streammc.fit(
        path,
        table.formula,
        table.family,
        sampler=table.sampler,
        trials=table.trials,
        seed=1,
        **SIZES,
    )


def by_ingest_and_sample(path, table, folder):
    streammc.ingest(path, folder / "s.zarr", formula=table.formula, trials=table.trials)
    model = getattr(streammc.models, table.family)()
    return streammc.sample(streammc.open_store(folder / "s.zarr"), model, seed=2, **SIZES)


def largest_z(one, other):
    """z of the difference of the means of a parameter: the largest."""
    summaries = [json.loads(each.attrs["summary"]) for each in (one, other)]
    found, expected = (each["parameters"] for each in summaries)
    assert len({each["sampling"]["sampler"] for each in summaries}) == 2
    assert found.keys() == expected.keys()
    return max(
        abs(found[name]["mean"] - expected[name]["mean"])
        / np.hypot(found[name]["mcse_mean"], expected[name]["mcse_mean"])
        for name in found
    )


@pytest.mark.parametrize("name", TABLES)
def test_fit_has_the_means_of_ingest_and_sample(
    name, data_folder, tmp_path, monkeypatch, record_property
):
    table, path = TABLES[name], path_of(name, data_folder, tmp_path)
    expected = by_ingest_and_sample(path, table, tmp_path)
    z = largest_z(fitted(path, table, monkeypatch), expected)
    record_property("figure", f"{name}: z at most {z:.1f}")
    assert z < Z


def test_a_twentieth_of_the_rows_that_is_lost_is_caught(
    data_folder, tmp_path, monkeypatch, record_property
):
    table, path = TABLES["kin40k"], path_of("kin40k", data_folder, tmp_path)
    expected = by_ingest_and_sample(path, table, tmp_path)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(len(rows) // 20), path)
    z = largest_z(fitted(path, table, monkeypatch), expected)
    record_property("caught", f"a twentieth of the rows lost (z {z:.0f})")
    assert z > Z
