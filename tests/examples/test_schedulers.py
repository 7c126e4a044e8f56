"""``examples/jobs``: what one machine can run of cron, systemd, Slurm, Kubernetes and Argo."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import program
from job_tables import write_job, write_table

from streammc import errors

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "examples" / "jobs"
BIN = Path(sys.executable).parent
RETRIED = {69, 74, 75, 137, 143}
"""Exit codes after which another attempt may help."""
REFUSED = {1, 2, 65, 66, 70, 71, 73, 77, 78}


def document(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((JOBS / name).read_text()))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished small job."""
    folder = tmp_path_factory.mktemp("job")
    write_job(folder)
    done = program("run", "job.toml", "--quiet", cwd=folder)
    assert 0 == done.code, done.err
    return folder


def here(words: list[str], folder: Path) -> list[str]:
    """Return the arguments of a container with the folder of the job in place of its mount."""
    return [re.sub(r"^/(job|tmp)/", f"{folder}/", word) for word in words]


def test_the_codes_of_the_examples_are_those_of_the_errors() -> None:
    known = {
        each.exit_code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.StreammcError)
    }
    assert known | {1, 137, 143} == RETRIED | REFUSED
    assert not RETRIED & REFUSED


@pytest.mark.slow
def test_cron_runs_the_command_of_its_line(tmp_path: Path) -> None:
    lines = (JOBS / "crontab").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    schedule = [line for line in lines if re.match(r"[0-9*]", line)]
    assert 1 == len(schedule)
    *times, command = schedule[0].split(maxsplit=5)
    assert all(re.fullmatch(r"[0-9*/,-]+", each) for each in times)
    assert "%" not in command  # cron would make a line break of it
    folder = tmp_path / "flights"
    folder.mkdir()
    (folder / "nightly.toml").write_text(
        (JOBS / "nightly.toml").read_text().replace(" + hour", "").replace("= 14", "= 1")
    )
    environment = {**settings, "STREAMMC": str(BIN / "streammc")}
    environment["JOB"] = environment["JOB"].replace("/srv/flights", str(folder))
    command = command.replace("/srv/flights", str(folder))
    made = []
    for seed in (1, 1, 2):  # the second night brings no new table
        if not made or seed == 2:
            write_table(folder / "flights.parquet", seed=seed)
        done = subprocess.run(
            ["sh", "-c", command], env={**os.environ, **environment}, timeout=120, check=False
        )
        assert 0 == done.returncode, (folder / "job.log").read_text()
        assert "ended" == json.loads((folder / "heartbeat.json").read_text())["state"]
        made.append(os.listdir(folder / "nights"))
    assert [1, 1, 1] == list(map(len, made))
    assert made[0] == made[1] != made[2]


