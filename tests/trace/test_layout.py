import json
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from streammc.errors import ConfigError
from streammc.trace.datatree import facts, open_run
from streammc.trace.run_directory import RunDirectory
from streammc.trace.run_state import make_layout
from streammc.trace.zarr_files import NUMERIC, ArraySpec, decode, encode


def test_the_tree_has_arviz_names_and_coordinates(job, finished):
    tree = xr.open_datatree(finished, engine="zarr")
    assert {*tree.children} == {
        *("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"),
        *("constant_data", "audit"),
    }
    assert tree["posterior"]["beta"].dims == ("chain", "draw", "feature")
    assert tree["posterior"]["log_sigma"].dims == ("chain", "draw")
    assert tree["sample_stats"]["diverging"].dtype == bool
    assert tree["sample_stats"]["n_steps"].dtype == np.int64
    np.testing.assert_array_equal([0, 1], tree["posterior"]["chain"])
    np.testing.assert_array_equal(np.arange(35), tree["sample_stats"]["draw"])
    selected = tree["posterior"]["beta"].sel(feature="x 1", draw=slice(3, 5))
    np.testing.assert_array_equal(job.theta("draws", 3, 3)[:, :, 1], selected)
    assert tree["constant_data"]["theta_star"].sel(feature="x 1") == -2.0
    assert tree.attrs["store"] == "somewhere"


def test_arviz_labels_are_the_models_labels(job, finished):
    from arviz_stats import summary

    assert list(summary(xr.open_datatree(finished, engine="zarr")).index) == job.LABELS


def test_a_run_is_written_to_netcdf_and_says_the_same_of_itself(finished, tmp_path):
    tree = open_run(finished)
    assert {str, int, float} >= {type(value) for value in tree.attrs.values()}
    tree.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as read:
        np.testing.assert_array_equal(tree["posterior"]["beta"], read["posterior"]["beta"])
        assert facts(tree) == facts(read)
    assert facts(tree) == dict(xr.open_datatree(finished, engine="zarr").attrs)


def test_an_unfinished_run_can_be_opened(job, tmp_path):
    run = job.create(tmp_path / "run")
    assert open_run(run.path)["posterior"].sizes == {"chain": 2, "draw": 0, "feature": 2}
    with run.lock():
        for _ in range(4):
            job.step(run)
        tree = open_run(run.path)
        np.testing.assert_array_equal(
            job.theta("draws", 0, 20)[:, :, 2], tree["posterior"]["log_sigma"]
        )
        assert tree["warmup_posterior"].sizes["draw"] == 20


