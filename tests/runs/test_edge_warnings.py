"""Warnings of a summary about the edge of the perturbed target."""

from __future__ import annotations

from streammc.samplers.hamiltonian.options import edge_warnings


def test_a_region_that_is_rarely_left_is_no_warning():
    assert edge_warnings({"predicted_perturbation": 0.04, "beyond_edge": 0.0004}) == []
    assert edge_warnings({}) == []


def test_a_posterior_wider_than_its_region_is_named():
    (line,) = edge_warnings({"predicted_perturbation": 0.0, "beyond_edge": 0.02})
    assert line.startswith("2 % of the iterations came beyond the edge")
    assert "hmc" in line


def test_a_given_subsample_that_perturbs_the_tails_is_named():
    (line,) = edge_warnings({"predicted_perturbation": 0.3, "beyond_edge": 0.0})
    assert "off by 0.3 in the tails" in line
    assert "larger --subsample-size" in line
