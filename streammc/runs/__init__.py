"""One run: its setup, chains, commits, audit, summary and warnings."""
