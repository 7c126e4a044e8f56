"""Exit codes and JSON of every failure: checks 44 and 48."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from bad_inputs.check import AREAS, cases_of
from bad_inputs.inputs import make_inputs
from checks_of_trust import JOB
from command_line import streammc

FEW = (*JOB, "--draws", "60")


@pytest.mark.trust(44)
@pytest.mark.trust(48, caught="one flipped bit in a run: an object of JSON with 65")
@pytest.mark.slow
def test_every_failure_of_the_command_line_is_json_with_the_code_of_the_process(
    record_property: Callable[[str, object], None],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("STREAMMC_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            make_inputs()
            codes, count = set(), 0
            for case in [case for area in AREAS for case in cases_of(area)]:
                words = shlex.split(case)
                if words[0] != "streammc" or "--" in words:
                    continue
                known = set(os.listdir())
                done = streammc(*words[1:], "--json")
                for left in set(os.listdir()) - known:
                    path = Path(left)
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                error = json.loads(done.out)["error"]
                assert (done.code, True) == (error["exit_code"], done.code != 0), case
                assert error["code"], case
                assert error["message"], case
                codes.add(done.code)
                count += 1
        assert codes >= {2, 65, 66, 69, 73, 78}, codes
    said = ", ".join(map(str, sorted(codes)))
    record_property("figure", f"{count} of {count} failures are JSON with their code, of {said}")


@pytest.mark.trust(44)
def test_a_command_ends_with_0_only_if_its_result_is_there_and_verifies(
    finished: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    again = ("sample", finished / "store.zarr", "-o", run, *FEW)
    assert 0 == streammc(*again).code
    chunk = run / "posterior" / "beta" / "c.0.1.0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert 65 == streammc(*again).code
    chunk.unlink()
    assert 65 == streammc(*again).code
    record_property("caught", "one flipped bit in a finished run: 65, not 0")
