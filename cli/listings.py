"""``streammc models`` and ``streammc samplers``: lists of the registered models and samplers.

Facts of models and samplers, read from their sources.

An import of every model and sampler takes numba, SciPy and their compiled code with it; a list of
names and texts needs none of them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import click

import streammc
from streammc import registry
from streammc.cli.options import command
from streammc.cli.output import Output, table

_ROOT = Path(streammc.__file__).resolve().parent


def first_line(address: str) -> str:
    """Return the first line of the docstring of the function at ``package.module:function``."""
    module, name = address.split(":")
    [function] = [
        node
        for node in _syntax(module).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return (ast.get_docstring(function) or "").partition("\n")[0]


def sampler_text(address: str, attribute: str) -> str:
    """Return a text that the class of a sampler, or the first of its bases that does, assigns.

    Parameters
    ----------
    address
        Address ``package.module:name`` of ``name = builder(Class)``.
    attribute
        Attribute of the class, such as ``target``.
    """
    module, name = address.split(":")
    call = _assigned(_syntax(module).body, name)
    assert isinstance(call, ast.Call), address
    value = _class_value(module, ast.unparse(call.args[0]), attribute)
    assert value is not None, f"{address} has no {attribute}"
    return value


def _class_value(module: str, name: str, attribute: str) -> str | None:
    """Return the text that a class or one of its bases assigns to an attribute."""
    module, name = _origin(module, name)
    for node in _syntax(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            value = _assigned(node.body, attribute)
            if value is not None:
                return _text(module, value)
            inherited = (_class_value(module, ast.unparse(base), attribute) for base in node.bases)
            return next((text for text in inherited if text is not None), None)
    return None


def _text(module: str, value: ast.expr) -> str:
    """Return the text of a literal, or of the constant that a name stands for."""
    if isinstance(value, ast.Name):
        module, name = _origin(module, value.id)
        found = _assigned(_syntax(module).body, name)
        assert found is not None, f"{module}:{name} is not assigned"
        return _text(module, found)
    return str(ast.literal_eval(value))


def _origin(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name of ``module``, and the name there."""
    for node in _syntax(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _origin(node.module, alias.name)
    return module, name


def _assigned(body: list[ast.stmt], name: str) -> ast.expr | None:
    """Return the expression that is assigned to ``name`` in a module or a class."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            return node.value
    return None


@cache
def _syntax(module: str) -> ast.Module:
    """Return the syntax tree of a module; an empty one if it is not of this package."""
    if module.partition(".")[0] != "streammc":
        return ast.Module([], [])
    path = _ROOT.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


@command("models")
@click.pass_obj
def models(output: Output) -> None:
    """List the models: the names that --model takes."""
    rows = []
    for name, address in registry.MODELS.items():
        text = first_line(address).removeprefix("Return ").replace("``", "").rstrip(".")
        rows.append({"name": name, "description": text})
    human = table(
        ["model", "what it is"], [[row["name"], row["description"]] for row in rows], words=True
    )
    output.result({"models": rows}, human)


@command("samplers")
@click.pass_obj
def samplers(output: Output) -> None:
    """List the samplers with their targets and papers."""
    rows = []
    for name, address in registry.SAMPLERS.items():
        target, paper = (sampler_text(address, attribute) for attribute in ("target", "paper"))
        rows.append({"name": name, "target": target, "paper": paper})
    human = table(
        ["sampler", "target", "paper"],
        [[row["name"], row["target"], row["paper"]] for row in rows],
        words=True,
    )
    output.result({"samplers": rows}, human)
