"""Parts of every data set, on disk or in memory: columns of its formula, and facts to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from streammc.diagnostics.text import formula_text
from streammc.likelihood.unit_words import ROW
from streammc.protocols import Coding, ColumnTerm, Dataset, Index, Vector

if TYPE_CHECKING:
    from streammc.group_table import CrossedFactor
    from streammc.stores.formula.fitted import Design


class RowTable:
    """Base class of data sets with rows of their own: traits, and columns of the formula.

    The defaults are those of a table in memory without groups.
    """

    attributes: Mapping[str, Any]
    unit_name: str = ROW
    unit_offset: Index | None = None
    temperature: float = 1.0
    sequential: bool = False
    crossed: Sequence[CrossedFactor] = ()

    def row_levels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint32]:
        """Return the levels (m, F) of rows ``start`` to ``stop``; there are no factors here."""
        return np.empty((0, 0), np.uint32)

    @property
    def table(self) -> Self:
        """The data set itself, which is no view of another."""
        return self

    @property
    def units(self) -> Self:
        """The data set itself: its units are its rows."""
        return self

    def earlier(self, fingerprint: str) -> Dataset | None:
        """Return ``None``: nothing is appended to a table in memory."""
        return None

    def covariate(self, name: str) -> tuple[Vector, float]:
        """Return ``(a, c)`` so that ``x_i . a + c`` is the column ``name``; see ``covariate``."""
        from streammc.stores.formula.fitted import covariate

        return covariate(self.attributes, name)

    def only_together(self) -> list[str]:
        """Return the design columns that cannot change alone; none without a formula.

        These are columns of bases and of interactions, and columns made of a table column of
        which another term is made too. Levels of one factor are one term.
        """
        design = self._design()
        return [] if design is None else design.only_together

    def references(self) -> dict[str, list[str]]:
        """Return the reference levels of each design column that compares a level with them.

        ``{"origin[T.ORD]": ["origin[ATL]"]}``; those of an interaction are several.
        """
        design = self._design()
        return {} if design is None else design.references

    def _design(self) -> Design | None:
        document = self.attributes.get("formula")
        if document is None:
            return None
        from streammc.stores.formula.fitted import read_design

        return read_design(document, "the store")

    def coding(self) -> Coding | None:
        """Return what the design columns are as functions of a row; ``None`` without a formula.

        Columns of a factor with a sampled scale have no levels and no numbers, and ``times`` 0.
        """
        design = self._design()
        if design is None:
            return None
        from streammc.stores.formula.bases import coding_matrix
        from streammc.stores.formula.fitted import has_levels
        from streammc.stores.formula.parser import coding_of, label

        sizes: dict[str, int] = {}
        contrasts: dict[str, dict[str, Vector]] = {}
        for node in design.terms.factors:
            if has_levels(node, design.kinds):
                n = sizes[label(node)] = len(design.states[label(node)]["levels"])
                if (coded := coding_of(node)) is not None:  # contrast k is the field n + k
                    contrasts[label(node)] = {
                        f"{label(node)}[{n + k}]": values
                        for k, values in enumerate(coding_matrix(coded, n).T)
                    }
        terms: list[ColumnTerm] = []
        for column in design.columns:
            levels, numbers = [], []
            for node, at in column.fields:
                if at < sizes.get(label(node), 0):
                    levels.append((label(node), at))
                else:
                    numbers.append(f"{label(node)}[{at}]")
            term = ColumnTerm(tuple(levels), tuple(sorted(numbers)), float(column.scale))
            terms.insert(0 if not column.fields else len(terms), term)
        terms += [ColumnTerm((), (), 0.0)] * len(design.effect_names)
        moved = self.attributes.get("standardization") or {}
        q = len(terms)
        mean, scale = moved.get("mean", np.zeros(q)), moved.get("scale", np.ones(q))
        moves = np.asarray(mean, float), np.asarray(scale, float)
        return Coding(tuple(terms), sizes, contrasts, *moves)


def crossed_text(attributes: Mapping[str, Any]) -> str | None:
    """Return the factors that cross and their numbers of levels for print; ``None``: none."""
    stated = attributes.get("crossed")
    return stated and ", ".join(f"{each['levels']:,} of {each['column']}" for each in stated)


def dataset_facts(dataset: Dataset, **layout: Any) -> dict[str, Any]:
    """Return the facts of a data set to show: name -> value.

    ``layout`` has facts about its arrays, by name.
    """
    attributes = dataset.attributes
    groups, cells = attributes.get("groups"), attributes.get("cells")
    levels = dict.fromkeys(each for several in dataset.references().values() for each in several)
    return {
        "place": dataset.address,
        "rows": dataset.n_rows,
        **({"rows of the table": cells["rows"]} if cells else {}),
        "response": dataset.response or "none",
        "features": list(dataset.feature_names),
        "formula": formula_text(attributes),
        "reference levels": list(levels) or None,
        "groups": groups and f"{groups['n_groups']:,} of {groups['column']}",
        "factors that cross": crossed_text(attributes),
        "standardised": attributes.get("standardization") is not None,
        **layout,
        "fingerprint": dataset.fingerprint[:12],
    }
