"""The bench of silent errors: its reference posteriors are right, and it catches wrong draws."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from crossed_tables import SAMPLERS_OF_ROWS
from scipy import optimize, special, stats

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import silent
        import silent_cases
        import silent_densities
        import silent_references
        import silent_verdict

        yield SimpleNamespace(
            command=silent, cases=silent_cases, densities=silent_densities,
            references=silent_references, verdict=silent_verdict,
        )  # fmt: skip
    for name in [name for name in sys.modules if name.startswith("silent")]:
        sys.modules.pop(name)


def draws_from(reference, shift=0.0, stretch=1.0, seed=1):
    """Four chains of independent normal draws with the reference's moments, or others."""
    z = np.random.default_rng(seed).standard_normal((4, 1000, len(reference.labels)))
    return reference.mean + reference.sd * (shift + stretch * z)


@pytest.fixture(scope="module")
def normal_reference(bench):
    values = stats.norm.ppf(np.linspace(0.0005, 0.9995, 1000))[:, None] * [2.0, 0.3] + [1.0, 5.0]
    weight = np.full(1000, 1e-3)
    return bench.references.weighted(("beta[x0]", "sigma"), values, weight, False, "by hand")


def verdict(bench, reference, draws, warnings=(), **options):
    found = bench.verdict.deviations(reference, draws, np.ones(draws.shape[:2]), **options)
    return bench.verdict.judge(found, list(warnings))


def test_draws_from_the_reference_are_right(bench, normal_reference):
    assert verdict(bench, normal_reference, draws_from(normal_reference)).word == "right"


@pytest.mark.parametrize("wrong", [{"shift": 0.5}, {"stretch": 0.7}, {"stretch": 1.4}])
def test_a_wrong_mean_or_sd_is_silent_unless_a_line_says_so(bench, normal_reference, wrong):
    draws = draws_from(normal_reference, **wrong)
    assert verdict(bench, normal_reference, draws).word == "SILENT"
    said = ["largest r_hat is 1.400, above 1.01: draw more"]
    assert verdict(bench, normal_reference, draws, said).word == "warned"
    beside = ["runs of 16 rows have design effect 3.0, above 2: the rows are ordered"]
    assert verdict(bench, normal_reference, draws, beside).word == "SILENT"


def test_a_heavy_tail_with_the_right_moments_is_silent(bench, normal_reference):
    z = np.random.default_rng(3).standard_t(2.5, (4, 1000, 2))
    draws = normal_reference.mean + normal_reference.sd * (z / z.std())
    assert verdict(bench, normal_reference, draws).word == "SILENT"


def test_a_stuck_chain_is_not_excused_by_its_standard_error(bench, normal_reference):
    walk = np.cumsum(np.random.default_rng(2).standard_normal((1, 1000, 2)), axis=1) / 300.0
    draws = normal_reference.mean + normal_reference.sd * (1.0 + walk)
    assert verdict(bench, normal_reference, draws).word == "SILENT"


def test_draws_that_are_not_finite_are_silent(bench, normal_reference):
    draws = draws_from(normal_reference)
    draws[0, 0, 0] = np.nan
    assert verdict(bench, normal_reference, draws).word == "SILENT"


def test_a_line_that_every_run_of_a_sampler_prints_warns_of_nothing(bench, normal_reference):
    line = "mh could not tell the error of 12 % of its decisions: their terms are too few"
    runs = [{"sampler": "mh", "warnings": [line.replace("12", str(n))]} for n in (3, 40, 7)]
    standing = bench.command.standing_lines(runs)["mh"]
    found = bench.verdict.deviations(
        normal_reference, draws_from(normal_reference, 0.5), np.ones((4, 1000))
    )
    assert bench.verdict.judge(found, [line]).word == "warned"
    assert bench.verdict.judge(found, [line], standing).word == "SILENT"
    assert bench.command.standing_lines(runs[:2])["mh"] == frozenset()


def test_label_switching_line_does_not_excuse_parameters_without_labels(bench, normal_reference):
    line = "the components may be exchanged: the chains are at one of 2 modes; use pt"
    free = bench.references.Reference(
        **{**vars(normal_reference), "labels": ("mu[0]", "any mean 0")}
    )
    draws = draws_from(free)
    draws[:, :, 0] += 3.0
    assert verdict(bench, free, draws, [line]).word == "warned"
    draws[:, :, 1] += 3.0
    assert verdict(bench, free, draws, [line]).word == "SILENT"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("mixing", "largest r_hat is 1.200 (sigma), above 1.01: 4 chains do not agree; look for "
         "several modes with pt"),
        ("mixing", "only 3 states came from the prior level down to level 0 in 4 chains"),
        ("modes", "the posterior has other modes of comparable evidence: sigma 144"),
        ("conflict", "the prior is in conflict with the data: theta_star has x1 at 3"),
        ("audit", "the audit corrects a mean by 0.30 posterior sd, above 0.1"),
        ("temperature", "remedy=heat raised the temperature in the warm-up, to 2.1"),
        (None, "not audited: it would take 130 s, the sampling took 2 s; streammc audit run"),
        (None, "the likelihood has rank 2 of 3, and the prior alone decides about x1"),
        (None, "the prior alone keeps x1 from running away: columns tell the response"),
        (None, "12 % of the decisions looked at all rows, or were skipped"),
        (None, "default priors, scaled with the data: x1 normal(0, 2.5); fix them with --prior"),
    ],
)  # fmt: skip
def test_only_lines_on_the_draws_themselves_are_warnings(bench, kind, line):
    assert bench.verdict.kind_of_line(line) == kind


