# ruff: noqa: E501
"""What was found out about changes that no test had caught: ``mutations.py`` reads it.

A change is named as ``Mutation.key`` names it; these are of the seed of the results.
"""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "streammc/likelihood/contiguous_rows.py: _SLICE = 8192 => _SLICE = 8191": "how many rows are gathered at once: each is copied to its place",
    "streammc/likelihood/target.py (2): np.zeros(m), => np.ones(m),": "scratch: the weights of the units in use are written before they are read",
    "streammc/samplers/metropolis/mh_austere.py: best, least = -1, size => best, least = -2, size": "whoever asks looks for a negative number",
    "streammc/samplers/metropolis/mh_austere.py: at = np.zeros(n_nodes)  # z_k; before the first look all mass is at z = 0 => at = np.ones(n_nodes)  # z_k; before the first look all mass is at z = 0": "before the first look the positions are multiplied by `rho = 0`",
    "streammc/samplers/metropolis/mh_austere.py: _REACH: Final = 8.5 => _REACH: Final = 8.585": "a normal tail beyond 8.5 is below 1e-17",
    "streammc/samplers/metropolis/correction.py: for tolerance in (1e-10, 1e-7):  # below sigma = 0.5 the first is not always reached => for tolerance in (1e-10, 1.0099999999999999e-07):  # below sigma = 0.5 the first is not always reached": "the same vertex: at `sigma` 0.3, 0.4 and 0.45 the cells have the same bits",
    "streammc/samplers/metropolis/options.py: np.ascontiguousarray(cv.factor) if _laplace(sampler) else np.zeros((0, 0)), => np.ascontiguousarray(cv.factor) if _laplace(sampler) else np.zeros((0, 1)),": "an empty matrix: only its number of rows is read",
    "streammc/samplers/tempering/transition_kernel.py: rows = np.zeros(len(self.own.y), dtype=np.int64) => rows = np.ones(len(self.own.y), dtype=np.int64)": "scratch: `choose` writes the row of every place before it is read",
}
"""Changes without any effect on a result, with the reason."""
TESTS: Final[dict[str, str]] = {
    "streammc/likelihood/estimators.py: p, size = step.shape[0], expansion.shape[0] => p, size = step.shape[0], expansion.shape[1]": "tests/likelihood/test_blocks.py::test_a_block_without_pairs_is_not_read_beyond_its_end",
    "streammc/likelihood/estimators.py: c = slope[a, lo + i] => c = slope[a, lo - i]": "tests/likelihood/test_difference_estimator.py::test_gradient_of_more_columns_than_are_summed_in_one_sweep_matches_central_differences",
    "streammc/likelihood/pass_cost.py: return self.subset_rows < min(self.n_rows, 10 * self.dim) => return self.subset_rows <= min(self.n_rows, 10 * self.dim)": "tests/likelihood/test_pass_cost.py::test_ten_rows_in_memory_for_each_parameter_and_all_rows_are_not_few",
    "streammc/likelihood/remainder_pass.py: h = 1 + p => h = 1 - p": "tests/likelihood/test_tiles.py::test_sums_of_remainders_of_several_predictors_are_those_of_their_expansion",
    "streammc/likelihood/remainder_pass.py: half = 0.5 if a == b else 1.0 => half = 0.5 if a == b else 1.01": "tests/likelihood/test_tiles.py::test_sums_of_remainders_of_several_predictors_are_those_of_their_expansion",
    "streammc/likelihood/remainder_pass.py: value[i] -= half * expansion[h, i] * step[a, i] * step[b, i] => value[i] -= half / expansion[h, i] * step[a, i] * step[b, i]": "tests/likelihood/test_tiles.py::test_sums_of_remainders_of_several_predictors_are_those_of_their_expansion",
    "streammc/likelihood/remainder_pass.py: padded = -(-draws // 4) * 4 => padded = -(-draws // 4) * 3": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/samplers/metropolis/acceptance.py: return math.log(u) < delta => return math.log1p(u) < delta": "tests/samplers/metropolis/acceptance/test_moments.py::test_a_uniform_accepts_the_differences_above_its_logarithm_or_its_logit",
    "streammc/samplers/metropolis/clt.py: if carried[DECISIONS] >= _ENOUGH and carried[UNKNOWN] > _COMMON: => if carried[DECISIONS] > _ENOUGH and carried[UNKNOWN] > _COMMON:": "tests/samplers/metropolis/acceptance/test_clt.py::test_twenty_decisions_are_enough_to_know_that_errors_are_unknown",
    "streammc/samplers/metropolis/mint.py: THIRD_ORDER_WARNING: Final = 0.1 => THIRD_ORDER_WARNING: Final = 1.1": "tests/samplers/metropolis/test_mint.py::test_estimates_whose_skewness_moves_the_density_by_a_tenth_are_told",
    'streammc/samplers/tempering/parallel_kernel.py: if rates[lowest] < LEAST_SWAPS and "exchanges_accepted" in mean: => if rates[lowest] <= LEAST_SWAPS and "exchanges_accepted" in mean:': "tests/samplers/tempering/test_recorders.py::test_a_rate_of_one_in_ten_is_enough",
    'streammc/samplers/equi_energy/facts.py: levels = (summary.get("tempering") or {}).get("levels", {}) => levels = (summary.get("tempering") and {}).get("levels", {})': "tests/samplers/equi_energy/test_equi_energy.py::test_the_smallest_rate_of_jumps_and_of_steps_is_checked",
    "streammc/samplers/metropolis/mh_sublhd.py: width = half_width(n, size, spread, largest, delta, int(settings[INEQUALITY])) => width = half_width(n, size, largest, spread, delta, int(settings[INEQUALITY]))": "tests/samplers/metropolis/test_mh_sublhd.py::test_the_first_look_decides_where_its_interval_excludes_the_threshold",
    "streammc/samplers/metropolis/mh_sublhd.py: psi = math.log(draws[UNIFORM]) - facts[KNOWN] => psi = math.log(draws[UNIFORM]) + facts[KNOWN]": "tests/samplers/metropolis/test_mh_sublhd.py::test_the_first_look_decides_where_its_interval_excludes_the_threshold",
    "streammc/samplers/metropolis/mh_sublhd.py: reply[VARIANCE] = spread / n * (1.0 - (n - 1.0) / (size - 1.0)) => reply[VARIANCE] = spread / n * (1.0 - (n - 1.01) / (size - 1.0))": "tests/samplers/metropolis/test_mh_sublhd.py::test_the_first_look_decides_where_its_interval_excludes_the_threshold",
    "streammc/samplers/metropolis/mh_austere.py: conservative: bool = True => conservative: bool = False": "tests/samplers/metropolis/test_mh_austere.py::test_the_pair_is_chosen_once_unless_asked_otherwise",
    "streammc/samplers/metropolis/mh_austere.py: while n < last: => while n <= last:": "tests/samplers/metropolis/acceptance/test_sequential_error.py::test_error_and_terms_are_those_of_simulated_paths",
    "streammc/samplers/metropolis/options.py: if sampler.subsampled: => if (not (sampler.subsampled)):": "tests/samplers/metropolis/test_preparation.py::test_first_positions_are_dispersed_unless_control_variates_have_to_fit_there",
    "streammc/samplers/metropolis/options.py: return first, 1.0, None => return first, 2.0, None": "tests/samplers/metropolis/test_preparation.py::test_first_positions_are_dispersed_unless_control_variates_have_to_fit_there",
    "streammc/samplers/metropolis/options.py: return allocate_block(0, dataset.n_features, p, order) => return allocate_block(dataset.n_features, 0, p, order)": "tests/samplers/metropolis/test_preparation.py::test_rows_are_held_in_whole_units_for_tests_that_sweep",
    "streammc/samplers/metropolis/options.py: padded = -(-dataset.n_rows // b) * b => padded = -(dataset.n_rows // b) * b": "tests/samplers/metropolis/test_preparation.py::test_rows_are_held_in_whole_units_for_tests_that_sweep",
    'streammc/samplers/metropolis/options.py: if run.attributes.get("sampler", {}).get("remedy") != "heat" or factor.max() < 1 + _ROUNDING: => if (not (run.attributes.get("sampler", {}).get("remedy") != "heat" or factor.max() < 1 + _ROUNDING)):': "tests/samplers/metropolis/test_preparation.py::test_the_temperature_of_the_draws_is_told_where_a_remedy_raised_it",
    "streammc/samplers/metropolis/loop.py: counts.phase = PROPOSE => pass": "tests/samplers/metropolis/test_metropolis_loop.py::test_terms_and_moments_are_those_of_the_units_drawn",
    "streammc/samplers/metropolis/loop.py (2): values, facts = decision.values[0], decision.facts => values, facts = decision.values[1], decision.facts": "tests/samplers/metropolis/test_metropolis_loop.py::test_terms_and_moments_are_those_of_the_units_drawn",
    'streammc/samplers/tempering/facts.py: if "transition_acceptance" in ladder: => if (not ("transition_acceptance" in ladder)):': "tests/samplers/tempering/test_recorders.py::test_a_ladder_is_checked_by_what_its_summary_has",
    'streammc/samplers/tempering/facts.py: if "restarts" in ladder: => if "restarts" not in ladder:': "tests/samplers/tempering/test_recorders.py::test_a_ladder_is_checked_by_what_its_summary_has",
    "streammc/samplers/tempering/facts.py: if rates: => if (not (rates)):": "tests/samplers/tempering/test_recorders.py::test_a_ladder_is_checked_by_what_its_summary_has",
    "streammc/samplers/tempering/kernel.py: if len(beta) < 3: => if len(beta) <= 3:": "tests/samplers/tempering/test_recorders.py::test_three_levels_are_respaced_and_two_are_not",
    "streammc/samplers/tempering/loop.py: change = scalars[b, LOG_PRIOR] - scalars[a, LOG_PRIOR] => change = scalars[b, LOG_PRIOR] + scalars[a, LOG_PRIOR]": "tests/samplers/tempering/test_swaps.py::test_a_swap_between_powers_compares_likelihoods_and_priors",
    "streammc/samplers/tempering/transition_loop.py: ticket = keys[first + i] * (n - i) => ticket = keys[first + i] / (n - i)": "tests/samplers/tempering/test_excursion.py::test_rows_are_dealt_by_keys_as_many_as_the_subsets_take",
    "streammc/samplers/tempering/transition_loop.py: return len(ladder.lo) < 3 or ladder.lo[1] == ladder.lo[2] => return len(ladder.lo) < 3 or ladder.lo[1] != ladder.lo[2]": "tests/samplers/tempering/test_excursion.py::test_rows_are_dealt_by_keys_as_many_as_the_subsets_take",
    "streammc/samplers/tempering/transition_kernel.py: uniforms = 1.0 - self.swap_rng.random((n, 1))  # never 0 => uniforms = 1.01 - self.swap_rng.random((n, 1))  # never 0": "tests/samplers/tempering/test_transition_kernel.py::test_decisions_have_uniforms_above_0_and_up_to_1",
    "streammc/numerics/prior.py: total -= math.inf => total += math.inf": "tests/numerics/test_prior.py::test_a_uniform_prior_has_no_density_beyond_its_ends",
    "streammc/numerics/effect_positions.py: square = math.exp(2.0 * min(power * log_scale, _MOST)) => square = math.exp(2.0 / min(power * log_scale, _MOST))": "tests/numerics/test_stretched_effects.py::test_the_power_of_an_effect_has_the_spread_of_its_row",
    "streammc/samplers/hamiltonian/transition.py: allocate_block(rows, q, p, order), => allocate_block(q, rows, p, order),": "tests/samplers/hamiltonian/test_unequal_blocks.py::test_a_proposal_has_room_for_the_rows_of_its_largest_block",
    "streammc/samplers/hamiltonian/transition.py (6): for j in range(d): => for j in range(d - 1):": "tests/samplers/hamiltonian/test_nuts_trees.py::test_trajectories_are_those_of_a_sampler_that_keeps_every_momentum",
    "streammc/samplers/hamiltonian/transition.py: if turned(tree, 0, 1) == 1: => if (not (turned(tree, 0, 1) == 1)):": "tests/samplers/hamiltonian/test_nuts_trees.py::test_trajectories_are_those_of_a_sampler_that_keeps_every_momentum",
    "streammc/samplers/stochastic_gradient/stationary.py: low, high = longest * 1e-12, longest => low, high = longest / 1e-12, longest": "tests/samplers/stochastic_gradient/test_stationary.py::test_the_longest_step_is_that_of_the_largest_bias_or_of_the_bound",
    "streammc/samplers/common/chains.py: return z if spread == 1.0 else z * spread * 0.95**attempt => return z if (not (spread == 1.0)) else z * spread * 0.95**attempt": "tests/samplers/common/test_chains.py::test_first_positions_have_their_spread_and_a_smaller_one_at_later_attempts",
    "streammc/numerics/row_products.py: panel(begin, [None] * _PANEL) => pass": "tests/numerics/test_row_products.py::test_products_and_sums_agree_with_numpy",
    "streammc/numerics/row_products.py: function = cgutils.get_or_insert_function(self.builder.module, kind, name) => function = cgutils.get_or_insert_function(kind, self.builder.module, name)": "tests/numerics/test_row_products.py::test_products_and_sums_agree_with_numpy",
    "streammc/numerics/special.py: return builder.call(function, args) => return builder.call(args, function)": "tests/numerics/test_special.py::test_exp_is_within_two_ulp",
    "streammc/numerics/addresses.py: source = context.make_array(signature.args[0])(context, builder, args[0]) => source = context.make_array(signature.args[0])(context, args[0], builder)": "tests/numerics/test_matrix_view.py::test_a_view_has_the_first_numbers_of_the_vector_and_its_memory",
    "streammc/samplers/common/sampler_cost.py: return c[0] + n * (c[1] + q * (c[2] + (c[3] if 8 * n * q > CACHE_BYTES else 0.0))) => return c[0] + n * (c[1] - q * (c[2] + (c[3] if 8 * n * q > CACHE_BYTES else 0.0)))": "tests/runs/test_automatic.py::test_the_faster_sampler_by_rows_columns_and_subsample",
    "streammc/trace/collection.py: for name in _names(path / FOLDER): => for name in _names(path * FOLDER):": "tests/trust/test_debris.py",
    "streammc/trace/collection.py: descriptor = os.open(where, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) => descriptor = os.open(os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, where)": "tests/trust/test_debris.py",
    'streammc/trace/debris.py: with open(path, "rb") as file: => with open("rb", path) as file:': "tests/trust/test_debris.py",
    "streammc/samplers/importance/laplace.py: return kept_draws(request, setup) => return kept_draws(setup, request)": "tests/samplers/importance/test_laplace.py",
    "streammc/samplers/importance/weighing.py: power = np.repeat([0.0, d - 1.0], [2 * len(axes), _RADIAL]) => power = np.repeat([0.0, d - 1.0], [1 * len(axes), _RADIAL])": "tests/samplers/importance/test_laplace.py",
    "streammc/samplers/importance/weighing.py: shifts = z @ cv.factor.T => shifts = z * cv.factor.T": "tests/samplers/importance/test_laplace.py",
    "streammc/samplers/common/proposals.py (2): for i in range(d): => for i in range(d - 1):": "tests/samplers/common/test_explorers.py::test_the_prior_has_its_gradient_in_the_coordinates_of_the_position",
    "streammc/samplers/metropolis/mh_minibatch.py: error = left * error + second_order(facts, terms, variance) => error = left * error - second_order(facts, terms, variance)": "tests/samplers/metropolis/test_mh_minibatch.py::test_the_error_of_a_skewed_decision_has_the_term_of_second_order",
}
"""Changes that a test was written or found for, with the test, as ``path::name``."""
