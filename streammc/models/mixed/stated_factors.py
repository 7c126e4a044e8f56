"""A regression with the factors that a store states as columns of its design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from streammc.errors import ConfigError
from streammc.models.factor_model import factor_blocks
from streammc.models.mixed.families import KINDS, of_family
from streammc.models.mixed.mixed_model import MixedModel

M = TypeVar("M")


def with_factors(model: M, attributes: Mapping[str, Any]) -> M:
    """Return the model with the factors of a store, whose effects have a sampled scale.

    A model that has its factors, and one for a store without any, is returned unchanged.

    Parameters
    ----------
    model
        A regression, or a mixed model.
    attributes
        Attributes of the store.

    Raises
    ------
    ConfigError
        If the model is none of the package's regressions.
    """
    stated, given = attributes.get("factors"), cast(Any, model)
    if not stated or (hasattr(given, "factors") and given.factors):
        return model
    regression = given.inner if isinstance(model, MixedModel) else given
    if not of_family(regression):
        raise ConfigError(
            f"expected one of {', '.join(KINDS)} for the effects of {stated[0]['column']!r}, "
            f"found {getattr(given, 'name', None) or model!r}: columns of levels need a linear "
            "predictor; choose one of these, or make the store without the factor"
        )
    return replace(given, factors=factor_blocks(stated))  # type: ignore[no-any-return]
