"""Pages of the Python reference: the docstring of every public name, through mkdocstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType
from typing import Final

import streammc
from streammc import errors

MODULES: Final = {
    "models": "Models",
    "priors": "Priors",
    "samplers": "Samplers",
    "diagnostics": "Diagnostics",
    "plots": "Plots",
    "scorer": "Model files",
}
"""Public modules: each has a page with all its names."""
FOLDER: Final = "reference/api"


def identifiers() -> dict[str, list[str]]:
    """Return the public names by page, as ``module.name`` of the place that defines them."""
    functions = [_defined(streammc, name) for name in streammc.__all__ if name not in MODULES]
    modules = {
        module: [_defined(found, name) for name in found.__all__]
        for module in MODULES
        for found in [getattr(streammc, module)]
    }
    functions.append("streammc.stores.encode_rows")
    return {"functions": functions, **modules, "errors": _errors()}


def _defined(module: ModuleType, name: str) -> str:
    """Return where a public name is defined: packages import many on first use."""
    found = getattr(module, name)
    if isinstance(found, ModuleType):  # a module that is called as its function
        return f"{found.__name__}.certify.compute"
    if hasattr(found, "__wrapped__"):  # a builder: its own help, not that of its class
        del found.__wrapped__
    if "<locals>" in getattr(found, "__qualname__", ""):  # built from a class
        return f"{found.__module__}.{name}"
    return f"{module.__name__}.{name}"


def _errors() -> list[str]:
    names = [name for name, each in vars(errors).items() if isinstance(each, type)]
    own = [name for name in names if vars(errors)[name].__module__ == errors.__name__]
    return [f"{errors.__name__}.{name}" for name in own]


def without_roles(html: str) -> str:
    """Return a page without the roles of Sphinx, which docstrings put before names."""
    return re.sub(r":(?:attr|class|func|meth|mod):(?=<code>)", "", html)


def api_pages() -> dict[str, str]:
    """Return the pages, by address."""
    titles = {"functions": "Functions of streammc", **MODULES, "errors": "Errors"}
    found = identifiers()
    pages = {
        f"{FOLDER}/{page}.md": _page(titles[page], page, names) for page, names in found.items()
    }
    links = "\n".join(
        f"- [{titles[page]}](api/{page}.md): {len(names)}" for page, names in found.items()
    )
    pages[f"{FOLDER}.md"] = (
        "# Python names\n\nEvery public name with its parameters, from its docstring. "
        f"[The overview](python.md) says which one to use.\n\n{links}\n"
    )
    return pages


def _page(title: str, page: str, names: Iterable[str]) -> str:
    where = "streammc" if page == "functions" else f"streammc.{page}"
    parts = [f"# {title}\n\nNames of `{where}`.\n"]
    for name in names:
        parts.append(f"\n::: {name}\n")
        code = getattr(vars(errors).get(name.rpartition(".")[2]), "exit_code", None)
        if page == "errors" and code is not None:
            parts.append(f"\n[Exit code](../exit-codes.md) {code}.\n")
    return "".join(parts)


def overview_links() -> str:
    """Return what the site adds to the overview: links to the pages of this reference."""
    links = ", ".join(f"[{page}](api/{page}.md)" for page in identifiers())
    return f"\n## Every name\n\nDocstrings with parameters, types and errors: {links}.\n"