def unit_settings(name: str) -> dict[str, str]:
    lines = (JOBS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def test_systemd_restarts_what_may_be_retried_and_nothing_else() -> None:
    service = unit_settings("streammc-flights.service")
    assert "on-failure" == service["Restart"]
    assert REFUSED == set(map(int, service["RestartPreventExitStatus"].split()))
    assert int(service["TimeoutStopSec"]) > 10
    assert "true" == unit_settings("streammc-flights.timer")["Persistent"]


@pytest.mark.slow
def test_systemd_runs_the_command_of_its_unit(job: Path) -> None:
    words = unit_settings("streammc-flights.service")["ExecStart"].split()
    assert words[0].endswith("/streammc")
    words = [word.replace("/run/streammc-flights", str(job)) for word in words[1:]]
    assert 0 == program(*words, cwd=job).code


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name in ("streammc-flights.service", "streammc-flights.timer"):
        text = (JOBS / name).read_text().replace("/opt/streammc/bin/streammc", sys.executable)
        (tmp_path / name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    checked = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    broken = tmp_path / "streammc-flights.service"
    broken.write_text(broken.read_text().replace("ExecStart=", "ExecStrat="))
    done = subprocess.run(checked, capture_output=True, text=True, timeout=60, check=False)
    assert "" != done.stderr


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """Environment of a batch job: an id, streammc, and an ``scontrol`` that records its words."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "streammc").symlink_to(BIN / "streammc")
    control = tmp_path / "bin" / "scontrol"
    control.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    control.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SLURM_JOB_ID": "42"}


def batch(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = ["sh", str(JOBS / "slurm.sh"), "job.toml"]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_slurm_asks_for_a_minute_and_a_signal_to_the_shell() -> None:
    text = (JOBS / "slurm.sh").read_text()
    assert "#SBATCH --signal=B:USR1@60\n" in text
    assert "#SBATCH --requeue\n" in text
    assert 0 == subprocess.run(["sh", "-n", str(JOBS / "slurm.sh")], check=False).returncode


@pytest.mark.slow
def test_slurm_ends_with_the_code_of_the_job(
    job: Path, slurm: dict[str, str], tmp_path: Path
) -> None:
    assert 0 == batch(job, slurm).wait(120)
    folder = tmp_path / "wrong"
    folder.mkdir()
    write_job(folder, draws="0")
    assert 78 == batch(folder, slurm).wait(120)
    assert not (tmp_path / "asked").exists()


@pytest.mark.slow
def test_slurm_checkpoints_at_the_signal_and_goes_back_into_the_queue(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    write_job(folder, draws="150000", seed='1\nname = "hmc"')
    process = batch(folder, slurm)
    deadline = time.monotonic() + 240.0
    beat = folder / "heartbeat-42.json"
    while not beat.exists() or not json.loads(beat.read_text()).get("draws"):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    sent = time.monotonic()
    assert 143 == process.wait(60)
    assert time.monotonic() - sent < 10.0
    assert "requeue 42\n" == (tmp_path / "asked").read_text()
    found = json.loads((folder / "work" / "summary.json").read_text())
    last = found["stages"][-1]
    assert ("interrupted", "sample") == (found["outcome"], last["stage"])
    assert "not finished" == last["outcome"]
    assert 0 == batch(folder, slurm).wait(300)
    found = json.loads((folder / "work" / "summary.json").read_text())
    assert ("done", "resumed") == (found["outcome"], found["stages"][1]["outcome"])


def test_kubernetes_retries_what_may_be_retried_and_nothing_else() -> None:
    spec = document("kubernetes-job.yaml")["spec"]
    codes = {
        rule["action"]: set(rule["onExitCodes"]["values"])
        for rule in spec["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }
    assert {"FailJob": REFUSED, "Count": RETRIED} == codes
    pod = spec["template"]["spec"]
    assert "Never" == pod["restartPolicy"]
    assert pod["terminationGracePeriodSeconds"] > 10
    names = {container["name"] for container in pod["containers"]}
    assert names == {
        rule["onExitCodes"]["containerName"]
        for rule in spec["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }


@pytest.mark.slow
def test_kubernetes_runs_its_container_and_its_probe(job: Path) -> None:
    pod = document("kubernetes-job.yaml")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert 0 == program(*here(container["args"], job), cwd=job).code
    probe = container["livenessProbe"]["exec"]["command"]
    probe = [word.replace("/tmp/", f"{job}/") for word in probe]
    assert 0 == subprocess.run(probe, check=False).returncode
    old = time.time() - 600.0
    os.utime(job / "heartbeat.json", (old, old))
    assert 0 != subprocess.run(probe, check=False).returncode


@pytest.mark.slow
def test_argo_checks_runs_and_retries(job: Path) -> None:
    workflow = document("argo-workflow.yaml")["spec"]["workflowSpec"]
    templates = {each["name"]: each for each in workflow["templates"]}
    steps = [each["template"] for group in templates["flights"]["steps"] for each in group]
    assert ["check", "run"] == steps
    for name in steps:
        done = program(*here(templates[name]["container"]["args"], job), cwd=job)
        assert 0 == done.code, done.err
    expression = templates["run"]["retryStrategy"]["expression"]
    assert RETRIED == set(map(int, re.findall(r'"(\d+)"', expression)))


def test_docker_copies_what_the_package_is_made_of() -> None:
    lines = (JOBS / "Dockerfile").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    assert ["FROM", "WORKDIR", "COPY"] == [each[0] for each in words][:3]
    copied = {name for each in words if each[0] == "COPY" for name in each[1:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "README.md", "LICENSE", "streammc", "stores", "cli"} == copied
    assert 'ENTRYPOINT ["streammc"]' in lines  # as process 1, without a shell: it gets the signals
    assert "USER job" in lines


def setuptools_version() -> int:
    """Return the major version of setuptools; 0 without it. The project needs 77."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return int(version("setuptools").split(".")[0])
    except PackageNotFoundError:
        return 0


@pytest.mark.slow
@pytest.mark.skipif(setuptools_version() < 77, reason="setuptools here is too old to build with")
def test_what_docker_copies_makes_a_wheel_with_the_commands(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("streammc", "stores", "cli"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=skipped)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-q", "-w", "out"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    from zipfile import ZipFile

    names = ZipFile(next((tmp_path / "out").glob("*.whl"))).namelist()
    assert "streammc/cli/jobs/job_run.py" in names
