"""Mistakes of callers: each is refused with one error that names the data set and says what to do, or it works."""

import multiprocessing
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import twofold
from twofold.errors import Infeasible, InvalidInput, RunError, UnfitData
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.wrapping import Wrapped
from twofold.wrapping.goal import Goal

X, y = load_digits(return_X_y=True)
X = X / 16
KNOWN = y < 7
ROWS, OTHERS = np.flatnonzero(KNOWN)[:600], X[~KNOWN]
TRAIN, VAL = (X[ROWS[::2]], y[ROWS[::2]]), (X[ROWS[1::2]], y[ROWS[1::2]])
MODEL = LogisticRegression(max_iter=300).fit(*TRAIN)


def logits(x):
    return x @ MODEL.coef_.T + MODEL.intercept_


def with_nan(array):
    spoilt = np.array(array)
    spoilt[3, 5] = np.nan
    return spoilt


@pytest.fixture(scope="module")
def wrapped():
    return twofold.wrap(MODEL, train=TRAIN, val=VAL, keep=0.9)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.empty((0, 64)), "inputs: there are no inputs; pass at least one row"),
        ([], "inputs: there are no inputs"),
        (X[:3, :10], r"cannot run on a ndarray of shape \(3, 10\).*expecting 64 features"),
        (X[0], r"cannot run on a ndarray of shape \(64,\)"),
        (with_nan(X[:9]), "inputs: .* contains NaN"),
        (["a", "b"], "inputs: .* a list of 2"),
        (None, "one row for each input, got None"),
        (3, "one row for each input, got a int"),
    ],
)
def test_inputs_that_cannot_be_run(wrapped, inputs, message):
    for method in (wrapped, wrapped.decide, wrapped.explain):
        with pytest.raises(InvalidInput, match=message):
            method(inputs)


def test_inputs_of_another_dtype_are_run(wrapped):
    assert wrapped((X[:3] * 16).astype(np.uint8) / 16) == wrapped(X[:3].astype(object)) == wrapped(X[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val": (VAL[0], VAL[1][:-3])}, "val has 300 inputs and 297 labels"),
        ({"val": (VAL[0], np.eye(7)[VAL[1]])}, "val has labels of two dimensions, .*argmax"),
        ({"val": [*VAL]}, r"val: .* a list of 2 .* labelled data as a tuple"),
        ({"val": (VAL[0], None)}, "val needs labels"),
        ({"val": (VAL[0], [None] * 300)}, "val needs inputs of known classes, and all of its 300 labels"),
        ({"val": (OTHERS, [-1] * len(OTHERS))}, "pass inputs of no class as unknown="),
        ({"val": (VAL[0], VAL[1] + 5)}, "val, row .*: the label .* is none of the 7 classes"),
        ({"val": (VAL[0], VAL[1].astype(str))}, "write labels as the classes are written"),
        ({"val": (with_nan(VAL[0]), VAL[1])}, "val: .* contains NaN"),
        ({"train": (with_nan(TRAIN[0]), TRAIN[1])}, "train: .* contains NaN"),
        ({"unknown": with_nan(OTHERS)}, "unknown: .* contains NaN"),
        ({"train": (TRAIN[0][:, :30], TRAIN[1])}, r"train: .* shape \(300, 30\)"),
        ({"train": (X[:0], [])}, "train: there are no inputs"),
        ({"unknown": OTHERS[:0]}, "unknown: there are no inputs"),
        ({"keep": True}, "keep must be a number, got True"),
        ({"risk": "low"}, "risk must be a number, got 'low'"),
        ({"risk": 0.1, "delta": 2}, r"delta must be in \(0, 1\), got 2"),
        ({"f1": "yes"}, "f1 must be True or False, got 'yes'"),
        ({"batch": 0}, "batch must be a whole number of at least 1, got 0"),
    ],
)
def test_data_and_goals_that_make_no_sense(options, message):
    with pytest.raises(InvalidInput, match=message):
        twofold.wrap(MODEL, **{"train": TRAIN, "val": VAL, **options})


