"""Tables that can be ingested, as Arrow record batches: CSV, Parquet, Arrow, arrays."""
