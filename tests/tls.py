"""Certificates for the tests of encrypted clusters."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificates(folder: Path, name: str, of: str | None = None, days: int = 2) -> dict[str, str]:
    """Make a certificate, and its authority unless ``of`` names one; return settings of dask."""
    folder.mkdir(exist_ok=True)
    authority = of or name
    ca, ca_key = (folder / f"{authority}-{part}.pem" for part in ("ca", "ca-key"))
    request, key, cert = (folder / f"{name}{part}" for part in (".csr", "-key.pem", "-cert.pem"))
    new = ["-newkey", "rsa:2048", "-nodes", "-subj"]
    by = ["-CA", ca, "-CAkey", ca_key]
    steps = [
        ["req", "-x509", *new, "/CN=authority", "-days", "2", "-keyout", ca_key, "-out", ca],
        ["req", *new, "/CN=streammc", "-keyout", key, "-out", request],
        ["x509", "-req", "-CAcreateserial", "-days", days, "-in", request, *by, "-out", cert],
    ]
    for words in steps[of is not None :]:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    found = {f"{tls}CA_FILE": str(ca)}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        found |= {f"{tls}{role}__CERT": str(cert), f"{tls}{role}__KEY": str(key)}
    return found
