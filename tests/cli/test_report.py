from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import streammc
from report_page import Page

from streammc import registry
from streammc.cli.output import Output
from streammc.cli.report import cost_text, parameter_table, ratio_text, show_run
from streammc.diagnostics.stopping import check_limits
from streammc.diagnostics.text import compared_text
from streammc.trace.run_directory import RunDirectory

TARGETS = sorted({str(registry.sampler(name)().target) for name in registry.SAMPLERS})


def parameters(r_hat: float | None = 1.004, ess: float | None = 500.0) -> dict[str, Any]:
    names = ("mean", "sd", "mcse_mean", "q5", "median", "q95")
    entry: dict[str, float | None] = dict.fromkeys(names, 0.25)
    entry |= {"r_hat": r_hat, "ess_bulk": ess, "ess_tail": 450.0}
    return {"beta[a]": entry, "beta[b]": dict(entry, r_hat=1.001)}


def test_ratio_near_1_keeps_its_digits() -> None:
    entry = {"median": 1.0000123, "q5": 0.9999981, "q95": 1.25}
    text = ratio_text({"kind": "odds ratio", "parameters": {"beta[a]": entry}})
    assert "beta[a] +1  1.000012  0.9999981 to 1.25" == text.splitlines()[1]
    assert "odds ratio    median      90 % interval" == text.splitlines()[0]


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({"rhat": 1.01}, True),
        ({"rhat": 1.004}, True),
        ({"rhat": 1.003}, False),
        ({"ess": 450.0}, True),
        ({"ess": 451.0}, False),
        ({"rhat": 1.01, "ess": 451.0}, False),
    ],
)
def test_check_applies_its_limits_to_the_worst_parameter(
    limits: dict[str, float], passed: bool
) -> None:
    assert passed == check_limits(parameters(), limits)["passed"]


def test_unknown_statistic_fails_the_check() -> None:
    assert not check_limits(parameters(r_hat=None), {"rhat": 2.0})["passed"]
    assert not check_limits(parameters(ess=None), {"ess": 1.0})["passed"]
    assert not check_limits({}, {"rhat": 2.0})["rhat"]["found"]


def test_a_failed_check_exits_with_1_and_says_what(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"parameters": parameters(), "warnings": ["look"]}
    assert 1 == show_run(Output(), document, {"ess": 9999.0})
    captured = capsys.readouterr()
    assert "beta[a]" in captured.out
    assert "warning: look" in captured.err
    assert "--check failed: ess 450, asked for 9999" in captured.err
    assert 0 == show_run(Output(), document, {"ess": 9.0})


def test_a_failed_check_shows_the_digits_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    close = {"parameters": parameters(r_hat=1.01008, ess=30000.0)}
    show_run(Output(), close, {"rhat": 1.01, "ess": 40000.0})
    missed = "rhat 1.0101, asked for 1.01; ess 450, asked for 40000"
    assert f"{missed}: give sample or resume more --draws" in capsys.readouterr().err


def test_a_failed_check_names_an_unknown_statistic(capsys: pytest.CaptureFixture[str]) -> None:
    show_run(Output(), {"parameters": parameters(r_hat=None)}, {"rhat": 1.01})
    assert "rhat unknown for some parameters, asked for 1.01" in capsys.readouterr().err


def test_table_shows_a_dash_for_unknown_numbers() -> None:
    lines = parameter_table(parameters(r_hat=None)).splitlines()
    assert "r_hat" in lines[0]
    assert "-" in lines[1].split()
    assert "1.001" in lines[2]
    assert "500" in lines[1]


def test_the_target_and_the_variance_are_said_in_words() -> None:
    text = cost_text({"sampler": "hmc-ecs", "target": "perturbed", "log_lik_variance_mean": 0.0021})
    assert "perturbed: close to the posterior; an audit measures how close" in text
    assert "0.0021: variance of the log-likelihood estimated from the subsample" in text
    assert "exact: the posterior" == cost_text({"target": "exact"}).split(maxsplit=1)[1]
    hot = cost_text({"target": "exact", "temperature": 2.0})
    assert "exact: the tempered posterior" in hot


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_of_a_sampler_is_explained(target: str) -> None:
    assert ": " in cost_text({"target": target})


def test_ratios_of_bases_and_interactions_are_counted_not_shown() -> None:
    from streammc.cli.report import ratio_text

    entry = {"median": 2.0, "q5": 1.5, "q95": 3.0}
    found = {"kind": "odds ratio", "parameters": {"wind": entry, "bs(hour, df=6)[1]": entry}}
    assert "bs(hour" in ratio_text(found)  # as runs of earlier versions recorded them
    text = ratio_text({**found, "only_together": ["bs(hour, df=6)[1]"]})
    assert ("wind" in text, "bs(hour" in text) == (True, False)
    assert "no odds ratio of 1 column of bases, interactions and terms" in text


