"""The page ``docs/reference/job.md``: the keys of ``job.toml``, from its dataclasses.

``python -m bench.job_page --write`` renews it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from streammc.cli.jobs.job_file import job_schema

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/reference/job.md"

_HEAD: Final = """# The job file

The keys of the TOML file of `streammc run` and `streammc check` ([how to](../how-to/jobs.md)).
Paths are relative to the folder of the file. Dashes and underscores in keys are the same. A key or
table that is not listed is refused, with the nearest name. Neither the environment nor `--config`
changes what a job asks for.

`sampler.seed` is 0 by default, so that a job depends on its file alone. `sampler.draws` is the
first check of the rule in `[stop]`, if there is one. Written by `python -m bench.job_page --write`.
"""


def page_text() -> str:
    """Return the page."""
    schema = job_schema()
    parts = [_HEAD]
    for name, table in schema["properties"].items():
        needed = " (required)" if name in schema["required"] else ""
        parts.append(f"\n## `[{name}]`{needed}\n\n{table['description']}\n")
        if "properties" in table:
            parts.append("\n| key | type | meaning |\n|---|---|---|\n")
            parts += _rows(table)
    parts.append(
        "\n## JSON Schema\n\n`streammc run --schema` prints it, for editors and for checks before "
        "a job is submitted.\n"
    )
    return "".join(parts)


def _rows(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row of the table for every key."""
    for name, key in table["properties"].items():
        kind = " or ".join(f"`{each}`" for each in key["enum"]) if "enum" in key else _kind(key)
        needed = "; required" if name in table.get("required", ()) else ""
        default = f"; default `{key['default']}`" if "default" in key else ""
        text = key["description"].replace("|", "\\|")
        yield f"| `{name}` | {kind}{needed}{default} | {text} |\n"


def _kind(key: Mapping[str, Any]) -> str:
    names = {"string": "text", "integer": "whole number", "array": "list of texts"}
    kinds = key["type"] if isinstance(key["type"], list) else [key["type"]]
    return " or ".join(names.get(kind, kind).replace("object", "table") for kind in kinds)


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.job_page", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew docs/reference/job.md")
    if parser.parse_args().write:
        PAGE.write_text(page_text(), encoding="utf-8")
    else:
        print(page_text(), end="")


if __name__ == "__main__":
    main()
