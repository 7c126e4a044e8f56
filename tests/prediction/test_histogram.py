import numpy as np
import pytest

from streammc.prediction.roc import add_bins, find_bins, find_thresholds

rng = np.random.default_rng(1)
EDGES = {
    "even": np.linspace(0.0, 1.0, 41),
    "bell": np.sort(rng.normal(size=4095)),
    "rare": np.sort(np.exp(rng.normal(-14, 3, size=1000))),
    "steps": np.unique(np.r_[np.linspace(0, 1e-9, 500), 0.5, 1.0]),
    "one": np.array([0.3]),
    "none": np.empty(0),
    "tiny": np.array([0.0, 5e-324, 1e-320]),
}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", EDGES)
def test_bin_is_the_number_of_edges_up_to_the_score(name, binary):
    edges = EDGES[name]
    found = find_thresholds(edges)
    np.testing.assert_array_equal(edges, found.edges)
    around = [edges, np.nextafter(edges, 2), np.nextafter(edges, -2), rng.random(500)]
    scores = np.concatenate([*around, [-1e300, 1e300, 0.0, 1.0, -3.0]])
    scores = np.stack([scores, rng.permutation(scores)])
    m = scores.shape[1]
    y, weight = rng.random(m), rng.random(m)
    y = np.round(y) if binary else y
    counts = np.zeros((2, len(edges) + 1, 2))
    bins = np.zeros((2, m), np.uint16)
    half = m // 2
    find_bins(np.ascontiguousarray(scores[:, :half]), *found, 0, bins)
    find_bins(np.ascontiguousarray(scores[:, half:]), *found, half, bins)
    add_bins(bins, y, weight, counts)
    for s in range(2):
        place = np.searchsorted(edges, scores[s], side="right")
        for k, part in enumerate((weight * (1 - y), weight * y)):
            expected = np.bincount(place, part, len(edges) + 1)
            np.testing.assert_allclose(counts[s, :, k], expected, rtol=1e-12)
