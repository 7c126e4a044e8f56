"""Damaged, planted and contested files of the cache of compiled code: check 57."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import rounds

Record = Callable[[str, object], None]
USE = """
    from numba.core import event
    compiled = []
    class Listener(event.Listener):
        def on_start(self, event):
            compiled.append(event.data["dispatcher"].__name__)
        def on_end(self, event):
            pass
    event.register("numba:compile", Listener())
    from streammc.numerics.special import log_gamma
    from streammc.numerics.dispatchers import cache_dir
    print(cache_dir())
    print(repr(log_gamma(1.5)), bool(compiled))
"""


def start(base: Path) -> subprocess.Popen[str]:
    """Start a process that calls a compiled function whose code is kept in ``base``."""
    env = {**os.environ, "STREAMMC_CACHE_DIR": str(base)}
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", textwrap.dedent(USE)]
    return subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[Path, str]:
    """Return the folder of compiled code that a process used, and what it printed."""
    out, err = process.communicate(timeout=240)
    assert 0 == process.returncode, err
    folder, line = out.splitlines()
    return Path(folder), line


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Return a cache with compiled code: its place, its folder, and the result of a call."""
    base = tmp_path_factory.mktemp("cache")
    folder, line = ended(start(base))
    value, compiled = line.split()
    assert "True" == compiled
    assert (folder, f"{value} False") == ended(start(base))
    return base, folder, value


@pytest.mark.trust(57)
@pytest.mark.slow
def test_a_damaged_file_of_the_cache_is_compiled_again(
    kept: tuple[Path, Path, str], record_property: Record
) -> None:
    base, folder, value = kept
    files = sorted(path for path in folder.rglob("*.nb?") if path.stat().st_size)
    assert {".nbi", ".nbc"} == {path.suffix for path in files}
    called = [path for path in files if not path.relative_to(folder).parts[0].endswith("-i")]
    assert 0 < len(called) < len(files)
    tried = rounds(4, 20)
    for number in range(tried):
        path = (files if number % 2 else called)[number % len(called)]
        content = path.read_bytes()
        at = len(content) * (number + 1) // (tried + 1)
        flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        path.write_bytes(content[:at] if number % 4 < 2 else flipped)
        for outer in () if path in called else called:  # callers alone read the others
            outer.unlink()
        assert (folder, f"{value} True") == ended(start(base)), path
        assert (folder, f"{value} False") == ended(start(base)), path
    record_property("figure", f"{tried} of {tried} cut or changed files were compiled again")


@pytest.mark.trust(57)
def test_a_cut_file_without_a_digest_ends_the_process(
    kept: tuple[Path, Path, str], record_property: Record
) -> None:
    base, folder, _ = kept
    code = textwrap.dedent("""
        from streammc.numerics import numba_internals
        numba_internals._intact = lambda path: True
    """)
    [path, *_] = sorted(folder.rglob("*.nbc"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    words = [sys.executable, "-c", code + textwrap.dedent(USE)]
    env = {**os.environ, "STREAMMC_CACHE_DIR": str(base)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    path.write_bytes(content)
    assert done.returncode
    assert "Error" in done.stderr
    record_property("caught", "a file of half its length, read without its digest")


class Planted:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


@pytest.mark.trust(57)
@pytest.mark.parametrize("fault", ["everyone may write", "parent", "foreign owner", "read-only"])
def test_code_in_a_folder_that_others_may_write_is_never_loaded(
    fault: str, kept: tuple[Path, Path, str], tmp_path: Path, record_property: Record
) -> None:
    _, known, value = kept
    folder = tmp_path / "streammc" / known.name
    canary = tmp_path / "canary"
    for path in known.rglob("*.nb?"):
        place = folder / path.relative_to(known)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pickle.dumps(Planted(canary)))
    if fault == "everyone may write":
        folder.chmod(0o777)
    elif fault == "parent":
        folder.parent.chmod(0o777)
    elif os.geteuid():
        pytest.skip("only root gives files away, and mounts")
    elif fault == "foreign owner":
        os.chown(folder, 65_534, 65_534)
    pickle.loads(pickle.dumps(Planted(canary)))
    assert canary.exists()  # the plant works
    canary.unlink()
    if fault == "read-only":
        mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
        before = ["unshare", "-m", "sh", "-c", mount, "sh", str(folder)]
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no mounts of its own here")
        env = {**os.environ, "STREAMMC_CACHE_DIR": str(tmp_path)}
        words = [*before, sys.executable, "-c", textwrap.dedent(USE)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, text=True)
    else:
        process = start(tmp_path)
    used, line = ended(process)
    assert folder != used
    assert f"{value} True" == line
    assert not canary.exists()
    record_property("figure", f"planted code, {fault}: not loaded")


@pytest.mark.trust(57)
@pytest.mark.slow
def test_processes_that_start_at_once_with_an_empty_cache_all_succeed(
    kept: tuple[Path, Path, str], tmp_path: Path, record_property: Record
) -> None:
    count = rounds(3, 8)
    processes = [start(tmp_path) for _ in range(count)]
    assert {kept[2]} == {ended(each)[1].split()[0] for each in processes}
    assert ended(start(tmp_path))[1].endswith("False")
    record_property("figure", f"{count} of {count} cold starts at once succeed")


FROM_A_PATH = """
    import importlib.util
    from streammc.numerics import dispatchers
    {numba}
    spec = importlib.util.spec_from_file_location("unlisted", "{path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    print(module.half(3.0))
"""
UNLISTED = """
from numba import types
from streammc.numerics.jit import jit
@jit(types.float64(types.float64))
def half(x):
    return 0.5 * x
"""


@pytest.mark.parametrize("numba", ["", "dispatchers.INTERNALS = None"], ids=["own", "njit"])
def test_functions_of_a_module_that_no_name_imports_are_compiled_again(
    tmp_path: Path, numba: str
) -> None:
    (tmp_path / "unlisted.py").write_text(UNLISTED)
    words = textwrap.dedent(FROM_A_PATH.format(path=tmp_path / "unlisted.py", numba=numba))
    env = {**os.environ, "STREAMMC_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", words], env=env, capture_output=True, text=True
        )
        assert ("1.5\n", "") == (done.stdout, done.stderr)
