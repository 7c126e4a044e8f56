"""A page in a headless Chromium: pictures, and what a reader's browser would complain about."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
AXE = Path(sys.prefix) / "axe.min.js"
"""axe-core, which ``make browser`` fetches."""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def browser() -> str | None:
    """Return the path of a Chromium, or ``None``."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def axe_source() -> str | None:
    """Return the source of axe-core, or ``None`` where it was not fetched."""
    return AXE.read_text(encoding="utf-8") if AXE.exists() else None


def opened(page: Path, *options: str, dark: bool = False) -> subprocess.CompletedProcess[str]:
    """Open a page, wait two seconds of its time, and return what the browser printed."""
    program = browser()
    assert program is not None
    return subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--virtual-time-budget=10000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *options,
            page.resolve().as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def picture(page: Path, target: Path, width: int, height: int, *, dark: bool = False) -> None:
    """Write a PNG of the top of a page."""
    opened(page, f"--window-size={width},{height}", f"--screenshot={target}", dark=dark)


def printed(page: Path, target: Path) -> None:
    """Write a PNG of the first two sheets of a page on paper, side by side."""
    import numpy as np
    import pypdfium2
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        sheets = Path(folder) / "page.pdf"
        opened(page, "--no-pdf-header-footer", f"--print-to-pdf={sheets}")
        document = pypdfium2.PdfDocument(sheets)
        both = [np.asarray(document[k].render(scale=1.0).to_pil().convert("RGB")) for k in (0, 1)]
    gap = np.full((both[0].shape[0], 12, 3), 128, np.uint8)
    Image.fromarray(np.concatenate([both[0], gap, both[1]], axis=1)).save(target)


def messages_and_requests(page: Path) -> tuple[list[str], list[str]]:
    """Return the messages of the console, and the addresses that were asked for but the page."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "net.json"
        printed = opened(page, "--enable-logging=stderr", f"--log-net-log={log}", "--dump-dom")
        events = log.read_text(encoding="utf-8")
    messages = re.findall(r'CONSOLE[:(][^\]]*\] "([^\n]*)"', printed.stderr)
    urls = set(re.findall(r'"url":"(https?://[^"]+)"', events))
    return messages, sorted(urls)


def width_of(page: Path, window: int) -> int:
    """Return how wide the content of a page is in a window of ``window`` pixels."""
    script = "document.title=document.documentElement.scrollWidth"
    text = _with_script(page, f"window.onload=()=>{{{script}}}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(text, encoding="utf-8")
        # A window is not narrower than 500 pixels, so the page stands in a frame.
        frame = Path(folder) / "frame.html"
        frame.write_text(
            f'<iframe id="f" src="page.html" style="width:{window}px;height:900px;border:0">'
            "</iframe><script>window.onload=()=>{document.title="
            "document.getElementById('f').contentDocument.documentElement.scrollWidth}</script>"
        )
        found = opened(frame, "--allow-file-access-from-files", "--dump-dom").stdout
    title = re.search(r"<title>(\d+)</title>", found)
    assert title is not None, found[:500]
    return int(title[1])


def violations(page: Path, axe: str, *, dark: bool = False) -> list[dict[str, Any]]:
    """Return the violations of accessibility that axe-core finds in a page."""
    call = (
        "axe.run(document).then(r=>{document.documentElement.innerHTML='<pre id=\"axe\">'+"
        "btoa(unescape(encodeURIComponent(JSON.stringify(r.violations.map(v=>({id:v.id,"
        "impact:v.impact,nodes:v.nodes.map(n=>n.html.slice(0,120))}))))))+'</pre>'})"
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(_with_script(page, axe, call), encoding="utf-8")
        found = opened(copy, "--dump-dom", dark=dark).stdout
    answer = re.search(r'<pre id="axe">([^<]*)</pre>', found)
    assert answer is not None, found[-500:]
    result: list[dict[str, Any]] = json.loads(base64.b64decode(answer[1]))
    return result


def _with_script(page: Path, *scripts: str) -> str:
    """Return a page with scripts at its end, and without the policy that forbids them."""
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    end = "".join(
        f"<script>{each.replace('</', chr(60) + chr(92) + '/')}</script>" for each in scripts
    )
    return text.replace("</body>", f"{end}</body>")
