"""A fully connected network for binary responses: sigmoid layers, one logit.

A row's predictors are the H1 pre-activations of the first layer, then the weights
(unit by unit) and biases of each later layer, the output's last. ``constants`` holds
the sizes of the hidden layers. Loops run along the rows of a tile, and LLVM vectorises
them; every row has the same operations in the same order, so that its bits depend
neither on its neighbours nor on the order asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from streammc.errors import ConfigError
from streammc.models.base import LinearModel, Parameter, predictor, refuse_many_predictors
from streammc.models.glm.bernoulli_logit import logit_row
from streammc.models.responses import binary_fault
from streammc.numerics.jit import LINK_SIGNATURE, inline, jit
from streammc.numerics.special import exp, select
from streammc.priors import PriorOption, as_prior, normal
from streammc.priors.families import REST
from streammc.protocols import Matrix, Prior, Rows, Vector

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
    h, s, top, slope, curve, pull, delta = tile[:7]  # top: how the logit moves
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


_SEED = 20_161


@dataclass(frozen=True)
class Network(LinearModel):
    """A fully connected network; build it with :func:`network`."""

    hidden: tuple[int, ...] = (8, 4)

    name: ClassVar[str] = "network"
    multimodal: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
    response_fault = staticmethod(binary_fault)
    separable: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the weights of the first layer, weights and biases of the others, the output."""
        stated = [predictor(components=self.hidden[:1])]
        for layer, (n_in, n_out) in enumerate(pairwise(self.hidden), start=2):
            stated.append(Parameter(f"weight{layer}", components=(n_out, n_in)))
            stated.append(Parameter(f"bias{layer}", components=(n_out,)))
        output = Parameter("output", components=self.hidden[-1:])
        return (*stated, output, Parameter("output_bias"))

    @property
    def constants(self) -> Vector:
        """Return the sizes of the hidden layers."""
        return np.array(self.hidden, dtype=np.float64)

    def mean(self, eta: Matrix) -> Vector:
        """Return P(y = 1) per column of ``eta`` (p, m)."""
        out = np.empty((1, eta.shape[1]))
        whole = np.ascontiguousarray(eta, dtype=np.float64)
        link(whole, np.zeros((0, len(out[0]))), np.ones(len(out[0])), self.constants, 0, out)
        chance: Vector = np.exp(out[0])
        return chance

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw 0 or 1 per column of ``eta`` (p, m)."""
        y: Vector = (rng.random(eta.shape[1]) < self.mean(eta)).astype(np.float64)
        return y

    def start(self, rows: Rows) -> Vector:
        """Return random weights of variance 1 / inputs, always the same ones.

        Zeros are a saddle: all units of a layer would stay alike. Biases are 0, that of
        the output the log odds of the rows.
        """
        rng = np.random.default_rng(_SEED)
        q = rows.X.shape[1]
        parts = [rng.standard_normal(self.hidden[0] * q) / math.sqrt(q)]
        for n_in, n_out in pairwise((*self.hidden, 1)):
            parts += [rng.standard_normal(n_out * n_in) / math.sqrt(n_in), np.zeros(n_out)]
        total = max(float(rows.weight.sum()), 1e-300)
        chance = min(max(float(rows.weight @ rows.y) / total, 0.01), 0.99)
        last = parts[-2]  # the output weights; activations start at about 1/2
        parts[-1] = np.array([math.log(chance / (1.0 - chance)) - 0.5 * last.sum()])
        return np.concatenate(parts)

    def describe(self) -> dict[str, Any]:
        """Return name, sizes of the hidden layers and prior as JSON types."""
        return {**super().describe(), "hidden": list(self.hidden)}


def network(hidden: Sequence[int] = (8, 4), prior: PriorOption | None = None) -> Network:
    """Return a fully connected network for 0 and 1, with sigmoid layers and one logit.

    With ``s`` the sigmoid, ``h_1 = s(B x)``, ``h_l = s(W_l h_(l-1) + b_l)`` and
    ``P(y = 1) = s(w . h_L + b)``: the softmax of two classes. The pre-activations ``B x``
    are the linear predictors, ``beta[unit, feature]``; their biases are the column
    ``Intercept`` of the design, so ingest with ``--intercept``. An offset is added to the
    pre-activation of the first unit, where it means little: leave it out.

    The units of a layer may be exchanged, and a unit's sign turned: the posterior has as many
    modes of one height as there are ways, and only predictions mean something. Away from a
    mode the log-likelihood is not concave.

    Parameters
    ----------
    hidden
        Units of each hidden layer, first to last. A row's expansion has
        ``1 + p + p (p + 1) / 2`` numbers, p the pre-activations of the first layer and all
        later weights and biases (49 for (8, 4)); p is at most 256.
    prior
        Prior of weights and biases, or a mapping by name; ``None``, and what a mapping leaves out,
        is Normal(0, 1).

    Raises
    ------
    ConfigError
        If ``hidden`` is not a sequence of whole numbers of at least 1, p is above 256, or
        ``prior`` is not a prior.

    Examples
    --------
    >>> from streammc.models import network
    >>> network([2]).labels(["Intercept", "x"])[:4]
    ('beta[0, Intercept]', 'beta[0, x]', 'beta[1, Intercept]', 'beta[1, x]')
    >>> network([2]).labels(["Intercept", "x"])[4:]
    ('output[0]', 'output[1]', 'output_bias')
    """
    layers = [hidden] if isinstance(hidden, int) else hidden
    whole = isinstance(layers, Sequence) and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in layers
    )
    if not whole or not layers:
        raise ConfigError(
            f"expected hidden layers of at least 1 unit, as [8, 4], found {hidden!r}"
            ": give whole numbers"
        )
    sizes = tuple(layers)
    p = sizes[0] + sum((n_in + 1) * n_out for n_in, n_out in pairwise((*sizes, 1)))
    refuse_many_predictors(p, "units of the first layer and later weights and biases")
    return Network(_completed(prior), sizes)


def _completed(option: PriorOption | None) -> Prior:
    """Return the prior; what a mapping leaves out is Normal(0, 1)."""
    if option is None:
        return normal(scale=1.0)
    if isinstance(option, Mapping) and option and REST not in option:
        return as_prior({**option, REST: normal(scale=1.0)})
    return as_prior(option)
