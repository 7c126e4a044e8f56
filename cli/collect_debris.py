"""``streammc gc``: remove what killed processes left behind."""

from __future__ import annotations

from typing import Any

import click

from streammc.cli.options import command, path_argument
from streammc.cli.output import Output


@command("gc")
@path_argument("path")
@click.option("--dry-run", is_flag=True, help="Find, and remove nothing.")
@click.pass_obj
def gc(output: Output, path: str, dry_run: bool) -> int:
    """Remove what killed processes of streammc left in PATH, a folder with any below it.

    Unfinished stores, results, copies, files and receipts, temporary folders, and what a run holds
    beyond its last commit. PATH may be a store or a run itself: then also beside it. What streammc
    cannot prove to be its own is left alone, and so is what a process that lives is writing.
    """
    from streammc.trace.collection import collect

    document = collect(path, dry_run=dry_run)
    output.result(document, _text(document))
    refused = [each for each in document["kept"] if each["reason"].startswith("cannot be removed")]
    if not refused:
        return 0
    first = refused[0]
    more = f" ({len(refused)} paths in all)" if len(refused) > 1 else ""
    output.log(
        "error",
        f"expected to remove {first['path']!r}, found that it {first['reason']}{more}: change its "
        "permissions",
    )
    return 77


def _text(document: dict[str, Any]) -> str:
    """Return a line for each path, and the sum."""
    lines = [
        f"{'would remove' if document['dry_run'] else 'removed'} {each['path']}  ({each['kind']}, "
        f"{each['bytes']:,} bytes)"
        for each in document["removed"]
    ]
    lines += [
        f"left alone {each['path']}  ({each['kind']}, {each['bytes']:,} bytes): {each['reason']}"
        for each in document["kept"]
    ]
    count = len(document["removed"])
    done = "would be removed" if document["dry_run"] else "removed"
    paths = f"{count} path{'' if count == 1 else 's'}"
    return "\n".join([*lines, f"{paths} {done}, {document['bytes']:,} bytes"])
