"""What tells one user's functions from another's: their source and the values they read."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from streammc.models.own_modules import own_file, own_imports


def code_digest(functions: Sequence[Any]) -> str:
    """Return a digest of functions: their source, and the values that they read.

    Values of closures, defaults and globals count where they are numbers, text, arrays,
    containers of these, or functions, and by name otherwise. The files of the user's own modules
    count which the files of the functions import, or which are among the values.
    """
    total = hashlib.sha256()
    seen: set[int] = set()
    importing: set[str] = set()
    own: dict[str, bytes] = {}
    plain_functions = (getattr(each, "py_func", each) for each in functions)
    roots = {getattr(each, "__module__", None) for each in plain_functions}

    def add(value: Any) -> None:
        plain = getattr(value, "py_func", value)
        total.update(f"<{type(plain).__name__}>".encode())
        if isinstance(plain, FunctionType):
            if id(plain) not in seen:
                seen.add(id(plain))
                add_function(plain)
        elif isinstance(plain, np.ndarray):
            total.update(f"{plain.dtype}{plain.shape}".encode())
            total.update(np.ascontiguousarray(plain).tobytes())
        elif isinstance(plain, dict):
            for key in sorted(plain, key=repr):
                add(key)
                add(plain[key])
        elif isinstance(plain, (list, tuple)):
            for part in plain:
                add(part)
        elif isinstance(plain, (set, frozenset)):
            add(sorted(plain, key=repr))
        elif isinstance(plain, CodeType):
            add_code(plain)
        elif isinstance(plain, (int, float, complex, str, bytes, np.generic, type(None))):
            total.update(repr(plain).encode())
        else:
            total.update(str(getattr(plain, "__name__", "")).encode())
            if isinstance(plain, ModuleType):
                add_module(plain.__name__, getattr(plain, "__file__", None))
            else:  # a class, or an object of one
                add_module((plain if isinstance(plain, type) else type(plain)).__module__)

    def add_module(name: Any, origin: str | None = None) -> None:
        importing.add(str(name))
        # Of the file with the functions themselves, only what they read counts.
        if name not in roots and (content := own_file(str(name), origin)) is not None:
            own[str(name)] = content

    def add_code(code: CodeType) -> None:
        total.update(code.co_code)
        add(code.co_names)
        for constant in code.co_consts:
            add(constant)

    def add_function(function: FunctionType) -> None:
        add_module(function.__module__)
        try:
            total.update(inspect.getsource(function).encode())
        except (OSError, TypeError):
            add_code(function.__code__)
        add(function.__defaults__)
        add(function.__kwdefaults__)
        read = inspect.getclosurevars(function)
        for values in (read.nonlocals, read.globals):
            for name in sorted(values):
                total.update(name.encode())
                add(values[name])

    for function in functions:
        add(function)
    # Files of installed modules do not count, so that their versions do not end a run.
    own |= own_imports(sorted(importing))
    for name in sorted(own):
        total.update(f"<file {name}>".encode())
        total.update(hashlib.sha256(own[name]).digest())
    return total.hexdigest()[:16]
