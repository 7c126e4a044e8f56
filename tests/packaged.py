"""What the project's lock file pins, and which of its dependencies it must pin."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "ci.lock"
PIN = re.compile(r"^([a-z0-9.-]+)(?:\[([a-z0-9,-]+)\])?==[^\s;]+", re.MULTILINE)


def pinned(text: str) -> dict[str, int]:
    """Return the names that a lock file pins to one version each, with their hashes counted."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if match := PIN.match(line):
            name = match[1]
            found.setdefault(name, 0)
        elif line and not line.startswith((" ", "#")):
            raise ValueError(f"not pinned: {line}")
        found.update({name: found[name] + 1} if "--hash=sha256:" in line else {})
    return found


def extras_pinned(text: str) -> dict[str, set[str]]:
    """Return the extras with which a lock file pins each name."""
    found: dict[str, set[str]] = {}
    for name, extras in PIN.findall(text):
        found.setdefault(name, set()).update(extras.split(",") if extras else ())
    return found


def extras_asked(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the extras that installed packages ask of each other, of those that are ``names``."""
    found: dict[str, set[str]] = {}
    for name in names:
        try:
            words = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # pinned for another system or Python
        for requirement in map(Requirement, words):
            if requirement.extras and (
                requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            ):
                key = canonicalize_name(requirement.name)
                found.setdefault(key, set()).update(requirement.extras)
    return found


def requirements(groups: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the dependencies of streammc and of extras: by name, as in a lock, their texts."""
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
    found: dict[str, list[str]] = {}
    for word in words:
        found.setdefault(canonicalize_name(Requirement(word).name), []).append(word)
    return found
