"""Dang et al. 2019: Hamiltonian Monte Carlo with energy conserving subsampling."""
