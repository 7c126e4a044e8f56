"""What is wrong with a job: one line each, with the path of the key in the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from streammc.errors import (
    ConfigError,
    IdentityError,
    ReplaceableError,
    StreammcError,
    one_line,
)


class Problem(NamedTuple):
    """A fault of a job file."""

    key: str
    """Path of the key, such as ``sampler.draws``; empty for the file as a whole."""
    text: str
    """What was expected and found, and what to do."""
    exit_code: int = IdentityError.exit_code
    code: str = IdentityError.code

    @classmethod
    def of_error(cls, key: str, error: StreammcError) -> Problem:
        """Return the fault that an error says; a wrong argument is one of the file."""
        if isinstance(error, ConfigError):
            return cls(key, str(error))
        return cls(key, str(error), error.exit_code, error.code)

    def line(self, file: str) -> str:
        """Return the fault as a line of text."""
        return f"{file}: {self.key}: {self.text}" if self.key else f"{file}: {self.text}"


@contextmanager
def without_overwrite() -> Iterator[None]:
    """Leave the advice to use ``--overwrite``, which ``check`` does not have, out of errors."""
    try:
        yield
    except ReplaceableError as error:
        if not error.overwrite:
            raise
        raise type(error)(error.without_overwrite) from error


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
        self.problems = problems
        self.exit_code, self.code = problems[0].exit_code, problems[0].code
        self.keys = [problem.key for problem in problems]
        self.lines = [one_line(problem.line(file)) for problem in problems]

    def __str__(self) -> str:
        """Return the first fault."""
        return self.lines[0]
