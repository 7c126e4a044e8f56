"""The forecast of a pass, from sizes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streammc.likelihood.pass_cost import pass_cost, seconds_text
from streammc.numerics.process_limits import available_memory


def test_doubling_the_columns_takes_four_times_the_seconds_and_bytes() -> None:
    few, many = (pass_cost(10**6, d, threads=2, n_blocks=8) for d in (2000, 4000))
    assert 4.0 == pytest.approx(many.pass_seconds / few.pass_seconds, rel=0.1)
    assert 4.0 == pytest.approx(many.memory_bytes / few.memory_bytes, rel=0.3)


def test_threads_share_the_seconds_and_have_matrices_of_their_own() -> None:
    one, four = (pass_cost(10**6, 3000, threads=threads) for threads in (1, 4))
    assert one.pass_seconds == pytest.approx(4.0 * four.pass_seconds)
    assert four.memory_bytes - one.memory_bytes >= 3 * 3 * 8 * 3000**2


def test_matrices_on_other_machines_do_not_count() -> None:
    here, there = (pass_cost(10**6, 3000, threads=4, matrices=own) for own in (True, False))
    assert there.memory_bytes < here.memory_bytes / 2


@pytest.mark.parametrize("n_rows", [20_000, 30_000, 50_000, 100_000, 1_000_000])
def test_the_way_to_the_mode_does_not_depend_on_threads(n_rows: int) -> None:
    found = {pass_cost(n_rows, 3000, threads=threads).few_rows for threads in (1, 2, 3, 7)}
    assert 1 == len(found)


def test_passes_find_the_mode_only_where_rows_in_memory_are_few_per_parameter() -> None:
    assert pass_cost(30_000, 3001).few_rows
    assert not pass_cost(30_000, 300).few_rows
    assert not pass_cost(30_000, 3001, passes=2).few_rows
    assert not pass_cost(10**8, 3001).few_rows  # a pass costs more than many steps in memory


def test_ten_rows_in_memory_for_each_parameter_and_all_rows_are_not_few() -> None:
    cost = replace(pass_cost(30_000, 300), subset_rows=2_999)
    assert cost.thin
    assert not replace(cost, subset_rows=3_000).thin
    assert not replace(cost, subset_rows=2_000, n_rows=2_000).thin


def test_forecast_line_names_rows_parameters_seconds_and_memory() -> None:
    line = pass_cost(30_000, 3002, threads=2, n_blocks=8).text()
    assert line.startswith("a full pass over 30,000 rows x 3,002 parameters takes about 11 s; ")
    assert "about 6 passes are needed" in line
    assert line.endswith("2.3 GB of memory")


def test_codes_make_a_pass_cheap_and_leave_the_factorisation() -> None:
    dense, coded = pass_cost(30_000, 3001), pass_cost(30_000, 3001, codes=[2999])
    assert coded.core_seconds < dense.core_seconds / 30
    assert coded.memory_bytes < dense.memory_bytes
    factor = 1e-10 * 3001**3
    assert factor < coded.evaluation_seconds < 1.2 * factor < dense.evaluation_seconds
    two = pass_cost(30_000, 3001, codes=[1500, 1499])
    assert coded.core_seconds < two.core_seconds < 2 * coded.core_seconds
    assert coded.memory_bytes < two.memory_bytes


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.2, "1 s"), (59.6, "60 s"), (300.0, "5 min"), (7300.0, "2 h")]
)
def test_seconds_are_told_in_words(seconds: float, expected: str) -> None:
    assert expected == seconds_text(seconds)


def test_available_memory_is_that_of_the_system() -> None:
    assert 2**20 < available_memory() < 2**60


def test_the_forecast_is_the_sum_of_its_parts() -> None:
    """By hand from the times of a row, a multiply-add and a product with a draw."""
    dense = pass_cost(10**6, 20, predictors=(2, 1))
    row = 1e-7 + 3 * 20**2 / 2 / 6e9 + 9 * 2 * 20 * 2e-10
    assert 10**6 * row == pytest.approx(dense.core_seconds, rel=1e-12)
    coded = pass_cost(10**6, 3000, codes=[1500, 1400])
    row = 1e-7 + 100**2 / 2 / 6e9 + 9 * 102 * 2e-10 + 2 * 104.5 * 4e-9
    assert 10**6 * row + 2.5e-8 * 3000**2 == pytest.approx(coded.core_seconds, rel=1e-12)
