"""What is wrong with a job: one line each, with the path of the key in the file."""

from __future__ import annotations

from typing import NamedTuple

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


class RefusedJob(Exception):
    """A job whose file has faults.

    Parameters
    ----------
    file
        Path of the file.
    problems
        Its faults, at least one.
    """

    def __init__(self, file: str, problems: list[Problem]) -> None:
        super().__init__()
        self.exit_code, self.code = problems[0].exit_code, problems[0].code
        self.keys = [problem.key for problem in problems]
        self.lines = [one_line(problem.line(file)) for problem in problems]

    def __str__(self) -> str:
        """Return the first fault."""
        return self.lines[0]
