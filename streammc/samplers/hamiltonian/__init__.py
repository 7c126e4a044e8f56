"""Hamiltonian Monte Carlo on all rows or a subsample: ``hmc``, ``hmc-ecs``, ``hmc-ecs-signed``."""
