"""Output that a page shows, compared with output that was made just now."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")
MARK = "== end of a command =="


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines that are shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def shell_commands(text: str) -> Iterator[str]:
    """Yield the lines of a page that call streammc, continued lines joined."""
    indented = re.findall(r"(?:^    .*\n)+", text, re.M)
    fenced = [block for name in ("bash", "console", "sh") for block in blocks(text, name)]
    for block in [re.sub(r"^    ", "", each, flags=re.M) for each in indented] + fenced:
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ")
            if re.match(r"streammc [a-z]", line):
                yield line


def printed(
    lines: list[str], folder: Path, path: str, more: dict[str, str] | None = None
) -> list[list[str]]:
    """Run commands in one shell, ``more`` in its environment; return the stdout of each."""
    script = "".join(f"{line} || exit 1\necho '{MARK}'\n" for line in lines)
    finished = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{script}"],
        cwd=folder,
        env={**os.environ, "PATH": path, **(more or {})},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return [part.strip("\n").splitlines() for part in finished.stdout.split(MARK)[: len(lines)]]


def same_line(shown: str, found: str) -> bool:
    """Whether two lines agree: words are equal, numbers within 30 % or 0.02.

    Draws differ between processors, and with them the last digits.
    """
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", found).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(found), strict=True)
    numbers = [[float(text.replace(",", "").rstrip(".")) for text in pair] for pair in pairs]
    return all(abs(a - b) <= max(0.02, 0.3 * abs(a)) for a, b in numbers)


def missing(shown: list[str], found: list[str]) -> list[str]:
    """Return the shown lines that were not printed, in order; ``...`` stands for any lines."""
    left = list(found)
    skipping = False
    for line in shown:
        if line == "...":
            skipping = True
            continue
        while skipping and left and not same_line(line, left[0]):
            left.pop(0)
        if not left or not same_line(line, left.pop(0)):
            return [line]
        skipping = False
    return [] if skipping or not left else [f"not shown: {left[0]}"]
