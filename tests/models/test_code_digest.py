"""The digest of a model's functions: which files beside their own it depends on."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streammc.models.user_model import code_digest

MODEL = """import numpy as np
{imports}

def f(eta, y):
    return -eta[0] - y * np.exp(-eta[0]){use}
"""
Digest = Callable[[], str]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """Return the digest of ``digest_model.f`` as its files are now."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    names = set(sys.modules)

    def found() -> str:
        for name in set(sys.modules) - names:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.clearcache()
        return code_digest([importlib.import_module("digest_model").f])

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield found
    for name in set(sys.modules) - names:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


RATE = "def rate(x):\n    return {} * x\n"


@pytest.mark.parametrize(
    ("imports", "use"),
    [
        ("import rates", " + rates.rate(1.0)"),
        ("from rates import rate", " + rate(1.0)"),
        ("from rates import rate as r", " + sum(r(each) for each in y)"),
        ("", "\n    import rates"),
    ],
)
def test_change_of_a_module_that_the_model_imports_changes_the_digest(
    imports: str, use: str, tmp_path: Path, digest: Digest
) -> None:
    write(tmp_path, "digest_model.py", MODEL.format(imports=imports, use=use))
    write(tmp_path, "rates.py", RATE.format(2.0))
    before = digest()
    assert before == digest()
    write(tmp_path, "rates.py", RATE.format(3.0))
    assert before != digest()


@pytest.mark.parametrize("name", ["__init__", "rates", "deep/__init__", "deep/last"])
def test_imports_of_imports_count_also_in_a_circle(
    name: str, tmp_path: Path, digest: Digest
) -> None:
    write(tmp_path, "digest_model.py", MODEL.format(imports="from kit import rates", use=""))
    write(tmp_path, "kit/__init__.py", "")
    write(tmp_path, "kit/rates.py", "from .deep import last\n")
    write(tmp_path, "kit/deep/__init__.py", "")
    write(tmp_path, "kit/deep/last.py", "import kit.rates\nimport digest_model\n")
    before = digest()
    path = tmp_path / "kit" / f"{name}.py"
    path.write_text(path.read_text() + "CHANGED = 1\n")
    assert before != digest()


def test_a_module_counts_before_and_after_something_imports_it(
    tmp_path: Path, digest: Digest
) -> None:
    use = "\n    import kit.rates"
    write(tmp_path, "digest_model.py", MODEL.format(imports="", use=use))
    write(tmp_path, "kit/__init__.py", "raise ValueError\n")
    write(tmp_path, "kit/rates.py", "raise ValueError\n")
    before = digest()  # the files are found without running them
    (tmp_path / "kit" / "__init__.py").write_text("")
    (tmp_path / "kit" / "rates.py").write_text("")
    changed = digest()
    assert before != changed
    importlib.import_module("kit.rates")
    assert changed == code_digest([sys.modules["digest_model"].f])


def test_installed_modules_and_the_rest_of_the_models_file_do_not_count(
    tmp_path: Path, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    imports = "import math\nimport rates\nfrom streammc.models import user"
    text = MODEL.format(imports=imports, use=" + rates.rate(math.pi)")
    write(tmp_path, "digest_model.py", text)
    write(installed, "rates.py", RATE.format(2.0))
    before = digest()
    write(installed, "rates.py", RATE.format(3.0))
    write(tmp_path, "digest_model.py", text + "\nOTHER = 3\n")
    assert before == digest()


def test_digest_of_a_model_without_own_modules_is_that_of_earlier_versions(
    tmp_path: Path, digest: Digest
) -> None:
    write(tmp_path, "digest_model.py", MODEL.format(imports="", use=""))
    assert "dc6698307d03c9d1" == digest()
