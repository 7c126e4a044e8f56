"""The documents agree with the code and run; the sources keep the rules of the house."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import counts, measured, sampler_classes, sampler_names, sources
from import_graph import closing, cycle, graphs, modules, parsed
from references import lost, named_modules

from streammc.registry import SAMPLERS

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("numba", "dask", "zarr", "xarray", "pyarrow", "scipy", "pandas", "distributed")
PAPERS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "streammc/**/*.md") for path in ROOT.glob(pattern)
)


def tracked() -> list[Path]:
    """Return the text files of the project: those that git tracks, or all where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        folders = ("streammc", "stores", "cli", "tests", "docs", "bench", "notebooks", "examples")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in paths
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".cff", ".ipynb", ".json", ""}
    ]


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after ``statement``."""
    code = f"import sys\n{statement}\nprint('\\n'.join({{m.split('.')[0] for m in sys.modules}}))"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(finished.stdout.split())


HELP = textwrap.dedent(
    """
    import contextlib, io
    from streammc.cli import main
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(["--help"])
    assert "Usage" in out.getvalue(), out.getvalue()
    """
)


def test_help_loads_nothing_heavy() -> None:
    assert set() == loaded_by(HELP) & set(HEAVY)


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert set() == loaded_by("import streammc") & {*HEAVY, "numpy", "click", "rich"}


def test_a_heavy_module_would_be_seen() -> None:
    assert "numba" in loaded_by("import streammc.numerics.jit") & set(HEAVY)


def processor_seconds(*command: str | Path) -> float:
    """Return the processor time of a command, the best of five: other work only adds to it."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def test_help_is_quicker_than_loading_numpy_beside_click() -> None:
    # Relative, since processors differ: help takes 0.6 of the other, and loading numba 3 of it.
    found = processor_seconds(Path(sys.executable).parent / "streammc", "--help")
    assert found < processor_seconds(sys.executable, "-c", "import click, rich, numpy")


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/tutorial/first-posterior.md"])
def test_python_in_the_papers_runs(name: str, tmp_path: Path) -> None:
    blocks = python_blocks(ROOT / name)
    assert blocks, f"{name} shows no Python"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip()


def links(path: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)  # indented code
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "mailto:", "#")):
            yield target.split("#")[0]


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_papers_lead_somewhere(path: Path) -> None:
    assert [] == [target for target in links(path) if not (path.parent / target).exists()]


def test_every_page_of_the_docs_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop().resolve()
        if page.is_dir() and page.is_relative_to(ROOT / "docs"):
            todo += page.glob("*.md")  # the site makes an index of a folder that is linked
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [page.parent / target for target in links(page)]
    assert set() == {path.resolve() for path in (ROOT / "docs").rglob("*.md")} - seen


def test_pages_of_the_docs_are_short() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    assert [] == [name for name, text in pages.items() if len(text.splitlines()) > 200]


def test_modules_that_texts_name_exist() -> None:
    known = named_modules(ROOT)
    # A record keeps the names of its day; inputs of messages are wrong on purpose.
    others = [path for path in PAPERS if path.parent.name not in {"decisions", "messages"}]
    texts = [*sources(ROOT), *others]
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in texts
        if (names := lost(path.read_text(encoding="utf-8"), known))
    }
    assert {} == found


def test_a_module_that_has_moved_is_found() -> None:
    known = named_modules(ROOT)
    text = "``likelihood.target``, `streammc.registry.SAMPLERS`, `numpy.linalg`, ``rows.draws``"
    assert ["rows.draws"] == lost(text, known)
    assert ["models.logit", "numerics.jit.jot"] == lost(
        "`models.logit` `numerics.jit.jot()`", known
    )


def test_decisions_are_numbered_without_gaps_and_have_four_parts() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path
        parts = re.findall(r"^## (.*)$", text, re.M)
        assert parts == ["Context", "Decision", "Alternatives", "Consequences"], path


