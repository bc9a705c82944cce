"""Wrapped classifiers of every kind: outputs against the classifier itself, goals against counting, and refusals."""

import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import twofold
from twofold.errors import Infeasible, InvalidInput, MissingExtra, RunError
from twofold.gate import Gate
from twofold.gate.thresholds import lower_threshold
from twofold.outputs import Outputs
from twofold.wrapping import Wrapped
from twofold.wrapping.goal import Goal

X, y = load_digits(return_X_y=True)
SMALL = y < 7  # digits 7 to 9 are unknown
TRAIN, VAL, TEST = (np.flatnonzero(SMALL)[part::3] for part in range(3))
OTHERS = X[~SMALL]
WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six"])


@pytest.fixture(scope="module")
def model():
    return LogisticRegression(max_iter=300).fit(X[TRAIN] / 16, y[TRAIN])


def data(rows, names=None):
    labels = y[rows] if names is None else names[y[rows]]
    return X[rows] / 16, labels


@pytest.fixture(scope="module")
def wrapped(model):
    return twofold.wrap(model, train=data(TRAIN), val=data(VAL), keep=0.9)


def test_five_lines(wrapped, model):
    answers = wrapped(X[TEST] / 16)
    predicted = model.predict(X[TEST] / 16)
    verdicts = wrapped.decide(X[TEST] / 16).verdict
    for answer, label, verdict in zip(answers, predicted, verdicts, strict=True):
        assert answer == (label if verdict == "accept" else None)
    accepted = np.array([answer is not None for answer in answers])
    assert 0.8 < accepted.mean() < 0.97
    known = np.array([answer is not None for answer in wrapped(OTHERS / 16)])
    assert known.mean() < accepted.mean() / 2
    assert (predicted[accepted] == y[TEST][accepted]).mean() >= (predicted == y[TEST]).mean()


def test_it_says_what_it_chose_and_what_it_does_not_promise(wrapped):
    text = str(wrapped)
    assert "scikit-learn estimator" in text
    assert "accept at least 90% of the known inputs" in text
    assert "knn compares the features" in text
    assert "no unknown inputs were given" in text
    assert repr(wrapped).startswith("Wrapped(scikit-learn estimator; Gate(")


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.95, 1.0])
def test_keeping_a_share_without_unknown_inputs(model, keep):
    gate = twofold.wrap(model, train=data(TRAIN), val=data(VAL), keep=keep).gate
    share = sum(gate.promise.known[:1]) / sum(gate.promise.known)
    assert share >= keep
    assert share - keep < 0.01
    assert (gate.promise.objective, gate.promise.coverage) == ("coverage", keep)
    rejected = gate.promise.known[2] / sum(gate.promise.known)
    assert rejected == pytest.approx((1 - keep) / 2, abs=0.01)  # half of what may go, goes to the OOD score


def test_keeping_a_share_with_unknown_inputs_is_the_gate_of_both(model):
    both = twofold.wrap(model, train=data(TRAIN), val=data(VAL), unknown=OTHERS[:100] / 16, keep=0.9, ood="energy")
    head_logits = X[VAL] / 16 @ model.coef_.T + model.intercept_
    other_logits = OTHERS[:100] / 16 @ model.coef_.T + model.intercept_
    rows = Outputs(np.vstack([head_logits, other_logits]), np.concatenate([y[VAL], np.full(100, -1)]))
    usual = Gate.fit(rows, "msp", "energy", objective="coverage", coverage=0.9)
    assert tuple(both.gate.taus()) == pytest.approx(tuple(usual.taus()))
    assert sum(both.gate.promise.outside) == 100


def test_the_risk_without_unknown_inputs_holds_on_rows_that_set_no_threshold(model):
    """The rows that set the OOD threshold are not those that test the risk."""
    wrapped = twofold.wrap(model, train=data(TRAIN), val=data(VAL), risk=0.05, delta=0.2)
    promise = wrapped.gate.promise
    assert (promise.objective, promise.risk, promise.delta) == ("risk", 0.05, 0.2)
    assert sum(promise.known) == len(VAL) - round(0.25 * len(VAL))
    assert wrapped.card(data(TEST)).risk < 0.05
    with pytest.raises(Infeasible):
        twofold.wrap(model, train=data(TRAIN), val=data(VAL), risk=1e-4, delta=0.01)


@pytest.mark.slow
def test_the_guarantee_without_unknown_inputs_is_kept_as_often_as_it_says():
    """Draws from a known law: the share of gates whose true risk exceeds the bound is at most delta."""
    rng = np.random.default_rng(0)

    def draw(n):
        labels = rng.integers(0, 3, n)
        return rng.normal(size=(n, 3)) + 2.0 * np.eye(3)[labels], labels

    broken = made = 0
    big = draw(200_000)
    for _ in range(150):
        try:
            wrapped = twofold.wrap(lambda x: x, val=draw(800), risk=0.1, delta=0.2, ood="energy")
        except Infeasible:
            continue
        made += 1
        decision = wrapped.gate.decide(Outputs(big[0]))
        accepted = decision.verdict == "accept"
        broken += (decision.labels[accepted] != big[1][accepted]).mean() > 0.1
    assert made > 100
    assert broken / made <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / made)


