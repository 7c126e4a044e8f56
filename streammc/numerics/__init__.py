"""Compiled arithmetic that every other layer builds on."""