def test_too_few_rows():
    for options in ({"val": (VAL[0][:1], VAL[1][:1])}, {"unknown": OTHERS[:1]}):
        with pytest.raises(UnfitData, match="has too few rows, 1, to choose scores on some"):
            twofold.wrap(MODEL, **{"train": TRAIN, "val": VAL, "unknown": OTHERS, "risk": 0.3, "delta": 0.1, **options})
    with pytest.raises(Infeasible, match="bring more samples"):
        twofold.wrap(MODEL, train=TRAIN, val=(VAL[0][:2], VAL[1][:2]), risk=0.05, delta=0.1)
    one_class = VAL[1] == 2
    safe = twofold.wrap(MODEL, train=TRAIN, val=(VAL[0][one_class], VAL[1][one_class]))
    assert sum(safe.gate.promise.known) == one_class.sum()


def test_unknown_inputs_may_stand_in_val():
    mixed = np.vstack([VAL[0], OTHERS[:50]]), [*VAL[1].tolist(), *[-1] * 50]
    apart = twofold.wrap(MODEL, train=TRAIN, val=VAL, unknown=OTHERS[:50], f1=True)
    assert twofold.wrap(MODEL, train=TRAIN, val=mixed, f1=True).gate.taus() == apart.gate.taus()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: with_nan(logits(x)), "val: logits must be finite, got nan in row 3"),
        (lambda x: logits(x)[:-1], "val: the function returned 299 rows for 300 inputs"),
        (lambda x: None, r"must return an array of logits or probabilities \(N, C\), got None"),
        (lambda x: {"logits": logits(x)}, "got a dict with the keys 'logits'; return the array alone"),
        (lambda x: (logits(x), x), "got a tuple of 2; return the array alone"),
        (lambda x: logits(x).astype(str), "as numbers, got an array of dtype <U"),
        (MODEL.predict, r"must return logits \(N, C\) with at least two classes"),
        (lambda x: np.ones((len(x), 1)), "at least two classes"),
        (lambda x: 1 / 0, "val: the function cannot run on .*ZeroDivisionError"),
        (lambda: 0, "val: the function cannot run on .*TypeError"),
    ],
)
def test_functions_that_return_something_else(function, message):
    with pytest.raises(InvalidInput, match=message):
        twofold.wrap(function, val=VAL)


def test_other_errors_of_the_machine_are_passed_on():
    def out_of_memory(x):
        raise MemoryError

    def on_the_device(x):
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(MemoryError):
        twofold.wrap(out_of_memory, val=VAL)
    with pytest.raises(RuntimeError, match=r"^CUDA out of memory") as caught:
        twofold.wrap(on_the_device, val=VAL)
    assert not isinstance(caught.value, InvalidInput)


def test_a_function_returns_the_same_kind_and_width_each_time():
    safe = twofold.wrap(logits, val=VAL)
    shares = np.full((2, 7), 1 / 7)
    safe.source.function = lambda x: shares
    np.testing.assert_array_equal(safe.outputs(X[:2]).logits, shares)  # these logits happen to sum to 1
    with pytest.raises(InvalidInput, match="train: the function returned 5 classes, and 7 before"):
        twofold.wrap(lambda x: x[:, : min(7, x.shape[1])], val=VAL, train=(TRAIN[0][:, :5], TRAIN[1]))
    narrow = Outputs(logits(X[:9])[:, :5])
    with pytest.raises(InvalidInput, match="unknown has outputs of 5 classes and val of 7"):
        twofold.wrap(logits, val=VAL, unknown=narrow)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "class_names has 2 names and the function returns 7 classes"),
        ("abcdefg", "class_names must be a list of names"),
        (5, "class_names must be a list of names"),
    ],
)
def test_names_that_are_not_those_of_the_classes(names, message):
    with pytest.raises(InvalidInput, match=message):
        twofold.wrap(logits, val=VAL, class_names=names)


