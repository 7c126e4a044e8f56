"""Format 1 of a store: its files, manifest and metadata, and how they are written and verified."""
