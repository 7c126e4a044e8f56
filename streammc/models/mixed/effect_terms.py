"""Random effects of a model: grouping column and terms, and whether a model has them.

This module does not import the mixed models: they import the kernels of every regression, a tenth
of the imports of a run. A model is an instance of their classes only if their modules are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from streammc.models.table_scale import INTERCEPT

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from streammc.models.mixed.mixed_model import MixedModel, TableModel


class Groups(Protocol):
    """Groups of contiguous rows, as far as a model needs to know them."""

    @property
    def column(self) -> str:
        """Name of the grouping column."""

    @property
    def terms(self) -> Sequence[str]:
        """``("1",)``: a random intercept; ``("1", "distance")``: also a slope of that column."""

    @property
    def correlated(self) -> bool:
        """Whether intercept and slope are correlated."""


def formula_term(column: str, effects: Sequence[str], correlated: bool) -> str:
    """Return the term of a formula.

    Examples
    --------
    >>> formula_term("g", ["Intercept"], False), formula_term("g", ["Intercept", "x"], False)
    ('(1 | g)', '(1 + x || g)')
    """
    terms = ["1" if each == INTERCEPT else each for each in effects]
    if terms[0] != "1":
        terms.insert(0, "0")
    return f"({' + '.join(terms)} {'|' if correlated or len(effects) == 1 else '||'} {column})"


_MODULE = "streammc.models.mixed.mixed_model"


def is_table_model(model: object) -> TypeIs[TableModel]:
    """Return whether a model is a ``TableModel``: a mixed model whose rows are groups."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(model, module.TableModel)


def is_mixed_model(model: object) -> TypeIs[MixedModel]:
    """Return whether a model is a ``MixedModel``."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(model, module.MixedModel)
