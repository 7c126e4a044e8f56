"""Registry of models and samplers: the address of the builder of each name.

Addresses are strings, so that nothing is imported (or compiled) before it is used. A new
model or sampler needs a file and one line here; the contract tests run over these tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from streammc.errors import ConfigError

MODELS: Final[dict[str, str]] = {
    "beta": "streammc.models.glm.beta_logit:beta",
    "beta-binomial": "streammc.models.glm.beta_binomial_logit:beta_binomial",
    "binomial": "streammc.models.glm.binomial_logit:binomial",
    "exponential": "streammc.models.glm.exponential_log:exponential",
    "gamma": "streammc.models.glm.gamma_log:gamma",
    "gaussian": "streammc.models.glm.gaussian_identity:gaussian",
    "gaussian-mean": "streammc.models.mixtures.known_covariance:gaussian_mean",
    "gaussian-mixture": "streammc.models.mixtures.mixture:gaussian_mixture",
    "gaussian-mixture-free": "streammc.models.mixtures.mixture_free:gaussian_mixture_free",
    "gaussian-mixture-tied": "streammc.models.mixtures.mixture_tied:gaussian_mixture_tied",
    "gaussian-process": "streammc.models.gaussian_processes:gaussian_process",
    "hurdle-poisson": "streammc.models.glm.zero_inflated_log:hurdle_poisson",
    "inverse-gaussian": "streammc.models.glm.inverse_gaussian_log:inverse_gaussian",
    "logistic": "streammc.models.glm.bernoulli_logit:logistic",
    "lognormal": "streammc.models.glm.lognormal_identity:lognormal",
    "multinomial": "streammc.models.glm.multinomial_logit:multinomial",
    "negative-binomial": "streammc.models.glm.negative_binomial_log:negative_binomial",
    "network": "streammc.models.networks:network",
    "ordinal": "streammc.models.glm.ordinal_logit:ordinal",
    "poisson": "streammc.models.glm.poisson_log:poisson",
    "probit": "streammc.models.glm.bernoulli_probit:probit",
    "quantile": "streammc.models.glm.quantile_identity:quantile",
    "student-t": "streammc.models.glm.student_t_identity:student_t",
    "tweedie": "streammc.models.glm.tweedie_log:tweedie",
    "weibull": "streammc.models.glm.weibull_log:weibull",
    "zero-inflated-negative-binomial": (
        "streammc.models.glm.zero_inflated_log:zero_inflated_negative_binomial"
    ),
    "zero-inflated-poisson": "streammc.models.glm.zero_inflated_log:zero_inflated_poisson",
}

SAMPLERS: Final[dict[str, str]] = {
    "gibbs": "streammc.samplers.crossed.options:gibbs",
    "hmc": "streammc.samplers.hamiltonian.options:hmc",
    "hmc-ecs": "streammc.samplers.hamiltonian.options:hmc_ecs",
    "hmc-ecs-signed": "streammc.samplers.hamiltonian.options:hmc_ecs_signed",
    "laplace": "streammc.samplers.importance.laplace:laplace",
    "mh": "streammc.samplers.metropolis.mh:mh",
    "mh-austere": "streammc.samplers.metropolis.mh_austere:mh_austere",
    "mh-fixed": "streammc.samplers.metropolis.mh_fixed:mh_fixed",
    "mh-minibatch": "streammc.samplers.metropolis.mh_minibatch:mh_minibatch",
    "mh-sublhd": "streammc.samplers.metropolis.mh_sublhd:mh_sublhd",
    "mint": "streammc.samplers.metropolis.mint:mint",
    "mintee": "streammc.samplers.equi_energy.options:mintee",
    "pt": "streammc.samplers.tempering.options:pt",
    "sghmc": "streammc.samplers.stochastic_gradient.options:sghmc",
    "sgld": "streammc.samplers.stochastic_gradient.options:sgld",
    "smh": "streammc.samplers.factorised.options:smh",
    "spt": "streammc.samplers.tempering.options:spt",
    "stt": "streammc.samplers.tempering.options:stt",
    "tt": "streammc.samplers.tempering.options:tt",
}


NOT_SAMPLERS: Final[dict[str, str]] = {
    "nuts": "use hmc with --option trajectory=nuts, in Python "
    'streammc.samplers.hmc(trajectory="nuts")',
}
"""Names that users take for samplers, and the advice how to get what they mean."""


def resolve(table: dict[str, str], kind: str, name: str) -> Callable[..., Any]:
    """Return the builder registered under ``name``.

    Raises
    ------
    ConfigError
        If ``name`` is not in ``table``; the message lists the registered names.
    """
    if name not in table:
        if kind == "sampler" and name.lower() in NOT_SAMPLERS:
            raise ConfigError(f"unknown sampler {name!r}: {NOT_SAMPLERS[name.lower()]}")
        near = get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(table))}"
        if kind == "model" and not near:
            hint += ", or your own, package.module:build"
        raise ConfigError(f"unknown {kind} {name!r}: {hint}")
    module, attribute = table[name].split(":")
    builder: Callable[..., Any] = getattr(import_module(module), attribute)
    return builder


ENTRY_POINTS: Final = "streammc.models"
"""Group of entry points under which an installed package adds builders of models."""


_STATED: Final = "streammc.models.text_models:described"
"""Builder of a model of texts from its description, in which it is named ``density``."""
_IN_A_FILE: Final = "streammc.models.user_model:from_file"


def model(name: str) -> Callable[..., Any]:
    """Return the builder of the model ``name``, registered here or by an installed package.

    Of ``FILE.toml`` that of the model whose texts the file states.
    """
    if name == "density" or name.endswith(".toml"):
        module, attribute = (_STATED if name == "density" else _IN_A_FILE).split(":")
        found: Callable[..., Any] = getattr(import_module(module), attribute)
        return found if name == "density" else found(name)
    if name not in MODELS:
        from importlib.metadata import entry_points  # 20 ms, for names of other packages

        for entry in entry_points(group=ENTRY_POINTS, name=name):
            builder: Callable[..., Any] = entry.load()
            return builder
    return resolve(MODELS, "model", name)


def model_at(address: str) -> Callable[..., Any]:
    """Return the builder at ``package.module:build``, importing the module.

    The import runs code of the module: use it only for addresses that the user has allowed.

    Raises
    ------
    ConfigError
        If the module or function does not exist.
    """
    module, _, attribute = address.partition(":")
    try:
        builder: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"expected a builder of a model at {address!r}, found {error}: name a function as "
            "package.module:build, and run the command in the folder that holds the package or "
            "module, or put that folder into PYTHONPATH"
        ) from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"expected the module of {address!r} to be imported, found {what}: mend the module"
        ) from error
    if not callable(builder):
        raise ConfigError(
            f"expected a function at {address!r}, found {type(builder).__name__}: name one"
        )
    return builder


def sampler(name: str) -> Callable[..., Any]:
    """Return the builder of the sampler ``name``."""
    return resolve(SAMPLERS, "sampler", name)


_RUN_AT_ADDRESS: Final = "streammc.stores.cloud.staged_run:run_at"


def run_at_address(address: str) -> Any:
    """Return the run at an address, as ``trace.places`` uses it, or the path of ``file://``."""
    module, _, attribute = _RUN_AT_ADDRESS.partition(":")
    return getattr(import_module(module), attribute)(address)


def on_first_use(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package that imports names on first use.

    Parameters
    ----------
    modules
        Of each public name, its module inside the package.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}: it has {', '.join(names())}",
                name=name,
                obj=sys.modules[package],
            )
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    def names() -> list[str]:
        return sorted(modules)

    return attribute, names
