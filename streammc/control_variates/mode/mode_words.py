"""Warnings about a posterior with several modes, and the modes at which chains start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streammc.control_variates.mode.modes import STARTING, Mode, comparable
from streammc.control_variates.mode.starts import log_scales
from streammc.protocols import Model

ADVICE: Final = "compare with --sampler pt"
"""End of the warning about other modes."""
_SHOWN: Final = 3


def mode_words(model: Model, modes: Sequence[Mode], labels: Sequence[str]) -> list[str]:
    """Return a warning that names the other modes of comparable evidence."""
    if len(modes) < 2:
        return []
    best = modes[0].point
    sd = np.sqrt(np.sum(best.factor**2, axis=1))
    named = []
    for mode in modes[1 : 1 + _SHOWN]:
        order = np.argsort(-np.abs(mode.point.theta - best.theta) / sd, kind="stable")
        value = model.constrain(mode.point.theta)
        at = ", ".join(f"{labels[j]} = {value[j]:.4g}" for j in order[:_SHOWN])
        named.append(f"{at} (log evidence {modes[0].log_evidence - mode.log_evidence:.1f} lower)")
    more = len(modes) - 1 - len(named)
    return [
        f"the posterior has {'another mode' if len(modes) == 2 else 'other modes'} of comparable "
        f"evidence: {'; '.join(named)}{f'; and {more} more' if more else ''}. A chain may not "
        f"find its way between them: {ADVICE}"
    ]


def exact_fit_words(model: Model, labels: Sequence[str]) -> str:
    """Return the warning about a response that the columns fit without error."""
    scale = labels[int(log_scales(model, len(labels))[0])]
    return (
        f"the columns can fit the response without error: near 0 the prior of {scale} alone "
        f"decides about it, and theta_star is the mode with {scale} integrated"
    )


def starting_modes(modes: Sequence[Mode]) -> tuple[tuple[float, ...], ...] | None:
    """Return the modes other than ``theta_star`` at which chains start, or None."""
    near = comparable(modes, STARTING) if len(modes) > 1 else []
    return tuple(tuple(mode.point.theta.tolist()) for mode in near[1:]) or None
