"""A likelihood of your own, from functions of its predictors or of theta itself.

Their source and the values they read tell one user's functions from another's. A module of the
user's own is neither in the standard library, nor installed, nor of streammc. Files are found and
read without running them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, cast

import numpy as np
from numba import njit, objmode
from numba.core.registry import CPUDispatcher

from streammc.errors import ConfigError, ModelError
from streammc.models.base import BETA, POSITIVE, REAL, LinearModel, Parameter, predictor
from streammc.models.check import refuse_wrong_derivatives
from streammc.models.text_models import TextModel, text_model
from streammc.numerics.dispatchers import Compiled
from streammc.numerics.jit import LINK_SIGNATURE
from streammc.priors import PriorOption, as_prior
from streammc.protocols import Index, Matrix, Model, Rows, Vector


def code_digest(functions: Sequence[Any]) -> str:
    """Return a digest of functions: their source, and the values that they read.

    Values of closures, defaults and globals count where they are numbers, text, arrays,
    containers of these, or functions, and by name otherwise. The files of the user's own modules
    count which the files of the functions import, or which are among the values.
    """
    total = hashlib.sha256()
    seen: set[int] = set()
    importing: set[str] = set()
    own: dict[str, bytes] = {}
    plain_functions = (getattr(each, "py_func", each) for each in functions)
    roots = {getattr(each, "__module__", None) for each in plain_functions}

    def add(value: Any) -> None:
        plain = getattr(value, "py_func", value)
        total.update(f"<{type(plain).__name__}>".encode())
        if isinstance(plain, FunctionType):
            if id(plain) not in seen:
                seen.add(id(plain))
                add_function(plain)
        elif isinstance(plain, np.ndarray):
            total.update(f"{plain.dtype}{plain.shape}".encode())
            total.update(np.ascontiguousarray(plain).tobytes())
        elif isinstance(plain, dict):
            for key in sorted(plain, key=repr):
                add(key)
                add(plain[key])
        elif isinstance(plain, (list, tuple)):
            for part in plain:
                add(part)
        elif isinstance(plain, (set, frozenset)):
            add(sorted(plain, key=repr))
        elif isinstance(plain, CodeType):
            add_code(plain)
        elif isinstance(plain, (int, float, complex, str, bytes, np.generic, type(None))):
            total.update(repr(plain).encode())
        else:
            total.update(str(getattr(plain, "__name__", "")).encode())
            if isinstance(plain, ModuleType):
                add_module(plain.__name__, getattr(plain, "__file__", None))
            else:  # a class, or an object of one
                add_module((plain if isinstance(plain, type) else type(plain)).__module__)

    def add_module(name: Any, origin: str | None = None) -> None:
        importing.add(str(name))
        # Of the file with the functions themselves, only what they read counts.
        if name not in roots and (content := own_file(str(name), origin)) is not None:
            own[str(name)] = content

    def add_code(code: CodeType) -> None:
        total.update(code.co_code)
        add(code.co_names)
        for constant in code.co_consts:
            add(constant)

    def add_function(function: FunctionType) -> None:
        add_module(function.__module__)
        try:
            total.update(inspect.getsource(function).encode())
        except (OSError, TypeError):
            add_code(function.__code__)
        add(function.__defaults__)
        add(function.__kwdefaults__)
        read = inspect.getclosurevars(function)
        for values in (read.nonlocals, read.globals):
            for name in sorted(values):
                total.update(name.encode())
                add(values[name])

    for function in functions:
        add(function)
    # Files of installed modules do not count, so that their versions do not end a run.
    own |= own_imports(sorted(importing))
    for name in sorted(own):
        total.update(f"<file {name}>".encode())
        total.update(hashlib.sha256(own[name]).digest())
    return total.hexdigest()[:16]


_INSTALLED: Final = {"site-packages", "dist-packages"}


def own_imports(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the user's own modules that ``modules`` import, by name of the module.

    A module in ``modules`` itself is left out unless another of them imports it.
    """
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    left = list(modules)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        content = own_file(name)
        if content is None:
            continue
        for each in _imported(name, content, _is_package(name)):
            if each not in files and (own := own_file(each)) is not None:
                files[each] = own
                left.append(each)
    return files


