"""Acceptance tests of Metropolis-Hastings, one per file; see ``acceptance.interface``."""
