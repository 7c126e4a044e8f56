"""The command line: the only layer that connects all others and prints."""

if not __name__.startswith("streammc."):
    raise ImportError("import streammc.cli; a top-level package 'cli' is not installed")

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``streammc`` and return its exit code.

    Parameters
    ----------
    arguments
        Arguments after the program's name; ``None`` takes those of the process.
    """
    from streammc.cli.app import run

    return run(arguments)


__all__ = ["main"]
