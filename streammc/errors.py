"""Error classes, one tree; each class has the exit code of the command line.

    StreammcError                70  internal
    ├── ConfigError(ValueError)   2  usage: a value that can be checked before any work
    ├── DataError(ValueError)    65  bad data, or a sampler that cannot be right on it
    │   ├── StoreError               a store or run that is damaged or not ours
    │   ├── ModelError               data outside the support of the model
    │   └── RefusedError             an explicit sampler that would be wrong here
    ├── MissingError             66  an input that does not exist
    ├── UnavailableError         69  a remote service that does not answer
    ├── OutOfMemoryError         71  needs more memory than there is
    ├── OutputError              73  an output that cannot be created
    ├── StorageIOError           74  input or output failed underneath
    ├── BusyError                75  locked or transient: try again
    ├── AccessError              77  permission
    └── IdentityError            78  configuration or identity does not match

A message has three parts: what was expected, what was found and where, what to do. Who needs one of
them asks for the field: no code reads or changes the text of a message.
"""

from __future__ import annotations

from typing import ClassVar


def one_line(text: str) -> str:
    """Return ``text`` with line breaks and control characters escaped."""
    import unicodedata

    return "".join(
        repr(c)[1:-1] if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"} else c
        for c in text.strip()
    )


class StreammcError(Exception):
    """Base class of all errors that streammc raises on purpose.

    Parameters
    ----------
    text
        The message, without the advice where that is given.
    expected, found, where
        What was expected, what was found, and its place; a message is made of them without a text.
    advice
        What to do, as it follows "use".

    Attributes
    ----------
    cause
        The message without the advice.
    """

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "internal"

    def __init__(
        self,
        text: str = "",
        *,
        expected: str = "",
        found: str = "",
        where: str = "",
        advice: str = "",
    ) -> None:
        self.expected, self.found, self.where, self.advice = expected, found, where, advice
        place = f" in {where}" if where else ""
        self.cause = text or (f"expected {expected}, found {found}{place}" if expected else "")
        super().__init__(f"{self.cause}; use {advice}" if advice else self.cause)

    def __str__(self) -> str:
        """Return the message on one line, even if a path in it has line breaks."""
        return one_line(super().__str__())


class ReplaceableError(StreammcError):
    """Base class of errors about an output that ``--overwrite`` may replace.

    Parameters
    ----------
    message
        The message.
    overwrite
        Its end, with the advice to use ``--overwrite``, which not every command has.
    fields
        Fields of the message, see ``StreammcError``.
    """

    def __init__(self, message: str = "", overwrite: str = "", **fields: str) -> None:
        super().__init__(message + overwrite, **fields)
        self.overwrite = overwrite
        self.without_overwrite = message


class ConfigError(StreammcError, ValueError):
    """An argument that is wrong for any data."""

    exit_code = 2
    code = "usage"


class DataError(StreammcError, ValueError):
    """Data that cannot be used for the requested operation."""

    exit_code = 65
    code = "bad_data"


class StoreError(DataError):
    """A store, summary or run that is damaged, foreign or changed."""

    code = "bad_store"


class ModelError(DataError):
    """Data outside the support of the model, or a posterior that is improper."""

    code = "bad_model"


class RefusedError(DataError, ReplaceableError):
    """A sampler, given by name, that cannot be accurate on these data."""

    code = "refused"


class MissingError(StreammcError, FileNotFoundError):
    """An input path that does not exist."""

    exit_code = 66
    code = "missing"


class UnavailableError(StreammcError, OSError):
    """A remote service that does not answer."""

    exit_code = 69
    code = "unavailable"


class OutOfMemoryError(StreammcError, MemoryError):
    """A request that needs more memory than the machine or the limit allows."""

    exit_code = 71
    code = "out_of_memory"


class OutputError(StreammcError, OSError):
    """An output that cannot be created."""

    exit_code = 73
    code = "cannot_create"


class StorageIOError(StreammcError, OSError):
    """The file system refused a read or a write."""

    exit_code = 74
    code = "io"


class BusyError(StreammcError, OSError):
    """Another process holds a lock, or a fault is transient: the same command may work later."""

    exit_code = 75
    code = "busy"


class AccessError(StreammcError, PermissionError):
    """A path without permission to read or write."""

    exit_code = 77
    code = "permission"


class IdentityError(ReplaceableError, ValueError):
    """A run, summary or configuration made for other data, models or settings."""

    exit_code = 78
    code = "identity"


class SamplingWarning(UserWarning):
    """Warning of a run, one line of ``summary["warnings"]``."""