def test_signed_draws_are_weighted_by_their_sign(bench, normal_reference):
    right, wrong = draws_from(normal_reference), draws_from(normal_reference, 6.0, seed=5)[:, :50]
    order = np.random.default_rng(1).permutation(1100)
    draws = np.concatenate([right, wrong, wrong], axis=1)[:, order]
    sign = np.repeat([[1.0, -1.0]], [1050, 50], axis=1)[:, order] * np.ones((4, 1))
    assert verdict(bench, normal_reference, draws).word == "SILENT"
    found = bench.verdict.deviations(normal_reference, draws, sign)
    assert bench.verdict.judge(found, []).word == "right"


def test_predicted_bias_of_a_biased_sampler_is_allowed(bench, normal_reference):
    summary = {
        "sampling": {
            "target": "biased",
            "predicted_variance_ratio": {"beta[x0]": 1.4**2, "sigma": 1.4**2},
        }
    }
    draws = draws_from(normal_reference, stretch=1.4)
    allowance = bench.verdict.allowance_of(summary)
    assert verdict(bench, normal_reference, draws, allowance=allowance).word == "right"
    assert verdict(bench, normal_reference, draws_from(normal_reference, 0.5)).word == "SILENT"


def test_verdict_reports_a_defect_and_an_improper_posterior(bench):
    judged = bench.command.verdict_of
    found = {"error": "expected finite draws", "exit_code": 70, "deviations": [], "warnings": []}
    assert judged(found, frozenset()).word == "crashed"
    assert judged({**found, "exit_code": 65}, frozenset()).word == "refused"
    assert judged({**found, "error": ""}, frozenset()).word == "SILENT"


def test_quadrature_agrees_with_the_conjugate_normal(bench):
    rng = np.random.default_rng(4)
    X, covariance = 3.0 + rng.standard_normal((7, 2)), np.array([[1.0, 0.5], [0.5, 2.0]])
    target = bench.densities.posterior(
        "gaussian-mean", {"X": X}, {"*": "normal(1, 2)"}, {"covariance": covariance}
    )
    found = bench.references.reference_of(target)
    precision = np.eye(2) / 4.0 + 7.0 * np.linalg.inv(covariance)
    exact = np.linalg.inv(precision)
    mean = exact @ (np.full(2, 0.25) + 7.0 * np.linalg.solve(covariance, X.mean(axis=0)))
    sd = np.sqrt(np.diag(exact))
    assert np.abs(found.mean - mean).max() < 1e-6
    assert np.abs(found.sd - sd).max() < 1e-6
    assert np.abs(found.tails - (mean + np.array([[-1.0], [1.0]]) * 1.6448536 * sd)).max() < 2e-3


def test_the_poisson_rate_under_a_log_gamma_prior_is_a_gamma(bench):
    prior = stats.gamma(2.0, scale=1.0 / 3.0)
    target = bench.densities.posterior(
        "poisson", {"X": np.ones((3, 1)), "y": [4.0, 0.0, 2.0]}, {"*": "normal(0, 1)"}
    )
    swapped = SimpleNamespace(
        logpdf=lambda t: prior.logpdf(np.exp(np.minimum(t, 700.0))) + t,
        rvs=lambda size, random_state: np.log(prior.rvs(size, random_state=random_state)),
    )
    target = bench.densities.Posterior(**{**vars(target), "priors": (swapped,)})
    found = bench.references.reference_of(target)
    mean = special.digamma(8.0) - np.log(6.0)
    assert abs(found.mean[0] - mean) < 1e-6
    assert abs(found.sd[0] - np.sqrt(special.polygamma(1, 8.0))) < 1e-6
    tails = np.log(stats.gamma(8.0, scale=1.0 / 6.0).ppf([0.05, 0.95]))
    assert np.abs(found.tails[:, 0] - tails).max() < 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gaussian_reference_agrees_with_quadrature(bench, weighted):
    rng = np.random.default_rng(6)
    data = {"X": np.ones((12, 1)), "y": 30.0 + rng.standard_normal(12)}
    if weighted:
        data["weight"] = np.resize([0.0, 0.5, 2.0], 12)
    prior = {"*": "normal(0, 10)", "sigma": "half_student_t(3, 10)"}
    closed = bench.references.gaussian_reference(data, prior)
    found = bench.references.reference_of(bench.densities.posterior("gaussian", data, prior))
    assert np.abs((found.mean - closed.mean) / closed.sd).max() < 1e-5
    assert np.abs(found.sd / closed.sd - 1.0).max() < 1e-5
    assert np.abs((found.tails - closed.tails) / closed.sd).max() < 5e-3


