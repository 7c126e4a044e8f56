"""``streammc audit``: measure the effect of subsampling on the draws of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streammc import registry
from streammc.cli.options import CodeOption, argument, command, parse_scheduler
from streammc.cli.output import Output, table
from streammc.cli.signals import Interruption
from streammc.settings import PassOptions

if TYPE_CHECKING:
    from streammc.diagnostics.weights import Audit


@dataclass(frozen=True, kw_only=True)
class AuditSettings(PassOptions, CodeOption):
    """Settings of ``streammc audit``."""

    run: str = argument("run")


@command("audit", AuditSettings)
def audit(ctx: click.Context, settings: AuditSettings) -> None:
    """Weigh draws of RUN against the exact posterior in one more pass over its store.

    The weights and the verdict are kept in the run; a run that has them is not audited
    again.
    """
    printer: Output = ctx.obj
    run, where = settings.run, parse_scheduler(settings.scheduler)
    verdict, new = audit_once(printer, ctx.find_root().obj, run, where, settings.allow_code)
    if verdict is None:
        why = _not_audited(run)
        printer.note(f"{run}: {why}, there is nothing to audit")
        human = f"nothing to audit: {why}"
    else:
        human = human_audit(verdict)
        if not new:
            printer.note(f"{run} has been audited: nothing to do")
    printer.result({"run": run, "audit": verdict and verdict.to_json()}, human)


def audit_once(
    output: Output,
    interruption: Interruption,
    path: str,
    scheduler: Any = None,
    allow_code: bool = False,
) -> tuple[Audit | None, bool]:
    """Return the audit of a run, and whether it was made now; ``None`` if there can be none.

    Raises
    ------
    DataError
        If the run has no draws yet.
    """
    from streammc.cli.execute import heated_data, recorded_request
    from streammc.cli.progress import Progress
    from streammc.control_variates.expansion import ControlVariates
    from streammc.diagnostics.weights import Audit
    from streammc.errors import DataError
    from streammc.runs.run_summary import audited_again, run_audit
    from streammc.runs.setup import CONTROL_VARIATES
    from streammc.trace.run_directory import RunDirectory

    run = RunDirectory.open(path)
    kept = run.attributes.get("summary")
    if kept is not None and kept["audit"] is not None and run.finished():
        return Audit.from_json(kept["audit"]), False
    if not registry.sampler(run.attributes["sampler"]["name"])().audited:
        return None, False
    if not run.committed_draws:
        raise DataError(f"expected draws in {path!r}, found a run still in its warm-up: resume it")
    request = recorded_request(path, allow_code=allow_code)
    dataset, model = heated_data(request), request.model
    cv = ControlVariates.open(run.path / CONTROL_VARIATES, dataset, model)
    with run.lock(), Progress(output, interruption) as progress:
        verdict = run_audit(
            run, dataset, model, cv, scheduler=scheduler, progress=progress.of("audit")
        )
        summary = run.attributes.get("summary")
        if summary is not None:
            before = summary["audit"] and Audit.from_json(summary["audit"])
            lines = audited_again(summary["warnings"], before, verdict)
            summary.pop("not_audited", None)
            summary = {**summary, "audit": verdict.to_json(), "warnings": lines}
            run.set_attributes({"summary": summary})
    return verdict, True


def _not_audited(path: str) -> str:
    """Return the reason why the sampler of a run has no audit."""
    from streammc.samplers.common.sampler import NOT_AUDITED
    from streammc.trace.run_directory import RunDirectory

    name = RunDirectory.open(path, verify=False).attributes["sampler"]["name"]
    otherwise = "no weights lead from what {name} samples to the posterior"
    return NOT_AUDITED.get(registry.sampler(name)().target, otherwise).format(name=name)


def human_audit(verdict: Audit) -> str:
    """Return an audit as text, with the largest corrections first."""
    from streammc.cli.output import number
    from streammc.cli.report import audit_text

    names = ("correction_sd", "mcse_sd", "sd_ratio", "mean")
    ordered = sorted(verdict.parameters.items(), key=lambda item: -item[1].size)
    rows = [
        [label, *(number(getattr(entry, name), 3) for name in names)] for label, entry in ordered
    ]
    return f"{table(['parameter', *names], rows)}\n\n{audit_text(verdict)}"
