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
    with pytest.raises(InvalidInput, match="fractions or gaps"):
        outputs_of(frame, logits="z", labels="y")
    with pytest.raises(InvalidInput, match="got DataFrame"):
        to_frame(frame)
