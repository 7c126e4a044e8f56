"""Reference draws of posteriordb, model by model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from checks_of_trust import rounds

from streammc.samplers import hmc

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from posteriordb import draw, samplers
from posteriordb_agreement import z_scores
from posteriordb_cases import CASES, LEFT_OUT, reference

LIMIT = 4.5
ALL = [(name, kind) for name, case in CASES.items() for kind in case.samplers]
SOME = [
    ("arK-arK", "hmc"),
    ("earnings-logearn_interaction", "hmc"),
    ("kidiq-kidscore_momhsiq", "hmc"),
    ("mesquite-logmesquite", "hmc"),
    ("nes1972-nes", "hmc-ecs"),
    ("sblri-blr", "hmc"),
    ("radon_all-radon_pooled", "hmc-ecs"),
    ("nes_logit_data-nes_logit_model", "hmc-ecs"),
    ("wells_data-wells_interaction_c_model", "hmc"),
    ("GLM_Poisson_Data-GLM_Poisson_model", "hmc"),
    ("GLM_Binomial_data-GLM_Binomial_model", "hmc"),
    ("low_dim_gauss_mix-low_dim_gauss_mix", "hmc-ecs"),
    ("low_dim_gauss_mix_collapse-low_dim_gauss_mix_collapse", "hmc"),
    ("normal_2-normal_mixture", "hmc-ecs"),
    ("gp_pois_regr-gp_regr", "pt"),
]
"""A case of every model with every prior."""


@pytest.fixture(scope="module")
def folder(data_folder):
    path = data_folder / "posteriordb"
    if not path.is_dir():
        pytest.skip("posteriordb is not here")
    return path


@pytest.mark.trust(15)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ALL if rounds(0, 1) else SOME)
def test_draws_agree_with_the_reference(name, kind, folder, tmp_path, record_property):
    found = [sampler for sampler in samplers(name, folder) if sampler.name == kind]
    if not found:
        pytest.skip("too few rows to sample from")
    sampler = found[0]
    labels, ours, summary = draw(name, sampler, folder, tmp_path / "run")
    assert max(p["r_hat"] for p in summary["parameters"].values()) < 1.02
    theirs = reference(name, folder, labels)
    if theirs is None:
        return
    found = z_scores(ours, theirs, labels)
    assert found
    largest = max(abs(z) for pair in found.values() for z in pair)
    assert largest < LIMIT, found
    record_property("figure", f"{name}, {kind}: z at most {largest:.1f}")


@pytest.mark.trust(15)
@pytest.mark.slow
def test_a_prior_on_the_logarithm_of_sigma_is_caught(folder, tmp_path, record_property):
    # A flat prior on log sigma instead of sigma: the same draws, weighted by 1 / sigma.
    name = "mesquite-logmesquite"
    labels, ours, _ = draw(name, hmc(), folder, tmp_path / "run")
    theirs = reference(name, folder, labels)
    sigma = ours[:, :, labels.index("sigma")]
    weight = (1 / sigma).ravel() / (1 / sigma).sum()
    at = np.random.default_rng(0).choice(weight.size, size=weight.size, p=weight)
    wrong = ours.reshape(-1, len(labels))[at].reshape(ours.shape)
    assert max(abs(z) for z, _ in z_scores(wrong, theirs, labels).values()) > LIMIT
    record_property("caught", "a prior on the logarithm of sigma")


@pytest.mark.slow
def test_a_noise_that_is_squared_is_caught(folder, tmp_path):
    # gp_regr adds sigma itself to the diagonal: as sigma squared the reference is another.
    name = "gp_pois_regr-gp_regr"
    labels, ours, _ = draw(name, samplers(name, folder)[0], folder, tmp_path / "run")
    theirs = reference(name, folder, labels)
    ours[:, :, labels.index("variance_n")] **= 0.5
    assert abs(z_scores(ours, theirs, labels)["variance_n"][0]) > LIMIT


def test_every_case_is_sampled_or_left_out(folder):
    found = {path.name for path in folder.iterdir() if path.is_dir()}
    assert found == set(CASES) | set(LEFT_OUT)