def own_file(name: str, origin: str | None = None) -> bytes | None:
    """Return the file of a module; ``None`` if it has none or is not the user's own.

    ``origin`` is its path, where that is known.
    """
    if name.partition(".")[0] == "streammc":
        return None
    origin = origin or _origin(name)
    if origin is None:
        return None
    path = Path(origin).resolve()
    if _INSTALLED & set(path.parts) or any(path.is_relative_to(each) for each in _libraries()):
        return None
    with suppress(OSError):
        return path.read_bytes()
    return None


@lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = (sysconfig.get_path(name) for name in names)
    return tuple(Path(each).resolve() for each in paths if each)


def _origin(name: str) -> str | None:
    """Return the path of the file of a module, imported or not."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None)
    spec = _spec(name)
    return spec.origin if spec is not None and spec.has_location else None


def _is_package(name: str) -> bool:
    module: ModuleType | ModuleSpec | None = sys.modules.get(name)
    if module is not None:
        return hasattr(module, "__path__")
    spec = _spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _spec(name: str) -> ModuleSpec | None:
    """Find a module that is not imported, without running its parents."""
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = None
        for finder in sys.meta_path:
            with suppress(ImportError, AttributeError, ValueError, OSError):
                spec = spec or finder.find_spec(whole, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _imported(name: str, content: bytes, package: bool) -> list[str]:
    """Return the names of the modules that a source may import, with the packages around them."""
    modules = set()
    for each in _named(name, content, package):
        parts = each.split(".")
        modules |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return sorted(modules)


@lru_cache(maxsize=256)
def _named(name: str, content: bytes, package: bool) -> tuple[str, ...]:
    """Return the names in the import statements of a source; none if it cannot be parsed."""
    try:
        nodes = ast.walk(ast.parse(content))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    around = name if package else name.rpartition(".")[0]
    return tuple(_names(nodes, around))


def _names(nodes: Iterable[ast.AST], around: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, around)
                except ImportError:
                    continue
            yield base
            # A name may be a module of the package.
            yield from (f"{base}.{each.name}" for each in node.names if each.name != "*")


Function = Callable[..., Any]


def _interpreted(function: Function) -> Any:
    """Return a link that calls a Python function; about 5 us a call, with the GIL."""

    @njit(LINK_SIGNATURE)
    def link(eta, X, y, constants, order, out):  # type: ignore[no-untyped-def]
        with objmode():
            function(eta, X, y, constants, order, out)

    return link


def _compiled(function: CPUDispatcher) -> Any:
    """Return a dispatcher of numba compiled for the signature of a link."""
    function.compile(LINK_SIGNATURE.args)
    return function


def kernel_of(parts: Mapping[str, Function], n_linear: int) -> Any:
    """Return the link of ``link``, or of ``log_lik``, ``gradient`` and ``hessian``."""
    if "link" not in parts:
        log_lik, gradient, hessian = parts.values()
        return _interpreted(_assembled(log_lik, gradient, hessian, n_linear))
    link = parts["link"]
    if isinstance(link, Compiled):  # that of a model of this package
        return link
    return _compiled(link) if isinstance(link, CPUDispatcher) else _interpreted(link)


def _assembled(log_lik: Function, gradient: Function, hessian: Function, n_linear: int) -> Function:
    """Return a link from three functions of whole blocks; shapes are checked."""

    def link(eta: Matrix, X: Matrix, y: Vector, constants: Vector, order: int, out: Matrix) -> None:
        p, m = eta.shape
        # Shared parameters are the same for every row: the first column is theta.
        arguments = (eta, y) if n_linear else (eta[:, 0], X.T, y)
        out[0] = _shaped(log_lik, arguments, (m,))
        if order >= 1:
            shape = (p, m) if n_linear else (m, p)
            first = _shaped(gradient, arguments, shape)
            out[1 : 1 + p] = first if n_linear else first.T
        if order == 2:
            second = _shaped(hessian, arguments, (p, p, m) if n_linear else (m, p, p))
            row = 1 + p
            for a in range(p):
                for b in range(a, p):
                    out[row] = second[a, b] if n_linear else second[:, a, b]
                    row += 1

    return link


def _shaped(function: Function, arguments: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        values = np.asarray(function(*arguments), dtype=np.float64)
    if values.shape != shape:
        raise ModelError(
            f"expected {_called(function)} to return shape {shape}, found {values.shape}; "
            "see the shapes in the documentation of streammc.models.user"
        )
    return values


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class UserModel(LinearModel):
    """A likelihood built by :func:`user`."""

    title: str = "user"
    kernel: Any = None
    parameters: tuple[Parameter, ...] = (BETA,)
    code: str = ""
    functions: dict[str, Function] = field(default_factory=dict, compare=False)
    stated: bool = False
    """Whether the parameters were given as records."""
    n_features: int | None = None
    linked: bool = False
    """Whether the link itself was given."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name it was given."""
        return self.title

    @property
    def link(self) -> Any:
        """Return the compiled link."""
        return self.kernel

    @property
    def sees_columns(self) -> bool:
        """Return whether the link may use the columns: one that was given, or one of theta."""
        return self.linked or self.n_linear == 0

    def response_fault(self, y: Vector) -> tuple[Index, str] | None:
        """Return where ``response(y)`` is false, or ``y`` not finite."""
        good = np.isfinite(y)
        text = "finite numbers"
        if "response" in self.functions:
            with np.errstate(all="ignore"):
                good &= np.asarray(self.functions["response"](y), dtype=bool)
            text = f"values that {_called(self.functions['response'])} accepts"
        wrong = np.flatnonzero(~good)
        return (wrong, text) if wrong.size else None

    def mean(self, eta: Matrix) -> Vector:
        """Return the mean response per column of ``eta`` (p, m)."""
        if "mean" not in self.functions:
            raise ModelError(
                f"expected the model {self.name!r} to have a mean response, found none: give "
                "mean=f(eta)"
            )
        return np.asarray(self.functions["mean"](eta), dtype=np.float64)

    def simulate(self, eta: Matrix, rng: np.random.Generator) -> Vector:
        """Draw one response per column of ``eta`` (p, m)."""
        if "simulate" not in self.functions:
            raise ModelError(
                f"expected the model {self.name!r} to have a simulator, found none: give "
                "simulate=f(eta, rng)"
            )
        return np.asarray(self.functions["simulate"](eta, rng), dtype=np.float64)

    def start(self, rows: Rows) -> Vector:
        """Return ``start(X, y)`` or zeros (d,), after a look at the derivatives there."""
        d = self.dim(rows.X.shape[1])
        theta: Vector = np.zeros(d)
        if "start" in self.functions:
            theta = np.asarray(self.functions["start"](rows.X, rows.y), dtype=np.float64)
        if theta.shape != (d,):
            raise ModelError(
                f"expected start to return shape {(d,)}, found {theta.shape}; correct the function"
            )
        refuse_wrong_derivatives(cast(Model, self), rows, theta)
        return theta

    def describe(self) -> dict[str, Any]:
        """Return name, parameters, prior and a digest of the functions' source."""
        shared = [each for each in self.parameters if not each.n_linear]
        stated = {"parameters": [each.describe() for each in self.parameters]}
        return {
            "name": self.name,
            "code": self.code,
            "predictors": [each.name for each in self.parameters if each.n_linear],
            "locations": [each.name for each in shared if each.support == REAL],
            "scales": [each.name for each in shared if each.support == POSITIVE],
            "prior": self.prior.describe(),
            **(stated if self.stated else {}),
        }