def test_digits_reach_the_error_of_the_mean() -> None:
    entry = {"mean": 0.4004501, "sd": 0.0011, "mcse_mean": 1.8e-5, "q5": 0.3987, "q95": 0.4022}
    (line,) = parameter_table({"beta[x]": entry}).splitlines()[1:]
    assert line.split()[1] == "0.40045"
    entry |= {"mean": 1234.5678, "mcse_mean": 300.0}
    (line,) = parameter_table({"beta[x]": entry}).splitlines()[1:]
    assert line.split()[1] == "1235"


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    names = ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat", "q5", "median", "q95")
    given = {"beta[C(species)[T.pine]]": dict.fromkeys(names, 1234.5)}
    wide, narrow = parameter_table(given), parameter_table(given, 80)
    assert max(map(len, wide.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    header = narrow.splitlines()[0].split()
    assert {"mean", "ess_bulk", "r_hat", "90", "interval"} < set(header)
    assert "mcse_mean" not in header


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with t.zarr, of a formula with two factors, and a finished run."""
    folder = tmp_path_factory.mktemp("compared")
    rng = np.random.default_rng(6)
    lines = [
        f"{rng.integers(0, 2)},{x:.4f},{region},{kind}"
        for x, region, kind in zip(
            rng.normal(size=300),
            rng.choice(["north", "south", "east"], 300),
            rng.choice(["u", "v"], 300),
            strict=True,
        )
    ]
    (folder / "t.csv").write_text("\n".join(["y,x,region,kind", *lines]) + "\n")
    formula = "y ~ x:region + C(region, contr.treatment('north')) + kind"
    words = ("--formula", formula, "--quiet")
    assert streammc("ingest", folder / "t.csv", folder / "t.zarr", *words).code == 0
    words = ("--draws", "60", "--warmup", "60", "--chains", "2", "--seed", "1", "--quiet")
    words = ("--model", "logistic", "--sampler", "hmc", *words)
    done = streammc("sample", folder / "t.zarr", "-o", folder / "run", *words)
    assert done.code == 0, done.err
    return folder


REGION = "C(region, contr.treatment('north'))"
NORTH = f"{REGION}[north]"
REFERENCES = {
    f"{REGION}[T.east]": [NORTH],
    f"{REGION}[T.south]": [NORTH],
    "kind[T.v]": ["kind[u]"],
}


def test_reference_levels_stand_beside_every_coefficient_of_a_level(compared: Path) -> None:
    found = streammc("diagnose", compared / "run", "--json").json
    assert {f"beta[{name}]": each for name, each in REFERENCES.items()} == found["references"]
    assert REFERENCES == found["ratios"]["references"]
    shown = streammc("diagnose", compared / "run").out.splitlines()
    for name, (level,) in REFERENCES.items():
        rows = [line for line in shown if line.startswith(f"beta[{name}]") and level in line]
        assert 2 == len(rows), rows
    sides = [line.split("  ")[0] for line in shown if " against " in line][2:]
    assert ["kind: v against u"] == sides
    east = compared_text(f"{REGION}[T.east]", [NORTH])
    assert ("region: east against north", "x +1") == (east, compared_text("x", ()))
    assert not [line for line in shown if "[T." not in line and f" {NORTH} " in line]
    assert REFERENCES == RunDirectory.open(compared / "run").attributes["references"]


def test_reference_levels_are_in_info_and_in_the_report(compared: Path) -> None:
    for name in ("t.zarr", "run"):
        assert f"reference levels  {NORTH}, kind[u]\n" in streammc("info", compared / name).out
        assert REFERENCES == streammc("info", compared / name, "--json").json["references"]
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    words = ("-o", compared / "report.html", "--quiet")
    assert streammc("report", compared / "run", *words).code == 0
    page = Page((compared / "report.html").read_text(encoding="utf-8"))
    assert [] == page.faults
    assert 6 == page.text.count("against")
    assert 4 == page.text.count("kind: v against u")  # figure and its text, ratios, averages
    assert f"kind[T.v] {NORTH}" not in page.text
    assert "kind[T.v]] kind[u]" in " ".join(page.text.split())


def test_another_interval_is_named_and_computed_from_the_draws(compared: Path) -> None:
    plain = streammc("diagnose", compared / "run", "--json").json
    found = streammc("diagnose", compared / "run", "--json", "--interval", "0.8").json
    assert 0.8 == found["interval"]
    theta = RunDirectory.open(compared / "run").draws_matrix()
    ends = np.quantile(theta[..., 1], [0.1, 0.9])
    (_, entry), *_ = list(found["parameters"].items())[1:]
    np.testing.assert_allclose([entry["q10"], entry["q90"]], ends, rtol=1e-12)
    for part in ("parameters", "parameters_original"):
        for label, entry in plain[part].items():
            assert entry == {name: found[part][label][name] for name in entry}
    kind = found["ratios"]["parameters"]["kind[T.v]"]
    coefficient = found["parameters_original"]["beta[kind[T.v]]"]
    assert kind["q10"] == pytest.approx(np.exp(coefficient["q10"]), rel=1e-2)
    text = streammc("diagnose", compared / "run", "--interval", "0.8").out
    assert (3, 0) == (text.count("80 % interval"), text.count("90 % interval"))
    refused = streammc("diagnose", compared / "run", "--interval", "95")
    assert (2, True) == (refused.code, "expected a number between 0 and 1" in refused.err)


def test_a_run_without_factors_has_no_column_of_references() -> None:
    assert "against" not in parameter_table(parameters(), None, {"other": ["a[b]"]})
    assert "against" in parameter_table(parameters(), None, {"beta[a]": ["a[b]"]})
