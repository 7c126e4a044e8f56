"""The compiled link of a fully connected network: values, backpropagation, Hessians.

A row's predictors are the H1 pre-activations of the first layer, then the weights
(unit by unit) and biases of each later layer, the output's last. ``constants`` holds
the sizes of the hidden layers. Loops run along the rows of a tile, and LLVM vectorises
them; every row has the same operations in the same order, so that its bits depend
neither on its neighbours nor on the order asked for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from streammc.models.glm.bernoulli_logit import logit_row
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, select

_TILE: Final = 64
"""Rows whose activations stay in the first-level cache."""


@inline
def _sigmoid(z):  # type: ignore[no-untyped-def]
    """Return ``h = 1 / (1 + exp(-z))`` and ``h (1 - h)``, without cancellation."""
    t = exp(-abs(z))
    u = 1.0 / (1.0 + t)
    tu = t * u
    return select(z < 0.0, tu, u), tu * u


class Layers(NamedTuple):
    """Places of the layers."""

    sizes: Any
    unit: Any
    """First unit of each layer, counted through the network."""
    at: Any
    """First predictor of each layer, and of the output."""


class Tile(NamedTuple):
    """Scratch of some rows."""

    h: Any
    """(units, _TILE) activations; ``s`` their derivatives."""
    s: Any
    z: Any
    """(_TILE,) logits, or how they move with one predictor; ``slope``, ``curve`` of log p."""
    slope: Any
    curve: Any
    pull: Any
    """(units, _TILE) dl/dh; ``delta`` dl/dz."""
    delta: Any
    tz: Any
    """(units, _TILE) how z, h, dl/dh and dl/dz move with one predictor: this and the next three."""
    th: Any
    tp: Any
    td: Any


@inline
def _forward(eta, lo, w, layers, tile):  # type: ignore[no-untyped-def]
    """Write activations and their derivatives (units, w), and the logit (w,)."""
    if lo < 0:  # never: tells the compiler that no index counts from the end
        return
    sizes, unit, at = layers
    h, s, z = tile.h, tile.s, tile.z
    for k in range(sizes[0]):
        for i in range(w):
            h[k, i], s[k, i] = _sigmoid(eta[k, lo + i])
    n = sizes.shape[0]
    for layer in range(1, n):
        before, n_in = unit[layer - 1], sizes[layer - 1]
        for k in range(sizes[layer]):
            here, row = unit[layer] + k, at[layer] + k * n_in
            bias = at[layer] + sizes[layer] * n_in + k
            for i in range(w):
                z[i] = eta[bias, lo + i]
            for j in range(n_in):
                for i in range(w):
                    z[i] += eta[row + j, lo + i] * h[before + j, i]
            for i in range(w):
                h[here, i], s[here, i] = _sigmoid(z[i])
    before, row = unit[n - 1], at[n]
    for i in range(w):
        z[i] = eta[row + sizes[n - 1], lo + i]
    for j in range(sizes[n - 1]):
        for i in range(w):
            z[i] += eta[row + j, lo + i] * h[before + j, i]


@inline
def _backward(eta, lo, w, layers, tile, out):  # type: ignore[no-untyped-def]
    """Write the gradient by backpropagation, ``pull`` dl/dh and ``delta`` dl/dz (units, w)."""
    if lo < 0:
        return
    sizes, unit, at = layers
    h, s, slope, pull, delta = tile.h, tile.s, tile.slope, tile.pull, tile.delta
    n = sizes.shape[0]
    before, row = unit[n - 1], at[n]
    for j in range(sizes[n - 1]):
        for i in range(w):
            out[1 + row + j, lo + i] = slope[i] * h[before + j, i]
            pull[before + j, i] = slope[i] * eta[row + j, lo + i]
    for i in range(w):
        out[1 + row + sizes[n - 1], lo + i] = slope[i]
    for layer in range(n - 1, -1, -1):
        here = unit[layer]
        for k in range(here, here + sizes[layer]):
            for i in range(w):
                delta[k, i] = pull[k, i] * s[k, i]
        if layer == 0:
            for k in range(sizes[0]):
                for i in range(w):
                    out[1 + k, lo + i] = delta[k, i]
            return
        before, n_in = unit[layer - 1], sizes[layer - 1]
        for j in range(n_in):
            for i in range(w):
                pull[before + j, i] = 0.0
        for k in range(sizes[layer]):
            row = at[layer] + k * n_in
            for j in range(n_in):
                for i in range(w):
                    out[1 + row + j, lo + i] = delta[here + k, i] * h[before + j, i]
                    pull[before + j, i] += delta[here + k, i] * eta[row + j, lo + i]
            for i in range(w):
                out[1 + at[layer] + sizes[layer] * n_in + k, lo + i] = delta[here + k, i]


@inline
def _tangent(eta, lo, w, layers, tile, first, k0, j0):  # type: ignore[no-untyped-def]
    """Write how pre-activations, activations and logit move with one predictor.

    It is the input ``j0`` of unit ``k0`` in layer ``first``; ``j0`` -1 is its bias.
    """
    if lo < 0:
        return
    sizes, unit, at = layers
    h, s, tz, th, top = tile.h, tile.s, tile.tz, tile.th, tile.z
    n = sizes.shape[0]
    if first < n:
        for k in range(unit[first], unit[first] + sizes[first]):
            for i in range(w):
                tz[k, i] = 0.0
                th[k, i] = 0.0
        k = unit[first] + k0
        for i in range(w):
            tz[k, i] = 1.0 if j0 < 0 else h[unit[first - 1] + j0, i]
            th[k, i] = s[k, i] * tz[k, i]
    for layer in range(first + 1, n):
        before, n_in = unit[layer - 1], sizes[layer - 1]
        for k in range(sizes[layer]):
            here, row = unit[layer] + k, at[layer] + k * n_in
            for i in range(w):
                tz[here, i] = 0.0
            for j in range(n_in):
                for i in range(w):
                    tz[here, i] += eta[row + j, lo + i] * th[before + j, i]
            for i in range(w):
                th[here, i] = s[here, i] * tz[here, i]
    before, row, n_in = unit[n - 1], at[n], sizes[n - 1]
    if first == n:
        for i in range(w):
            top[i] = 1.0 if j0 < 0 else h[before + j0, i]
        return
    for i in range(w):
        top[i] = 0.0
    for j in range(n_in):
        for i in range(w):
            top[i] += eta[row + j, lo + i] * th[before + j, i]


@inline
def _second(eta, lo, w, layers, tile, first, c, out):  # type: ignore[no-untyped-def]
    """Write row ``c`` of the Hessian, from ``c`` on: the tangent of backpropagation."""
    if lo < 0:
        return
    sizes, unit, at = layers
    h, s, top, slope, curve, pull, delta = tile[:7]
    tz, th, tp, td = tile[7:]
    n = sizes.shape[0]
    p = at[n] + sizes[n - 1] + 1
    pair = 1 + p + c * p - c * (c - 1) // 2 - c  # the row of out for (c, b) is pair + b
    before, row = unit[n - 1], at[n]
    for i in range(w):
        top[i] *= curve[i]
    for j in range(sizes[n - 1]):
        if row + j >= c:
            for i in range(w):
                moved = th[before + j, i] if first < n else 0.0
                out[pair + row + j, lo + i] = top[i] * h[before + j, i] + slope[i] * moved
        for i in range(w):
            tp[before + j, i] = top[i] * eta[row + j, lo + i]
    for i in range(w):
        out[pair + row + sizes[n - 1], lo + i] = top[i]
    for layer in range(n - 1, first - 1, -1):
        here = unit[layer]
        for k in range(here, here + sizes[layer]):
            for i in range(w):
                bend = s[k, i] * (1.0 - 2.0 * h[k, i]) * tz[k, i]
                td[k, i] = tp[k, i] * s[k, i] + pull[k, i] * bend
        if layer == 0:
            for k in range(c, sizes[0]):
                for i in range(w):
                    out[pair + k, lo + i] = td[k, i]
            return
        before, n_in = unit[layer - 1], sizes[layer - 1]
        for j in range(n_in):
            for i in range(w):
                tp[before + j, i] = 0.0
        for k in range(sizes[layer]):
            row = at[layer] + k * n_in
            for j in range(n_in):
                if row + j >= c:
                    for i in range(w):
                        moved = th[before + j, i] if layer > first else 0.0
                        out[pair + row + j, lo + i] = (
                            td[here + k, i] * h[before + j, i] + delta[here + k, i] * moved
                        )
                for i in range(w):
                    tp[before + j, i] += td[here + k, i] * eta[row + j, lo + i]
            bias = at[layer] + sizes[layer] * n_in + k
            if bias >= c:
                for i in range(w):
                    out[pair + bias, lo + i] = td[here + k, i]


@jit(LINK_SIGNATURE)
def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
    """Write the Bernoulli log-likelihood of the network's logit, and its derivatives.

    Hessians are exact: for each predictor the tangent of the forward and of the
    backward sweep (Pearlmutter 1994), O(p^2) a row. See ``protocols.Model``.
    """
    n, m = constants.shape[0], y.shape[0]
    sizes = np.empty(n, np.int64)
    unit = np.empty(n, np.int64)
    at = np.empty(n + 1, np.int64)
    units = 0
    for layer in range(n):
        sizes[layer] = np.int64(constants[layer])
        unit[layer] = units
        units += sizes[layer]
    at[0] = 0
    at[1] = sizes[0]
    for layer in range(1, n):
        at[layer + 1] = at[layer] + sizes[layer] * (sizes[layer - 1] + 1)
    layers = Layers(sizes, unit, at)
    z, slope, curve = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE)
    some = units if order > 0 else 0
    many = units if order == 2 else 0
    tile = Tile(
        np.empty((units, _TILE)),
        np.empty((units, _TILE)),
        z,
        slope,
        curve,
        np.empty((some, _TILE)),
        np.empty((some, _TILE)),
        np.empty((many, _TILE)),
        np.empty((many, _TILE)),
        np.empty((many, _TILE)),
        np.empty((many, _TILE)),
    )
    for lo in range(0, m, _TILE):
        w = min(_TILE, m - lo)
        _forward(eta, lo, w, layers, tile)
        for i in range(w):
            out[0, lo + i], slope[i], curve[i] = logit_row(z[i], y[lo + i])
        if order >= 1:
            _backward(eta, lo, w, layers, tile, out)
        if order == 2:
            for first in range(n + 1):
                n_out = sizes[first] if first < n else 1
                n_in = sizes[first - 1] if first > 0 else 0
                for c in range(at[first], at[first] + n_out * (n_in + 1)):
                    inner = c - at[first]
                    k0 = inner // n_in if inner < n_out * n_in else inner - n_out * n_in
                    j0 = inner % n_in if inner < n_out * n_in else -1
                    _tangent(eta, lo, w, layers, tile, first, k0, j0)
                    _second(eta, lo, w, layers, tile, first, c, out)
