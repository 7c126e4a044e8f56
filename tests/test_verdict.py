from __future__ import annotations

from typing import Any

import pytest

from streammc.verdict import CARE, TRUSTED, UNFINISHED, verdict

ENTRY = {"r_hat": 1.002, "ess_bulk": 900.0, "ess_tail": 812.0}


def summary(**more: Any) -> dict[str, Any]:
    sampling = {"target": "exact", "temperature": 1.0, **more.pop("sampling", {})}
    return {
        "parameters": {"a": ENTRY, "b": {**ENTRY, "r_hat": 1.004}},
        "sampling": sampling,
        "warnings": [],
        **more,
    }


def test_a_run_without_warnings_is_trusted_for_its_worst_numbers() -> None:
    found = verdict(summary())
    assert found.level == TRUSTED
    assert "R-hat is at most 1.004" in found.sentence
    assert "effective sample size at least 812" in found.sentence
    assert "all 2 parameters" in found.sentence
    assert "targets the posterior itself" in found.sentence


def test_a_perturbed_run_is_trusted_for_its_audit() -> None:
    audit = {"largest_correction": 0.0123}
    found = verdict(summary(sampling={"target": "perturbed"}, audit=audit))
    assert found.level == TRUSTED
    assert "no mean by more than 0.012 posterior sd" in found.sentence


def test_a_warning_means_care_and_the_first_is_the_reason() -> None:
    lines = ["largest r_hat is 1.1 (a), above 1.01: they do not agree; use more --draws", "x: y"]
    found = verdict(summary(warnings=lines))
    assert found.level == CARE
    assert found.sentence == (
        "Take these draws with care, for 2 reasons, the first: "
        "largest r_hat is 1.1 (a), above 1.01."
    )
    assert found.reasons == tuple(lines)


@pytest.mark.parametrize("target", ["approximate", "biased", "tempered"])
def test_a_target_other_than_the_posterior_is_never_trusted(target: str) -> None:
    found = verdict(summary(sampling={"target": target}))
    assert found.level == CARE
    assert len(found.reasons) == 1


def test_draws_at_another_temperature_are_not_trusted_as_the_posterior() -> None:
    found = verdict(summary(sampling={"temperature": 2.0}))
    assert found.level == CARE
    assert "another temperature" in found.sentence


def test_an_unfinished_run_has_no_verdict() -> None:
    lines = ["the run is unfinished: 3 of 60 draws; resume it"]
    found = verdict({"parameters": {}, "sampling": {"draws": 3}, "warnings": lines})
    assert found.level == UNFINISHED
    assert "the run is unfinished" in found.sentence


def test_unknown_statistics_are_not_called_good() -> None:
    found = verdict(summary(parameters={"a": dict.fromkeys(ENTRY)}))
    assert found.level == CARE
    assert "R-hat and effective sample size are unknown." in found.sentence


def test_a_perturbed_run_without_an_audit_is_not_trusted() -> None:
    found = verdict(summary(sampling={"target": "perturbed"}, audit=None))
    assert found.level == CARE
    assert "what subsampling changed was not measured." in found.sentence


def test_one_unknown_parameter_is_enough_not_to_trust_all() -> None:
    for name in ENTRY:
        found = verdict(summary(parameters={"a": ENTRY, "b": {**ENTRY, name: None}}))
        assert found.level == CARE
        assert "unknown" in found.sentence


def test_an_audit_that_was_turned_off_is_a_reason_beside_every_warning() -> None:
    perturbed = {"sampling": {"target": "perturbed"}, "audit": None}
    found = verdict(summary(warnings=["smallest ess is 9 (a), below 400: more"], **perturbed))
    assert 2 == len(found.reasons)
    assert "what subsampling changed was not measured" in found.reasons[-1]
    late = "not audited: it would take 900 s, the sampling took 10 s; `streammc audit run`"
    assert (late,) == verdict(summary(warnings=[late], **perturbed)).reasons