def user(
    name: str,
    log_density: str | None = None,
    *,
    link: Function | None = None,
    log_lik: Function | None = None,
    gradient: Function | None = None,
    hessian: Function | None = None,
    predictors: Sequence[str] = ("beta",),
    locations: Sequence[str] = (),
    scales: Sequence[str] = (),
    response: Function | str | None = None,
    mean: Function | str | None = None,
    simulate: Function | str | None = None,
    start: Function | None = None,
    prior: PriorOption | None = None,
    parameters: Sequence[Parameter] | None = None,
    n_features: int | None = None,
    where: Mapping[str, str] | None = None,
    exponential: str | None = None,
) -> UserModel | TextModel:
    """Return a model of your own; try it with :func:`check_model`.

    In one line, by the text of its log density: it is parsed and never evaluated, and compiled with
    its derivatives, as those of many families of the package are. Then ``response``, ``mean``
    and ``simulate`` are texts, too.

    With linear predictors (the default) a row is seen through ``p`` numbers: one per
    name in ``predictors`` (the first includes the offset), then the ``locations`` and
    the logarithms of the ``scales``, which all rows share. With ``predictors=()`` the
    functions see theta, the rows' columns and the response: a block of rows at once.

    Parameters
    ----------
    name
        What it is called in runs and messages.
    log_density
        Log density of a row as an expression of the response ``y``, the linear predictor ``eta``
        (of further ``predictors`` ``eta_NAME``) and the shared parameters by their names, with
        numbers, ``pi``, arithmetic, conditional expressions and the functions of
        ``streammc.models.density.FUNCTIONS``, such as ``exp``, ``log_gamma`` and ``log1pexp``.
    where
        Further names, each with its expression in those before it.
    exponential
        What the exponential of a coefficient is, such as ``time ratio``; ``None``: nothing.
    link
        ``link(eta (p, m), X (q, m), y (m,), constants, order, out)``, as
        :meth:`streammc.protocols.Model.link` has it: writes into ``out``. Compiled where
        it is a function of ``numba.njit``, interpreted (5 us a call more) otherwise.
    log_lik, gradient, hessian
        Instead of ``link``: plain NumPy. ``f(eta (p, m), y (m,))`` returning (m,),
        (p, m) and (p, p, m); with ``predictors=()``: ``f(theta (d,), X (m, q), y (m,))``
        returning (m,), (m, d) and (m, d, d). Derivatives are in theta, so in the
        logarithm of a scale.
    predictors
        Names of the coefficients of each linear predictor.
    locations, scales
        Names of shared parameters: of any sign, and positive.
    parameters : sequence of Parameter, or None
        Instead of names: records that state support, default prior, the way to the table's scale
        and what exponentials mean, coefficients first; see :class:`Parameter`.
    n_features
        Number of columns, where a parameter for each of them is no coefficient.
    response
        ``f(y)`` is true where a response is valid, or a text such as ``"y > 0"``; default: finite.
    mean
        ``f(eta (p, m))`` returns the mean responses (m,), for predictions; or an expression.
    simulate
        ``f(eta (p, m), rng)`` returns responses (m,); or an expression
        of one distribution of ``numpy.random.Generator``, such as ``"exp(eta) * weibull(shape)"``.
    start
        ``f(X, y)`` returns a first theta (d,); default: zeros.
    prior
        Prior, as for other models.

    Raises
    ------
    ConfigError
        If functions or names are missing, or given twice.

    Examples
    --------
    >>> from streammc.models import check_model, user
    >>> waits = user("waits", "-eta - y * exp(-eta)", response="y > 0", mean="exp(eta)",
    ...     simulate="exponential(exp(eta))")
    >>> check_model(waits).passed
    True

    The same by functions:

    >>> import numpy as np
    >>> model = user(
    ...     "exponential",
    ...     log_lik=lambda eta, y: -eta[0] - y * np.exp(-eta[0]),
    ...     gradient=lambda eta, y: np.array([-1 + y * np.exp(-eta[0])]),
    ...     hessian=lambda eta, y: np.array([[-y * np.exp(-eta[0])]]),
    ...     response=lambda y: y > 0,
    ...     simulate=lambda eta, rng: rng.exponential(np.exp(eta[0])),
    ... )
    >>> model.labels(["Intercept"])
    ('beta[Intercept]',)
    """
    if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= _MOST_NAME):
        raise ConfigError(
            f"expected the name of the model as text of 1 to {_MOST_NAME} characters on one line, "
            f"found {name!r:.60}: give one"
        )
    for each in (predictors, locations, scales):
        if isinstance(each, str) or not isinstance(each, Iterable):
            raise ConfigError(
                f"expected a list of names of parameters, found {each!r:.60}: write ['name']"
            )
    names = (*predictors, *locations, *scales)
    if parameters is None:
        _refuse_names(names)
        stated = (
            *(predictor(each, exponential) for each in predictors),
            *(Parameter(each) for each in locations),
            *(Parameter(each, support=POSITIVE) for each in scales),
        )
    else:
        if [*map(tuple, (predictors, locations, scales))] != [("beta",), (), ()]:
            raise ConfigError(
                "expected parameters, or names as predictors, locations and scales, found "
                "both: give parameters alone"
            )
        stated = tuple(parameters)
        _refuse_parameters(stated, n_features)
    if log_density is not None:
        functions = {"link": link, "log_lik": log_lik, "gradient": gradient, "hessian": hessian}
        also = [key for key, each in functions.items() if each is not None]
        if also or start is not None:
            raise ConfigError(
                f"expected a log density as text or functions, found both: leave out "
                f"{(also or ['start'])[0]}"
            )
        texts: Any = {"response": response, "mean": mean, "simulate": simulate}
        return text_model(name, log_density, stated, where=where, prior=prior, **texts)
    likelihood = _functions(link=link, log_lik=log_lik, gradient=gradient, hessian=hessian)
    others = _functions(response=response, mean=mean, simulate=simulate, start=start)
    if set(likelihood) not in ({"link"}, {"log_lik", "gradient", "hessian"}):
        raise ConfigError(
            "expected either link, or log_lik, gradient and hessian, found "
            f"{', '.join([*likelihood, *others][:4]) or 'none'}: give all three, since control "
            "variates and the mass matrix need second derivatives"
        )
    return UserModel(
        as_prior(prior),
        name,
        kernel_of(likelihood, sum(each.n_linear for each in stated)),
        stated,
        code_digest([*likelihood.values()]),
        others,
        parameters is not None,
        n_features,
        "link" in likelihood,
    )