def test_labels_are_not_places_where_classes_are_numbers():
    """A classifier of the digits 1 to 6 has no class 0, though the number 0 is a place."""
    rows = np.flatnonzero((y > 0) & KNOWN)
    model = LogisticRegression(max_iter=300).fit(X[rows], y[rows])
    with pytest.raises(InvalidInput, match=r"the label 0 is none of the 6 classes of the classifier \(1, 2, 3, ...\)"):
        twofold.wrap(model, val=(X[:50], np.minimum(y[:50], 6)))


def test_things_that_cannot_classify():
    with pytest.raises(InvalidInput, match="has no classes_; pass a classifier"):
        twofold.wrap(DecisionTreeRegressor().fit(*TRAIN), val=VAL)
    with pytest.raises(InvalidInput, match="got the class LogisticRegression; make one of it first"):
        twofold.wrap(LogisticRegression, val=VAL)


def test_shares_are_not_rounded():
    assert "99.9% of the known" in str(Goal.of(0.999, None, None, False))
    assert str(Goal.of(None, 0.05, None, False)) == "a share of failures of at most 0.05 among accepted inputs"


# Saving and loading


def test_places_that_cannot_be_written(wrapped, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file; choose a folder"):
        wrapped.save(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be written"):
        wrapped.save(tmp_path / "file" / "below")
    with pytest.raises(InvalidInput, match="folder must be a path, got None"):
        wrapped.save(None)
    with pytest.raises(RunError, match="does not exist"):
        Wrapped.load(tmp_path / "file", MODEL)


def test_a_read_only_folder(wrapped, tmp_path, monkeypatch):
    """The owner of the tests may be root, whom no permission stops."""

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Gate, "save", refuse)
    with pytest.raises(
        RunError, match=r"cannot be written \(Permission denied\); choose a folder that you may write to"
    ):
        wrapped.save(tmp_path / "w")


@pytest.mark.parametrize("name", ["wrapped.json", "gate/gate.json", "gate/scores"])
@pytest.mark.parametrize("damage", ["cut", "empty", "pickle", "gone"])
def test_damaged_files(wrapped, tmp_path, name, damage):
    wrapped.save(tmp_path / "w")
    (path,) = (tmp_path / "w").glob(f"{name}*")
    if damage == "gone":
        path.unlink()
    else:
        held = path.read_bytes()
        path.write_bytes({"cut": held[: len(held) // 2], "empty": b"", "pickle": pickle.dumps({"a": 1})}[damage])
    with pytest.raises(RunError):
        Wrapped.load(tmp_path / "w", MODEL).decide(X[:2])


def test_an_interrupted_save_can_be_repeated(wrapped, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Gate, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            wrapped.save(tmp_path / "w")
    with pytest.raises(RunError):
        Wrapped.load(tmp_path / "w", MODEL)
    wrapped.save(tmp_path / "w")
    assert Wrapped.load(tmp_path / "w", MODEL)(X[:5]) == wrapped(X[:5])


def _save_often(folder, keep):
    safe = twofold.wrap(MODEL, train=TRAIN, val=VAL, keep=keep)
    for _ in range(5):
        safe.save(folder)


def test_two_processes_save_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_save_often, args=(tmp_path / "w", keep)) for keep in (0.8, 0.95)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    taus = Wrapped.load(tmp_path / "w", MODEL).gate.taus()
    assert taus in [twofold.wrap(MODEL, train=TRAIN, val=VAL, keep=keep).gate.taus() for keep in (0.8, 0.95)]


def test_an_onnx_session_that_returns_a_zip_map():
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rows = X[ROWS].astype(np.float32)
    model = skl2onnx.to_onnx(MODEL, rows[:1])
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    safe = twofold.wrap(session, val=VAL)
    np.testing.assert_allclose(np.exp(safe.outputs(rows).logits), MODEL.predict_proba(rows), atol=1e-5)
    assert set(safe(rows)) <= {*range(7), None}
