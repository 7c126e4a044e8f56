"""Faults of a page that a parser can see: what a reader without a network or eyes would meet."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input"}
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping"}
"""Attributes whose value a browser loads."""


class Page(HTMLParser):
    """Elements of a page: headings, ids, links, texts, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.headings: list[int] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.texts: list[str] = []
        self.alternatives: list[str] = []
        self.feed(text)
        self.close()
        self.finish(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        values = {name: value or "" for name, value in attributes}
        if "id" in values:
            self.ids.append(values["id"])
        for name, value in values.items():
            if name in LOADING or (name == "href" and not value.startswith("#")):
                self.faults.append(f"{tag} loads {name}={value}")
            if name.startswith("on"):
                self.faults.append(f"{tag} has {name}")
            if (
                name in ("href", "aria-labelledby") and value.startswith("#")
            ) or name == "aria-labelledby":
                self.references.append(value.lstrip("#"))
            self.references += re.findall(r"url\(#([^)]+)\)", value)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "svg" and (values.get("role") != "img" or not values.get("aria-labelledby")):
            self.faults.append("svg without a text alternative")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes another element")

    def handle_data(self, data: str) -> None:
        within = self.open[-1] if self.open else ""
        if within == "title" and "svg" in self.open:
            self.alternatives.append(data.strip())
        if within not in ("style", "script"):
            self.texts.append(data)

    def finish(self, text: str) -> None:
        """Add the faults of the page as a whole."""
        repeated = sorted({name for name in self.ids if self.ids.count(name) > 1})
        self.faults += [f"id {name} repeats" for name in repeated]
        self.faults += [f"no element {name}" for name in {*self.references} - {*self.ids}]
        self.faults += [f"{tag} is open" for tag in self.open]
        if self.headings[:1] != [1] or self.headings.count(1) != 1:
            self.faults.append("not one h1, first")
        steps = zip(self.headings, self.headings[1:], strict=False)
        self.faults += [f"h{low} is followed by h{high}" for low, high in steps if high > low + 1]
        self.faults += [
            f"{tag} is there" for tag in ("script", "iframe", "object") if tag in self.tags
        ]
        if len(self.alternatives) != self.tags.count("svg") or "" in self.alternatives:
            self.faults.append("a figure has no text")
        if re.search(r"@import|url\((?!#)", text):
            self.faults.append("the style loads something")

    @property
    def text(self) -> str:
        """Everything that a reader sees, with single spaces."""
        return re.sub(r"\s+", " ", " ".join(self.texts))