def _functions(**options: Any) -> dict[str, Function]:
    """Return the functions that are there by name; refuse what is none."""
    functions = {name: each for name, each in options.items() if each is not None}
    for name, function in functions.items():
        if not callable(function):
            raise ConfigError(f"expected a function as {name}, found {function!r:.60}: pass one")
    return functions


def _refuse_names(names: tuple[Any, ...]) -> None:
    if not names or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise ConfigError(f"expected different names of parameters, found {names!r}: rename them")


def _refuse_parameters(parameters: tuple[Any, ...], n_features: int | None) -> None:
    """Refuse records of parameters that a model of the user's own cannot have."""
    wrong = [each for each in parameters if not isinstance(each, Parameter)]
    if wrong:
        raise ConfigError(
            f"expected parameters as streammc.models.Parameter, found {wrong[0]!r:.60}: write "
            "Parameter(name, ...)"
        )
    _refuse_names(tuple(each.name for each in parameters))
    for each in parameters:
        if each.support not in (REAL, POSITIVE) or callable(each.default):
            raise ConfigError(
                f"expected a parameter that is {REAL} or {POSITIVE}, with a prior as default, "
                f"found {each.name!r}, {each.support}: change it"
            )
        if each.per_feature and not each.n_linear and n_features is None:
            raise ConfigError(
                f"expected n_features with a parameter for each feature that is no coefficient, "
                f"found none with {each.name!r}: give the number of columns"
            )
    if any(b.n_linear and not a.n_linear for a, b in pairwise(parameters)):
        raise ConfigError(
            f"expected the coefficients first, found {', '.join(each.name for each in parameters)}"
            ": give them in the order of theta, which begins with its linear predictors"
        )
    kinds = sorted({each.exponential for each in parameters if each.exponential})
    if len(kinds) > 1:
        raise ConfigError(
            f"expected one meaning of the exponentials, found {' and '.join(kinds)}: leave all "
            "but one out"
        )


