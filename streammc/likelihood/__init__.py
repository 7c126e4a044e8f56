"""Log-likelihood of rows: Taylor sums, estimates from units, rows in memory, temperature."""