@pytest.mark.parametrize("name", ["~", "s3::x", "a b", "%2e%2e", "#f?q", "日本", "\udcff"])
def test_a_directory_may_have_any_name(job, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    job.sample(name, 5)
    assert open_run(name).load()["posterior"].sizes["draw"] == 5
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_tree_does_not_grow_after_it_was_opened(job, tmp_path):
    run = job.create(tmp_path / "run")
    with run.lock():
        for _ in range(3):
            job.step(run)
        tree = open_run(run.path)
        while not run.finished():
            job.step(run)
    np.testing.assert_array_equal(job.theta("draws", 0, 10)[:, :, :2], tree["posterior"]["beta"])


def test_a_run_without_warm_up_has_no_groups_for_it(job, tmp_path):
    plan = {**job.plan(), "warmup": 0}
    run = RunDirectory.create(tmp_path / "run", identity={}, **plan)
    assert run.phase == "draws"
    with run.lock():
        job_like = job.theta("draws", 0, 10), job.stats("draws", 0, 10), ({}, {})
        run.append("draws", *job_like)
    assert {*open_run(run.path).children} == {"posterior", "sample_stats", "constant_data"}


def test_entries_that_are_not_features_have_their_own_dimension():
    layout = make_layout(["w[a]", "beta[x]", "w[b]", "beta[y]", "s"], ["x", "y"], 4, 10, {})
    dims = {v.dim: v.coordinate for v in layout.variables if v.dim}
    assert dims == {"w_dim": ("a", "b"), "feature": ("x", "y")}
    assert {v.name: v.columns for v in layout.variables} == {"w": (0, 2), "beta": (1, 3), "s": (4,)}


def test_theta_keeps_its_order_when_labels_are_interleaved(job, tmp_path):
    labels = ["w[a]", "beta[x]", "w[b]", "beta[y]", "s"]
    plan = job.plan(10, labels, ["x", "y"], {"lp": float}) | {"warmup": 0, "constant_data": {}}
    run = RunDirectory.create(tmp_path / "run", identity={}, **plan)
    theta = np.random.default_rng(1).normal(size=(2, 10, 5))
    with run.lock():
        run.append("draws", theta, {"lp": theta[:, :, 0]}, ({}, {}))
    np.testing.assert_array_equal(theta, run.draws_matrix())
    np.testing.assert_array_equal(
        theta[:, :, 3], open_run(run.path)["posterior"]["beta"].sel(feature="y")
    )


@pytest.mark.parametrize(
    ("labels", "stats"),
    [
        (["beta[x]", "beta[x]"], {}),
        (["beta", "beta[x]"], {}),
        (["a/b"], {}),
        (["..[x]"], {}),
        (["draw"], {}),
        (["feature", "beta[x]"], {}),
        (["s"], {"chain": "float64"}),
        (["s"], {"lp": "object"}),
        (["s"], {"../lp": "float64"}),
    ],
)
def test_names_that_cannot_be_stored_are_refused(labels, stats):
    with pytest.raises(ConfigError):
        make_layout(labels, ["x"], 1, 1, stats)


def test_feature_names_may_be_any_text(job, tmp_path):
    names = ["Intercept", "a b", "naïve[é]\n'\"", "", "日本"]
    plan = job.plan(35, [f"beta[{n}]" for n in names], names)
    run = RunDirectory.create(tmp_path / "run", identity={}, **{**plan, "constant_data": {}})
    assert [*open_run(run.path)["posterior"]["feature"].values] == names
    assert RunDirectory.open(run.path).feature_names == tuple(names)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_chunks_written_here_equal_those_of_zarr(tmp_path, dtype):
    values = (np.arange(24).reshape(4, 6) % 3).astype(dtype)
    theirs = zarr.create_array(
        tmp_path / "theirs",
        data=values,
        chunks=(4, 6),
        serializer=BytesCodec(),
        compressors=[Crc32cCodec()],
    )
    assert encode(values, dtype) == (tmp_path / "theirs" / "c" / "0" / "0").read_bytes()
    (tmp_path / "ours").mkdir()
    spec = ArraySpec((4, 6), (4, 6), dtype, ("a", "b"))
    (tmp_path / "ours" / "zarr.json").write_bytes(spec.document_bytes())
    (tmp_path / "ours" / "c.0.0").write_bytes(encode(values, dtype))
    ours = zarr.open_array(tmp_path / "ours", mode="r")
    np.testing.assert_array_equal(theirs[...], ours[...])
    assert ours.dtype == values.dtype
    np.testing.assert_array_equal(values, decode(encode(values, dtype), (4, 6), dtype, "here"))


def test_the_documents_are_strict_json(finished):
    def refuse(name):
        pytest.fail(f"{name} is not JSON")

    texts = [where.read_text() for where in finished.rglob("zarr.json")]
    assert all(json.loads(text, parse_constant=refuse) for text in texts)


def test_opening_gives_no_warning_with_any_reader(finished):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for consolidated in (None, True, False):
            xr.open_datatree(finished, engine="zarr", consolidated=consolidated).load()
        for consolidated in (None, True, False):
            group = zarr.open_group(finished, mode="r", use_consolidated=consolidated)
            names = {name for name, _ in group.members(max_depth=None)}
            assert "posterior/beta" in names
