"""Models that are broken, and modules beside the data: check 58."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checks_of_trust import JOB
from command_line import PROGRAM, Result, program

Record = Callable[[str, object], None]
OWN = ("--model", "broken:build", "--allow-code", *JOB[2:], "--sampler", "hmc")
SCRIPT = "import sys\nfrom streammc.cli import main\nsys.exit(main())\n"
BROKEN = """
import ctypes, os, signal, sys, time
import numpy as np
from streammc.models import user

def build(prior=None):
    def log_lik(eta, y):
        {fault}
        return y * eta[0] - np.logaddexp(0, eta[0])

    def gradient(eta, y):
        return y - 1 / (1 + np.exp(-eta))

    def hessian(eta, y):
        p = 1 / (1 + np.exp(-eta))
        return -(p * (1 - p))[None]

    return user("own", log_lik=log_lik, gradient=gradient, hessian=hessian, prior=prior)
"""


def sampled(folder: Path, store: Path, **options: object) -> Result:
    words = ["sample", str(store), "-o", "run", *OWN]
    done = subprocess.run(
        [*PROGRAM, *words, "--draws", "40"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    return Result(done.returncode, done.stdout, done.stderr)


FAULTS = {
    "os._exit(0)": ("os._exit(0)", 70, "os._exit(0): mend the model"),
    "sys.exit(0)": ("sys.exit(0)", 70, "exit(): mend the model"),
    "raise": ("raise KeyError('a')", 70, "KeyError"),
    "NaN": ("return eta[0] * np.nan", 65, "expected"),
    "wrong shape": ("return np.zeros(3)", 65, "to return shape"),
}


@pytest.mark.trust(58)
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_model_is_one_line_and_never_success(
    name: str, finished: Path, tmp_path: Path, record_property: Record
) -> None:
    fault, code, culprit = FAULTS[name]
    (tmp_path / "broken.py").write_text(BROKEN.format(fault=fault))
    done = sampled(tmp_path, finished / "store.zarr")
    assert code == done.code, done.err
    assert "Traceback" not in done.err
    assert culprit in done.err.splitlines()[-1], done.err
    assert not (tmp_path / "run").exists()
    record_property("figure", f"{name}: {done.code}")


@pytest.mark.trust(58)
@pytest.mark.slow
def test_a_model_that_crashes_or_never_returns_or_fills_the_memory_ends_with_a_code(
    finished: Path, tmp_path: Path, record_property: Record
) -> None:
    store, broken = finished / "store.zarr", tmp_path / "broken.py"
    broken.write_text(BROKEN.format(fault="ctypes.string_at(0)"))
    no_core = lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # noqa: E731
    assert -signal.SIGSEGV == sampled(tmp_path, store, preexec_fn=no_core).code
    broken.write_text(BROKEN.format(fault="np.ones(1 << 28)"))
    small = lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))  # noqa: E731
    full = sampled(tmp_path, store, preexec_fn=small)
    assert 71 == full.code, full.err
    assert "Traceback" not in full.err
    broken.write_text(BROKEN.format(fault="open('begun', 'w').close(); time.sleep(1000)"))
    words = ["sample", str(store), "-o", "run", *OWN]
    process = subprocess.Popen([*PROGRAM, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 11
    assert 143 == process.returncode, err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
    record_property("figure", "segmentation fault: -11; memory: 71; endless: 143 after SIGTERM")


PLANTS = ("numba.py", "numpy.py", "zarr.py", "sitecustomize.py", "usercustomize.py", "own.py")


def planted(folder: Path) -> None:
    """Put modules into a folder that leave a file where they are imported."""
    for name in PLANTS:
        text = f"open({str(folder / ('ran-' + name))!r}, 'w').close()\n"
        (folder / name).write_text(text)
    (folder / "streammc.toml").write_text("draws = 7\n")


@pytest.mark.trust(58)
@pytest.mark.parametrize("how", ["-m", "script", "own model"])
@pytest.mark.slow
def test_modules_beside_the_data_are_not_imported(
    how: str, finished: Path, tmp_path: Path, record_property: Record
) -> None:
    planted(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "streammc").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text(BROKEN.format(fault="pass"))
    words = ["sample", str(finished / "store.zarr"), "-o", str(tmp_path / "run"), "--draws", "20"]
    model = ["--model", "logistic"]
    if how == "own model":
        model = ["--model", "broken:build", "--allow-code", "--sampler", "hmc"]
    start = PROGRAM if how == "-m" else [sys.executable, str(tmp_path / "bin" / "streammc")]
    rest = ["--warmup", "20", "--chains", "1", "--seed", "1", "--no-audit", "--quiet"]
    command = [*start, *words, *model, *rest]
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    assert [] == sorted(path.name for path in tmp_path.glob("ran-*"))
    record_property("figure", f"modules beside the data ({how}): none imported")


@pytest.mark.trust(58)
def test_a_module_that_comes_before_the_installed_ones_is_seen(
    tmp_path: Path, record_property: Record
) -> None:
    planted(tmp_path)
    code = textwrap.dedent("""
        import sys
        sys.path.insert(0, "")
        import streammc.numerics.special
    """)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.glob("ran-*"))
    record_property("caught", "numba.py in a current folder that comes first in sys.path")


def test_a_command_does_not_run_a_configuration_that_nobody_named(
    finished: Path, tmp_path: Path
) -> None:
    planted(tmp_path)
    done = program("info", finished / "run", "--json", cwd=tmp_path)
    assert 60 == done.json["draws"]
