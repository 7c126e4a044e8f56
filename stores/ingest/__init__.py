"""Ingestion: from a table to a store, in two passes."""
