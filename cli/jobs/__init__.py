"""Jobs that nobody watches: one TOML file for every stage from a table to predictions."""