_KEYS: Final = (
    *("name", "log_density", "response", "mean", "simulate", "exponential", "where"),
    *("locations", "scales"),
)
_MOST_BYTES: Final = 100_000
_MOST_NAME: Final = 200


def from_file(path: str) -> Callable[..., TextModel]:
    """Return the builder of the model that a TOML file states, ``build(prior=None)``.

    The file has the texts of ``models.user``: ``log_density``, and of ``name`` (default: that of
    the file), ``response``, ``mean``, ``simulate``, ``exponential``, ``locations``, ``scales`` and
    the table ``where`` those that are needed.

    Raises
    ------
    ConfigError
        If there is no such file, or it states no model.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"over {_MOST_BYTES:,} bytes")
        stated = tomllib.loads(data.decode())
    except (OSError, ValueError, RecursionError) as error:
        found = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"expected a TOML file that states a model at {path!r}, found {found}: check the path, "
            "or the file"
        ) from None
    unknown = [key for key in stated if key not in _KEYS]
    if unknown or "log_density" not in stated:
        found = f"the key {unknown[0]!r}" if unknown else "no log_density"
        raise ConfigError(
            f"expected the keys {', '.join(_KEYS)} in {path!r}, found {found}: correct the file"
        )
    stated.setdefault("name", Path(path).stem)

    def build(prior: PriorOption | None = None) -> TextModel:
        return cast(TextModel, user(prior=prior, **stated))

    return build
