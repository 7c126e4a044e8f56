from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = "from streammc.numerics.jit import cache_dir; print(cache_dir())"


def cache_folder(base: Path, **environment: str) -> Path:
    """Return the folder of compiled code in a fresh process."""
    finished = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "STREAMMC_CACHE_DIR": str(base), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return Path(finished.stdout.strip())


def test_machine_code_of_two_processors_is_kept_apart(tmp_path: Path) -> None:
    generic = cache_folder(tmp_path, NUMBA_CPU_NAME="generic")
    nehalem = cache_folder(tmp_path, NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES="+sse4.2")
    assert generic == cache_folder(tmp_path, NUMBA_CPU_NAME="generic")
    assert generic != nehalem
    assert {tmp_path / "streammc"} == {generic.parent, nehalem.parent}
