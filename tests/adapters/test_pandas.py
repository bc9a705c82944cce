"""Data frames in and out."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas", reason="pandas is not installed")

from twofold import Outputs, evaluate  # noqa: E402
from twofold.adapters import outputs_of, to_frame  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.gate import Gate  # noqa: E402


def outputs(rows=40):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, 3))
    return Outputs(
        logits,
        rng.integers(-1, 3, rows),
        rng.normal(size=(rows, 2)),
        ids=[f"img{i}" for i in range(rows)],
        class_names=["cat", "dog", "owl"],
    )


def test_there_and_back_again():
    first = outputs()
    frame = to_frame(first)
    assert list(frame.columns) == [
        "logit_cat",
        "logit_dog",
        "logit_owl",
        "label",
        "prediction",
        "feature_0",
        "feature_1",
    ]
    again = outputs_of(frame, labels="label", features="feature_")
    for name in ("logits", "labels", "features", "ids", "predictions"):
        assert np.array_equal(getattr(again, name), getattr(first, name)), name
    assert again.class_names == first.class_names


def test_labels_by_name_and_what_is_none_of_them():
    frame = pd.DataFrame({"p": ["b", "a", "zebra", None], "a": [1.0, 2, 3, 4], "b": [4.0, 3, 2, 1]})
    found = outputs_of(frame, logits=["a", "b"], labels="p")
    assert found.labels.tolist() == [1, 0, -1, -1]
    assert found.class_names == ("a", "b")
    assert outputs_of(frame, logits=["b", "a"]).logits[0].tolist() == [4.0, 1.0]
    assert outputs_of(frame.set_index(pd.Index([0, 0, 1, 2])), logits=["a", "b"]).ids is None


def test_categories_and_nullable_numbers_are_read():
    frame = pd.DataFrame({"logit_0": [1.0, 2.0], "logit_1": [0.0, 3.0]})
    words = frame.assign(y=pd.Categorical(["1", "0"]))
    assert outputs_of(words, labels="y").labels.tolist() == [1, 0]
    numbers = frame.assign(y=pd.array([1, -1], dtype="Int64"))
    assert outputs_of(numbers, labels="y").labels.tolist() == [1, -1]


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "float64", "object", "int64[pyarrow]"])
def test_missing_numbers_are_ood(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.DataFrame({"logit_0": [1.0, 2.0, 0.0], "logit_1": [0.0, 3.0, 1.0]})
    frame["y"] = pd.array([1, None, 0], dtype=dtype) if dtype != "float64" else [1.0, np.nan, 0.0]
    assert outputs_of(frame, labels="y").labels.tolist() == [1, -1, 0]


def test_columns_may_be_named_by_integers():
    logits = np.array([[1.0, 2.0, 0.5], [0.0, 3.0, 1.0]])
    frame = pd.DataFrame(logits)
    frame["y"] = [2, 0]
    found = outputs_of(frame, logits=[0, 1, 2], labels="y")
    assert np.array_equal(found.logits, logits)
    assert found.labels.tolist() == [2, 0]
    assert found.class_names == ("0", "1", "2")
    assert np.array_equal(outputs_of(frame, logits=["0", "1", "2"]).logits, logits)
    assert np.array_equal(outputs_of(frame, logits=range(3), features=[2]).features, logits[:, 2:])
    digits = pd.DataFrame(logits, columns=[7, 3, 5]).assign(y=pd.array([3, 9], dtype="Int64"))
    found = outputs_of(digits, logits=[7, 3, 5], labels="y")
    assert found.labels.tolist() == [1, -1]  # the column named 3, and a label of no column
    assert outputs_of(pd.DataFrame(logits.astype(int)), logits=[0, 1, 2]).logits.tolist() == [[1, 2, 0], [0, 3, 1]]


def test_categories_of_numbers_are_numbers_and_truth_values_are_refused():
    frame = pd.DataFrame({"logit_cat": [1.0, 2.0], "logit_dog": [0.0, 3.0]})
    assert outputs_of(frame.assign(y=pd.Categorical([1, 0])), labels="y").labels.tolist() == [1, 0]
    with pytest.raises(InvalidInput, match="truth values"):
        outputs_of(frame.assign(y=[True, False]), labels="y")
    with pytest.raises(InvalidInput, match=r"labels must be in \[-1, 2\)"):
        outputs_of(frame.assign(y=[2, 0]), labels="y")
    with pytest.raises(InvalidInput, match="got list"):
        outputs_of([[1.0, 2.0]])


def test_a_missing_logit_names_its_row():
    frame = pd.DataFrame({"logit_0": pd.array([1.0, None], dtype="Float64"), "logit_1": [0.0, 3.0]})
    with pytest.raises(InvalidInput, match="row 1"):
        outputs_of(frame)


def test_nullable_columns_are_arrays_like_others():
    labels = pd.Series([0, 1, -1], dtype="Int64")
    seen = Outputs(pd.DataFrame([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), labels=labels)
    assert seen.labels.tolist() == [0, 1, -1]
    correct = pd.Series([True, False, True], dtype="boolean")
    conf = pd.Series([0.9, 0.1, 0.5], dtype="Float64")
    assert evaluate(correct, conf)["auroc"] == 1.0
    with pytest.raises(InvalidInput, match="got nan in row 1"):
        Outputs([[1.0, 0.0], [0.0, 2.0]], labels=pd.Series([0, None], dtype="Int64"))


def test_polars_frames_are_read_with_labels():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame(
        {
            "logit_cat": [2.0, 0.0, 1.0],
            "logit_dog": [0, 1, 3],
            "name": ["dog", "bird", None],
            "number": [1, None, -1],
            "feature_0": [0.5, 0.25, 0.125],
        }
    )
    found = outputs_of(frame, labels="name", features="feature_")
    assert found.logits.tolist() == [[2.0, 0.0], [0.0, 1.0], [1.0, 3.0]]
    assert found.labels.tolist() == [1, -1, -1]
    assert found.class_names == ("cat", "dog")
    assert found.features.tolist() == [[0.5], [0.25], [0.125]]
    assert found.ids is None
    assert outputs_of(frame, labels="number").labels.tolist() == [1, -1, -1]
    categories = frame.with_columns(pl.col("name").cast(pl.Categorical))
    assert outputs_of(categories, labels="name").labels.tolist() == [1, -1, -1]
    with pytest.raises(InvalidInput, match=r"got LazyFrame; call \.collect\(\) first"):
        outputs_of(frame.lazy())
    seen = Outputs(frame.select("logit_cat", "logit_dog"), labels=pl.Series([0, 1, -1]))
    assert seen.labels.tolist() == [0, 1, -1]
    assert evaluate(pl.Series([True, False]), pl.Series([0.9, 0.1]))["auroc"] == 1.0


def test_decisions_evaluations_and_report_cards_are_tables():
    seen = outputs(200)
    gate = Gate.fit(seen, objective="coverage", coverage=0.5)
    decision = gate.decide(seen)
    frame = to_frame(decision)
    assert list(frame.columns) == ["labels", "verdict", "conf_id", "conf_ood", "margin_id", "margin_ood"]
    assert frame.verdict.value_counts().sum() == 200
    one = Gate.fit(seen, ood=None, objective="coverage", coverage=0.5)
    assert list(to_frame(one.decide(seen)).columns) == ["labels", "verdict", "conf_id", "margin_id"]
    result = evaluate(seen.correct, decision.conf_id, is_id=seen.is_id)
    assert to_frame(result).loc[0].to_dict() == dict(result)
    card = gate.report_card(seen)
    assert to_frame(card).loc[0, "coverage"] == card.coverage


def test_what_is_not_there_is_an_error_that_lists_what_is():
    frame = pd.DataFrame({"z0": [1.0], "z1": [0.0], "y": [0.5]})
    with pytest.raises(InvalidInput, match=r"no column begins with 'logit_'; the frame has z0, z1, y"):
        outputs_of(frame)
    with pytest.raises(InvalidInput, match="no column 'q'"):
        outputs_of(frame, logits="z", labels="q")
    with pytest.raises(InvalidInput, match="has fractions"):
        outputs_of(frame, logits="z", labels="y")
    with pytest.raises(InvalidInput, match="got DataFrame"):
        to_frame(frame)