def test_f1_with_unknown_inputs(model):
    wrapped = twofold.wrap(model, train=data(TRAIN), val=data(VAL), unknown=OTHERS[:100] / 16, f1=True)
    assert wrapped.gate.promise.objective == "f1"
    card = wrapped.card(data(TEST), OTHERS[100:] / 16)
    assert card.samples == len(TEST) + len(OTHERS) - 100
    assert card.f1 > 0.85


def test_names_of_classes(model):
    named = LogisticRegression(max_iter=300).fit(X[TRAIN] / 16, WORDS[y[TRAIN]])
    wrapped = twofold.wrap(named, train=data(TRAIN, WORDS), val=data(VAL, WORDS), keep=0.99)
    assert set(wrapped(X[TEST] / 16)) <= {*WORDS.tolist(), None}
    with pytest.raises(InvalidInput, match=r"val, row 1: the label 'seven' is none of the 7 classes"):
        twofold.wrap(named, val=(X[:2], ["one", "seven"]))


# Kinds of estimators


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(n_estimators=20, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        LinearSVC(random_state=0, max_iter=5000),
    ],
)
def test_estimators_predict_as_before(estimator):
    fitted = estimator.fit(X[TRAIN] / 16, y[TRAIN])
    wrapped = twofold.wrap(fitted, train=data(TRAIN), val=data(VAL))
    outputs = wrapped.outputs(X[TEST] / 16)
    assert outputs.predictions.tolist() == np.searchsorted(fitted.classes_, fitted.predict(X[TEST] / 16)).tolist()
    if hasattr(fitted, "predict_proba"):
        z = np.exp(outputs.logits - outputs.logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(z / z.sum(axis=1, keepdims=True), fitted.predict_proba(X[TEST] / 16), atol=1e-6)


def test_two_classes_have_two_logits():
    two = y < 2
    fitted = LogisticRegression().fit(X[two] / 16, y[two])
    wrapped = twofold.wrap(fitted, val=(X[two] / 16, y[two]))
    outputs = wrapped.outputs(X[two] / 16)
    np.testing.assert_allclose(outputs.logits[:, 1] - outputs.logits[:, 0], fitted.decision_function(X[two] / 16))
    assert outputs.head is not None


def test_probabilities_lose_the_scale_and_gen_reads_them():
    forest = RandomForestClassifier(n_estimators=20, random_state=0).fit(X[TRAIN], y[TRAIN])
    wrapped = twofold.wrap(forest.predict_proba, val=(X[VAL], y[VAL]))
    assert wrapped.gate.ood.spec == "gen"
    assert "scale of the logits" in str(wrapped)


def test_a_function_returns_logits():
    wrapped = twofold.wrap(lambda x: 2 * x, val=(np.eye(3).repeat(9, axis=0), np.arange(3).repeat(9)), keep=0.9)
    assert wrapped(np.eye(3)) == [0, 1, 2]
    with pytest.raises(InvalidInput, match="must return logits"):
        twofold.wrap(lambda x: x[:, 0], val=(np.eye(3), [0, 1, 2]))


def test_an_onnx_session(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "linear.onnx")
    session = runtime.InferenceSession(str(tmp_path / "linear.onnx"), providers=["CPUExecutionProvider"])
    inputs = rng.normal(size=(60, 4))
    labels = (inputs @ weight).argmax(axis=1)
    wrapped = twofold.wrap(session, val=(inputs, labels), class_names=("a", "b", "c"))
    np.testing.assert_allclose(wrapped.outputs(inputs).logits, inputs @ weight, atol=1e-5)
    assert set(wrapped(inputs)) <= {"a", "b", "c", None}
    with pytest.raises(InvalidInput, match="ONNX session cannot be written to ONNX"):
        wrapped.to_onnx(tmp_path / "again.onnx")


# What the result can do


def test_explanations_are_those_of_the_decision(wrapped):
    mixed = np.vstack([X[TEST[:20]], OTHERS[:20]]) / 16
    decision = wrapped.decide(mixed)
    found = wrapped.explain(mixed)
    assert [one.verdict for one in found] == decision.verdict.tolist()
    assert {"accept", "unknown"} <= {one.verdict for one in found}
    for one in found:
        if one.verdict == "unknown":
            assert one.conf_ood < one.tau_ood
            assert "below its threshold" in str(one)
        if one.verdict == "accept":
            assert one.conf_id >= one.tau_id
        assert one.alternatives[0][0] == one.label
        assert sum(share for _, share in one.alternatives) <= 1 + 1e-9


def test_monitor_counts_what_was_decided(wrapped):
    monitor = wrapped.monitor(false_alarms=0.05)
    assert monitor.update(wrapped.decide(X[TEST] / 16)) is False
    assert monitor.update(wrapped.decide(OTHERS / 16)) is True


def test_save_and_load(wrapped, model, tmp_path):
    wrapped.save(tmp_path / "w")
    wrapped.save(tmp_path / "w")  # again, over itself
    again = Wrapped.load(tmp_path / "w", model)
    assert again(X[TEST] / 16) == wrapped(X[TEST] / 16)
    assert str(again) == str(wrapped)
    other = LogisticRegression(max_iter=300).fit(X[TRAIN[:200]] / 16, y[TRAIN[:200]])
    with pytest.raises(InvalidInput, match="another model"):
        Wrapped.load(tmp_path / "w", other).decide(X[:2] / 16)
    renamed = LogisticRegression(max_iter=300).fit(X[TRAIN] / 16, WORDS[y[TRAIN]])
    with pytest.raises(InvalidInput, match="other classes"):
        Wrapped.load(tmp_path / "w", renamed)
    with pytest.raises(RunError, match="does not exist"):
        Wrapped.load(tmp_path / "gone", model)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(RunError, match="not empty"):
        wrapped.save(tmp_path / "mine")
    text = (tmp_path / "w" / "wrapped.json").read_text()
    (tmp_path / "w" / "wrapped.json").write_text(text.replace("knn", "kun"))
    with pytest.raises(RunError):
        Wrapped.load(tmp_path / "w", model)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=300),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        make_pipeline(StandardScaler(), GaussianNB()),
        RandomForestClassifier(n_estimators=30, min_samples_leaf=3, random_state=0),
    ],
)
@pytest.mark.parametrize("ood", [None, "knn", "none"])
def test_an_estimator_becomes_one_onnx_file(estimator, ood, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    fitted = clone(estimator).fit(X[TRAIN] / 16, y[TRAIN])
    wrapped = twofold.wrap(fitted, train=data(TRAIN), val=data(VAL), ood=ood)
    wrapped.to_onnx(tmp_path / "gate.onnx")
    session = runtime.InferenceSession(str(tmp_path / "gate.onnx"), providers=["CPUExecutionProvider"])
    rows = np.vstack([X[TEST], OTHERS]) / 16
    label, verdict, conf_id = session.run(["label", "verdict", "conf_id"], {"inputs": rows})
    decision = wrapped.decide(rows)
    is_clear = np.ones(len(rows), dtype=bool)
    if isinstance(fitted, RandomForestClassifier):  # ONNX has trees in float32 only: leave out what rounding decides
        ranked = np.sort(fitted.predict_proba(rows), axis=1)
        is_clear = (ranked[:, -1] - ranked[:, -2] > 1e-5) & (np.abs(decision.margin_id) > 1e-5)
        if decision.margin_ood is not None:
            is_clear &= np.abs(decision.margin_ood) > 1e-5
        assert is_clear.mean() > 0.9
    assert label[is_clear].tolist() == decision.labels[is_clear].tolist()
    words = np.array(["accept", "unsure", "unknown"])[verdict]
    assert words[is_clear].tolist() == decision.verdict[is_clear].tolist()
    np.testing.assert_allclose(conf_id[is_clear], decision.conf_id[is_clear], rtol=1e-5, atol=1e-5)


def test_an_estimator_without_skl2onnx_says_what_to_install(model, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    wrapped = twofold.wrap(model, val=data(VAL))
    with pytest.raises(MissingExtra, match="sklearn-onnx"):
        wrapped.to_onnx(tmp_path / "gate.onnx")
    with pytest.raises(InvalidInput, match="without options, got shape"):
        wrapped.to_onnx(tmp_path / "gate.onnx", shape=(64,))


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.9, "risk": 0.1}, "different goals"),
        ({"delta": 0.1}, "pass risk= too"),
        ({"keep": 1.5}, "keep must be"),
        ({"ood": "mds"}, "mds learns from a training set; pass train="),
        ({"head": "fc"}, "head is for PyTorch networks"),
        ({"class_names": ["a"]}, "leave class_names out"),
    ],
)
def test_requests_that_make_no_sense(model, options, message):
    with pytest.raises(InvalidInput, match=message):
        twofold.wrap(model, val=data(VAL), **options)


def test_things_that_are_no_classifier(model):
    with pytest.raises(InvalidInput, match="classifier must be a PyTorch module"):
        twofold.wrap(5, val=data(VAL))
    with pytest.raises(InvalidInput, match="fit the estimator first"):
        twofold.wrap(LogisticRegression(), val=data(VAL))
    with pytest.raises(InvalidInput, match="val needs labels"):
        twofold.wrap(model, val=X[VAL] / 16)
    with pytest.raises(InvalidInput, match="a card needs labels"):
        twofold.wrap(model, val=data(VAL)).card(X[TEST] / 16)


def test_goals_and_thresholds_by_hand():
    assert Goal.of(None, None, None, True).name == "f1"
    conf = np.array([5.0, 1.0, 3.0, 2.0, 4.0])
    assert [lower_threshold(conf, keep) for keep in (0.2, 0.21, 0.8, 1.0)] == [5.0, 4.0, 2.0, 1.0]
