"""Temperatures of the iterations, and what may be asked for."""

import math

import numpy as np
import pytest

from streammc.errors import ConfigError
from streammc.likelihood.temperature import Schedule


@pytest.mark.parametrize("value", [4, 4.0, "4", "4.0", Schedule(4.0)])
def test_a_number_is_a_constant_temperature(value):
    schedule = Schedule.parse(value)
    assert schedule.constant
    assert schedule.final == 4.0
    assert schedule.settled == 0
    np.testing.assert_array_equal([4.0] * 3, schedule.at(10, 3))


def test_the_root_falls_to_one_and_stays():
    schedule = Schedule.parse("10:sqrt")
    expected = [max(1.0, 10.0 / math.sqrt(i + 1)) for i in range(90, 110)]
    np.testing.assert_allclose(schedule.at(90, 20), expected, rtol=1e-15)
    assert (False, 1.0, 99) == (schedule.constant, schedule.final, schedule.settled)
    assert schedule.at(98, 1)[0] > 1.0 == schedule.at(99, 1)[0]


def test_a_temperature_drops_after_its_iterations():
    schedule = Schedule.parse("100:400")
    np.testing.assert_array_equal([100.0, 100.0, 1.0, 1.0], schedule.at(398, 4))
    assert (1.0, 400) == (schedule.final, schedule.settled)


def test_parts_of_a_schedule_are_parts_of_the_whole():
    schedule = Schedule.parse("7.5:sqrt")
    joined = np.concatenate([schedule.at(0, 13), schedule.at(13, 50)])
    np.testing.assert_array_equal(schedule.at(0, 63), joined)


@pytest.mark.parametrize("value", ["4", "0.1", "1000:sqrt", "100:400", "3.3333333333333335:7"])
def test_description_of_a_schedule_parses_to_the_same_schedule(value):
    schedule = Schedule.parse(value)
    assert schedule == Schedule.parse(schedule.describe()) == Schedule.parse(str(schedule))


NUMBERS = (0, -1.0, math.nan, math.inf, True, None, [4])
TEXTS = ("", "hot", "0", "nan", ":sqrt", "4:", "4:0", "4:-3", "4:2.5", "4:root", "4:sqrt:2")
MORE_TEXTS = ("4:²", "4:1000000000", "1:sqrt", "0.5:10")


@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS, *MORE_TEXTS])
def test_invalid_temperature_is_refused_with_its_value(value):
    with pytest.raises(ConfigError, match="temperature") as caught:
        Schedule.parse(value)
    assert repr(value) in str(caught.value)
