from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import pytest

import streammc
from streammc.numerics import dispatchers, numba_internals

PACKAGE = Path(streammc.__file__).resolve().parent
CODE = "from streammc.numerics.dispatchers import cache_dir; print(cache_dir())"
LISTEN = """
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
"""
FUNCTIONS = {
    "helper": """
        from streammc.numerics.jit import inline
        @inline
        def increase(x):
            return x + 1.0
    """,
    "caller": """
        from streammc.numerics.jit import f8, jit, types
        from streammc.{0} import increase
        @jit(f8(f8))
        def twice(x):
            return 2.0 * increase(x)
        @jit(f8(types.FunctionType(f8(f8)), f8))
        def apply(f, x):
            return f(x)
        @jit(types.int64(types.int64))
        def factorial(n):
            if n < 2:
                return 1
            return n * factorial(n - 1)
    """,
    "other": """
        from streammc.numerics.jit import f8, jit
        @jit(f8(f8))
        def thrice(x):
            return 3.0 * x
    """,
}


def printed(code: str, base: Path, **environment: str) -> str:
    """Return what a fresh process prints whose compiled code is kept in ``base``."""
    finished = subprocess.run(
        [sys.executable, "-c", LISTEN + textwrap.dedent(code)],
        env={**os.environ, "STREAMMC_CACHE_DIR": str(base), **environment},
        cwd=base,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def cache_folder(base: Path, **environment: str) -> Path:
    """Return the folder of compiled code in a fresh process."""
    return Path(printed(CODE, base, **environment))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package named streammc with three modules of functions, which a test may edit."""
    package = tmp_path / "sources" / "streammc"
    shutil.copytree(PACKAGE / "numerics", package / "numerics")
    for name in ("first_use.py", "protocols.py", "errors.py"):
        shutil.copy(PACKAGE / name, package)
    (package / "__init__.py").touch()
    for name, text in FUNCTIONS.items():
        (package / f"{name}.py").write_text(textwrap.dedent(text.replace("{0}", "helper")))
    return package


def using(package: Path, code: str, before: str = "", cache: Path | None = None) -> str:
    code = f"{before}\nfrom streammc import caller, other\n" + textwrap.dedent(code)
    cache = cache or package.parent.parent / "cache"
    cache.mkdir(exist_ok=True)
    environment = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return printed(code, cache, **environment)


def test_machine_code_of_two_processors_is_kept_apart(tmp_path: Path) -> None:
    generic = cache_folder(tmp_path, NUMBA_CPU_NAME="generic")
    nehalem = cache_folder(tmp_path, NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES="+sse4.2")
    assert generic == cache_folder(tmp_path, NUMBA_CPU_NAME="generic")
    assert generic != nehalem
    assert {tmp_path / "streammc"} == {generic.parent, nehalem.parent}
    assert generic.stat().st_mode & 0o777 == 0o700


def test_importing_compiles_nothing(tmp_path: Path) -> None:
    code = """
        import sys
        import streammc.samplers.hamiltonian.transition, streammc.models.glm.poisson_log
        import streammc.control_variates.full_pass.block_kernel, streammc.numerics.prior
        print(compiled, "numba" in sys.modules)
        streammc.numerics.prior.outside.ready()
        print(compiled)
    """
    assert printed(code, tmp_path).splitlines() == ["[] True", "['outside']"]


USE = "print(caller.twice(3.0), other.thrice(3.0), compiled)"


def test_functions_are_compiled_once_at_their_first_use_and_loaded_later(package: Path) -> None:
    assert using(package, USE) == "8.0 9.0 ['twice', 'increase', 'thrice']"
    assert using(package, USE) == "8.0 9.0 []"


def test_an_edit_in_another_file_recompiles_what_imports_it_and_nothing_else(
    package: Path,
) -> None:
    using(package, USE)
    helper = package / "helper.py"
    helper.write_text(helper.read_text().replace("x + 1.0", "x - 1.0"))
    assert using(package, USE) == "4.0 9.0 ['twice', 'increase']"
    assert using(package, USE) == "4.0 9.0 []"


@pytest.mark.slow
def test_an_edit_two_imports_away_recompiles(package: Path) -> None:
    (package / "values.py").write_text("STEP = 1.0\n")
    text = textwrap.dedent(FUNCTIONS["helper"]).replace("1.0", "STEP")
    (package / "helper.py").write_text("from streammc.values import STEP\n" + text)
    assert using(package, USE).startswith("8.0")
    (package / "values.py").write_text("STEP = 2.0\n")
    assert using(package, USE) == "10.0 9.0 ['twice', 'increase']"


@pytest.mark.slow
def test_an_edit_after_the_import_does_not_name_the_code_of_before(package: Path) -> None:
    edit = f"""
        from pathlib import Path
        helper = Path({str(package / "helper.py")!r})
        helper.write_text(helper.read_text().replace("x + 1.0", "x - 1.0"))
    """
    assert using(package, textwrap.dedent(edit) + USE).startswith("8.0")
    assert using(package, USE).startswith("4.0")


def test_only_the_given_signatures_are_compiled(package: Path) -> None:
    code = """
        print(caller.twice(3), caller.twice.ready().signatures)
        try:
            caller.twice("a")
        except TypeError as error:
            print(error)
    """
    first, second = using(package, code).splitlines()
    assert first == "8.0 [(float64,)]"
    assert "No matching definition" in second


def test_a_function_pointer_and_a_recursion_are_uses(package: Path) -> None:
    code = "print(caller.apply(caller.twice, 1.0), caller.factorial(5), sorted(compiled))"
    assert using(package, code) == "4.0 120 ['apply', 'factorial', 'increase', 'twice']"


@pytest.mark.slow
def test_a_new_compiled_function_takes_pointers(package: Path) -> None:
    code = """
        from numba import njit
        from streammc.numerics.jit import f8, types
        typed = njit(f8(types.FunctionType(f8(f8)), f8))(lambda f, x: f(x) + 1.0)
        untyped = njit(lambda f, x: caller.apply(f, x) + 1.0)
        print(typed(caller.twice, 1.0), untyped(caller.twice, 2.0), untyped(caller.twice, 3.0))
    """
    assert using(package, code) == "5.0 7.0 9.0"
    assert using(package, code) == "5.0 7.0 9.0"


def test_two_threads_at_once_compile_once(package: Path) -> None:
    code = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        barrier = threading.Barrier(4)
        def use(i):
            barrier.wait()
            return caller.apply(caller.twice, float(i)) if i % 2 else caller.twice(i)
        with ThreadPoolExecutor(4) as pool:
            print(list(pool.map(use, range(4))), sorted(compiled))
    """
    assert using(package, code) == "[2.0, 4.0, 6.0, 8.0] ['apply', 'increase', 'twice']"


def test_a_failed_compilation_is_tried_again(package: Path) -> None:
    (package / "helper.py").write_text("increase = None\n")
    code = """
        for attempt in range(2):
            try:
                caller.twice(1.0)
            except Exception as error:
                print(type(error).__name__)
    """
    assert using(package, code).splitlines() == ["TypingError"] * 2


def test_a_function_inherits_nothing_from_the_leaf_that_uses_it_first(package: Path) -> None:
    (package / "inherit.py").write_text(
        textwrap.dedent(
            """
            from streammc.numerics.jit import f8, inline, jit
            @jit(f8(f8, f8))
            def inner(x, y):
                return x + y
            @inline
            def leaf(x, y):
                return inner(x, y) - y
            @jit(f8(f8, f8), reassociate=True, borrow=True)
            def outer(x, y):
                return leaf(x, y)
            """
        )
    )
    code = """
        from streammc import inherit
        inherit.outer(1.0, 2.0)
        text = "".join(inherit.inner.inner().inspect_llvm().values())
        print("fadd double" in text, "reassoc" in text, "alwaysinline" in text)
    """
    assert using(package, code) == "True False False"


CALLERS = """
    from streammc import caller, helper
    from streammc.numerics.jit import f8, jit, types
    twice, increase, factorial = caller.twice, helper.increase, caller.factorial
    @jit(f8(f8))
    def four_times(x):
        return 2.0 * twice(x)
    @jit(types.int64(types.int64))
    def next_factorial(n):
        return factorial(n) + 1
"""


def test_a_function_under_a_compiled_caller_has_no_machine_code_of_its_own(
    package: Path,
) -> None:
    (package / "callers.py").write_text(textwrap.dedent(CALLERS))
    code = """
        from numba.core.codegen import JITCodeLibrary
        emitted = []
        emit = JITCodeLibrary._finalize_specific
        def count(self):
            emitted.append(self.name)  # the first is of numba's own functions
            emit(self)
        JITCodeLibrary._finalize_specific = count
        from streammc import callers
        print(callers.four_times(1.0), emitted, caller.twice.inner().signatures, sorted(compiled))
        print(list(caller.twice.inner().inspect_llvm().values())[0].count("define "))
        print(caller.twice(1.0), emitted)
    """
    first, second, third = using(package, code).splitlines()
    assert first == "8.0 ['nrt', 'four_times'] [(float64,)] ['four_times', 'increase', 'twice']"
    assert second == "1"  # no wrapper for calls from Python, none for function pointers
    assert third == "4.0 ['nrt', 'four_times', 'twice']"


REFRESH = """
from numba.core.base import BaseContext
plain = BaseContext.refresh
BaseContext.refresh = lambda context: (print("prepared"), plain(context))
"""


def test_loading_prepares_no_compilation(package: Path) -> None:
    code = REFRESH + "print(caller.apply(caller.twice, 3.0), caller.factorial(5))"
    first = using(package, code).splitlines()
    assert "prepared" in first
    assert first[-1] == "8.0 120"
    assert using(package, code) == "8.0 120"


def test_a_new_compiled_function_may_call_a_loaded_one(package: Path) -> None:
    using(package, USE)
    code = """
        from numba import njit
        print(caller.twice(3.0), compiled)
        print(njit(lambda x: caller.twice(x) + 1.0)(3.0))
        print(compiled)
    """
    assert using(package, code).splitlines() == [
        "8.0 []",
        "9.0",
        "['<lambda>', 'twice', 'increase']",
    ]


@pytest.mark.slow
def test_the_copy_for_compiled_callers_is_cached(package: Path) -> None:
    (package / "callers.py").write_text(textwrap.dedent(CALLERS))
    code = "from streammc import callers\nprint(callers.four_times(1.0), sorted(compiled))"
    assert using(package, code) == "8.0 ['four_times', 'increase', 'twice']"
    (package / "callers.py").write_text(textwrap.dedent(CALLERS).replace("2.0 *", "3.0 *"))
    assert using(package, code) == "12.0 ['four_times']"


def test_a_compiled_caller_may_call_a_recursion(package: Path) -> None:
    (package / "callers.py").write_text(textwrap.dedent(CALLERS))
    code = "from streammc import callers\nprint(callers.next_factorial(5), sorted(compiled))"
    assert using(package, code) == "121 ['factorial', 'next_factorial']"


def test_a_leaf_can_be_called_from_python(package: Path) -> None:
    assert using(package, "from streammc import helper\nprint(helper.increase(1.0))") == "2.0"


@pytest.mark.slow
def test_checkouts_with_the_same_sources_share_their_code(package: Path, tmp_path: Path) -> None:
    using(package, USE)
    other = tmp_path / "elsewhere" / "streammc"
    shutil.copytree(package, other)
    for source in other.rglob("*.py"):
        os.utime(source, (1.0, 1.0))
    assert using(other, USE, cache=tmp_path / "cache") == "8.0 9.0 []"
    helper = other / "helper.py"
    helper.write_text(helper.read_text().replace("x + 1.0", "x - 1.0"))
    assert using(other, USE, cache=tmp_path / "cache").startswith("4.0 9.0 ['twice'")
    assert using(package, USE) == "8.0 9.0 []"


def test_private_classes_fit_this_numba() -> None:
    release = numba.__version__.rpartition(".")[0]
    assert release in numba_internals.HOLDS, "pass these tests with it, and name it in HOLDS"
    assert dispatchers.INTERNALS is numba_internals


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(
            "import numba, numba.core.codegen; del numba.core.codegen.JITCodeLibrary",
            marks=pytest.mark.slow,
        ),
        "from numba.core.codegen import CPUCodeLibrary; del CPUCodeLibrary.serialize_using_bitcode",
        pytest.param("import numba; numba.__version__ = '0.99.0'", marks=pytest.mark.slow),
    ],
    ids=["class", "method", "release"],
)
def test_a_numba_that_does_not_fit_compiles_by_its_own_means(package: Path, lost: str) -> None:
    use = """
        from streammc import helper
        from streammc.numerics import dispatchers
        print(caller.twice(3.0), caller.apply(caller.twice, 1.0), caller.factorial(5),
              helper.increase(1.0), dispatchers.INTERNALS)
        print(sorted(set(compiled)))
    """
    first, names = using(package, use, lost).splitlines()
    assert first == "8.0 4.0 120 2.0 None"
    assert names == "['apply', 'factorial', 'increase', 'twice']"
    assert using(package, use, lost).splitlines() == [first, "['increase']"]
    helper = package / "helper.py"
    helper.write_text(helper.read_text().replace("x + 1.0", "x - 1.0"))
    assert using(package, USE, lost) == "4.0 9.0 ['twice', 'increase', 'thrice']"


