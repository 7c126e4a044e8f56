"""streammc.cli."""

if not __name__.startswith("streammc."):
    raise ImportError("import streammc.cli; a top-level package 'cli' is not installed")
