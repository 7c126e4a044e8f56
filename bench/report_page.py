"""Pictures of a report of the demonstration data: light, dark, narrow and printed.

    python -m bench.report_page --write

samples the data set that ships with the package, predicts its rows, writes the report and takes the
pictures of docs/how-to/report with a headless Chromium; the printed one needs pypdfium2.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from bench.browser import browser, picture, printed
from streammc import demo_data
from streammc.cli import main as streammc

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "report"
FEATURES = "m_bb,m_wwbb,m_jlv,m_jjj,m_lv"


def made(folder: Path) -> Path:
    """Sample, predict and report in ``folder``; return the page."""
    shutil.copy(demo_data.path(), folder / "higgs.csv.gz")
    with contextlib.chdir(folder):
        for words in (
            f"ingest higgs.csv.gz higgs.zarr --response signal --features {FEATURES}",
            "sample higgs.zarr -o run --model logistic --sampler hmc-ecs --seed 1",
            "predict run higgs.zarr -o predictions.zarr --by m_bb --bins 20",
            "report run -o report.html --predictions predictions.zarr",
        ):
            code = streammc([*words.split(), "--quiet"])
            assert code == 0, words
    return folder / "report.html"


def main() -> None:
    """Make the page; with ``--write`` also its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the pictures of the docs")
    parser.add_argument("--folder", type=Path, help="keep the run and the page here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = made(Path(options.folder or folder))
        print(f"{os.path.getsize(page) / 1e3:.0f} kB")
        if options.write:
            assert browser() is not None, "no Chromium: apt install chromium-headless-shell"
            FOLDER.mkdir(exist_ok=True)
            picture(page, FOLDER / "light.png", 1280, 1000)
            picture(page, FOLDER / "dark.png", 1280, 1000, dark=True)
            picture(page, FOLDER / "narrow.png", 400, 1500)
            picture(page, FOLDER / "narrow-dark.png", 400, 1500, dark=True)
            printed(page, FOLDER / "print.png")


if __name__ == "__main__":
    main()
