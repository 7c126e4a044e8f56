"""Tables of the cases: one that is right, and one for each thing that can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

OWN_MODEL: Final = '''
"""Models of a user's own: one that is right, and others that are not."""
import numpy as np
from streammc.models import user

NOTHING = 3


def log_lik(eta, y):
    return y * eta[0] - np.logaddexp(0, eta[0])


def gradient(eta, y):
    return y - 1 / (1 + np.exp(-eta))


def hessian(eta, y):
    p = 1 / (1 + np.exp(-eta))
    return -(p * (1 - p))[None]


def build(prior=None):
    return user("own", log_lik=log_lik, gradient=gradient, hessian=hessian, prior=prior)


def wrong_gradient(prior=None):
    return user(
        "own", log_lik=log_lik, gradient=lambda eta, y: 2 * gradient(eta, y), hessian=hessian,
        prior=prior,
    )


def wrong_start(prior=None):
    return user(
        "own", log_lik=log_lik, gradient=gradient, hessian=hessian, prior=prior,
        start=lambda X, y: np.zeros(9),
    )


def wrong_shape(prior=None):
    return user(
        "own", log_lik=log_lik, gradient=lambda eta, y: gradient(eta, y)[0], hessian=hessian,
        prior=prior,
    )


def fails(prior=None):
    raise KeyError("power")
'''


def write_tables(rows: int) -> None:
    """Write the tables into the current folder."""
    rng = np.random.default_rng(1)
    hour = rng.integers(0, 24, rows)
    distance = rng.gamma(2.0, 400.0, rows).round(1)
    late = (rng.random(rows) < 1 / (1 + np.exp(2 - 0.1 * hour))).astype(int)
    flights = pd.DataFrame({
        "late": late, "distance": distance, "hour": hour, "delays": rng.poisson(2.0, rows),
        "carrier": np.array(["AA", "DL", "UA"])[rng.integers(0, 3, rows)],
    })  # fmt: skip
    flights.to_csv("flights.csv", index=False)
    flights.to_parquet("flights.parquet", index=False)
    flights[:200].assign(hour=hour[:200] * 2).to_csv("half.csv", index=False)
    flights.drop(columns="hour").to_csv("no-hour.csv", index=False)
    flights.assign(distance=np.where(hour == 3, np.nan, distance)).to_csv(
        "missing.csv", index=False
    )
    flights.assign(distance=np.where(hour == 3, np.inf, distance)).to_csv(
        "infinite.csv", index=False
    )
    flights.assign(distance=np.nan).to_csv("all-missing.csv", index=False)
    flights.assign(late=late + 1).to_csv("labels.csv", index=False)
    flights.assign(delays=-1).to_csv("negative.csv", index=False)
    flights.assign(delays=0).to_csv("zero.csv", index=False)
    flights.assign(distance=7.0).to_csv("constant.csv", index=False)
    flights.assign(Intercept=1.0).to_csv("intercept.csv", index=False)
    flights.assign(distance=np.where(hour == 3, 1e200, distance)).to_csv("huge.csv", index=False)
    flights.assign(distance=distance * 1e-3 + 1e9).to_csv("narrow.csv", index=False)
    flights.assign(distance=np.where(hour < 12, -1.7e308, 1.7e308)).to_csv("range.csv", index=False)
    flights.assign(carrier=np.arange(rows).astype(str)).to_csv("many-levels.csv", index=False)
    text = flights.astype({"distance": object})
    text.loc[6, "distance"] = "far"
    text.to_csv("text.csv", index=False)
    head, *lines = Path("flights.csv").read_text().splitlines(keepends=True)
    files = {
        "ragged.csv": (head + lines[0] + "1,2\n").encode(),
        "empty.csv": b"",
        "header.csv": head.encode(),
        "open-quote.csv": (head + '1,2,3,4,"AA\n1,2,3,4,AA\n').encode(),
        "latin.csv": "late,länge\n1,2\n".encode("latin-1"),
        "latin-rows.csv": (head + "1,2,3,4,Zürich\n").encode("latin-1"),
        "utf16.csv": (head + lines[0]).encode("utf-16"),
        "twice.csv": b"late,hour,hour\n1,2,3\n",
        "half.csv.gz": __import__("gzip").compress((head + "".join(lines)).encode())[:900],
        "binary.csv": bytes(range(256)) * 4,
        "half.parquet": Path("flights.parquet").read_bytes()[:900],
        "notes.txt": b"late,hour\n1,2\n",
        "table.xlsx": b"PK\x03\x04" + bytes(100),
        "wrong.json": b"[]",
        "wrong.toml": b"draws = = 2\n",
        "unknown.toml": b"drawz = 2\n",
        "value.toml": b"sample = 2\n",
        "table.toml": b"[draws]\nn = 2\n",
        "twice.toml": b'step-size = 1\nstep_size = 2\n',
        "large.toml": b"#" * 1_100_000,
    }  # fmt: skip
    for name, content in files.items():
        Path(name).write_bytes(content)
    pq.write_table(pa.table({"late": late, "x": [[1.0]] * rows}), "lists.parquet")
    pq.write_table(pa.table({"late": late, "x": [b"\xff\xfe"] * rows}), "bytes.parquet")
    pq.write_table(
        pa.table({"late": late, "x": pa.array([2**63 + 5] * rows, pa.uint64())}), "large.parquet"
    )
    Path("folder").mkdir()
    Path("folder/inner").mkdir()
    for name in ("years/year=2024", "years/month=1", "roles/late=1"):
        Path(name).mkdir(parents=True)
        flights.to_csv(f"{name}/part.csv", index=False)
    Path("full").mkdir()
    Path("full/letter.txt").write_text("dear")
    Path("nothing").mkdir()
    Path("file").write_text("a file")
