"""Compilation ahead of use: ``python -m streammc.numerics.compile_ahead``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streammc.numerics.dispatchers import compile_ahead


def compiled_modules() -> list[str]:
    """Return the modules of this package that decorate a function with ``jit``, in order."""
    root = Path(__file__).resolve().parent.parent
    found = set()
    for folder in (root, root / "stores"):  # a link in a checkout: rglob does not follow it
        for path in folder.rglob("*.py"):
            if "@jit(" in path.read_text(encoding="utf-8"):
                found.add(".".join(path.relative_to(root.parent).with_suffix("").parts))
    return sorted(found)


if __name__ == "__main__":
    if named := sys.argv[1:]:
        compile_ahead(*named)
    else:  # what one of two processes has compiled, the other loads: they meet in the middle
        modules = compiled_modules()
        words = [sys.executable, "-m", "streammc.numerics.compile_ahead", *reversed(modules)]
        with subprocess.Popen(words) as other:
            compile_ahead(*modules)
        sys.exit(other.returncode)
