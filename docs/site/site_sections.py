"""Sections of the site: the navigation, and an index page for each folder of ``docs/``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

SECTIONS: Final = {
    "tutorial": "Tutorial",
    "how-to": "How to",
    "explanation": "Explanation",
    "reference": "Reference",
    "measurements": "Measurements",
    "reproductions": "Papers reproduced",
    "decisions": "Decisions",
}
"""Folders of pages in the order of the navigation, with their titles."""
INTRODUCTIONS: Final = {
    "tutorial": "Start here: every step once, with the data that travel with the package.",
    "how-to": "One task a page.",
    "explanation": "What is sampled, whether it can be trusted, and what it costs.",
    "reference": "Every command, option, name, and format.",
    "measurements": "Tables: what was measured, on which machine, when, and how to run it again.",
    "reproductions": "Tables and figures of the papers behind the samplers, computed again.",
    "decisions": "Decision records: context, decision, alternatives with evidence, consequences. "
    "A later record may replace an earlier one.",
}
DEVELOPMENT: Final = "development"
"""Address of the page that lists ``OF_DEVELOPMENT``."""
OF_DEVELOPMENT: Final = ("measurements", "reproductions", "decisions")
"""Sections for those who work on streammc: together they are the last part of the navigation."""
LATER: Final = ("reference/api/",)
"""Folders inside a section, each with a page of its name beside it: listed after the others."""


def title(text: str) -> str:
    """Return the first heading of a page, without Markdown."""
    found = re.search(r"^# (.+)$", text, re.M)
    if found is None:
        raise ValueError("expected a first heading in every page of the docs, found none")
    return found.group(1).replace("`", "")


def pages_of(folder: str, pages: Mapping[str, str]) -> list[str]:
    """Return the addresses of a section's pages: decisions by number, others by title."""
    found = [uri for uri in pages if uri.startswith(f"{folder}/") and uri.endswith(".md")]
    found = [uri for uri in found if uri != f"{folder}/index.md"]
    if folder == "decisions":
        return sorted(found)
    return sorted(found, key=lambda uri: (uri.startswith(LATER), title(pages[uri]).lower()))


def section_indexes(pages: Mapping[str, str]) -> dict[str, str]:
    """Return an index page for every folder of ``docs/``."""
    strange = {uri.split("/")[0] for uri in pages if "/" in uri} - set(SECTIONS)
    if strange:
        raise ValueError(
            f"expected pages in {', '.join(SECTIONS)}, found {', '.join(sorted(strange))}: "
            "add the folder to SECTIONS in docs/site/site_sections.py"
        )
    made: dict[str, str] = {}
    for folder, heading in SECTIONS.items():
        lines = [f"# {heading}", "", INTRODUCTIONS[folder], ""]
        for uri in pages_of(folder, pages):
            if not uri.startswith(LATER):
                lines.append(f"- [{title(pages[uri])}]({uri.removeprefix(f'{folder}/')})")
        made[f"{folder}/index.md"] = "\n".join(lines) + "\n"
    lines = ["# Development", "", "For those who work on streammc, or ask how it was checked.", ""]
    for folder in OF_DEVELOPMENT:
        lines.append(f"- [{SECTIONS[folder]}](../{folder}/index.md): {INTRODUCTIONS[folder]}")
    made[f"{DEVELOPMENT}/index.md"] = "\n".join(lines) + "\n"
    return made


def llms_text(pages: Mapping[str, str], description: str) -> str:
    """Return ``llms.txt``: the pages for users with their first sentences, for language models.

    The form is that of https://llmstxt.org; those who develop have an optional section.
    """
    lines = ["# streammc", "", f"> {description}", ""]
    lines += ["- [Overview](index.html)"]
    for folder, heading in SECTIONS.items():
        if folder in OF_DEVELOPMENT:
            continue
        lines += ["", f"## {heading}", ""]
        for uri in pages_of(folder, pages):
            sentence = first_sentence(pages[uri])
            about = f": {sentence}" if sentence else ""
            lines.append(f"- [{title(pages[uri])}]({uri.removesuffix('.md')}.html){about}")
    lines += ["", "## Optional", ""]
    for folder in OF_DEVELOPMENT:
        lines.append(f"- [{SECTIONS[folder]}]({folder}/index.html): {INTRODUCTIONS[folder]}")
    return "\n".join(lines) + "\n"


def first_sentence(text: str) -> str:
    """Return the first sentence of prose of a page, without links; empty if there is none."""
    for paragraph in text.split("\n\n")[1:]:
        if re.match(r"[\w*`\[]", paragraph) and "<!--" not in paragraph:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.?!])\s|:$", plain)[0]
    return ""


def navigation(pages: Mapping[str, str]) -> list[Any]:
    """Return the navigation: the landing page, every section, and those of development as one."""
    nav: list[Any] = [{"streammc": "index.md"}]
    development: list[Any] = [f"{DEVELOPMENT}/index.md"]
    for folder, heading in SECTIONS.items():
        inside = pages_of(folder, pages)
        beside = [f"{later.rstrip('/')}.md" for later in LATER]
        own = [uri for uri in inside if not uri.startswith(LATER) and uri not in beside]
        parts: list[Any] = [f"{folder}/index.md", *own]
        parts += [_subsection(later, inside, pages) for later in LATER if _below(later, inside)]
        (development if folder in OF_DEVELOPMENT else nav).append({heading: parts})
    return [*nav, {"Development": development}]


def _below(folder: str, uris: Sequence[str]) -> list[str]:
    return [uri for uri in uris if uri.startswith(folder)]


def _subsection(folder: str, uris: Sequence[str], pages: Mapping[str, str]) -> dict[str, list[str]]:
    index = f"{folder.rstrip('/')}.md"
    return {title(pages[index]): [index, *_below(folder, uris)]}
