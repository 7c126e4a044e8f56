from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from command_line import snapshot, streammc

WORDS = ("simulate", "poisson", "s.zarr", "--rows", "500", "--dim", "3", "--seed", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(path: Path, rows: int = 50) -> Path:
    lines = [f"{i % 2},{i * 0.5 + i % 3},{(i * 7) % 11}" for i in range(rows)]
    path.write_text("\n".join(["late,distance,hour", *lines]) + "\n")
    return path


def flip_a_bit(folder: Path) -> Path:
    """Change one bit of the first chunk below a folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "zarr.json")
    data = bytearray(files[0].read_bytes())
    data[20] ^= 1
    files[0].write_bytes(data)
    return files[0]


def test_simulate_twice_is_one_store(here: Path) -> None:
    first = streammc(*WORDS, "--json")
    before = snapshot(here)
    second = streammc(*WORDS, "--json")
    assert (0, 0) == (first.code, second.code)
    assert first.out == second.out
    assert "nothing to do" in second.err
    assert before == snapshot(here)


def test_simulated_store_says_its_truth(here: Path) -> None:
    found = streammc(*WORDS, "--json").json
    assert (500, 3) == (found["n_rows"], found["n_features"])
    assert 3 == len(found["simulation"]["theta"])
    assert {"kind": "store", **found} == streammc("info", "s.zarr", "--json").json


def test_simulated_events_are_as_rare_as_asked(here: Path) -> None:
    words = ("simulate", "logistic", *WORDS[2:], "--json", "--quiet")
    found = streammc(*words, "--intercept", "-7.5").json
    assert -7.5 == found["simulation"]["theta"][0]
    assert 0 == streammc(*words, "--intercept", "-7.5").code
    other = streammc(*words, "--intercept", "-8")
    assert 78 == other.code
    assert "'intercept'" in other.err
    assert 78 == streammc(*words).code


@pytest.mark.parametrize("value", ["x", "inf", "-31", "nan"])
def test_an_intercept_that_no_kind_has_is_refused(here: Path, value: str) -> None:
    assert streammc(*WORDS, "--intercept", value).code == 2
    assert [] == list(here.iterdir())


def test_another_simulation_does_not_touch_the_first(here: Path) -> None:
    streammc(*WORDS)
    before = snapshot(here)
    other = streammc(*WORDS[:-1], "3", "--quiet")
    assert 78 == other.code
    assert "'seed'" in other.err
    assert before == snapshot(here)


def test_a_killed_command_finds_its_own_store_again(here: Path) -> None:
    first = streammc(*WORDS, "--json")
    receipt = here / "s.zarr.config.json"
    kept = json.loads(receipt.read_text())
    receipt.write_text(json.dumps(kept | {"result": None}))  # killed after the store's rename
    again = streammc(*WORDS, "--json")
    assert 0 == again.code
    assert first.json["fingerprint"] == again.json["fingerprint"]


def test_replaced_store_is_refused_by_its_fingerprint(here: Path) -> None:
    streammc(*WORDS)
    (here / "s.zarr").rename(here / "old.zarr")
    (here / "s.zarr.config.json").rename(here / "kept.json")
    streammc(*WORDS[:-1], "3")
    (here / "kept.json").rename(here / "s.zarr.config.json")
    done = streammc(*WORDS, "--quiet")
    assert 78 == done.code
    assert "fingerprint" in done.err


@pytest.mark.parametrize("compressed", [False, True])
def test_ingest_of_a_csv_writes_the_store_and_its_receipt(here: Path, compressed: bool) -> None:
    source = table(here / "t.csv")
    if compressed:
        source = here / "t.csv.gz"
        source.write_bytes(gzip.compress((here / "t.csv").read_bytes()))
    words = ("ingest", source, "t.zarr", "--response", "late")
    done = streammc(*words, "--json")
    assert 0 == done.code, done.err
    assert ["Intercept", "distance", "hour"] == done.json["features"]
    assert (50, "late", 0) == (done.json["n_rows"], done.json["response"], done.json["n_dropped"])
    before = snapshot(here)
    again = streammc(*words, "--json")
    assert done.out == again.out
    assert before == snapshot(here)
    assert "rows" in streammc(*words).out


def test_ingest_of_a_changed_table_is_another_job(here: Path) -> None:
    source = table(here / "t.csv")
    streammc("ingest", source, "t.zarr", "--response", "late")
    table(source, rows=60)
    assert 78 == streammc("ingest", source, "t.zarr", "--response", "late").code


def test_ingest_joins_sources_and_counts_what_it_drops(here: Path) -> None:
    first, second = table(here / "a.csv"), table(here / "b.csv")
    second.write_text(second.read_text() + "1,,3\n")
    words = ("ingest", first, second, "t.zarr", "--response", "late", "--json")
    refused = streammc(*words)
    assert 65 == refused.code
    assert "distance" in refused.err
    assert {"a.csv", "b.csv"} == set(os.listdir(here))
    done = streammc(*words, "--drop-missing")
    assert (100, 1) == (done.json["n_rows"], done.json["n_dropped"])


def test_verify_says_that_every_byte_is_as_written(here: Path) -> None:
    streammc(*WORDS, "--quiet")
    assert "s.zarr: store, every byte as written\n" == streammc("verify", "s.zarr").out


def test_verify_finds_one_flipped_bit(here: Path) -> None:
    streammc(*WORDS)
    good = streammc("verify", "s.zarr", "--json")
    assert 0 == good.code
    assert good.json["ok"]
    flip_a_bit(here / "s.zarr" / "X")
    bad = streammc("verify", "s.zarr", "--json")
    assert 65 == bad.code
    assert not bad.json["ok"]
    assert bad.json["faults"][0]["key"].startswith("X/")
    assert "X/" in streammc("verify", "s.zarr").out


def test_info_and_verify_know_runs_and_control_variates(run: Path) -> None:
    found = streammc("info", run, "--json").json
    assert ("run", True, 60, 2, 1) == tuple(
        found[name] for name in ("kind", "finished", "draws", "chains", "seed")
    )
    assert ["beta[Intercept]", "beta[x1]", "beta[x2]"] == found["parameters"]
    kept = run / "control-variates.zarr"
    described = streammc("info", kept, "--json").json
    assert ("control-variates", 2, 3000) == tuple(
        described[name] for name in ("kind", "order", "n_rows")
    )
    assert 0 == streammc("verify", run).code
    assert 0 == streammc("verify", kept).code


@pytest.mark.parametrize("name", ["posterior", "control-variates.zarr"])
def test_verify_finds_damage_in_runs_and_control_variates(run: Path, name: str) -> None:
    chunk = flip_a_bit(run / name)
    target = run if name == "posterior" else run / name
    bad = streammc("verify", target, "--json")
    assert 65 == bad.code
    assert not bad.json["ok"]
    assert chunk.name in bad.json["faults"][0]["detail"]


LIKE = ("ingest", "b.csv", "b.zarr", "--like", "a.zarr")


@pytest.fixture
def trained(here: Path) -> Path:
    table(here / "a.csv")
    table(here / "b.csv", 20)
    words = ("--response", "late", "--features", "hour")
    assert streammc("ingest", "a.csv", "a.zarr", *words, "--quiet").code == 0
    return here


def test_ingest_like_takes_the_scale_of_the_other_store(trained: Path) -> None:
    first, like = streammc("info", "a.zarr", "--json").json, streammc(*LIKE, "--json").json
    assert 20 == like["n_rows"]
    for key in ("features", "standardization", "response"):
        assert first[key] == like[key]
    again = streammc(*LIKE, "--json")
    assert like == again.json
    assert "nothing to do" in again.err
    words = ("--response", "late", "--features", "distance", "--quiet")
    for name in ("a.zarr", "a.zarr.config.json"):
        (trained / name).rename(trained / f"old-{name}")
    assert streammc("ingest", "a.csv", "a.zarr", *words).code == 0
    assert 78 == streammc(*LIKE).code


@pytest.mark.parametrize(
    ("words", "code", "culprit"),
    [
        ("b.csv b.zarr --like nowhere", 66, "nowhere"),
        ("b.csv b.zarr --like b.csv", 65, "b.csv"),
        ("b.csv b.zarr --like a.zarr --response late", 2, "--response"),
        ("b.csv b.zarr --like a.zarr --no-standardize", 2, "--no-standardize"),
        ("b.csv a.zarr --like a.zarr", 2, "a.zarr"),
        ("b.csv a.zarr/b --like a.zarr", 2, "a.zarr"),
        ("c.csv b.zarr --like a.zarr", 65, "'hour'"),
    ],
)
def test_ingest_like_rejects_wrong_stores_options_and_missing_columns(
    trained: Path, words: str, code: int, culprit: str
) -> None:
    (trained / "c.csv").write_text("late,distance\n1,2\n0,3\n")
    before = snapshot(trained)
    result = streammc("ingest", *words.split(), "--quiet")
    assert result.code == code, result.err
    assert result.err.count("\n") == 1
    assert culprit in result.err
    assert before == snapshot(trained)


def test_a_touched_source_is_named_with_its_time_and_the_command_that_gives_it_back(
    here: Path,
) -> None:
    source = table(here / "my table.csv")
    words = ("ingest", source, "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
    refused = streammc(*words, "--quiet")
    assert 78 == refused.code
    assert "another modification time (" in refused.err
    assert "at the same size" in refused.err
    assert 1 == refused.err.count("\n")
    command = refused.err.split("(touch ", 1)[1].split(")", 1)[0]
    subprocess.run(["sh", "-c", f"touch {command}"], check=True)
    assert 0 == streammc(*words).code, "the time that the message gives is not the old one"


def test_a_grown_source_is_named_with_its_sizes(here: Path) -> None:
    source = table(here / "t.csv")
    words = ("ingest", source, "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    before = source.stat().st_size
    source.write_text(source.read_text() + source.read_text().splitlines()[1] + "\n")
    refused = streammc(*words, "--quiet")
    assert 78 == refused.code
    assert f"another size ({before:,} bytes before, {source.stat().st_size:,} now)" in refused.err
    assert "touch" not in refused.err


def test_a_changed_file_of_a_directory_is_another_source(here: Path) -> None:
    (here / "parts").mkdir()
    source = table(here / "parts" / "t.csv")
    words = ("ingest", "parts", "t.zarr", "--response", "late")
    assert 0 == streammc(*words).code
    assert 0 == streammc(*words).code
    with open(source, "r+") as file:  # in place: the directory does not change
        file.write(file.read().replace("0", "1"))
    assert 78 == streammc(*words).code


def test_a_file_in_another_folder_of_a_pattern_is_another_source(here: Path) -> None:
    for year in ("2023", "2024"):
        (here / "h" / f"year={year}").mkdir(parents=True)
        table(here / "h" / f"year={year}" / f"{year}.csv")
    words = ("ingest", "h/*/*.csv", "h.zarr", "--formula", "late ~ year + hour")
    assert 0 == streammc(*words).code
    assert "nothing to do" in streammc(*words).err
    for a, b in (("2023", "0"), ("2024", "2023"), ("0", "2024")):  # same bytes and times in all
        os.rename(here / "h" / f"year={a}", here / "h" / f"year={b}")
    assert 78 == streammc(*words).code


def test_info_shows_whether_and_how_the_features_were_standardised(here: Path) -> None:
    table(here / "t.csv")
    for store, option in (("s.zarr", "--standardize"), ("raw.zarr", "--no-standardize")):
        assert streammc("ingest", "t.csv", store, "--response", "late", option).code == 0
    shown = streammc("info", "s.zarr").out
    scales = json.loads(streammc("info", "s.zarr", "--json").out)["standardization"]
    assert "standardized  yes" in shown
    mean, scale = (f"{scales[key][1]:.4g}" for key in ("mean", "scale"))
    assert f"distance {mean} {scale}" in " ".join(shown.split())
    raw = streammc("info", "raw.zarr").out
    assert "standardized  no" in raw
    assert "scale" not in raw


def test_info_shows_the_scale_of_twenty_features_at_most(here: Path) -> None:
    names = [f"x{number}" for number in range(25)]
    rows = [",".join(str((i * 7 + j) % 5) for j in range(25)) for i in range(20)]
    (here / "wide.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    assert streammc("ingest", "wide.csv", "wide.zarr").code == 0
    shown = streammc("info", "wide.zarr").out
    listed = shown.partition("feature ")[2].splitlines()
    assert "... 26 in all" == listed[-1]
    assert 22 == len(listed)  # header, 20 features, the line before


def test_store_without_a_response_is_said_to_have_none(here: Path) -> None:
    table(here / "t.csv")
    done = streammc("ingest", "t.csv", "s.zarr")
    assert done.code == 0
    assert "s.zarr has no response" in done.err
    assert "--response or --formula" in done.err
    assert "" == streammc("ingest", "t.csv", "q.zarr", "--quiet").err
    for words in (("--response", "late"), ("--formula", "late ~ hour")):
        assert "no response" not in streammc("ingest", "t.csv", "r.zarr", *words, "--overwrite").err


def test_ingest_brings_groups_together_and_info_shows_them(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2},{i * 7 % 11},{'abc'[i * i % 3]}\n" for i in range(300))
    (tmp_path / "t.csv").write_text("late,distance,carrier\n" + rows)
    table, place = str(tmp_path / "t.csv"), str(tmp_path / "s.zarr")
    done = streammc("ingest", table, place, "--formula", "late ~ distance + (distance || carrier)")
    assert 0 == done.code
    assert "(1 + distance || carrier), 2 groups, the largest of 200 rows" in done.out
    groups = {"column": "carrier", "terms": ["1", "distance"], "correlated": False}
    groups |= {"n_groups": 2, "largest": 200}
    assert groups == streammc("info", place, "--json").json["groups"]
    assert "(1 + distance || carrier), 2 groups" in streammc("info", place).out
    assert 0 == streammc("verify", place).code
    plain = streammc(
        "ingest", table, str(tmp_path / "p.zarr"), "--response", "late", "--group", "carrier"
    )
    assert "(1 | carrier), 2 groups" in plain.out
    for words, code in (
        (["--response", "late", "--group", "carrier", "--no-shuffle"], 2),
        (["--response", "late", "--group", "carier"], 65),
        (["--formula", "late ~ distance + (1 | carrier/)"], 2),
    ):
        refused = streammc("ingest", table, str(tmp_path / "n.zarr"), *words)
        assert code == refused.code
        assert 1 == refused.err.count("\n")
        assert not (tmp_path / "n.zarr").exists()
