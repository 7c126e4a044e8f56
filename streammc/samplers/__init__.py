"""Samplers, one algorithm per file; builders are found through the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from streammc.registry import NOT_SAMPLERS, SAMPLERS, sampler

if TYPE_CHECKING:
    from streammc.samplers.common.sampler import Sampler


def __getattr__(name: str) -> Callable[..., Sampler]:
    """Return the builder of the sampler with that name, dashes written as underscores."""
    registered = name.replace("_", "-")
    if registered in SAMPLERS:
        return sampler(registered)
    if name in NOT_SAMPLERS:
        raise AttributeError(f"no sampler {name!r}: {NOT_SAMPLERS[name]}")
    raise AttributeError(
        f"module 'streammc.samplers' has no attribute {name!r}: it has {', '.join(__dir__())}",
        name=name,
        obj=sys.modules[__name__],
    )


def __dir__() -> list[str]:
    """List the samplers."""
    return sorted(name.replace("-", "_") for name in SAMPLERS)


__all__ = __dir__()
