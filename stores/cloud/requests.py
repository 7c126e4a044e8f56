"""Requests to object stores: repeated within a budget of seconds, with errors of our own.

A connection is made from the environment or a profile, belongs to its process, and is never
pickled. What travels to workers is the address (``cloud.address.CloudFolder``); each process finds
its own credentials.

The text of an error of the service is never passed on: it can hold request headers, keys or
whole documents. What remains is the address, the kind of the failure and the status.
"""

from __future__ import annotations

import io
import os
import random
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache, lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammc.errors import (
    AccessError,
    ConfigError,
    DataError,
    IdentityError,
    MissingError,
    StoreError,
    StreammcError,
    UnavailableError,
)
from streammc.stores.cloud.address import CloudFolder
from streammc.trace.disk import FileStamp

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
    """Return the seconds within which a request is repeated."""
    text = os.environ.get(BUDGET, "")
    if not text:
        return _BUDGET_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 < seconds < 1e6:
        raise ConfigError(f"expected a positive number of seconds in {BUDGET}: correct or unset it")
    return seconds


_STALL_SECONDS: Final = 10
_REQUEST_SECONDS: Final = 60
_LOOPBACK: Final = re.compile(r"^http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?(/|$)")
_AWS_ELSEWHERE: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
"""Variables that obstore reads by itself: without them, a profile is looked for."""
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables with the address of a service, if it is not that of the provider."""


@lru_cache(maxsize=16)
def connect(scheme: str, bucket: str) -> Any:
    """Return the ``obstore`` store of a bucket, container or host; nothing is sent yet."""
    try:
        from obstore import store
    except ImportError:
        raise ConfigError(
            f"an address {scheme}://... needs the package obstore: pip install 'streammc[cloud]'"
        ) from None
    options: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
            "read_timeout": timedelta(seconds=_STALL_SECONDS),
            "connect_timeout": timedelta(seconds=_STALL_SECONDS),
        },
        # cloud.requests repeats requests, within one budget, also where a body breaks off.
        "retry_config": {"max_retries": 0},
    }
    set_endpoints = (os.environ.get(name) for name in _ENDPOINTS.get(scheme, ()))
    endpoint = next(filter(None, set_endpoints), "")
    if scheme == "http" or _LOOPBACK.match(endpoint):
        options["client_options"]["allow_http"] = True
    try:
        if scheme == "s3":
            if endpoint:
                options["endpoint"] = endpoint
            profile = None
            if not any(os.environ.get(name) for name in _AWS_ELSEWHERE):
                profile = _profile()
            if profile is not None:
                options["credential_provider"] = profile
                region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
                region = region or profile.config.get("region")
                if region:
                    options["region"] = region
            return store.S3Store(bucket, **options)
        if scheme == "gs":
            return store.GCSStore(bucket, **options)
        if scheme == "az":
            return store.AzureStore(bucket, **options)
        return store.HTTPStore.from_url(f"{scheme}://{bucket}/", **options)
    except (AccessError, ConfigError):
        raise
    except Exception as error:  # its text can repeat values of the environment
        raise ConfigError(
            f"cannot use the environment for {scheme}://{bucket} ({type(error).__name__}): check "
            "the variables of this service"
        ) from None


def _profile() -> Any:
    """Return credentials of the AWS profile, or ``None`` if no profile is set up."""
    chosen = os.environ.get("AWS_PROFILE")
    files = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    if chosen is None and not any(os.path.exists(os.path.expanduser(file)) for file in files):
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        if chosen is None:
            return None
        raise ConfigError(
            "the AWS profile of AWS_PROFILE needs the package boto3: pip install boto3, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    try:
        return Boto3CredentialProvider(boto3.Session())
    except Exception as error:
        if chosen is None:
            return None
        raise AccessError(
            f"expected credentials in the AWS profile of AWS_PROFILE, found none that can be used "
            f"({type(error).__name__}): check the profile"
        ) from None


T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 4.0
_RANGE: Final = 4 << 20
"""Most bytes of one request: a larger object is read by several at once."""
_REQUESTS: Final = 16
"""Most requests of a process at once."""


class ObjectStatus(NamedTuple):
    """Status of one object, with the names of ``os.stat_result``."""

    st_size: int
    st_mtime_ns: int
    st_ino: int
    """Digest of the tag that the service gives to the content."""
    tag: str | None
    st_mode: int = stat.S_IFREG


def read_range(
    folder: CloudFolder, key: str, start: int, length: int, tag: str | None = None
) -> Any:
    """Return ``length`` bytes of an object from ``start`` on, as a buffer."""
    import obstore

    what = f"{key!r} in store {str(folder)!r}"
    options: Any = {"range": (start, start + length)}
    if tag is not None:
        options["if_match"] = tag

    def get() -> Any:
        return obstore.get(store_of(folder), folder.key(key), options=options).bytes()

    content = attempt(what, get)
    if len(content) != length:
        raise StoreError(
            f"expected {length} bytes from byte {start} of {what}, found {len(content)}: "
            "copy or make the store again"
        )
    return content


def read_ranges(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of some requests, made at once."""
    return [requests[0]()] if len(requests) == 1 else list(_at_once(requests))


