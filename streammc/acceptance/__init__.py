"""Tests that accept or reject a proposal, one per file; see ``acceptance.interface``."""
