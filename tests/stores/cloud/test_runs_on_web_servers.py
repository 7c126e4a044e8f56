"""A run on a plain web server: read with every check, never written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import obstore
import pytest
from object_store import Bucket

from streammc.errors import ConfigError
from streammc.stores.cloud.address import store_root
from streammc.stores.cloud.requests import connect
from streammc.trace import places
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout


def test_run_on_a_web_server_is_read_and_not_written(
    bucket: Bucket, tmp_path: Path, serve_folder: Callable[[Path], str]
) -> None:
    pytest.importorskip("obstore")
    layout = make_layout(["beta[x]"], ["x"], 1, 10, {})
    centre = {"theta_star": np.array([0.25])}
    RunDirectory.create(
        f"{bucket.address}/run", identity={}, layout=layout, draws=5, warmup=0, constant_data=centre
    )
    root = store_root(bucket.address)
    client = connect(root.scheme, root.bucket)
    for batch in obstore.list(client, "run"):
        for each in batch:
            (tmp_path / each["path"]).parent.mkdir(parents=True, exist_ok=True)
            content = bytes(obstore.get(client, each["path"]).bytes())
            (tmp_path / each["path"]).write_bytes(content)
    address = f"{serve_folder(tmp_path)}/run"
    np.testing.assert_array_equal([0.25], RunDirectory.open(address).constant_data("theta_star"))
    with pytest.raises(ConfigError, match="a web server can only be read from"):
        places.require_writable(places.run_folder(address))
