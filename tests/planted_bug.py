"""Run pytest on streammc with one place of its source changed, and no file on the disk.

``python tests/planted_bug.py FILE RIGHT WRONG [pytest arguments]`` imports FILE with RIGHT replaced
by WRONG. Compiled code is known by a digest of the sources that it depends on: the digest is that
of the changed source, so that no changed code is ever taken for that of the package. After
``--interpreted`` the change is neither in compiled code nor in a constant of it, and the compiled
code of the package is used. With FILE ``-`` nothing is changed.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType


def plant(file: Path, right: str, wrong: str, *, interpreted: bool = False) -> None:
    """Change what is imported from ``file``, and the digest of its source."""
    text = file.read_text(encoding="utf-8")
    if text.count(right) != 1:
        raise SystemExit(f"expected {right!r} once in {file}, found it {text.count(right)} times")
    changed = text.replace(right, wrong)
    load = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = loader.get_filename(name)
        if Path(path).resolve() != file:
            return load(loader, name)
        code: CodeType = compile(changed, path, "exec", dont_inherit=True)
        return code

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    if interpreted:
        return
    from streammc.numerics import dispatchers

    read = dispatchers._read

    def read_changed(path: str) -> tuple[str, frozenset[str]]:
        if Path(path).resolve() != file:
            return read(path)
        digest = hashlib.sha256(changed.encode()).hexdigest()
        return digest, dispatchers.imported_files(changed)

    dispatchers._read = read_changed


if __name__ == "__main__":
    words = sys.argv[1:]
    interpreted = words[:1] == ["--interpreted"]
    where, old, new, *arguments = words[interpreted:]
    sys.path[0] = str(Path.cwd())
    if where != "-":
        plant(Path(where).resolve(), old, new, interpreted=interpreted)
    import pytest

    sys.exit(pytest.main(arguments))
