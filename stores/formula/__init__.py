"""Formulas: an allow-list for their text, their fit to a table, and the encoding of its rows."""
