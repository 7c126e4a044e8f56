"""MNIST digits 1 and 7 as rows of 784 pixels in [0, 1], and copies of them, moved and turned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from bench.papers.measures import Array

FILE = "mnist_1v7.npz"
SIDE = 28
LARGEST_SHIFT = 1.0
LARGEST_ANGLE = 7.5
COPIES = 100_000


@dataclass
class Digits:
    """Images (n, 784) float32 and labels (n,); ``test`` ones beside them."""

    X: NDArray[np.float32]
    y: Array
    X_test: NDArray[np.float32]
    y_test: Array


def folder() -> Path:
    """Return where the public data sets are."""
    where = os.environ.get("STREAMMC_TEST_DATA")
    if not where or not (Path(where) / FILE).exists():
        raise SystemExit(
            f"expected the folder of {FILE} in STREAMMC_TEST_DATA, found {where!r}; "
            "CONTRIBUTING.md says what it holds"
        )
    return Path(where)


def digits() -> Digits:
    """Return MNIST-13k: 13,007 images for training and 2,163 for testing; label 1 is a seven."""
    with np.load(folder() / FILE) as held:
        images = [np.asarray(held[key], np.float32) / 255.0 for key in ("X_train", "X_test")]
        labels = [np.asarray(held[key], np.float64) for key in ("y_train", "y_test")]
    return Digits(images[0], labels[0], images[1], labels[1])


def moved_copies(start: Digits, rows: int = COPIES, seed: int = 0) -> Digits:
    """Return the images and copies of them, shifted and rotated, until there are ``rows``.

    It stands for the 87,000 digits that the paper takes from infinite MNIST: every copy is an
    image of the training set, turned by up to 7.5 degrees and moved by up to 1 pixel each way,
    uniformly, with bilinear interpolation.
    """
    rng = np.random.default_rng([100, seed])
    n = len(start.X)
    X = np.empty((rows, SIDE * SIDE), np.float32)
    chosen = np.concatenate([np.arange(n), rng.integers(n, size=max(rows - n, 0))])[:rows]
    X[:n] = start.X[:rows]
    middle = np.full(2, (SIDE - 1) / 2.0)
    for i in range(n, rows):
        angle = np.deg2rad(rng.uniform(-LARGEST_ANGLE, LARGEST_ANGLE))
        shift = rng.uniform(-LARGEST_SHIFT, LARGEST_SHIFT, 2)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        image = start.X[chosen[i]].reshape(SIDE, SIDE)
        X[i] = affine_transform(image, turn, middle - turn @ (middle + shift), order=1).ravel()
    order = rng.permutation(rows)
    return Digits(X[order], start.y[chosen[order]], start.X_test, start.y_test)


def held_copies(path: Path, start: Digits) -> Digits:
    """Return ``moved_copies``, kept at ``path``."""
    if not path.exists():
        made = moved_copies(start)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=made.X, y=made.y)
    with np.load(path) as held:
        return Digits(held["X"], held["y"], start.X_test, start.y_test)


def accuracy(found: Digits, draws: Array) -> Array:
    """Return the share of test images (k,) that each draw (k, 784) classifies right."""
    margin = found.X_test @ draws.T.astype(np.float32)
    right: Array = ((margin > 0.0) == (found.y_test[:, None] == 1.0)).mean(axis=0)
    return right


def test_log_likelihood(found: Digits, draws: Array) -> Array:
    """Return the mean log-likelihood of a test image (k,) by each draw (k, 784)."""
    margin = (found.X_test @ draws.T.astype(np.float32)).astype(np.float64)
    signed = np.where(found.y_test[:, None] == 1.0, margin, -margin)
    value: Array = -np.logaddexp(0.0, -signed).mean(axis=0)
    return value
