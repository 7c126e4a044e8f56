from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammc
from streammc import models, priors, registry, samplers
from streammc.shown import html_table, value_text

HOSTILE = "<script>alert(1)</script>"


class Shown(HTMLParser):
    """Tags and texts of a representation; every element must be closed."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(owner._repr_html_())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}|"


def arrays(name: str = "x") -> Any:
    rng = np.random.default_rng(1)
    X = np.c_[np.ones(400), rng.normal(size=400)]
    y = (rng.random(400) < 0.5).astype(np.uint8)
    return streammc.from_arrays(X, y, feature_names=["Intercept", name], response="late")


def test_data_in_memory_show_rows_features_and_fingerprint() -> None:
    store = arrays()
    shown = Shown(store)
    assert f"fingerprint|{store.fingerprint[:12]}|" in shown.text
    assert "features|Intercept, x|" in shown.text
    assert "rows|400|" in shown.text
    assert "response|late|" in shown.text


def test_a_store_shows_its_layout(tmp_path: Path) -> None:
    table = {"late": [0, 1] * 50, "distance": np.arange(100.0), "hour": np.ones(100)}
    store = streammc.from_table(
        table, response="late", features=["distance"], path=tmp_path / "s.zarr"
    )
    text = Shown(store).text
    assert f"place|{tmp_path / 's.zarr'}|" in text
    assert "layout|float32 columns, chunks of " in text
    assert "standardised|yes|" in text


def test_names_from_the_data_are_escaped() -> None:
    shown = Shown(arrays(HOSTILE))
    assert HOSTILE in shown.text
    assert "script" not in shown.tags


def test_control_variates_show_their_certificate() -> None:
    cv = streammc.control_variates(arrays(HOSTILE), models.logistic())
    shown = Shown(cv)
    assert "posterior sd from the mode|" in shown.text
    assert f"beta[{HOSTILE}]" in shown.text
    assert "script" not in shown.tags
    assert cv.digest()[:12] in shown.text


@pytest.mark.parametrize("name", registry.SAMPLERS)
def test_every_sampler_shows_its_target_and_paper(name: str) -> None:
    sampler = registry.sampler(name)()
    text = Shown(sampler).text
    assert f"Sampler {name}|" in text
    assert f"targets|{sampler.target}: " in text
    assert "options|the defaults|" in text


def test_options_that_were_given_are_shown() -> None:
    text = Shown(samplers.hmc_ecs(subsample_size=300)).text
    assert "options|subsample_size=300|" in text


@pytest.mark.parametrize("name", ["logistic", "gaussian", "student-t", "negative-binomial"])
def test_a_model_shows_its_parameters_and_prior(name: str) -> None:
    text = Shown(registry.model(name)(prior=priors.normal(scale=3.0))).text
    assert f"Model {name}|" in text
    assert "parameters|beta, one per column" in text
    assert "prior|normal(" in text


def test_priors_show_their_settings() -> None:
    assert "scale|2|" in Shown(priors.normal(scale=2.0)).text
    named = models.logistic(prior={"x": priors.normal(scale=2.0)}).prior
    assert "x|normal(location=0, scale=2)|" in Shown(named).text


def test_a_run_shows_its_verdict() -> None:
    words: dict[str, Any] = {"draws": 20, "warmup": 20, "chains": 2, "seed": 1}
    run = streammc.sample(arrays(), models.logistic(), sampler=samplers.hmc(), **words)
    assert run.attrs["verdict"].startswith("Take these draws with care")
    assert "verdict" in repr(run)
    assert "Take these draws with care" in run._repr_html_()
    assert streammc.facts(run)["verdict"] == run.attrs["verdict"]


def test_long_lists_are_counted() -> None:
    text = html_table("T", {"features": [f"x{i}" for i in range(100)], "none": None})
    assert "x11, ... (100 in all)" in text
    assert "x12" not in text
    assert "none" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "yes"), (1234567, "1,234,567"), (1489800.0, "1,489,800"), (0.000123456, "0.0001235")],
)
def test_numbers_are_readable(value: Any, text: str) -> None:
    assert value_text(value) == text
