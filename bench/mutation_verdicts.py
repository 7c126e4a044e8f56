# ruff: noqa: E501
"""What was found out about changes that no test had caught: ``mutations.py`` reads it.

A change is named as ``Mutation.key`` names it.
"""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "streammc/samplers/equi_energy/loop.py: row[column.DIVERGING] = 0.0 => row[column.DIVERGING] = 1.0": "`mintee` does not record `diverging`",
    "streammc/samplers/hamiltonian/nuts.py: log_weight_new = log_add(log_weight_new, -error) => log_weight_new = log_add(-error, log_weight_new)": "the sum of two exponentials does not depend on their order",
    'streammc/samplers/metropolis/options.py: check_subsample(self, "subsample_size", "unit_rows", "gradient_size", "n_steps") => check_subsample(self, "subsample_size", "unit_rows", "n_steps", "gradient_size")': "where two options are wrong, the other is named first",
    "streammc/samplers/stochastic_gradient/stationary.py: from_u, from_p = np.ones((2, len(curvature))), np.ones((2, len(curvature))) => from_u, from_p = np.ones((2, len(curvature))), np.ones((3, len(curvature)))": "a third row of the array, which nothing reads",
    "streammc/samplers/tempering/side_by_side.py: self._decided = seconds < WORTH_IT * self._alone => self._decided = seconds <= WORTH_IT * self._alone": "which of two ways is taken that are equally fast to the last bit; the draws have the same bits",
    "streammc/samplers/metropolis/kernel.py: self._drawn = iteration, drawn => pass": "units that are not kept are drawn again, the same: they follow from the number of the iteration",
    "streammc/samplers/metropolis/problem.py: certain = plan.certainty_rows if plan is not None and order >= 0 else np.zeros(0, np.int64) => certain = plan.certainty_rows if plan is not None and order >= 0 else np.ones(0, np.int64)": "an array of no elements has no ones",
    "streammc/samplers/metropolis/acceptance/correction.py: high = table.shape[1] - 1 => high = table.shape[1] - 0": "the last value is 1, above every `u` in (0, 1): the search never ends beyond it",
    "streammc/samplers/metropolis/acceptance/clt.py: if facts[M2] <= 0.0: => if facts[M2] < 0.0:": "compiled, the moments of equal terms are not numbers, and the larger of `SMALLEST` and such a one is `SMALLEST`",
}
"""Changes without any effect on a result, with the reason."""
TESTS: Final[dict[str, str]] = {
    "streammc/likelihood/blocks.py: np.zeros(m), => np.ones(m),": "tests/likelihood/test_blocks.py::test_allocated_blocks_are_zeros",
    "streammc/likelihood/density.py: times = weight[start + i] => times = weight[start - i]": "tests/likelihood/test_tiles.py::test_the_log_likelihood_of_several_tiles_is_the_sum_over_rows",
    "streammc/likelihood/density.py: for i in range(w): => for i in range(w - 1):": "tests/likelihood/test_tiles.py::test_the_log_likelihood_of_several_tiles_is_the_sum_over_rows",
    "streammc/likelihood/density.py: eta = scratch.eta[: p * w].reshape((p, w)) => eta = scratch.eta[: p / w].reshape((p, w))": "tests/likelihood/test_tiles.py::test_the_log_likelihood_of_several_tiles_is_the_sum_over_rows",
    "streammc/likelihood/difference.py: + d1 * design[j + 1, lo + i] => + d1 * design[j + 1, lo - i]": "tests/likelihood/test_blocks.py::test_remainders_are_those_of_every_column_and_of_rows_that_count",
    "streammc/likelihood/difference.py: size = block.expansion.shape[0] => size = block.expansion.shape[1]": "tests/likelihood/test_blocks.py::test_remainders_are_those_of_every_column_and_of_rows_that_count",
    "streammc/likelihood/difference.py: counts = weight[lo + i] != 0.0 => counts = weight[lo - i] != 0.0": "tests/likelihood/test_blocks.py::test_remainders_are_those_of_every_column_and_of_rows_that_count",
    "streammc/likelihood/expanded_rows.py: for start in range(0, len(rows), _SLICE): => for start in range(1, len(rows), _SLICE):": "tests/likelihood/test_expanded_rows.py::test_rows_of_several_slices_are_expanded_as_at_once",
    "streammc/likelihood/expanded_rows.py: require_memory(dataset, model, len(rows), order) => pass": "tests/likelihood/test_expanded_rows.py::test_rows_that_do_not_fit_are_refused_before_any_is_read",
    "streammc/likelihood/pass_cost.py: row_seconds = sums + (1 + _DRAWS) * n_linear * n_features * _PRODUCT_SECONDS => row_seconds = sums + (0 + _DRAWS) * n_linear * n_features * _PRODUCT_SECONDS": "tests/likelihood/test_pass_cost.py::test_the_forecast_is_the_sum_of_its_parts",
    "streammc/likelihood/pass_cost.py: widened = _WIDEN_SECONDS * d * d => widened = _WIDEN_SECONDS * d / d": "tests/likelihood/test_pass_cost.py::test_the_forecast_is_the_sum_of_its_parts",
    "streammc/likelihood/remainder_kernel.py: t0 += v0 => t0 = v0": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/likelihood/remainder_kernel.py: link(eta, design, y, constants, 0, out) => pass": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/likelihood/remainder_kernel.py: s = step[0, i] => s = step[1, i]": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/likelihood/remainder_pass.py: padded = -(-draws // 4) * 4 => padded = -(-draws // 4) / 4": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/likelihood/remainder_pass.py: step = max(fit // TILE, 1) * TILE => step = min(fit // TILE, 1) * TILE": "tests/likelihood/test_tiles.py::test_sums_of_remainders_over_several_tiles_are_those_of_rows",
    "streammc/subsampling/alias.py: TABLE_BYTES = 16 => TABLE_BYTES = 15": "tests/subsampling/test_alias.py::test_the_bytes_of_a_unit_are_those_of_its_tables",
    "streammc/numerics/cholesky.py: a[i, j] = 0.0 => pass": "tests/numerics/test_cholesky.py::test_tiles_on_the_diagonal_are_zero_above_it",
    "streammc/numerics/coded_matrix.py: np.flatnonzero(dense).astype(np.int64), => np.flatnonzero(dense).astype(np.int16),": "tests/numerics/test_coded_matrix.py::test_dense_columns_are_counted_beyond_sixteen_bits",
    "streammc/numerics/prior.py: weight = (df + 1.0) / (table[j, SCALE] * table[j, SCALE] * spread) => weight = (df - 1.0) / (table[j, SCALE] * table[j, SCALE] * spread)": "tests/numerics/test_prior.py::test_the_curvature_of_a_student_t_beyond_its_shoulders_is_a_tenth_of_its_mixture",
    "streammc/numerics/prior.py: small = math.exp(-abs(2.0 * (at - table[j, LOCATION]))) => small = math.exp(abs(2.0 * (at - table[j, LOCATION])))": "tests/numerics/test_prior.py::test_the_curvature_of_a_half_student_t_is_zero_far_away",
    "streammc/numerics/prior.py: total += table[j, CONSTANT] - abs(z) => total = table[j, CONSTANT] - abs(z)": "tests/numerics/test_prior.py::test_a_table_has_the_sum_of_its_rows_and_their_derivatives",
    "streammc/numerics/stretched_effects.py: delta[j] = theta[j] - theta_star[j] => delta[j] = theta[j] + theta_star[j]": "tests/numerics/test_stretched_effects.py::test_effects_are_stretched_by_their_power_of_the_scale",
    "streammc/numerics/stretched_effects.py: d = theta.shape[0] => d = theta.shape[1]": "tests/numerics/test_stretched_effects.py::test_whitening_undoes_the_stretch_and_the_factor",
    "streammc/trace/durable.py: if call is None: => if call is not None:": "tests/trace/test_swap.py::test_the_names_are_exchanged_by_one_call",
    'streammc/trace/kinds.py: if found.kind == PREDICTIONS and found.store not in (None, "memory"): => if found.kind == PREDICTIONS or found.store not in (None, "memory"):': "tests/trace/test_kinds.py::test_the_advice_names_the_store_where_it_has_a_name",
    "streammc/samplers/common/all_rows.py: full = hold(dataset, joint=model.joint is not None) => full = hold(dataset, joint=model.joint is None)": "tests/samplers/common/test_all_rows.py::test_rows_are_held_for_the_likelihood_that_the_model_has",
    "streammc/samplers/common/chains.py: self.clock[phase] += seconds => self.clock[phase] = seconds": "tests/samplers/common/test_chains.py::test_the_clock_adds_up_the_seconds_of_every_phase",
    "streammc/samplers/equi_energy/kernel.py: self.levels.step[begun] = np.exp(self._tuning[begun, tuning.LOG_AVERAGE]) => pass": "tests/samplers/equi_energy/test_equi_energy.py::test_the_draws_have_the_step_that_warmup_averaged",
    "streammc/samplers/equi_energy/kernel.py: first = options.step_size or c * len(problem.reference) ** -power => first = options.step_size or c / len(problem.reference) ** -power": "tests/samplers/equi_energy/test_equi_energy.py::test_the_first_steps_shrink_with_the_dimension_and_grow_with_the_temperature",
    "streammc/samplers/equi_energy/loop.py: log_step = adapt[k + 1, tuning.LOG_AVERAGE] + 0.5 * math.log(cooler) => log_step = adapt[k + 1, tuning.LOG_AVERAGE] + 0.5 / math.log(cooler)": "tests/samplers/equi_energy/test_equi_energy.py::test_a_level_begins_with_the_step_of_the_one_above_at_its_own_temperature",
    "streammc/samplers/equi_energy/moves.py: new_above = new * levels.scale[k] / levels.scale[k + 1] => new_above = new * levels.scale[k] * levels.scale[k + 1]": "tests/samplers/equi_energy/test_equi_energy.py::test_a_jump_takes_the_energy_under_the_level_above_with_it",
    'streammc/samplers/equi_energy/options.py: object.__setattr__(self, "control_variate", NONE) => object.__setattr__(self, NONE, "control_variate")': "tests/samplers/equi_energy/test_equi_energy.py::test_no_control_variate_has_a_name_on_the_command_line",
    "streammc/samplers/hamiltonian/energy_conserving.py: @dataclass(frozen=True, kw_only=True) => @dataclass(frozen=True, kw_only=False)": "tests/samplers/common/test_builders.py::test_every_option_is_a_keyword",
    "streammc/samplers/hamiltonian/kernel.py: if problem.product: => if (not (problem.product)):": "tests/samplers/hamiltonian/test_unequal_blocks.py::test_factors_belong_to_the_blocks_that_drew_them",
    "streammc/samplers/hamiltonian/jittered.py: acceptance = 0.0 if diverged == 1.0 else math.exp(min(0.0, energy_start - energy)) => acceptance = 0.0 if diverged == 2.0 else math.exp(min(0.0, energy_start - energy))": "tests/samplers/hamiltonian/test_trajectories.py::test_a_trajectory_without_a_density_counts_as_rejected",
    "streammc/samplers/metropolis/acceptance/austere_search.py: pairs = [(max(size, 2), value) for size, value in pairs] => pairs = [(max(size, 1), value) for size, value in pairs]": "tests/samplers/metropolis/test_mh_austere.py::test_a_look_has_two_terms_at_least",
    "streammc/samplers/metropolis/acceptance/clt.py: if n > step: => if (not (n > step)):": "tests/samplers/metropolis/acceptance/test_clt.py::test_the_terms_of_stopping_are_those_of_their_formulas",
    "streammc/samplers/metropolis/acceptance/clt.py: reach = math.sqrt(spread / crossing) * crossing => reach = math.sqrt(spread * crossing) * crossing": "tests/samplers/metropolis/acceptance/test_clt.py::test_the_terms_of_stopping_are_those_of_their_formulas",
    "streammc/samplers/stochastic_gradient/facts.py: math.inf if bias is None else bias,  # without bound => math.inf if (not (bias is None)) else bias,  # without bound": "tests/samplers/stochastic_gradient/test_stationary.py::test_a_bias_without_bound_fails_its_check",
    "streammc/samplers/stochastic_gradient/options.py: decay: float = 0.0 => decay: float = 1.0": "tests/samplers/stochastic_gradient/test_stationary.py::test_steps_do_not_decay_unless_asked_to",
    "streammc/samplers/stochastic_gradient/stationary.py: break => continue": "tests/samplers/stochastic_gradient/test_stationary.py::test_the_fewest_steps_are_those_that_no_larger_number_fails",
    "streammc/samplers/tempering/kernel.py: self._tuned = options.step_size is not None => self._tuned = options.step_size is None": "tests/samplers/tempering/test_tuned_steps.py::test_levels_follow_what_their_acceptance_asks_for",
    "streammc/samplers/tempering/visits.py: ensemble.ladder.step[m] = math.exp(ensemble.adapt[m, tuning.LOG_STEP]) => pass": "tests/samplers/tempering/test_tuned_steps.py::test_levels_follow_what_their_acceptance_asks_for",
    "streammc/samplers/hamiltonian/full_data.py: return prepare_full_data(self, request, reason) => return prepare_full_data(request, self, reason)": "tests/samplers/hamiltonian/test_preparation.py::test_a_sampler_prepares_itself_with_control_variates_and_a_plan_if_it_has_one",
    "streammc/samplers/hamiltonian/preparation.py: first = control_variates(request, sampler.order) => first = control_variates(sampler.order, request)": "tests/samplers/hamiltonian/test_preparation.py::test_given_control_variates_are_the_first_stage_of_a_recalibration",
    'streammc/samplers/hamiltonian/recalibrate.py: self.evaluations += int(stats["n_rows"].sum()) => self.evaluations += int(stats["n_rows"].prod())': "tests/samplers/hamiltonian/test_preparation.py::test_a_short_run_counts_the_rows_and_the_variances_of_all_its_chains",
    "streammc/numerics/matrix_view.py: shape=cgutils.pack_array(builder, args[1:]), => shape=cgutils.pack_array(builder, args[0:]),": "tests/numerics/test_matrix_view.py::test_a_view_has_the_first_numbers_of_the_vector_and_its_memory",
    "streammc/samplers/hamiltonian/facts.py: EDGE_WARNING: Final = 0.001 => EDGE_WARNING: Final = 0.00101": "tests/samplers/hamiltonian/test_facts.py::test_a_run_beyond_a_limit_is_warned_about",
    "streammc/samplers/metropolis/preparation.py: seconds=time.perf_counter() - begun, => seconds=time.perf_counter() + begun,": "tests/samplers/metropolis/test_preparation.py::test_the_pass_for_a_bound_is_counted_with_its_rows_and_seconds",
    "streammc/samplers/metropolis/problem.py: ACCEPTANCE: Final = {RANDOM_WALK: (0.234, 0.158), LANGEVIN: (0.574, 0.347)} => ACCEPTANCE: Final = {RANDOM_WALK: (0.234, 0.158), LANGEVIN: (0.5797399999999999, 0.347)}": "tests/samplers/metropolis/test_best_acceptance.py::test_steps_are_tuned_to_the_fastest_diffusion",
    "streammc/samplers/metropolis/problem.py: shape=sampler.covariance if sampler.covariance in (DIAGONAL, FULL) else None, => shape=sampler.covariance if sampler.covariance not in (DIAGONAL, FULL) else None,": "tests/samplers/metropolis/test_preparation.py::test_a_shape_is_learnt_where_the_covariance_asks_for_it",
    "streammc/samplers/tempering/options.py: return prepare(self, request, reason) => return prepare(request, self, reason)": "tests/samplers/tempering/test_preparation.py::test_a_sampler_prepares_itself_with_the_levels_that_are_given",
    "streammc/samplers/hamiltonian/nuts.py: first[top, j] = last[top, j] = total[top, j] = momentum[j] => pass": "tests/samplers/hamiltonian/test_nuts_trees.py::test_trajectories_are_those_of_a_sampler_that_keeps_every_momentum",
    "streammc/samplers/hamiltonian/nuts.py: top = 0 => top = 1": "tests/samplers/hamiltonian/test_nuts_trees.py::test_trajectories_are_those_of_a_sampler_that_keeps_every_momentum",
    "streammc/samplers/hamiltonian/transition.py: if base.factor_units > 0: => if base.factor_units >= 0:": "tests/samplers/hamiltonian/test_trajectories.py::test_trajectories_within_the_edge_are_recorded_as_such",
    "streammc/samplers/metropolis/acceptance/austere_search.py: freedom = np.maximum(np.arange(N_DRIFTS) - 1.0, 1.0) => freedom = np.maximum(np.arange(N_DRIFTS) + 1.0, 1.0)": "tests/samplers/metropolis/acceptance/test_austere_search.py::test_a_pair_that_is_given_has_students_quantiles_by_its_number_of_terms",
    "streammc/samplers/metropolis/acceptance/austere_search.py: if not drift > drifts[0]: => if not drift > drifts[1]:": "tests/samplers/metropolis/acceptance/test_austere_search.py::test_errors_are_interpolated_between_drifts",
    "streammc/samplers/metropolis/acceptance/sequential_error.py: _OVERSHOOT: Final = 0.5825971579390106  # -zeta(1/2) / sqrt(2 pi) => _OVERSHOOT: Final = 0.5884231295184007  # -zeta(1/2) / sqrt(2 pi)": "tests/samplers/metropolis/acceptance/test_austere_search.py::test_the_overshoot_of_a_walk_is_chernoffs",
}
"""Changes that a test was written for, with the test, as ``path::name``."""
