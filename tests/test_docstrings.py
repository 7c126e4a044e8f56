"""Docstrings that take types, defaults and shared meanings from elsewhere."""

from __future__ import annotations

import inspect

from streammc.docstrings import completed, documented


@documented()
def first(size: int, share: float = 0.5, *, word: str = "a") -> None:
    """Do nothing.

    Parameters
    ----------
    size
        Rows.
    share
        Between 0 and 1.
    word : {'a', 'b'}
        One of two,

        on two lines.

    Raises
    ------
    ValueError
        Never.
    """


@documented(first)
def second(word: str, share: float = 0.25, size: int | None = None) -> None:
    """Do nothing else.

    Parameters
    ----------
    size
        Columns.

    Examples
    --------
    >>> 1 + 1
    2
    """


def test_types_and_defaults_come_from_the_signature() -> None:
    assert (
        "Do nothing.\n\nParameters\n----------\nsize : int\n    Rows.\n"
        "share : float, default 0.5\n    Between 0 and 1.\n"
        "word : {'a', 'b'}, default 'a'\n    One of two,\n\n    on two lines.\n\n"
        "Raises\n------\nValueError\n    Never."
    ) == first.__doc__


def test_a_parameter_is_described_by_the_function_itself_before_others() -> None:
    assert (
        "Do nothing else.\n\nParameters\n----------\n"
        "word : {'a', 'b'}\n    One of two,\n\n    on two lines.\n"
        "share : float, default 0.25\n    Between 0 and 1.\n"
        "size : int | None, default None\n    Columns.\n\n"
        "Examples\n--------\n>>> 1 + 1\n2"
    ) == second.__doc__


def test_completing_twice_changes_nothing() -> None:
    before = first.__doc__
    assert before == documented()(first).__doc__


def test_neighbours_of_one_type_and_meaning_stand_together() -> None:
    def both(low: float, high: float, other: int) -> None:
        """Do nothing.

        Parameters
        ----------
        low, high, other
            Ends.
        """

    text = completed(inspect.signature(both), [both.__doc__]) or ""
    assert text.endswith("low, high : float\n    Ends.\nother : int\n    Ends.")


def test_literals_and_aliases_are_shown_in_words() -> None:
    def function(word, prior):
        """Do nothing.

        Parameters
        ----------
        word, prior
            Any.
        """

    function.__annotations__ = {"word": "Literal['a', 'b'] | None", "prior": "PriorOption | None"}
    text = completed(inspect.signature(function), [function.__doc__]) or ""
    assert "\nword : {'a', 'b'} | None\n" in text
    assert "\nprior : Prior | Mapping[str, Prior] | None\n" in text


def test_without_docstrings_nothing_is_made_up() -> None:
    assert completed(inspect.signature(second), [None, first.__doc__]) is None
