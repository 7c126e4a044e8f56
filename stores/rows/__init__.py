"""Rows of a store for a sampler: mapped files, the compiled gather, ids and weights."""
