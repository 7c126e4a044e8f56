"""What a report is made from: the run, and the documents that other commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from streammc.trace.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """Run, documents and predictions of a report.

    Attributes
    ----------
    run
        The opened run.
    document
        As ``diagnose --json`` prints it.
    store
        As ``info STORE --json`` prints it; ``None`` if the store is not there.
    model
        Model in words, as ``info RUN`` prints it.
    commands
        Command lines that make the run and its outputs again.
    versions
        Package -> version of those that wrote the page.
    predictions
        Path -> opened predictions of the run.
    """

    run: RunDirectory
    document: Mapping[str, Any]
    store: Mapping[str, Any] | None
    model: str
    commands: Sequence[str]
    versions: Mapping[str, str]
    predictions: Mapping[str, xr.Dataset]
