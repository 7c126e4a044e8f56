"""Metropolis-Hastings, an acceptance test per file: ``mh``, its minibatch tests and ``mint``."""
