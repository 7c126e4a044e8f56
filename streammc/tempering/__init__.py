"""Samplers made of samplers: ladders of levels, swaps, tempered transitions, energy rings."""
