"""Formulas: what they may contain, how they are fitted to a table, and how they encode its rows."""
