"""Log densities stated as text: their derivatives, their compiled form, and what is refused."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.densities import STATED
from streammc import models
from streammc.errors import ConfigError, ModelError
from streammc.models import check_model, user
from streammc.models.base import POSITIVE, Parameter, predictor
from streammc.models.check import evaluate
from streammc.models.density import FUNCTIONS, Statement
from streammc.models.user_model import from_file
from streammc.priors import half_normal
from streammc.protocols import Rows
from streammc.runs.record import registered_model

WAITS = ("waits", "-eta - y * exp(-eta)")


@pytest.mark.parametrize("name", sorted(STATED))
def test_generated_links_are_those_written_by_hand(name: str) -> None:
    text, scales, where = STATED[name]
    rng = np.random.default_rng(2)
    known = getattr(models, name.replace("-", "_"))()
    made = user(name, text, scales=scales, where=where)
    eta = 2.0 * rng.standard_normal((1 + len(scales), 500))
    y = np.minimum(np.abs(known.simulate(eta, rng)), 1e6) + (name == "gamma") * 1e-3
    expected, found = evaluate(known, eta, y), evaluate(made, eta, y)
    size = np.abs(expected).max(axis=0) + 1.0
    assert np.max(np.abs(found - expected) / size) < 2e-13
    for order in (0, 1):  # each order is a loop of its own
        lower = evaluate(made, eta, y, order)[: 1 + order * len(eta)]
        assert np.max(np.abs(lower - expected[: len(lower)]) / size) < 2e-13


def test_a_wrong_rule_of_a_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = FUNCTIONS["exp"]._replace(first=lambda g, a, v: [g.multiply(g.number(1.01), v)])
    monkeypatch.setitem(FUNCTIONS, "exp", wrong)
    made = user("wrong", "-eta - 1.0 * y * exp(-eta)", simulate="exponential(exp(eta))")
    assert not check_model(made).passed


def test_a_model_of_texts_agrees_with_itself() -> None:
    made = user(
        "waits",
        "log(shape) - log(y) + z - exp(z)",
        scales=["shape"],
        where={"z": "shape * (log(y) - eta)"},
        response="y > 0",
        mean="exp(eta + log_gamma(1 + 1 / shape))",
        simulate="exp(eta) * weibull(shape)",
    )
    report = check_model(made)
    assert report.passed, str(report)
    other = user(
        "waits", made.log_density, scales=["shape"], where=dict(made.where),
        simulate="gamma(1, exp(eta))",
    )  # fmt: skip
    assert not check_model(other).passed  # another distribution than the density
    at = np.array([[0.3, -1.0], [0.0, 0.7]])
    factor = [math.gamma(1.0 + math.exp(-each)) for each in at[1]]
    np.testing.assert_allclose(made.mean(at), np.exp(at[0]) * factor, rtol=1e-13)
    assert made.response_fault(np.array([1.0, 0.0, -1.0, np.nan]))[0].tolist() == [1, 2, 3]  # type: ignore[index]
    assert made.labels(["Intercept"]) == ("beta[Intercept]", "shape")


@pytest.mark.parametrize("options", [{}, {"scales": ["s"], "where": {"v": "s * exp(eta)"}}])
def test_a_model_of_texts_is_made_of_its_description(options: Any) -> None:
    text = WAITS[1] + (" - log(s) * 0 - 0 * v" if options else "")
    made = user("waits", text, response="y > 0", mean="exp(eta)", **options)
    again = registered_model(made.describe())
    assert again.describe() == made.describe()
    assert again.link is made.link
    assert pickle.loads(pickle.dumps(made)) == made
    stated = Parameter("s", support=POSITIVE, default=half_normal(2.0))
    own = user("waits", "-eta / s - y * exp(-eta)", parameters=[predictor(), stated])
    assert registered_model(own.describe()).describe() == own.describe()


def test_start_is_the_best_constant() -> None:
    rng = np.random.default_rng(3)
    y = rng.gamma(4.0, 250.0, 400)
    X = np.c_[np.ones(400), rng.standard_normal(400)]
    rows = Rows(X, y, np.full(400, 0.5), np.ones(400))
    theta = models.inverse_gaussian().start(rows)
    mean = y.mean()
    assert theta[:2] == pytest.approx([np.log(mean) - 0.5, 0.0], abs=1e-4)
    shape = 1.0 / (1.0 / y - 1.0 / mean).mean()
    assert theta[2] == pytest.approx(np.log(shape), abs=1e-3)
    assert user(*WAITS).start(rows)[0] == pytest.approx(np.log(mean) - 0.5, abs=1e-4)


def test_a_density_that_is_no_number_inside_the_support_is_refused() -> None:
    made = user("odd", "log(y - 3) - eta**2", response="y > 0")
    rows = Rows(np.ones((3, 1)), np.array([5.0, 2.0, 4.0]), np.zeros(3), np.ones(3))
    with pytest.raises(ModelError, match="found NaN at the response 2"):
        made.start(rows)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__import__('os').system('true')", 'known names and functions, found "__import__'),
        ("eta.real", "found 'eta.real'"),
        ("(lambda: eta)()", "found '"),
        ("[eta for _ in y]", "found '"),
        ("eta if eta > 0 else y", "compares the response with numbers"),
        ("log_factorial(eta)", "argument 1 of log_factorial"),
        ("exp(eta, y)", "found 'exp"),
        ("digamma(exp(eta)) * y", "derivatives of digamma"),
        ("mu * y", "found 'mu': write it with eta, y"),
        ("eta +", "no complete expression"),
        ("1e999 * eta", "found '"),
        ("9" * 400 + " * eta", "found '999"),
        ("9**9**9**9 + eta", "numbers below 1.8e308"),
        ("1e200 * 1e200 * eta", "numbers below 1.8e308"),
        ("y * eta**1e300", "numbers below 1.8e308"),
        ("True * eta", "found 'True'"),
        ("", "found 0 characters"),
        ("eta + " * 2000 + "eta", "found 12003 characters"),
        ("(" * 90 + "eta" + ")" * 90 + "-" * 70 + "y", "nested over 60 deep"),
        ("y if y > 0 else " * 70 + "eta", "nested over 60 deep"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        user("wrong", text)
    assert found in str(caught.value)
    assert len(str(caught.value)) < 700


def test_names_of_names_are_bounded() -> None:
    deep = {f"a{k}": f"a{k - 1} * a{k - 1} + a{k - 1}" if k else "y + 1" for k in range(60)}
    text = "eta if a59 > 0 else log_factorial(a59)"  # read without a walk of 2^60 paths
    assert user("deep", text, where=deep).link is not None
    rows = {f"a{k}": f"a{k - 1} + {k}" if k else "eta" for k in range(200)}
    out = evaluate(user("long", "a199", where=rows), np.zeros((1, 1)), np.zeros(1))
    assert out[:, 0].tolist() == [199.0 * 100.0, 1.0, 0.0]
    many = {f"a{k}": f"exp(a{k - 1})" if k else "eta" for k in range(700)}
    with pytest.raises(ConfigError, match="at most 600 operations, found 70"):
        user("many", "a699", where=many)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"response": "y"}, "condition of the response y, found 'y'"),
        ({"response": "y > eta"}, "found 'eta'"),
        ({"response": "y is 0"}, "found 'y is 0'"),
        ({"mean": "exp(nu)"}, "mean response of known names and functions, found 'nu'"),
        ({"simulate": "normal(eta)"}, "found 'normal(eta)'"),
        ({"simulate": "bytes(10, 3)"}, "found 'bytes(10, 3)'"),
        ({"simulate": "y + normal(eta, 1)"}, "found 'y + normal(eta, 1)'"),
        ({"simulate": "normal(eta, 1) + normal(eta, 1)"}, "of one distribution"),
        ({"simulate": "exp(eta) * nu * weibull(2)"}, "simulated response of known names"),
        ({"mean": np.exp}, "found mean otherwise"),
        ({"mean": "y * eta"}, "found the response y in 'y * eta'"),
        ({"simulate": "normal(y, 1)"}, "found the response y"),
        ({"where": {"a": ["eta"]}}, "expected the expression of 'a' as text"),
        ({"exponential": 7}, "meaning of an exponential as text, found 7"),
        ({"locations": "ab"}, "expected a list of names of parameters, found 'ab'"),
        ({"scales": 3}, "expected a list of names of parameters, found 3"),
        ({"where": {"y": "eta"}}, "expected a new name in the log density, found 'y'"),
        ({"scales": ["exp"]}, "expected a new name in the log density, found 'exp'"),
        ({"link": print}, "leave out link"),
        ({"start": print}, "leave out start"),
    ],
)
def test_what_stands_beside_a_density_is_checked(options: Any, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        user("wrong", "-eta - y * exp(-eta)", **options)
    assert found in str(caught.value)


def test_what_all_rows_share_is_computed_once() -> None:
    text = Statement(
        "log_gamma(s) + y * eta", (predictor(), Parameter("s", support=POSITIVE))
    ).source("Title.")
    loop = text[text.index("for i in") :]
    assert text.count("log_gamma(") == 3  # in each of the three orders, behind the condition
    assert loop.index("last0 = eta[1, i]") < loop.index("log_gamma(")


def test_a_comment_in_a_text_is_text() -> None:
    odd = user("odd", WAITS[1] + ' # \\x \\N{} """ """\\')
    assert (
        odd.link(np.zeros((1, 1)), np.zeros((0, 1)), np.ones(1), np.zeros(0), 0, np.zeros((3, 1)))
        is None
    )


def test_a_branch_without_a_predictor_keeps_nan() -> None:
    made = user("flat", "0 if y == 0 else -eta - y * exp(-eta)")
    out = evaluate(made, np.array([[np.nan, 0.0]]), np.zeros(2))
    assert np.isnan(out[:, 0]).all()
    assert out[:, 1].tolist() == [0.0, 0.0, 0.0]


def test_a_file_states_a_model(tmp_path: Path) -> None:
    path = tmp_path / "waits.toml"
    path.write_text('log_density = "-eta - y * exp(-eta)"\nresponse = "y > 0"\n')
    made = from_file(str(path))()
    assert made.name == "waits"
    assert made.link is user(*WAITS).link
    for text, found in (
        ("log_density = 3", "found 3"),
        ('log_density = "eta"\ncolour = 1', "found the key 'colour'"),
        ('name = "x"', "found no log_density"),
        ("log_density = ", "Invalid value"),
        ("log_density = ['eta']", "found ['eta']"),
        ('log_density = "eta"\nname = ""', "expected the name of the model"),
        ('log_density = "eta"\nname = "two\\nlines"', "expected the name of the model"),
        ("#" * 200_000, "over 100,000 bytes"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            from_file(str(path))()
        assert found in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        from_file(str(tmp_path / "nowhere.toml"))
