"""Code blocks of the README and the pages run, parse, and print what stands below them."""

from __future__ import annotations

import ast
import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from shown_output import blocks, commands, missing, printed, shell_commands

from streammc.cli.app import COMMANDS, application

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_python_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    (code,), (shown,) = blocks(readme(), "python"), blocks(readme(), "text")
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert [] == missing(shown.splitlines(), finished.stdout.splitlines())


@pytest.mark.slow
def test_commands_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    (block,) = blocks(readme(), "console")
    lines, shown = zip(*commands(block), strict=True)
    assert len(lines) == 4
    for expected, found in zip(shown, printed(list(lines), tmp_path, PATH), strict=True):
        assert [] == missing(expected, found)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_other_words_numbers_and_lines_would_be_found() -> None:
    shown = ["rows  10,984", "...", "mean  0.56 (sd 0.02)"]
    assert [] == missing(shown, ["rows 10,984", "b", "c", "mean 0.57 (sd 0.021)"])
    assert ["mean  0.56 (sd 0.02)"] == missing(shown, ["rows 10,984", "mean 0.76 (sd 0.02)"])
    assert ["mean  0.56 (sd 0.02)"] == missing(shown, ["rows 10,984", "median 0.56 (sd 0.02)"])
    assert ["rows  10,984"] == missing(shown, ["b", "rows 10,984", "mean 0.56 (sd 0.02)"])
    assert ["not shown: d"] == missing(shown, ["rows 10,984", "mean 0.56 (sd 0.02)", "d"])


def test_readme_is_short() -> None:
    assert len(readme().splitlines()) <= 90


def wrong_options(line: str) -> str:
    """Return why the parser of a command refuses a line, or an empty text."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = list(itertools.takewhile(lambda word: word.strip("|&;<>"), lexer))[1:]
    if words[0] not in COMMANDS:
        return f"no command {words[0]}"
    if "..." in words or "…" in words:
        return ""
    with application.make_context("streammc", words[:1], resilient_parsing=True) as context:
        command = application.get_command(context, words[0])
        assert command is not None
        try:
            command.make_parser(click.Context(command)).parse_args(words[1:])
        except click.UsageError as error:
            return error.format_message()
    return ""


def test_commands_that_pages_show_exist_with_their_options() -> None:
    lines = [
        (path.relative_to(ROOT).as_posix(), line)
        for path in PAGES
        for line in shell_commands(path.read_text(encoding="utf-8"))
    ]
    assert len(lines) > 50
    assert [] == [(*each, why) for each in lines if (why := wrong_options(each[1]))]


def test_an_option_that_does_not_exist_would_be_found() -> None:
    assert "--drawz" in wrong_options("streammc sample a.zarr -o run --drawz 5")
    assert "no command smaple" == wrong_options("streammc smaple a.zarr")
    assert "" == wrong_options("streammc diagnose run --json | head  # a comment")


def test_python_that_pages_show_is_python() -> None:
    seen = 0
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8"), "python"):
            if not block.startswith(">>>"):  # make doctest runs those
                ast.parse(block, filename=str(path))
                seen += 1
    assert seen > 10
