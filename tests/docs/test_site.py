"""The site: generated parts are complete, links lead somewhere, and it needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import streammc
from bench.browser import browser, messages_and_requests, opened

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LINE = ROOT / "docs" / "reference" / "command-line.md"


def page_texts() -> dict[str, str]:
    folder = ROOT / "docs"
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }


def test_every_option_of_every_command_is_in_its_table() -> None:
    from site_commands import EVERYWHERE, commands, with_options

    page = with_options(COMMAND_LINE.read_text(encoding="utf-8"))
    parts = re.split(r"^    streammc (?=[a-z]+ )", page, flags=re.M)[1:]
    sections = {part.split()[0]: part for part in parts}
    known = commands()
    assert set(sections) == set(known)
    for name, command in known.items():
        listed = set(
            re.findall(r"--[a-z-]+", " ".join(re.findall(r"^\| `[^`]*`", sections[name], re.M)))
        )
        options = {
            word
            for option in command.params
            if isinstance(option, click.Option)
            for word in [*option.opts, *option.secondary_opts]
            if word.startswith("--")
        }
        assert options - set(EVERYWHERE) == listed, name


def test_a_command_without_a_mark_is_refused() -> None:
    from site_commands import with_options

    text = COMMAND_LINE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="add or remove marks"):
        with_options(text.replace("<!-- options: audit -->", ""))


def test_help_text_in_a_table_keeps_its_marks() -> None:
    from site_commands import options_table

    option = click.Option(["--x"], metavar="A|B", help="One of A | B, as in `f(*)` or g[*].")
    table = options_table(click.Command("c", params=[option], help="Do it."))
    assert "| `--x A|B` | One of A \\| B, as in `f(*)` or g\\[\\*]. |" == table.splitlines()[-1]


def test_reference_has_every_public_name() -> None:
    from site_api import MODULES, identifiers

    found = {
        page: {name.rpartition(".")[2] for name in names} for page, names in identifiers().items()
    }
    public = set(streammc.__all__) - set(MODULES) - {"control_variates"}
    assert public | {"compute", "encode_rows"} == found["functions"]
    for module in MODULES:
        assert set(getattr(streammc, module).__all__) == found[module]
    assert {"ConfigError", "RefusedError", "SamplingWarning"} <= found["errors"]


def test_navigation_has_every_page_once() -> None:
    from site_sections import navigation, section_indexes

    pages = page_texts() | {"reference/api.md": "# Python names\n", "reference/api/x.md": "# X\n"}
    indexes = section_indexes(pages)
    listed = re.findall(r"'([^']+\.md)'", str(navigation(pages | indexes)))
    assert sorted(pages | indexes) == sorted(listed)


def test_sections_of_development_are_the_last_part_of_the_navigation() -> None:
    from site_sections import OF_DEVELOPMENT, SECTIONS, navigation, section_indexes

    pages = page_texts() | {"reference/api.md": "# Python names\n", "reference/api/x.md": "# X\n"}
    *before, last = navigation(pages | section_indexes(pages))
    assert [SECTIONS[folder] for folder in OF_DEVELOPMENT] == [
        next(iter(part)) for part in last["Development"][1:]
    ]
    assert not {SECTIONS[folder] for folder in OF_DEVELOPMENT} & {next(iter(p)) for p in before}


def test_index_of_decisions_is_in_their_order() -> None:
    from site_sections import section_indexes

    numbers = re.findall(r"^- \[(\d+)\.", section_indexes(page_texts())["decisions/index.md"], re.M)
    assert len(numbers) > 20
    assert [str(number) for number in range(1, len(numbers) + 1)] == numbers


def test_a_folder_that_the_sections_do_not_know_is_refused() -> None:
    from site_sections import section_indexes

    with pytest.raises(ValueError, match=r"site_sections\.py"):
        section_indexes({"essays/one.md": "# One\n"})


def test_links_to_sources_lead_to_pages_that_show_them() -> None:
    from site_sources import linked_sources, rewritten_links, source_page

    text = "[a](../../bench/peers.py) [b](../decisions/) [c](../how-to/jobs.md#x) [d](../../no.py)"
    uri = "explanation/page.md"
    made = linked_sources({uri: text})
    assert ["bench/peers.py"] == list(made)
    assert "def main" in made["bench/peers.py"]
    assert source_page("bench/peers.py") == "source/bench/peers.py.md"
    assert (
        "[a](../source/bench/peers.py.md) [b](../decisions/index.md) [c](../how-to/jobs.md#x) "
        "[d](../../no.py)"
    ) == rewritten_links(text, uri)


def test_pipes_in_code_lose_their_backslash_in_tables_alone() -> None:
    from site_sources import unescaped_pipes

    assert "| `a | b` | `` c | `d` `` | e \\| f |" == unescaped_pipes(
        "| `a \\| b` | `` c \\| `d` `` | e \\| f |"
    )
    assert "text `a \\| b`" == unescaped_pipes("text `a \\| b`")


def test_the_page_of_the_job_file_is_the_present_one() -> None:
    from bench.job_page import PAGE, page_text

    assert page_text() == PAGE.read_text(encoding="utf-8"), "python -m bench.job_page --write"


def built(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    finished = built(folder)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.mark.slow
def test_site_asks_no_other_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//")
    assert [] == [path for path in pages if loaded.search(path.read_text(encoding="utf-8"))]
    assert loaded.search('<script src="https://example.org/a.js">')


@pytest.mark.slow
def test_pages_show_docstrings_options_and_the_schema(site: Path) -> None:
    reference = site / "reference"
    assert "trajectory_length" in (reference / "api" / "samplers.html").read_text()
    assert "--subsample-size" in (reference / "command-line.html").read_text()
    assert '"additionalProperties"' in (reference / "job.schema.json").read_text()


@pytest.mark.slow
def test_llms_txt_lists_pages_that_are_there(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# streammc\n\n> Bayesian inference")
    links = re.findall(r"^- \[.+?\]\(([^)]+)\)", text, re.M)
    assert len(links) > 40
    assert [] == [link for link in links if not (site / link).exists()]
    assert "how-to/jobs.html): One rule: **give the same command again.**" in text


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no Chromium")
@pytest.mark.parametrize("worker", [True, False])
def test_search_works_from_a_folder_without_a_request(site: Path, worker: bool) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    asked = "<head><script>history.replaceState(0, '', '?q=deff')</script>"
    text = text.replace("<head>", asked, 1)
    if not worker:
        text = re.sub(r"<script src=[^>]*iframe-worker[^>]*></script>", "", text)
    page = site / f"searched-{worker}.html"
    page.write_text(text, encoding="utf-8")
    assert [] == messages_and_requests(page)[1]
    found = re.search(r"(\d+) matching documents", opened(page, "--dump-dom").stdout)
    assert worker == (found is not None)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["how-to/jobs.md#no-such-heading", "how-to/no-such-page.md"])
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, link: str) -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^hooks:.*$", "", settings, flags=re.M)
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "docs" / "how-to" / "jobs.md").write_text("# Jobs\n")
    (tmp_path / "docs" / "index.md").write_text("# Index\n\n[jobs](how-to/jobs.md)\n")
    assert built(tmp_path / "site", tmp_path).returncode == 0
    (tmp_path / "docs" / "index.md").write_text(f"# Index\n\n[jobs]({link})\n")
    finished = built(tmp_path / "site", tmp_path)
    assert finished.returncode != 0
    assert link.split("/")[1].split("#")[0] in finished.stderr
