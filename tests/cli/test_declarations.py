from __future__ import annotations

import json
import subprocess
import sys

import pytest

from streammc import registry
from streammc.cli.listings import first_line, sampler_text


@pytest.mark.parametrize("name", registry.MODELS)
def test_text_of_a_model_is_that_of_its_builder(name: str) -> None:
    expected = (registry.model(name).__doc__ or "").strip().splitlines()[0]
    assert expected == first_line(registry.MODELS[name])
    assert len(expected) > 20


@pytest.mark.parametrize("name", registry.SAMPLERS)
def test_texts_of_a_sampler_are_those_of_its_class(name: str) -> None:
    sampler = registry.sampler(name)()
    assert sampler.target == sampler_text(registry.SAMPLERS[name], "target")
    assert sampler.paper == sampler_text(registry.SAMPLERS[name], "paper")


@pytest.mark.parametrize("command", ["models", "samplers"])
def test_lists_import_neither_numpy_nor_numba(command: str) -> None:
    """Without compiled bytecode the import of numba alone takes over a second."""
    code = (
        "import sys; from streammc.cli import main; main(sys.argv[1:]); "
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    run = [sys.executable, "-c", code, command, "--json"]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    listed, modules = (json.loads(line) for line in done.stdout.splitlines())
    assert len(listed[command]) > 10
    assert not {"numpy", "scipy", "numba", "zarr", "dask"} & set(modules)
    assert "click" in modules
