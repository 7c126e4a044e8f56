"""streammc.stores."""

if not __name__.startswith("streammc."):
    raise ImportError("import streammc.stores; a top-level package 'stores' is not installed")
