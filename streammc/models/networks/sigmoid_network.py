"""A fully connected network for binary responses: sigmoid layers, one logit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from streammc.errors import ConfigError
from streammc.models.linear import LinearModel, refuse_many_predictors
from streammc.models.networks.network_kernel import link
from streammc.models.parameters import Parameter, predictor
from streammc.models.responses import binary_fault
from streammc.priors import PriorOption, as_prior, normal
from streammc.priors.names import REST
from streammc.protocols import Index, Matrix, Prior, Rows, Vector

_SEED = 20_161


@dataclass(frozen=True)
class Network(LinearModel):
    """A fully connected network; build it with :func:`network`."""

    hidden: tuple[int, ...] = (8, 4)

    name: ClassVar[str] = "network"
    multimodal: ClassVar[bool] = True
    link_kernel: ClassVar[Any] = link
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

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``y`` is not 0 or 1."""
        return binary_fault(y)

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
        last = parts[-2]  # activations are about 1/2 before anything is learnt
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
    given = [hidden] if isinstance(hidden, int) else hidden
    whole = isinstance(given, Sequence) and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in given
    )
    if not whole or not given:
        raise ConfigError(
            f"expected hidden layers of at least 1 unit, as [8, 4], found {hidden!r}"
            ": give whole numbers"
        )
    sizes = tuple(given)
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
