"""Certificate of control variates: distance of ``theta_star`` from the mode, and work done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streammc.json_record import Record

_WORK = ("passes", "rows_read", "bytes_read", "seconds", "pass_seconds")


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate(Record):
    """Certificate of control variates: findings of the last pass, and work of all passes.

    Attributes
    ----------
    term_bound
        Bound on the terms of a minibatch acceptance test, see ``row_norms``; ``None`` where no
        sampler needs it, infinite where the model has no bound.
    decrement
        Newton decrement at ``theta_star`` in posterior sd; ``None`` without a pass.
    passes, rows_read, bytes_read, seconds
        Work of all passes and of the search for the first centre.
    pass_seconds, pass_gb_per_second
        Time and read rate of the passes alone; ``None`` in files of an earlier version.
    converged
        Whether the decrement is below its limit.
    warnings
        One line each: directions that only the prior determines, a conflict of prior and
        likelihood, what default priors decide, other modes.
    notes
        What priors decide that were given: no reason for care.
    modes
        (M, d) modes with at least 5 % of the evidence of ``theta_star``.
    logarithms
        Labels of the parameters that are sampled as logarithms.
    recalibration
        Sizes and work of the first stage of a recalibration.
    nodes
        Quadrature nodes per effect of a mixed model.
    update
        Use of control variates of an earlier generation of the store, see ``appended.Update``.
    """

    term_bound: float | None = None
    decrement: float | None
    passes: int
    rows_read: int
    bytes_read: int
    seconds: float
    pass_seconds: float | None = None
    pass_gb_per_second: float | None = None
    converged: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    modes: tuple[tuple[float, ...], ...] | None = None
    logarithms: tuple[str, ...]
    recalibration: Mapping[str, Any] | None = None
    nodes: int | None = None
    update: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``certificate`` of saved control variates."""
        written = super().to_json()
        if self.term_bound is not None and not math.isfinite(self.term_bound):
            written["term_bound"] = None
        if not self.notes:
            del written["notes"]
        if self.modes is not None:
            written["modes"] = [list(mode) for mode in self.modes]
        return written

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Certificate:
        """Restore from :meth:`to_json`; files of earlier versions lack some entries."""
        bound, modes = written.get("term_bound"), written.get("modes")
        if bound is None and "term_bound" in written:
            bound = math.inf
        return cls(
            term_bound=bound,
            decrement=written["decrement"],
            passes=int(written["passes"]),
            rows_read=int(written["rows_read"]),
            bytes_read=int(written["bytes_read"]),
            seconds=float(written["seconds"]),
            pass_seconds=written.get("pass_seconds"),
            pass_gb_per_second=written.get("pass_gb_per_second"),
            converged=bool(written["converged"]),
            warnings=tuple(written.get("warnings", ())),
            notes=tuple(written.get("notes", ())),
            modes=None if modes is None else tuple(tuple(mode) for mode in modes),
            logarithms=tuple(written.get("logarithms", ())),
            recalibration=written.get("recalibration"),
            nodes=written.get("nodes"),
            update=written.get("update"),
        )

    def plus(self, **work: float) -> Certificate:
        """Return a copy with the work of another stage added; keywords are field names."""
        return replace(self, **{name: getattr(self, name) + more for name, more in work.items()})

    def work(self) -> dict[str, Any]:
        """Return passes, rows, bytes and seconds: the entries that add up over stages."""
        return {name: getattr(self, name) or 0 for name in _WORK}
