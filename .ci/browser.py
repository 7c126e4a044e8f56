"""What the tests in a browser need: a headless Chromium from Debian, and axe-core from npm.

Run as ``python .ci/browser.py``, by ``make browser``. Chromium is installed only where ``apt-get``
is there and this user may use it; axe-core goes to ``axe.min.js`` in the virtual environment,
where ``bench/browser.py`` finds it. What cannot be had is said in a line, and its tests are
skipped; a download with another checksum is an error.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

CHROMIUM = ("chromium-headless-shell", "chromium")
"""Debian packages, and the names of their programs."""
AXE = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="


def install_chromium() -> None:
    """Install the first of the packages that there is."""
    if any(map(shutil.which, (*CHROMIUM, "chromium-browser", "google-chrome"))):
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        quiet = {"env": environment, "stdout": subprocess.DEVNULL, "check": False}
        subprocess.run(["apt-get", "update", "-qq"], **quiet)
        for name in CHROMIUM:
            command = ["apt-get", "install", "-qq", "--no-install-recommends", name]
            if subprocess.run(command, **quiet).returncode == 0:
                return
    print("no Chromium, and none can be installed here: its tests are skipped", file=sys.stderr)


def fetch_axe(target: Path) -> None:
    """Write axe-core to ``target``."""
    if target.exists():
        return
    try:
        with urllib.request.urlopen(AXE, timeout=60) as answer:
            packed = answer.read()
    except OSError as error:
        print(f"no axe-core ({error}): its test is skipped", file=sys.stderr)
        return
    found = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != SHA512:
        raise SystemExit(f"expected {AXE} with SHA-512 {SHA512}, found {found}: do not use it")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        member = files.extractfile("package/axe.min.js")
        assert member is not None
        target.write_bytes(member.read())


if __name__ == "__main__":
    install_chromium()
    fetch_axe(Path(sys.prefix) / "axe.min.js")
