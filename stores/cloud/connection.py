"""Connections to object stores, made from the environment or a profile and never pickled.

A connection belongs to its process. What travels to workers is the address
(``cloud.address.CloudFolder``); each process finds its own credentials.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from streammc.errors import AccessError, ConfigError

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
    """Return the ``obstore`` store of a bucket, container or host; nothing is sent yet.

    Raises
    ------
    ConfigError
        If obstore is not installed, or a variable of the environment cannot be used.
    AccessError
        If a profile is asked for and has no credentials.
    """
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
