"""What is wrong with a job: one line each, with the path of the key in the file."""

from __future__ import annotations

import json
from typing import NamedTuple

from streammc.cli.output import Output
from streammc.errors import IdentityError, one_line


class Problem(NamedTuple):
    """A fault of a job file."""

    key: str
    """Path of the key, such as ``sampler.draws``; empty for the file as a whole."""
    text: str
    """What was expected and found, and what to do."""
    exit_code: int = IdentityError.exit_code
    code: str = IdentityError.code

    def line(self, file: str) -> str:
        """Return the fault as a line of text."""
        return f"{file}: {self.key}: {self.text}" if self.key else f"{file}: {self.text}"


class Refused(Exception):
    """A job whose file has faults."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = problems


def report_problems(output: Output, file: str, problems: list[Problem]) -> int:
    """Print every fault of a job file on a line of its own; return the exit code of the first."""
    lines = [one_line(problem.line(file)) for problem in problems]
    for problem, line in zip(problems, lines, strict=True):
        output.log("error", line, key=problem.key)
    first = problems[0]
    if output.json:
        each = [{"key": p.key, "message": line} for p, line in zip(problems, lines, strict=True)]
        body = {"exit_code": first.exit_code, "code": first.code, "message": lines[0]}
        print(json.dumps({"error": {**body, "problems": each}}), flush=True)
    return first.exit_code
