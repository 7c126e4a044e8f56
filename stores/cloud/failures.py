"""Failures of object stores as errors of our own, and whether they may pass.

The text of an error of the service is never passed on: it can hold request headers, keys or
whole documents. What remains is the address, the kind of the failure and the status.
"""

from __future__ import annotations

import os
import re
from typing import Final

from streammc.errors import (
    AccessError,
    ConfigError,
    IdentityError,
    MissingError,
    StoreError,
    StreammcError,
    UnavailableError,
)

BUDGET: Final = "STREAMMC_CLOUD_SECONDS"
_BUDGET_SECONDS: Final = 60.0
_STATUS: Final = re.compile(r"status code: (\d{3})")
_NO_CREDENTIALS: Final = re.compile(r"169\.254\.|metadata\.google\.internal")


def judge(error: Exception, what: str, tries: int) -> tuple[StreammcError, bool]:
    """Return the error to raise, and whether the failure may pass."""
    kind, text = type(error).__name__, str(error)
    match = _STATUS.search(text)
    status = int(match.group(1)) if match else None
    shown = f"status {status}" if status else kind
    if isinstance(error, FileNotFoundError) or status == 404:
        if "NoSuchBucket" in text or "ContainerNotFound" in text:
            place = "expected the bucket of " + what
            return MissingError(f"{place}, found none: check the address"), False
        return StoreError(f"expected {what}, found nothing: copy or make the store again"), False
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
        return AccessError(
            f"expected to read or write {what}, found that it is forbidden ({shown}): check the "
            "credentials in the environment, and the rights of their owner"
        ), False
    if kind == "AlreadyExistsError":
        return IdentityError(
            f"expected nothing at {what}, but it exists: choose another address"
        ), False
    if kind == "PreconditionError" or status in (409, 412):
        return StoreError(
            f"expected {what} as it was when the store was opened, found another: open it again"
        ), False
    if _NO_CREDENTIALS.search(text):
        return AccessError(
            f"expected credentials for {what}, found none in the environment or a profile: set "
            "them (for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        ), False
    if status == 501 or (status is not None and status < 500 and status not in (408, 425, 429)):
        return UnavailableError(
            f"cannot reach {what}: {shown}; check address, region and endpoint"
        ), False
    if kind in ("UnknownConfigurationKeyError", "NotSupportedError", "InvalidPathError"):
        return UnavailableError(f"cannot reach {what}: {shown}; check the address"), False
    return UnavailableError(
        f"cannot reach {what}: {shown} in each of {tries} tries over {budget():g} s; try again "
        f"later, or set {BUDGET}"
    ), True


def budget() -> float:
    """Return the seconds within which a request is repeated.

    Raises
    ------
    ConfigError
        If the variable is not a positive number.
    """
    text = os.environ.get(BUDGET, "")
    if not text:
        return _BUDGET_SECONDS
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found < 1e6:
        raise ConfigError(f"expected a positive number of seconds in {BUDGET}: correct or unset it")
    return found
