"""Check an installed wheel from outside the checkout: layout, command, and a small job."""

import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import streammc

site = Path(sysconfig.get_path("purelib"))
command = Path(sysconfig.get_path("scripts")) / "streammc"


def run(*arguments: str) -> str:
    """Run the installed command; return what it wrote on stdout."""
    finished = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"streammc {' '.join(arguments)}: {finished.returncode}\n{finished.stderr}")
    return finished.stdout


def main() -> None:
    """Run every check; exit non-zero at the first that fails."""
    package = site / "streammc"
    assert Path(streammc.__file__).parent == package, streammc.__file__
    for folder in ("stores", "cli"):
        assert (package / folder / "__init__.py").is_file(), f"{folder} is not inside the wheel"
        assert not (site / folder).exists(), f"{folder} leaked into site-packages"
        assert importlib.util.find_spec(folder) is None, f"{folder} is a global package"
    assert (package / "py.typed").is_file()
    assert (package / "demo_data" / "higgs11k.csv.gz").is_file()
    assert (package / "demo_data" / "ATTRIBUTION.md").is_file()

    assert streammc.__version__ in run("--version")

    folder = Path("smoke")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    store, result = str(folder / "data.zarr"), str(folder / "run")
    run("simulate", "logistic", store, "--rows", "5000", "--dim", "3", "--seed", "1", "--quiet")
    run("verify", store, "--quiet")
    answer = json.loads(
        run(
            *("sample", store, "-o", result, "--model", "logistic", "--seed", "1", "--json"),
            *("--draws", "200", "--warmup", "200", "--chains", "2", "--quiet"),
        )
    )
    assert len(answer["parameters"]) == 3, sorted(answer["parameters"])
    print(f"streammc {streammc.__version__} works from {site}")


if __name__ == "__main__":
    main()