def test_readme_names_every_sampler_and_model() -> None:
    from streammc.registry import MODELS, SAMPLERS

    for page in ("README.md", "docs/explanation/what-each-sampler-targets.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [] == [name for name in SAMPLERS if f"`{name}`" not in text], page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [] == [name for name in MODELS if name not in readme]


def test_reference_has_a_section_and_a_place_for_the_options_of_every_command() -> None:
    from streammc.cli.app import COMMANDS

    text = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^## (.*)$", text, re.M))
    assert list(COMMANDS) == re.findall(r"`streammc ([a-z]+)", headings)
    assert list(COMMANDS) == re.findall(r"^<!-- options: ([a-z]+)", text, re.M)


# Spelled in pieces, so that this file does not contain what it looks for.
FORBIDDEN = [
    *("TO" + "DO", "FIX" + "ME", "X" * 3, "NotImplemented" + "Error", "assert " + "True"),
    *("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "PL" + "AN.md"),
]


def faults(text: str) -> list[str]:
    return [word for word in FORBIDDEN if word in text]


def test_no_placeholder_and_no_private_path_in_the_project() -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in tracked()
        if (words := faults(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert {} == found


def test_a_placeholder_would_be_found() -> None:
    assert ["TO" + "DO"] == faults("x = 1  # TO" + "DO: later")


def guessed_traits(source: str) -> list[str]:
    """Return the calls of ``getattr`` and ``hasattr`` with a trait of a model or a data set."""
    from streammc.models.mixed.mixed_model import MixedModel
    from streammc.protocols import Dataset, PassTask, RowSource
    from streammc.samplers.common.sampler import Sampler

    data = {
        each
        for kind in (Dataset, PassTask, RowSource)
        for each in (*vars(kind), *kind.__annotations__)
    }
    # What a parameter of a command, a group, a prior, a table of another program has too.
    others = {"name", "describe", "joint", "table", "columns", "map", "attributes"}
    traits = {*dir(MixedModel), *dir(Sampler), *data} - others
    if "attr(" not in source:
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(name := node.args[1], ast.Constant)
        and not str(name.value).startswith("_")
        and name.value in traits
    ]


def test_traits_of_models_samplers_and_data_sets_are_stated_not_guessed() -> None:
    """They stand, with defaults, in ``StatedModel``, ``Sampler``, ``RowTable`` and ``View``."""
    found = {
        path.relative_to(ROOT).as_posix(): guessed
        for path in sources(ROOT)
        if (guessed := guessed_traits(path.read_text(encoding="utf-8")))
    }
    # Whether an object is a model at all.
    assert {"streammc/models/check.py": ["hasattr(model, 'prior_table')"]} == found
    assert guessed_traits("getattr(model, 'multimodal', False)")
    assert guessed_traits("getattr(dataset, 'groups', None)")
    assert guessed_traits("hasattr(store, 'earlier')")


PRESENT = {
    "file names in several folders": (4, 2),
    "samplers told apart outside their family": (0, 0),
    "imports of a family outside the samplers": (0, 0),
}
"""How many places do not keep a rule, and the largest number among them. They may only fall."""


def test_rules_of_the_house_are_kept_as_well_as_before() -> None:
    found = measured(ROOT)
    more = {
        rule: found[rule]
        for rule, pair in counts(found).items()
        if any(now > before for now, before in zip(pair, PRESENT[rule], strict=True))
    }
    assert {} == more, "CONTRIBUTING.md has the rules"
    assert PRESENT == counts(found), "better than written: lower the numbers of PRESENT"


def test_places_that_do_not_keep_a_rule_are_counted(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("streammc/samplers/ladder/__init__.py", "class Ladder:\n    pass\n")
    write("streammc/registry.py", 'SAMPLERS: dict = {"pt": "streammc.samplers.ladder:pt"}\n')
    write("streammc/twice.py", "")
    write("stores/twice.py", "")
    write("cli/kernel.py", "")
    write("stores/kernel.py", "")
    write(
        "streammc/runs/knows.py",
        "from streammc.samplers.ladder import Ladder\n"
        "from streammc.samplers.common import chains\n"
        "isinstance(x, int | Ladder)\n"
        'sampler.name in ("pt", "hmc")\n'
        "setup.sampler.target == BIASED\n"
        'found["sampler"] != other\n'
        "isinstance(x, int), x.name == y, x == 1\n",
    )
    found = counts(measured(tmp_path))
    assert found == {
        "file names in several folders": (1, 2),
        "samplers told apart outside their family": (4, 1),
        "imports of a family outside the samplers": (1, 1),
    }


def test_rules_know_the_samplers_of_the_registry() -> None:
    assert set(SAMPLERS) == sampler_names(ROOT)
    assert {"Mint", "HmcEcs", "TemperedOptions"} <= sampler_classes(ROOT)


@pytest.mark.parametrize("script", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda p: p.stem)
def test_notebook_header_is_read_by_jupytext_and_names_the_kernel(script: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    header, _, _ = script.read_text().partition("\n# %%")
    assert header.splitlines().count("# ---") == 2, "the YAML header lacks its begin or its end"
    for path in (script, script.with_suffix(".ipynb")):
        notebook = jupytext.read(path)
        assert notebook.metadata["kernelspec"]["name"] == "python3", path
        assert notebook.metadata["jupytext"]["formats"] == "ipynb,py:percent", path
        assert not any("jupytext:" in cell.source for cell in notebook.cells), path


def test_notebooks_equal_their_scripts_and_hold_no_outputs() -> None:
    jupytext = pytest.importorskip("jupytext")
    scripts = sorted((ROOT / "notebooks").glob("*.py"))
    assert scripts
    for script in scripts:
        paired = jupytext.read(script.with_suffix(".ipynb"))
        written = jupytext.read(script)
        assert [(c.cell_type, c.source) for c in written.cells] == [
            (c.cell_type, c.source) for c in paired.cells
        ], f"{script.name}: run make sync-notebooks"
        for cell in paired.cells:
            assert not cell.get("outputs"), script.name
            assert cell.get("execution_count") is None, script.name


HIDDEN_CYCLES: set[tuple[str, str]] = set()
"""Imports inside functions that close a cycle; the list only becomes shorter."""


def test_modules_import_each_other_in_no_cycle() -> None:
    top, inside = graphs(modules(ROOT))
    assert [] == cycle(top)
    assert closing(top, inside) <= HIDDEN_CYCLES


def test_a_cycle_would_be_found_at_the_top_and_inside_a_function() -> None:
    sources = {"p": "", "p.a": "from p import b", "p.b": "def f():\n    from p.a import x"}
    top, inside = graphs(sources)
    assert [] == cycle(top)
    assert {("p.b", "p.a")} == closing(top, inside)
    top, inside = graphs({**sources, "p.b": "import p.a"})
    assert {"p.a", "p.b"} == {*cycle(top)}
    top, _ = graphs({**sources, "p.b": "if TYPE_CHECKING:\n    import p.a"})
    assert [] == cycle(top)


def test_every_notebook_is_listed_and_asserts_its_claims() -> None:
    page = (ROOT / "docs" / "tutorial" / "notebooks.md").read_text(encoding="utf-8")
    listed = re.findall(r"/notebooks/([\w-]+)[.]ipynb", page)
    scripts = sorted((ROOT / "notebooks").glob("*.py"))
    assert [script.stem for script in scripts] == listed
    silent = [path.name for path in scripts if "\nassert " not in path.read_text(encoding="utf-8")]
    assert [] == silent
