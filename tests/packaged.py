"""What the project's lock file pins, and which of its dependencies it must pin."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "ci.lock"


def pinned(text: str) -> dict[str, int]:
    """Return the names that a lock file pins to one version each, with their hashes counted."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r"([a-z0-9.-]+)(?:\[[a-z,]+\])?==[^\s;]+", line):
            name = match[1]
            found.setdefault(name, 0)
        elif line and not line.startswith((" ", "#")):
            raise ValueError(f"not pinned: {line}")
        found.update({name: found[name] + 1} if "--hash=sha256:" in line else {})
    return found


def required(groups: tuple[str, ...]) -> set[str]:
    """Return the names of the dependencies of extras, in the spelling of a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    words = list(project["dependencies"])
    waiting = list(groups)
    while waiting:
        for word in extras[waiting.pop()]:
            if word.startswith("streammc["):
                waiting += word[9:-1].split(",")
            else:
                words.append(word)
    return {re.match(r"[A-Za-z0-9._-]+", word)[0].lower().replace("_", "-") for word in words}  # type: ignore[index]