def _at_once(requests: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of requests in their order; an error cancels the others."""
    futures = [_pool().submit(request) for request in requests]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def read_into(folder: CloudFolder, key: str, into: NDArray[np.uint8]) -> int:
    """Fill ``into`` with a whole object, by several requests at once; return its crc32c."""

    def read(start: int) -> NDArray[np.uint8]:
        piece = into[start : start + _RANGE]
        piece[:] = np.frombuffer(read_range(folder, key, start, piece.nbytes), np.uint8)
        return piece

    starts = range(0, into.nbytes, _RANGE)
    crc = 0
    several = _at_once([partial(read, start) for start in starts]) if len(starts) > 1 else None
    for piece in several or map(read, starts):
        crc = int(google_crc32c.extend(crc, piece))  # while the next parts arrive
    return crc


def read_whole(folder: CloudFolder, key: str, limit: int) -> Any:
    """Return an object of at most ``limit`` bytes, as a buffer, by one request."""
    import obstore

    what = f"{key!r} in store {str(folder)!r}"

    def get() -> Any:
        answer = obstore.get(store_of(folder), folder.key(key))
        size = int(answer.meta["size"])
        if size > limit:
            raise StoreError(
                f"expected at most {limit} bytes in {what}, found {size}: copy or make the store "
                "again"
            )
        content = answer.bytes()
        if len(content) != size:
            raise ConnectionError("a truncated body")
        return content

    return attempt(what, get)


def head(folder: CloudFolder, key: str = "") -> ObjectStatus | None:
    """Return the status of an object; without a key of the one at the address itself.

    ``None`` if there is none.
    """
    import obstore

    what = f"{key!r} in store {str(folder)!r}" if key else f"the file {str(folder)!r}"
    try:
        return status_of(attempt(what, lambda: obstore.head(store_of(folder), folder.key(key))))
    except StoreError:
        return None


def list_objects(folder: CloudFolder) -> dict[str, ObjectStatus]:
    """Return the status of every object below a folder by its key in the folder."""
    import obstore

    def collect() -> dict[str, ObjectStatus]:
        by_key = {}
        prefix = f"{folder.prefix}/" if folder.prefix else ""
        for batch in obstore.list(store_of(folder), folder.prefix or None):
            for each in batch:
                by_key[str(each["path"])[len(prefix) :]] = status_of(each)
        return by_key

    return attempt(f"the objects of {str(folder)!r}", collect)


def first_objects(folder: CloudFolder) -> list[str]:
    """Return the keys of the first objects below a folder, a page at most."""
    import obstore

    def collect() -> list[str]:
        pages = obstore.list(store_of(folder), folder.prefix or None, chunk_size=1000)
        return [str(each["path"]) for each in next(iter(pages), [])]

    return attempt(f"the objects of {str(folder)!r}", collect)


def write(
    folder: CloudFolder, key: str, content: bytes | NDArray[np.uint8], *, new: bool = False
) -> None:
    """Write one object; with ``new`` only if there is none, decided by the service."""
    import obstore

    data = content if isinstance(content, bytes) else content.tobytes()
    what = f"{key!r} in {str(folder)!r}"
    if not new:
        attempt(what, lambda: obstore.put(store_of(folder), folder.key(key), data))
        return
    try:
        attempt(what, lambda: obstore.put(store_of(folder), folder.key(key), data, mode="create"))
    except IdentityError:
        # The answer to an earlier try may have been lost: then the object is ours.
        if not _holds(folder, key, data):
            raise


def _holds(folder: CloudFolder, key: str, data: bytes) -> bool:
    """Return whether an object has this content; one deleted meanwhile has not."""
    status = head(folder, key)
    if status is None or status.st_size != len(data):
        return False
    try:
        return bytes(read_range(folder, key, 0, len(data))) == data
    except StoreError:
        return False


def delete(folder: CloudFolder, keys: Sequence[str]) -> None:
    """Delete objects; missing ones are ignored."""
    import obstore

    for key in keys:
        try:
            attempt(
                f"{key!r} in {str(folder)!r}",
                lambda key=key: obstore.delete(store_of(folder), folder.key(key)),  # type: ignore[misc]
            )
        except StoreError:
            continue


def attempt(what: str, action: Callable[[], T]) -> T:
    """Return the result of ``action``, repeated with growing pauses while a failure may pass."""
    deadline, pause, tries = time.monotonic() + budget(), _FIRST_PAUSE, 0
    while True:
        tries += 1
        try:
            return action()
        except StreammcError:
            raise
        except Exception as error:  # the classes of obstore, OSError and ValueError
            failure, passing = judge(error, what, tries)
            wait = pause * (0.5 + random.random())
            if not passing or time.monotonic() + wait > deadline:
                raise failure from None
        time.sleep(wait)
        pause = min(2 * pause, _LONGEST_PAUSE)


def store_of(folder: CloudFolder) -> Any:
    """Return the connection to the bucket of a folder."""
    return connect(folder.scheme, folder.bucket)


def status_of(answer: Any) -> ObjectStatus:
    """Return the status of an object as the service describes it."""
    tag = answer.get("e_tag") or answer.get("version")
    digest = crc32(str(tag).encode())
    modified = int(answer["last_modified"].timestamp()) * 10**9
    return ObjectStatus(int(answer["size"]), modified, digest, answer.get("e_tag"))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUESTS, thread_name_prefix="streammc-request")


class InputObject(io.RawIOBase):
    """The bytes of an object, read by ranges; every read is of the content that was opened."""

    def __init__(self, place: CloudFolder) -> None:
        super().__init__()
        self._place = place
        status = head(place)
        if status is None:
            raise MissingError(
                f"expected a file at {str(place)!r}, found nothing: check the address"
            )
        self._size, self._tag = status.st_size, status.tag
        self._at = 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from any byte on."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, into: Any) -> int:
        """Fill a buffer from the position on, by one request; return the number of bytes."""
        import obstore

        length = min(len(into), self._size - self._at)
        if length <= 0:
            return 0
        place = self._place
        options: Any = {"range": (self._at, self._at + length)}
        if self._tag is not None:
            options["if_match"] = self._tag

        def get() -> Any:
            content = obstore.get(store_of(place), place.prefix, options=options).bytes()
            if len(content) != length:
                raise ConnectionError("a truncated body")
            return content

        try:
            into[:length] = memoryview(attempt(f"the file {str(place)!r}", get))
        except StoreError as error:
            raise DataError(
                f"expected {str(place)!r} to stay as it is while it is read, found it changed or "
                "gone: wait until no program writes it, and read it again"
            ) from error
        self._at += length
        return length


def object_stamp(place: CloudFolder) -> FileStamp | None:
    """Return size, time and digest of the tag of an object; ``None`` if there is none."""
    status = head(place)
    return None if status is None else FileStamp(*status[:3])
