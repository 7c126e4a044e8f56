from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tampering
from numpy.typing import NDArray

from streammc.stores import StoreWriter


class Sample(NamedTuple):
    """A store and the arrays that went into it."""

    path: Path
    X: NDArray[Any]
    y: NDArray[Any]
    offset: NDArray[Any]
    weight: NDArray[Any]


@pytest.fixture(scope="session")
def write_store() -> Callable[..., Sample]:
    """Write a small store: three chunks, the last one short, all four arrays."""

    def write(
        path: Path,
        rows: int = 10_001,
        columns: int = 3,
        dtype: str = "float32",
        y_dtype: str = "uint8",
        extras: bool = True,
        **options: Any,
    ) -> Sample:
        rng = np.random.default_rng(7)
        X = rng.normal(size=(rows, columns)).astype(dtype)
        y = rng.integers(0, 2, rows).astype(y_dtype)
        offset, weight = rng.normal(size=rows), rng.uniform(0.5, 2.0, rows)
        names = [f"c{column}" for column in range(columns)]
        options = {"chunk_rows": 4096, "offset": extras, "weight": extras} | options
        with StoreWriter(path, features=names, dtype=dtype, y_dtype=y_dtype, **options) as writer:
            for start in range(0, rows, 1_000):
                part = slice(start, start + 1_000)
                more = {"offset": offset[part], "weight": weight[part]} if extras else {}
                writer.append(X[part], y[part], **more)
            writer.commit({"response": "late"})
        return Sample(path, X, y, offset, weight)

    return write


@pytest.fixture
def sample(write_store: Callable[..., Sample], tmp_path: Path) -> Sample:
    return write_store(tmp_path / "table.zarr")


@pytest.fixture(scope="session")
def shared_sample(
    write_store: Callable[..., Sample], tmp_path_factory: pytest.TempPathFactory
) -> Sample:
    """A store that no test changes."""
    return write_store(tmp_path_factory.mktemp("shared") / "table.zarr")


@pytest.fixture(scope="session")
def seal() -> Callable[..., None]:
    """Make the manifest agree with an object that was changed on purpose."""
    return tampering.seal


@pytest.fixture(scope="session")
def edit() -> Callable[..., None]:
    """Change a JSON document of a store, here and in the consolidated metadata."""
    return tampering.edit
