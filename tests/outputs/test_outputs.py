"""Outputs, Head and Passes: what enters is checked once, what leaves cannot be changed."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs, Passes

N, C, D, M = 6, 3, 4, 5


def parts(seed: int = 0, rows: int = N, dtype: type = np.float64) -> dict:
    """Every argument of Outputs, consistent with each other."""
    rng = np.random.default_rng(seed)
    head = Head(*(np.random.default_rng(99).normal(size=shape).astype(dtype) for shape in ((C, D), (C,))))
    features = rng.normal(size=(rows, D)).astype(dtype)
    return {
        "logits": (features @ head.weight.T + head.bias).astype(dtype),
        "labels": rng.integers(-1, C, rows),
        "features": features,
        "head": head,
        "layers": {"block1/mean": rng.normal(size=(rows, 2))},
        "passes": rng.normal(size=(M, rows, C)),
        "learned": {"confidnet": rng.random(rows)},
        "predictions": rng.integers(0, C, rows),
        "ids": np.array([f"tür-{i}" for i in range(rows)]),
        "class_names": ["cat", "dog", "owl"],
    }


def same(a: Outputs, b: Outputs) -> bool:
    """Equal in every array, the head, the class names and the number of passes."""
    _ = a.predictions, b.predictions
    x, y = a.flat(), b.flat()
    heads = a.head is b.head or (a.head is not None and b.head is not None and a.head.same_as(b.head))
    return (
        x.keys() == y.keys()
        and all(np.array_equal(x[key], y[key]) and x[key].dtype == y[key].dtype for key in x)
        and heads
        and (a.class_names, a.pass_count) == (b.class_names, b.pass_count)
    )


# what enters


def test_fields_come_back_as_they_entered():
    given_ = parts()
    outputs = Outputs(**given_)
    for name in ("logits", "labels", "features", "predictions", "ids", "passes"):
        np.testing.assert_array_equal(getattr(outputs, name), given_[name])
    assert outputs.class_names == ("cat", "dog", "owl")
    assert outputs.head is given_["head"]
    assert outputs.labels.dtype == outputs.predictions.dtype == np.int64
    assert len(outputs) == N
    assert outputs.classes == C
    assert "features" in repr(outputs)


def test_absent_fields():
    outputs = Outputs([[1.0, 2.0]])
    assert outputs.labels is outputs.features is outputs.head is outputs.passes is outputs.ids is None
    assert outputs.layers == outputs.learned == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_is_kept_and_nothing_is_copied(dtype):
    logits = np.eye(3, dtype=dtype)
    outputs = Outputs(logits)
    assert outputs.logits.dtype == dtype
    assert np.shares_memory(outputs.logits, logits)
    assert logits.flags.writeable


def test_integers_long_doubles_and_swapped_bytes_become_plain_floats():
    assert Outputs([[1, 2]]).logits.dtype == np.float64
    assert Outputs(np.eye(2, dtype=np.longdouble)).logits.dtype == np.float64
    swapped = Outputs(np.array([[1.5, 0.0]], dtype=">f4")).logits
    assert swapped.dtype == np.dtype("=f4")
    assert swapped[0, 0] == 1.5


def test_arrays_are_read_only_and_the_object_is_frozen():
    outputs = Outputs(**parts())
    for array in (
        *outputs.flat().values(),
        outputs.passes,
        outputs.ids,
        outputs.head.weight,
        outputs.head.bias,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        outputs.logits = np.eye(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        outputs.head.bias = np.ones(3)
    with pytest.raises(TypeError):
        outputs.layers["new"] = np.eye(2)


def test_pandas_and_lists_enter():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 3.0]}, index=[7, 9])
    outputs = Outputs(frame, labels=pd.Series([0, -1], dtype="Int64"), ids=pd.Series(["x", "y"]))
    np.testing.assert_array_equal(outputs.predictions, [0, 1])
    np.testing.assert_array_equal(outputs.labels, [0, -1])
    assert outputs.ids.tolist() == ["x", "y"]


def test_memory_maps_stay_on_disk(tmp_path):
    stored = np.lib.format.open_memmap(tmp_path / "z.npy", mode="w+", dtype=np.float32, shape=(10, 3))
    stored[:] = np.arange(30).reshape(10, 3)
    stored.flush()
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    outputs = Outputs(mapped)
    assert np.shares_memory(outputs.logits, mapped)
    assert sum(len(block) for block in outputs.blocks(3)) == 10
    np.testing.assert_array_equal(outputs.logits, stored)


def test_changes_in_a_private_memory_map_survive_blocks(tmp_path):
    np.save(tmp_path / "z.npy", np.zeros((4000, 3)))
    mapped = np.load(tmp_path / "z.npy", mmap_mode="c")
    mapped[:, 2] = 1.0
    for block in Outputs(mapped).blocks(1000):
        assert (block.logits[:, 2] == 1).all()
    assert (mapped[:, 2] == 1).all()


def test_infinite_learned_confidences_are_legal():
    outputs = Outputs(np.eye(2), learned={"odin": [np.inf, -np.inf]})
    assert outputs.learned["odin"][0] == np.inf


# what is refused

BAD = {
    "rows of labels": ({"labels": [0, 1]}, r"labels has 2 rows but logits has 6"),
    "rows of features": (
        {"features": np.ones((5, D)), "head": None},
        r"features has 5 rows but logits has 6",
    ),
    "rows of layers": ({"layers": {"a": np.ones((2, 1))}}, r"layers/a has 2 rows but logits has 6"),
    "rows of learned": ({"learned": {"a": np.ones(2)}}, r"learned/a has 2 rows but logits has 6"),
    "rows of passes": ({"passes": np.ones((M, 2, C))}, r"passes has 2 rows but logits has 6"),
    "rows of ids": ({"ids": [1, 2]}, r"ids has 2 rows but logits has 6"),
    "label too large": ({"labels": [0, 1, 2, 3, 0, 0]}, r"labels must be in \[-1, 3\).*got 3 in row 3"),
    "label too small": ({"labels": [0, -2, 2, 3, 0, 0]}, r"labels must be in \[-1, 3\).*got -2 in row 1"),
    "label fraction": ({"labels": [0, 0.5, 2, 3, 0, 0]}, r"labels must be integer.*0.5 in row 1"),
    "boolean labels": ({"labels": [True] * N}, "labels must be integer class labels, got booleans"),
    "OOD prediction": ({"predictions": [-1] * N}, r"predictions must be in \[0, 3\).*got -1 in row 0"),
    "flat logits": ({"logits": np.ones(N)}, r"logits must be two-dimensional \(N, K\), got shape \(6,\)"),
    "no logits": ({"logits": None}, "logits must be two-dimensional"),
    "empty logits": ({"logits": np.ones((0, C))}, "logits is empty"),
    "no classes": ({"logits": np.ones((N, 0))}, "logits is empty"),
    "boolean logits": ({"logits": np.ones((N, C), bool)}, "logits must be floats, got booleans"),
    "text logits": ({"logits": [["a", "b"]]}, "logits must hold numbers"),
    "ragged logits": ({"logits": [[1.0], [1.0, 2.0]]}, "logits must be a rectangular array"),
    "boolean features": ({"features": np.ones((N, D), bool)}, "features must be floats, got booleans"),
    "flat features": ({"features": np.ones(N)}, "features must be two-dimensional"),
    "boolean layer": ({"layers": {"a": np.ones((N, 1), bool)}}, "layers/a must be floats, got booleans"),
    "infinite layer": (
        {"layers": {"a": np.full((N, 1), np.inf)}},
        "layers/a must be finite, got inf in row 0",
    ),
    "layers no dict": (
        {"layers": np.ones((N, 2))},
        "layers must be a dictionary of arrays by name, got ndarray",
    ),
    "layer key": ({"layers": {3: np.ones((N, 2))}}, "layers must have non-empty strings as keys, got 3"),
    "NaN learned": (
        {"learned": {"a": [0, 1, np.nan, 0, 0, 0]}},
        "learned/a must not be NaN, got NaN in row 2",
    ),
    "deep learned": ({"learned": {"a": np.ones((N, 1))}}, "learned/a must be one-dimensional"),
    "flat passes": ({"passes": np.ones((N, C))}, "passes must be three-dimensional"),
    "classes of passes": ({"passes": np.ones((M, N, 2))}, "passes has 2 classes but logits has 3"),
    "head no Head": ({"head": (np.ones((C, D)), np.ones(C))}, r"head must be a Head, got tuple; pass Head\("),
    "head classes": (
        {"head": Head(np.ones((2, D)))},
        r"head.weight must be \(C, D\).*\(2, 4\) for 3 classes",
    ),
    "head columns": ({"head": Head(np.ones((C, 7)))}, r"\(3, 7\) but features has 4 columns"),
    "head transposed": ({"head": Head(np.ones((D, C)))}, r"transposed, pass Head\(weight.T, bias\)"),
    "few class names": ({"class_names": ["a"]}, r"class_names has 1 names but logits has 3 classes"),
    "class names text": ({"class_names": "abc"}, "class_names must be a list of 3 strings, got 'abc'"),
    "class names number": ({"class_names": 3}, "class_names must be a list of 3 strings, got 3"),
    "class names numbers": ({"class_names": [1, 2, 3]}, "class_names must be a list of 3 strings"),
    "float ids": ({"ids": np.ones(N)}, "ids must be integers or strings"),
    "mixed ids": ({"ids": pd.Series(["a", None, "b", "c", "d", "e"])}, "ids must be integers or strings"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_named(change, message):
    with pytest.raises(InvalidInput, match=message):
        Outputs(**(parts() | change))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["logits", "features"])
def test_the_first_row_that_is_not_finite_is_named(name, value):
    given_ = parts()
    given_[name] = given_[name].copy()
    given_[name][[4, 2], 1] = value
    with pytest.raises(InvalidInput, match=rf"{name} must be finite, got {value} in row 2 \(2 such"):
        Outputs(**given_)


def test_the_row_of_passes_is_named_not_the_pass():
    passes = np.zeros((M, N, C))
    passes[1, 4, 0] = np.nan
    with pytest.raises(InvalidInput, match="passes must be finite, got nan in row 4"):
        Outputs(np.zeros((N, C)), passes=passes)


def test_head_checks_itself():
    with pytest.raises(InvalidInput, match=r"head.bias has 2 values but head.weight has 3 rows"):
        Head(np.ones((3, 4)), np.ones(2))
    with pytest.raises(InvalidInput, match=r"head.weight must be finite, got nan in row 1"):
        Head([[1.0], [np.nan]])
    with pytest.raises(InvalidInput, match=r"head.weight must be floats, got booleans"):
        Head(np.ones((3, 4), bool))
    with pytest.raises(InvalidInput, match=r"head.weight must be two-dimensional"):
        Head(np.ones(3))
    np.testing.assert_array_equal(Head(np.ones((2, 3), np.float32)).bias, np.zeros(2, np.float32))


def test_head_logits_in_blocks_equal_one_product(monkeypatch):
    given_ = parts(rows=50)
    monkeypatch.setattr("twofold.outputs._memory.BLOCK_BYTES", 7 * 8 * D)
    np.testing.assert_allclose(given_["head"].logits(given_["features"]), given_["logits"], rtol=1e-12)


# the head law


def test_features_that_do_not_give_the_logits_are_explained():
    given_ = parts()
    given_["features"] = np.roll(given_["features"], 1, axis=0)
    with pytest.raises(InvalidInput, match=r"features @ head.weight.T \+ head.bias must equal logits.*0.001.*exact"):
        Outputs(**given_)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-3), (np.float32, 1e-3), (np.float16, 1e-2)])
def test_tolerance_of_the_head_law(dtype, tolerance):
    rng = np.random.default_rng(0)
    head = Head(rng.normal(size=(C, D)))
    features = rng.normal(size=(N, D)).astype(dtype)
    exact = features.astype(float) @ head.weight.T
    unit = tolerance * max(1.0, np.abs(exact).max())
    Outputs(exact + 0.9 * unit, features=features, head=head)
    with pytest.raises(InvalidInput, match=rf"must equal logits to {tolerance:g} of"):
        Outputs(exact + 1.5 * unit, features=features, head=head)


class FakeBfloat16:
    """Stands for any bfloat16 array: float32 for NumPy, bfloat16 by its dtype."""

    dtype = "bfloat16"

    def __init__(self, array):
        self.array = np.asarray(array, np.float32)

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_bfloat16_has_the_tolerance_of_half_precision_for_good():
    rng = np.random.default_rng(0)
    weight, features = rng.normal(size=(C, D)), rng.normal(size=(N, D))
    exact = features @ weight.T
    rough = exact + 5e-3 * max(1.0, np.abs(exact).max())
    with pytest.raises(InvalidInput, match=r"to 0.001"):
        Outputs(rough, features=features, head=Head(weight))
    for outputs in (
        Outputs(FakeBfloat16(rough), features=features, head=Head(weight)),
        Outputs(rough, features=FakeBfloat16(features), head=Head(weight)),
        Outputs(rough, features=features, head=Head(FakeBfloat16(weight))),
    ):
        warm = outputs.replace(logits=outputs.logits / 2, head=Head(outputs.head.weight / 2))
        assert len(warm) == N


def test_head_law_looks_at_no_more_than_256_rows(monkeypatch):
    seen = []
    original = Head.logits
    monkeypatch.setattr(Head, "logits", lambda self, f: seen.append(len(f)) or original(self, f))
    given_ = parts(rows=10_000)
    Outputs(given_["logits"], features=given_["features"], head=given_["head"])
    assert seen == [256]


def test_first_and_last_rows_are_among_those_checked():
    given_ = parts(rows=5000)
    for row in (0, -1):
        features = given_["features"].copy()
        features[row] += 1
        with pytest.raises(InvalidInput, match=f"in row {row % 5000};"):
            Outputs(given_["logits"], features=features, head=given_["head"])


# predictions, correctness


def test_correct_and_is_id():
    outputs = Outputs(np.eye(3), labels=[0, -1, 1])
    assert outputs.correct.tolist() == [True, False, False]
    assert outputs.is_id.tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["correct", "is_id"])
def test_questions_about_labels_need_labels(name):
    with pytest.raises(InvalidInput, match=f"{name} needs labels.*pass labels="):
        getattr(Outputs(np.eye(2)), name)


def test_predictions_are_those_of_construction():
    logits = np.eye(3)
    outputs = Outputs(logits)
    logits[:] = logits[::-1].copy()
    assert outputs.predictions.tolist() == [0, 1, 2]


def test_replace_carries_predictions_and_checks_what_is_new():
    outputs = Outputs(**parts())
    changed = outputs.replace(logits=-outputs.logits, head=Head(-outputs.head.weight, -outputs.head.bias))
    np.testing.assert_array_equal(changed.predictions, outputs.predictions)
    np.testing.assert_array_equal(changed.correct, outputs.correct)
    assert changed.replace(head=None).head is None
    assert changed.replace(layers=None).layers == {}
    assert outputs.replace(ids=np.arange(N)).ids.tolist() == list(range(N))
    with pytest.raises(InvalidInput, match="must equal logits"):
        outputs.replace(logits=outputs.logits * 2)
    with pytest.raises(InvalidInput, match="labels has 2 rows"):
        outputs.replace(labels=[0, 1])
    with pytest.raises(InvalidInput, match="did you mean 'logits'"):
        outputs.replace(logit=outputs.logits)
    with pytest.raises(InvalidInput, match=r"logits must keep the shape \(6, 3\)"):
        outputs.replace(logits=np.ones((N, 2)))


def test_replace_does_not_scan_what_it_keeps(monkeypatch):
    outputs = Outputs(**parts())
    seen = []
    monkeypatch.setattr("twofold.outputs._fields.finite", lambda array, name: seen.append(name))
    outputs.replace(labels=np.zeros(N))
    assert seen == []
    outputs.replace(logits=outputs.logits)
    assert seen == ["logits"]


# passes


def test_means_of_passes_equal_the_direct_computation():
    logits = np.random.default_rng(1).normal(size=(M, N, C)) * 3
    prob = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    for source in (logits, iter(logits), logits.tolist()):
        means = Passes.from_logits(source)
        np.testing.assert_allclose(means.mean_prob, prob.mean(axis=0))
        np.testing.assert_allclose(means.mean_logits, logits.mean(axis=0))
        np.testing.assert_allclose(means.mean_entropy, -(prob * np.log(prob)).sum(axis=2).mean(axis=0))
        np.testing.assert_allclose(means.prob_std, prob.std(axis=0))
        assert means.count == M


def test_passes_are_checked():
    good = Passes.from_logits(np.zeros((2, N, C)))
    fields = {name: getattr(good, name) for name in ("mean_prob", "mean_logits", "mean_entropy", "prob_std")}
    with pytest.raises(InvalidInput, match=r"passes.mean_prob must be probabilities.*use Passes.from_logits"):
        Passes(**(fields | {"mean_prob": np.full((N, C), 4.0)}), count=2)
    with pytest.raises(InvalidInput, match=r"passes.prob_std has shape \(6, 2\) but passes.mean_prob has \(6, 3\)"):
        Passes(**(fields | {"prob_std": np.zeros((N, 2))}), count=2)
    with pytest.raises(InvalidInput, match=r"passes.mean_entropy has 2 rows"):
        Passes(**(fields | {"mean_entropy": np.zeros(2)}), count=2)
    with pytest.raises(InvalidInput, match=r"passes.count must be a whole number of at least 1, got 0"):
        Passes(**fields, count=0)
    with pytest.raises(InvalidInput, match="passes is empty"):
        Passes.from_logits([])
    with pytest.raises(InvalidInput, match=r"passes\[1\] has shape \(1, 3\) but passes\[0\] has \(2, 3\)"):
        Passes.from_logits([np.zeros((2, 3)), np.zeros((1, 3))])
    with pytest.raises(InvalidInput, match=r"passes\[0\] must be two-dimensional"):
        Passes.from_logits(np.zeros((2, 3)))


def test_averaged_judges_by_the_mean_probabilities():
    # the mean logit prefers class 1, the mean probability class 0
    passes = np.array([[[3.0, 0.0]], [[3.0, 0.0]], [[-9.0, 0.0]]])
    outputs = Outputs([[0.0, 1.0]], labels=[0], passes=passes)
    assert passes.mean(axis=0).argmax() == 1
    for same_passes in (passes, Passes.from_logits(passes)):
        averaged = outputs.replace(passes=same_passes).averaged()
        assert averaged.predictions.tolist() == [0]
        assert averaged.correct.tolist() == [True]
        np.testing.assert_array_equal(averaged.logits, outputs.logits)
    with pytest.raises(InvalidInput, match=r"averaged.. needs passes"):
        outputs.replace(passes=None).averaged()


# rows


@pytest.mark.parametrize("kind", ["array", "means"])
@pytest.mark.parametrize(
    "index",
    [slice(1, 4), slice(None, None, -2), [4, 0, -1, 4], np.array([True, False] * 3), np.int64(2), -1],
    ids=["slice", "step", "integers", "mask", "row", "last"],
)
def test_indexing_takes_the_same_rows_of_everything(index, kind):
    given_ = parts()
    whole = Outputs(**given_)
    if kind == "means":
        whole = whole.replace(passes=Passes.from_logits(given_["passes"]))
    rows = np.atleast_1d(np.arange(N)[index])
    part = whole[index]
    for name, array in whole.flat().items():
        np.testing.assert_array_equal(part.flat()[name], array[rows], err_msg=name)
    np.testing.assert_array_equal(part.ids, whole.ids[rows])
    assert (part.head, part.class_names, part.pass_count) == (whole.head, whole.class_names, whole.pass_count)
    with pytest.raises(ValueError, match="read-only"):
        part.logits[0] = 0


def test_slices_are_views():
    outputs = Outputs(**parts())
    assert np.shares_memory(outputs[1:3].features, outputs.features)
    assert np.shares_memory(outputs[1:3].passes, outputs.passes)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (N, "row 6 is out of range; there are 6 rows"),
        ([0, -7], "row -7 is out of range"),
        ([True, False], "boolean index has 2 values but there are 6 rows"),
        (np.zeros(N, bool), "selects none of the 6 rows"),
        ([], "selects none"),
        (slice(9, None), "selects none"),
        ("logits", "index must be a row number, slice, boolean mask"),
        (1.5, "index must be a row number"),
        (np.ones((2, 2), int), "index must be a row number"),
    ],
)
def test_indices_that_do_not_fit(index, message):
    with pytest.raises(InvalidInput, match=message):
        Outputs(**parts())[index]


def test_iteration_ends():
    assert [row.predictions.tolist() for row in Outputs(np.eye(3))] == [[0], [1], [2]]


@settings(deadline=None, max_examples=25)
@given(rows=st.integers(1, 12), size=st.integers(1, 14), seed=st.integers(0, 9))
def test_blocks_put_together_are_the_whole(rows, size, seed):
    whole = Outputs(**parts(seed, rows))
    assert same(Outputs.concat(whole.blocks(size)), whole)


def test_block_size_is_checked():
    with pytest.raises(InvalidInput, match="size must be a whole number of at least 1"):
        list(Outputs(np.eye(2)).blocks(0))


# concat


def test_concat_keeps_predictions_and_everything_else():
    a, b = Outputs(**parts(0)), Outputs(**parts(1, rows=4))
    both = Outputs.concat([a, b])
    assert len(both) == N + 4
    assert same(both[:N], a)
    assert same(both[N:], b)
    means = [o.replace(passes=Passes.from_logits(o.passes)) for o in (a, b)]
    assert Outputs.concat(means).passes.count == M


CLASH = {
    "labels": ({"labels": None}, "labels is in part 0 but not in part 1"),
    "layer": ({"layers": {"other": np.ones((N, 2))}}, "layers/block1/mean is in part 0 but not in part 1"),
    "head": ({"head": None}, "head is in part 0 but not in part 1"),
    "width": (
        {"features": np.ones((N, 9)), "head": None},
        r"features have shape \(9,\) in part 1 but \(4,\)",
    ),
    "names": ({"class_names": ["a", "b", "c"]}, "part 1 has other class_names than part 0"),
    "ids": ({"ids": np.arange(N)}, "ids holds integers in one of parts 0 and 1"),
    "passes": ({"passes": np.zeros((2, N, C))}, r"passes have shape \(2, 3\) in part 1"),
}


@pytest.mark.parametrize(("change", "message"), CLASH.values(), ids=CLASH.keys())
def test_concat_of_what_does_not_fit(change, message):
    a = Outputs(**(parts() | ({"head": None} if "features" in change else {})))
    with pytest.raises(InvalidInput, match=message):
        Outputs.concat([a, Outputs(**(parts() | change))])


def test_concat_of_other_models_or_nothing():
    a = Outputs(**parts())
    other = a.replace(logits=2 * a.logits, head=Head(2 * a.head.weight, 2 * a.head.bias))
    with pytest.raises(InvalidInput, match="part 1 has another head"):
        Outputs.concat([a, other])
    few, many = (a.replace(passes=Passes.from_logits(np.zeros((k, N, C)))) for k in (2, 3))
    with pytest.raises(InvalidInput, match="part 1 averages 3 passes, part 0 2"):
        Outputs.concat([few, many])
    with pytest.raises(InvalidInput, match="concat needs at least one"):
        Outputs.concat([])
    with pytest.raises(InvalidInput, match="concat takes Outputs, got ndarray as part 1"):
        Outputs.concat([a, np.eye(3)])


# files and processes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npz_round_trip(tmp_path, dtype):
    outputs = Outputs(**parts(dtype=dtype))
    outputs.to_npz(tmp_path / "all.npz")
    assert same(Outputs.from_npz(tmp_path / "all.npz"), outputs)
    outputs = outputs.replace(passes=Passes.from_logits(outputs.passes), ids=np.arange(N))
    outputs.to_npz(str(tmp_path / "no suffix"))
    assert same(Outputs.from_npz(str(tmp_path / "no suffix")), outputs)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.npz", "no suffix"]


def test_foreign_npz(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.eye(3), **{"layers/x/mean": np.ones((3, 2))})
    outputs = Outputs.from_npz(tmp_path / "a.npz")
    assert outputs.layers.keys() == {"x/mean"}
    np.savez(tmp_path / "b.npz", **{"logits": np.eye(3), "features": np.eye(3), "head.weight": np.eye(3)})
    assert Outputs.from_npz(tmp_path / "b.npz").head.bias.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"labels": np.ones(2)}, "must hold the key logits, or probs, got labels"),
        ({"logits": np.eye(2), "logit": np.eye(2)}, r"unknown keys logit; known are logits, .*head\.bias"),
        ({"logits": np.eye(2), "head.bias": np.ones(2)}, "unknown keys head.bias"),
        ({"logits": np.eye(2), "passes.mean_prob": np.eye(2)}, "lacks passes.mean_logits, .*passes.count"),
        ({"logits": np.eye(2), "ids": np.array([{}, {}])}, "holds Python objects"),
        ({"logits": np.full((2, 2), np.nan)}, "logits must be finite"),
    ],
)
def test_npz_that_does_not_fit(tmp_path, keys, message):
    np.savez(tmp_path / "a.npz", **keys)
    with pytest.raises(InvalidInput, match=message):
        Outputs.from_npz(tmp_path / "a.npz")


def test_files_that_are_no_npz(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(InvalidInput, match="single array, not an npz archive"):
        Outputs.from_npz(tmp_path / "a.npy")
    (tmp_path / "b.npz").write_text("hello")
    with pytest.raises(InvalidInput, match="must be an npz file"):
        Outputs.from_npz(tmp_path / "b.npz")
    Outputs(np.eye(40)).to_npz(tmp_path / "c.npz")
    raw = bytearray((tmp_path / "c.npz").read_bytes())
    raw[3000] ^= 1
    (tmp_path / "c.npz").write_bytes(raw)
    with pytest.raises(InvalidInput, match="damaged"):
        Outputs.from_npz(tmp_path / "c.npz")
    (tmp_path / "d.npz").write_bytes(raw[:2000])
    with pytest.raises(InvalidInput, match="damaged"):
        Outputs.from_npz(tmp_path / "d.npz")
    with pytest.raises(FileNotFoundError):
        Outputs.from_npz(tmp_path / "missing.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    Outputs(np.eye(2)).to_npz(tmp_path / "a.npz")
    before = (tmp_path / "a.npz").read_bytes()

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        Outputs(np.eye(3)).to_npz(tmp_path / "a.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == before


def test_outputs_travel_between_processes():
    outputs = Outputs(**parts())
    again = pickle.loads(pickle.dumps(outputs))
    assert same(again, outputs)
    assert again.ids.tolist() == outputs.ids.tolist()
    with pytest.raises(ValueError, match="read-only"):
        again.logits[0] = 0


def test_tensors_enter_without_importing_torch(monkeypatch):
    class Tensor:
        layout, is_sparse, is_meta, is_quantized = "torch.strided", False, False, False

        def resolve_conj(self):
            return self

        def resolve_neg(self):
            return self

        dtype = "torch.float32"

        def __init__(self, data):
            self.data = data

        def detach(self):
            return self

        def cpu(self):
            return self

        def numpy(self):
            return self.data

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, bfloat16="torch.bfloat16"))
    logits = Tensor(np.eye(3, dtype=np.float32))
    outputs = Outputs(logits, labels=Tensor(np.arange(3)), ids=Tensor(np.arange(3)))
    assert np.shares_memory(outputs.logits, logits.data)
    assert outputs[Tensor(np.array([2, 0]))].ids.tolist() == [2, 0]


@pytest.mark.parametrize("groups", [[4, 4, -1], ["scene 1", "scene 1", "Straße"]])
def test_groups_go_wherever_rows_go(tmp_path, groups):
    outputs = Outputs(np.eye(3), labels=[0, 1, 2], groups=groups)
    assert outputs.groups.tolist() == groups
    assert outputs[[2, 0]].groups.tolist() == [groups[2], groups[0]]
    assert Outputs.concat([outputs, outputs]).groups.tolist() == groups * 2
    assert outputs.replace(logits=np.ones((3, 3))).groups.tolist() == groups
    assert outputs.replace(groups=None).groups is None
    assert "groups" in repr(outputs)
    outputs.to_npz(tmp_path / "o.npz")
    assert Outputs.from_npz(tmp_path / "o.npz").groups.tolist() == groups
    with pytest.raises(InvalidInput, match="groups"):
        Outputs(np.eye(3), groups=groups[:2])
    with pytest.raises(InvalidInput, match="groups must be integers or strings"):
        Outputs(np.eye(3), groups=[0.5, 1.0, 2.0])