def test_the_gaussian_reference_has_the_evidence_of_sigma_where_columns_are_collinear(bench):
    rng = np.random.default_rng(7)
    x = 1e4 + rng.standard_normal(15)
    data = {"X": np.column_stack([np.ones(15), x]), "y": x - 1e4 + rng.standard_normal(15)}
    prior = {"*": "normal(0, 10)", "sigma": "gamma(2, 1)"}
    found = bench.references.gaussian_reference(data, prior)

    def log_density(t):
        covariance = 100.0 * data["X"] @ data["X"].T + np.exp(2.0 * t) * np.eye(15)
        root = np.linalg.cholesky(covariance)
        z = np.linalg.solve(root, data["y"])
        return -0.5 * z @ z - np.log(np.diag(root)).sum() + 2.0 * t - np.exp(t)

    grid = np.linspace(found.mean[-1] - 2.0, found.mean[-1] + 2.0, 2001)
    log_weight = np.array([log_density(t) for t in grid])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert weight @ grid == pytest.approx(found.mean[-1], abs=1e-4)
    assert np.sqrt(weight @ (grid - weight @ grid) ** 2) == pytest.approx(found.sd[-1], rel=1e-3)


def test_masses_of_a_mixture_are_those_of_an_enumeration(bench):
    x = np.array([-3.0, -2.5, 2.0, 2.6, 3.1])
    prior = {"mu[0, x0]": "normal(1, 2)", "mu[1, x0]": "normal(0, 2)"}
    target = bench.densities.posterior(
        "gaussian-mixture", {"X": x[:, None]}, prior, {"components": 2, "variance": 1.0}
    )
    found = bench.references.reference_of(target, bench.cases.by_order(2))
    # Every assignment of rows to components has a normal posterior in closed form.
    log_mass, first, ordered = [], [], []
    for assigned in np.ndindex(*[2] * 5):
        total, centre, spread = 0.0, [], []
        for k, location in enumerate((1.0, 0.0)):
            own = x[np.array(assigned) == k]
            covariance = np.eye(len(own)) + 4.0
            total += stats.multivariate_normal(np.full(len(own), location), covariance).logpdf(
                own
            ) if len(own) else 0.0  # fmt: skip
            precision = 0.25 + len(own)
            centre.append((0.25 * location + own.sum()) / precision)
            spread.append(1.0 / precision)
        log_mass.append(total)
        first.append(centre[0])
        ordered.append(stats.norm.cdf((centre[1] - centre[0]) / np.sqrt(sum(spread))))
    mass = np.exp(np.array(log_mass) - max(log_mass))
    mass /= mass.sum()
    at = found.labels.index
    assert found.mean[at("mu[0, x0]")] == pytest.approx(mass @ first, abs=1e-6)
    assert found.mean[at("is 01")] == pytest.approx(mass @ ordered, abs=2e-3)
    assert found.mean[at("is 01")] + found.mean[at("is 10")] == pytest.approx(1.0)


def test_importance_sampling_estimates_its_own_error(bench):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((6, 3))
    target = bench.densities.posterior("gaussian-mean", {"X": X}, {"*": "normal(0, 1)"})
    found = bench.references.reference_of(target, draws=20_000)
    exact = X.sum(axis=0) / 7.0
    assert np.abs((found.mean - exact) / found.mean_error).max() < 4.5
    assert np.abs((found.sd - 7.0**-0.5) / found.sd_error).max() < 4.5
    assert found.mean_error.max() < 0.02


def test_integration_includes_a_spike_beside_the_main_mass(bench):
    rng = np.random.default_rng(9)
    x = rng.standard_normal(200)
    y = (rng.random(200) < special.expit(0.8 * x)).astype(float)
    prior = stats.t(3, 0.0, 0.001)
    target = bench.densities.posterior(
        "logistic", {"X": x[:, None], "y": y}, {"*": "student_t(3, 0, 0.001)"}
    )
    found = bench.references.reference_of(target)
    fine = np.concatenate([np.linspace(-0.05, 0.05, 20_001), np.linspace(0.05, 2.0, 4001)[1:]])
    width = np.gradient(fine)
    log_likelihood = target.log_likelihood(fine[:, None])
    top = optimize.minimize_scalar(lambda b: -target.log_likelihood(np.array([[b]]))[0]).fun
    weight = width * np.exp(log_likelihood + top + prior.logpdf(fine))
    weight /= weight.sum()
    assert found.mean[0] == pytest.approx(weight @ fine, abs=1e-4)
    assert 0.1 < weight[fine > 0.1].sum() < 1.0


def test_cases_name_every_family_and_sampler(bench):
    from streammc.registry import MODELS

    cases = bench.cases.cases()
    assert len(cases) >= 60
    assert {case.family for case in cases.values()} == set(MODELS)
    assert {case.sampler for case in cases.values()} == {"auto", *SAMPLERS_OF_ROWS}


def test_data_of_a_case_depend_on_its_name_alone(bench):
    cases = bench.cases.cases()
    for name, case in cases.items():
        one, other = (bench.cases.data_of(name, case) for _ in range(2))
        assert all(np.array_equal(one[key], other[key]) for key in one)