def decorations() -> dict[tuple[str, str], tuple[str, set[tuple[str, str]]]]:
    """Return decorator and callees of every compiled function, by module and name."""
    found = {}
    for source in [*PACKAGE.rglob("*.py"), *(PACKAGE / "stores").rglob("*.py")]:
        text = source.read_text()
        if "@inline" not in text and "@jit(" not in text:
            continue
        tree = ast.parse(text)
        module = ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)
        origin = {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                called = {
                    origin.get(call.func.id, (module, call.func.id))
                    for call in ast.walk(node)
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                }
                found[module, node.name] = (ast.unparse(node.decorator_list[0]), called)
    return found


def test_arithmetic_of_a_leaf_does_not_depend_on_who_calls_it_first() -> None:
    functions = decorations()
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {name: set() for name in functions}
    for name, (_, called) in functions.items():
        for callee in called & callers.keys():
            callers[callee].add(name)

    bare = ("inline", "inline(composition=True)")

    def arithmetic(name: tuple[str, str]) -> set[bool]:
        decorator = functions[name][0]
        if decorator not in bare:
            return {"reassociate=True" in decorator}
        return set().union(*(arithmetic(caller) for caller in callers[name] - {name}))

    leaves = [name for name, (decorator, _) in functions.items() if decorator in bare]
    assert len(leaves) > 80
    assert [] == [name for name in leaves if len(arithmetic(name)) > 1]


def imported(tree: ast.AST) -> set[str]:
    """Return the names of all modules that a tree imports, or may."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import is not searched for"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_imports_that_are_searched_for_are_those_that_python_sees() -> None:
    sources = sorted(PACKAGE.rglob("*.py")) + sorted((PACKAGE / "stores").rglob("*.py"))
    assert len(sources) > 200
    for source in sources:
        text = source.read_text()
        expected = {dispatchers._file(name) for name in imported(ast.parse(text))} - {None}
        assert expected <= dispatchers.imported_files(text), source


def test_compile_ahead_makes_ready_what_a_module_names(tmp_path: Path) -> None:
    code = """
        from streammc.numerics.compile_ahead import compile_ahead, compiled_modules
        assert "streammc.models.glm.binomial_logit" in compiled_modules()
        assert "streammc.stores.rows.row_source" in compiled_modules()
        import streammc.models.glm.binomial_logit
        before = len(compiled)
        compile_ahead("streammc.models.glm.binomial_logit")
        print(before, bool(compiled))
    """
    assert "0 True" == printed(code, tmp_path)
