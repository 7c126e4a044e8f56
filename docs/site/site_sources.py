"""Links from pages to files outside ``docs/``, and what dialects of Markdown differ in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r"\]\(((?:\.\./)+[^)\s#]+|[a-z-]+/)(#[^)\s]*)?\)")
CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LANGUAGES: Final = {".py": "python", ".md": "markdown", ".toml": "toml", ".json": "json"}


def source_page(path: str) -> str:
    """Return the address of the page that shows a file of the repository."""
    return f"source/{path}.md"


def outside(uri: str, target: str) -> str | None:
    """Return the path of a link's target in the repository, or ``None`` inside ``docs/``."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(uri), target))
    return None if path.startswith("docs/") else path


def _targets(uri: str, markdown: str) -> Iterator[str]:
    for found in LINK.finditer(markdown):
        path = outside(uri, found.group(1))
        if path is not None:
            yield path


def linked_sources(pages: Mapping[str, str]) -> dict[str, str]:
    """Return a page for every file outside ``docs/`` that a page links, by its path."""
    paths = {path for uri, text in pages.items() for path in _targets(uri, text)}
    return {path: _listing(path) for path in sorted(paths) if (ROOT / path).exists()}


def _listing(path: str) -> str:
    file = ROOT / path
    if file.is_dir():
        inside = [f"- `{path}/{each.name}`" for each in sorted(_visible(file.iterdir()))]
        return "\n".join([f"# {path}", "", *inside, ""])
    language = LANGUAGES.get(file.suffix, "text")
    return f"# {path}\n\n~~~~~~ {language}\n{file.read_text(encoding='utf-8').rstrip()}\n~~~~~~\n"


def _visible(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if not path.name.startswith((".", "__pycache__"))]


def rewritten_links(markdown: str, uri: str) -> str:
    """Return a page whose links lead to pages: of source files, and to the index of a folder.

    A link to nothing is left as it is; MkDocs reports it.
    """

    def rewritten(found: re.Match[str]) -> str:
        target, anchor = found.group(1), found.group(2) or ""
        path = outside(uri, target)
        if path is not None and (ROOT / path).exists():
            page = posixpath.relpath(source_page(path), posixpath.dirname(uri) or ".")
            return f"]({page})"
        if target.endswith("/"):
            return f"]({target}index.md{anchor})"
        return found.group(0)

    return LINK.sub(rewritten, markdown)


def unescaped_pipes(markdown: str) -> str:
    r"""Return tables without ``\|`` in code: GitHub needs the backslash, MkDocs would show it."""
    lines = markdown.split("\n")
    for i, line in enumerate(lines):
        if line.startswith("|") and "\\|" in line:
            lines[i] = CODE.sub(lambda code: code.group(0).replace("\\|", "|"), line)
    return "\n".join(lines)
