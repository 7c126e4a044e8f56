"""The only place that sets a numba option.

numba's disk cache does not see edits to functions that a cached one calls from
another file, so the cache lives in a folder named after a digest of every source of
this package that compiles anything, and of the processor: two processes that compile for
different processors at once must not write to one index, where the entry of one would come
to name the machine code of the other. The folder is private (mode 0700): a cache
entry is a pickle, and loading a planted one would run code.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import config as numba_config
from numba.core import types
from numba.core.registry import cpu_target

from streammc import first_use

first_use.listen()

f8: Any = types.float64
i8: Any = types.int64
vector: Any = types.Array(f8, 1, "C")
matrix: Any = types.Array(f8, 2, "C")
index_vector: Any = types.Array(i8, 1, "C")

design_view: Any = types.Array(f8, 2, "A", readonly=True)
"""A design with its rows along the second axis, in whatever order of memory."""

LINK_SIGNATURE: Any = types.void(matrix, design_view, vector, vector, i8, matrix)
"""``link(eta, X, y, constants, order, out)``; see ``protocols.Model``."""

LINK_TYPE: Any = types.FunctionType(LINK_SIGNATURE)

JOINT_SIGNATURE: Any = f8(design_view, vector, vector, vector, i8, vector)
"""``joint(X, y, theta, constants, order, gradient)``; see ``protocols.Model``."""

JOINT_TYPE: Any = types.FunctionType(JOINT_SIGNATURE)

SUMS_TYPE: Any = types.FunctionType(f8(f8, vector, matrix, vector, vector, vector))
"""``sums(log_lik, gradient, hessian, theta_star, delta, out)``; see ``protocols.Model``."""

GENERATOR_TYPE: Any = numba.typeof(np.random.Generator(np.random.PCG64(0)))

# Reassociation lets LLVM vectorise dot products; NaN and infinity keep their meaning.
_REASSOCIATE = {"reassoc", "contract", "nsz"}


@cache
def cache_dir() -> str:
    """Return the private cache folder of this version of the sources and this processor."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    folders = (package, package / "stores")  # a link in a checkout: rglob does not follow it
    for source in sorted({path for folder in folders for path in folder.rglob("*.py")}):
        text = source.read_bytes()
        if b"numerics.jit" in text or source.parent.name == "numerics":
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(text)
    digest.update(repr(cpu_target.target_context.codegen().magic_tuple()).encode())
    base = os.environ.get("STREAMMC_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path("~/.cache").expanduser()
    folder = home / "streammc" / f"numba-{numba.__version__}-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
        private = info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o022
        if private and os.access(folder, os.W_OK):
            return str(folder)
    except (OSError, RuntimeError):
        pass
    return tempfile.mkdtemp(prefix="streammc-numba-")


def jit(
    *signatures: Any, reassociate: bool = False, borrow: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function: cached on disk, without the GIL, with NumPy's division.

    Parameters
    ----------
    signatures
        Explicit numba signatures: compiled (or loaded) at import. None: compiled
        at the first call of each combination of types.
    reassociate
        Allow sums to be reordered. Never for the accumulators of a full pass.
    borrow
        The function allocates nothing: every array belongs to its caller, and no
        references are counted. Counting those of a tuple of arrays costs up to 0.5 us
        a call, as much as the arithmetic on 100 rows.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        saved = numba_config.CACHE_DIR
        numba_config.CACHE_DIR = cache_dir()
        try:
            compiled = numba.njit(
                list(signatures) if signatures else None,
                cache=True,
                nogil=True,
                error_model="numpy",
                fastmath=_REASSOCIATE if reassociate else False,
                _nrt=not borrow,
            )(function)
        finally:
            numba_config.CACHE_DIR = saved
        return compiled

    return decorate


def inline(function: Callable[..., Any]) -> Any:
    """Compile a leaf that callers absorb; it needs no signature of its own."""
    # LLVM left to itself keeps a large leaf as a call, and the loop around it scalar.
    return numba.njit(nogil=True, error_model="numpy", inline="never", forceinline=True)(function)
