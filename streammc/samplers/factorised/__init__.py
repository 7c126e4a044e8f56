"""Exact sampler that accepts by factors of rows, drawn ahead in a sequential read: ``smh``."""
