from __future__ import annotations

import click
import pytest
from command_line import program, streammc

import streammc as package
from streammc.cli.app import COMMANDS, application

ALL = [
    *("demo", "fit", "simulate", "ingest", "pull", "info", "verify", "summarize", "sample", "run"),
    *("check", "resume", "diagnose", "report", "compare", "predict", "export"),
    *("comparisons", "slopes", "predictions", "score", "effects"),
    *("audit", "gc", "models", "samplers"),
]


def test_commands_are_those_of_the_design() -> None:
    assert ALL == list(COMMANDS)
    listed = streammc("--help").out
    assert all(f"  {name} " in listed for name in ALL)


@pytest.mark.parametrize("name", ALL)
def test_a_command_is_found_by_its_name(name: str) -> None:
    command = application.get_command(click.Context(application), name)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_the_shared_options(name: str) -> None:
    done = streammc(name, "--help")
    assert (0, "") == (done.code, done.err)
    for option in ("--json", "--quiet", "--log-format", "--debug"):
        assert option in done.out


def test_version_option_prints_the_version() -> None:
    assert (0, f"streammc {package.__version__}\n", "") == streammc("--version")


def test_unknown_command_is_answered_with_the_likely_one() -> None:
    done = streammc("sampel")
    assert 2 == done.code
    assert "did you mean 'sample'?" in done.err
    assert 1 == len(done.err.splitlines())


def test_a_command_without_words_prints_help_or_says_what_is_missing() -> None:
    done = streammc()
    assert 2 == done.code
    assert done.err.startswith("Usage: streammc [OPTIONS] COMMAND")
    assert len(done.err.splitlines()) > 20
    done = streammc("info")
    assert 2 == done.code
    assert "PATH" in done.err


def test_ingest_with_one_path_asks_for_the_store_to_make() -> None:
    done = streammc("ingest", "flights.csv")
    assert 2 == done.code
    assert "found 'flights.csv' alone: write streammc ingest flights.csv NAME.zarr" in done.err


def test_program_exits_with_the_code_of_the_command() -> None:
    assert 66 == program("info", "nowhere").code


def test_models_and_samplers_list_the_registry() -> None:
    from streammc.registry import MODELS, SAMPLERS

    models = streammc("models", "--json").json["models"]
    samplers = streammc("samplers", "--json").json["samplers"]
    assert list(MODELS) == [entry["name"] for entry in models]
    assert list(SAMPLERS) == [entry["name"] for entry in samplers]
    assert all({"name", "target", "paper"} == set(entry) for entry in samplers)
    assert all(entry["paper"] for entry in samplers)
    assert "perturbed" in streammc("samplers").out
