"""Unknown names of a lazy package are answered with suggestions."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from streammc.errors import ConfigError
from streammc.registry import sampler


@pytest.mark.parametrize(
    ("package", "name", "meant"),
    [
        ("streammc", "sampel", "sample"),
        ("streammc.control_variates", "computes", "compute"),
        ("streammc.diagnostics", "paretok", "pareto_k"),
        ("streammc.models", "logistics", "logistic"),
        ("streammc.samplers", "hmc_esc", "hmc_ecs"),
        ("streammc.stores", "openstore", "open_store"),
        ("streammc.trace", "openrun", "open_run"),
    ],
)
def test_python_itself_suggests_the_name_that_is_near(package, name, meant, capsys):
    with pytest.raises(AttributeError) as caught:
        getattr(import_module(package), name)
    assert (caught.value.name, caught.value.obj) == (name, sys.modules[package])
    sys.__excepthook__(AttributeError, caught.value, None)
    assert f"Did you mean: {meant!r}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "name", "has"),
    [
        ("streammc", "regress", "sample, samplers"),
        ("streammc.models", "logit", "inverse_gaussian, logistic"),
        ("streammc.samplers", "slice", "hmc, hmc_ecs"),
    ],
)
def test_a_name_that_is_near_to_none_lists_what_there_is(package, name, has):
    with pytest.raises(AttributeError, match=f"has no attribute {name!r}: it has .*{has}"):
        getattr(import_module(package), name)


def test_nuts_is_found_under_its_own_sampler():
    with pytest.raises(ConfigError, match="use hmc with --option trajectory=nuts"):
        sampler("nuts")
    code = "import streammc; streammc.samplers.nuts()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'streammc.samplers.hmc(trajectory="nuts")' in done.stderr
