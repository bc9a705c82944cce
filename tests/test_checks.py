"""The door: what may enter, and what each refusal says (the argument, what it must be, what came)."""

from __future__ import annotations

import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest

import twofold
from twofold import _checks as checks
from twofold import errors
from twofold.errors import InvalidInput, RejectedNaN

# -------------------------------------------------------------------------------- arrays of any kind


@pytest.mark.parametrize(
    "value",
    [
        [0.5, 1.0],
        (0.5, 1.0),
        np.array([0.5, 1.0], np.float32),
        np.array([0.5, 1.0], np.longdouble),
        pd.Series([0.5, 1.0], index=[7, 3]),
        pd.Series([0.5, 1.0], dtype="Float64"),
        pd.array([0.5, 1.0], dtype="Float32"),
        memoryview(np.array([0.5, 1.0])),
        np.array([0.5, 1.0], dtype=object),
    ],
    ids=lambda v: type(v).__name__,
)
def test_array_likes_become_float64(value):
    array = checks.confidence(value)
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert array.tolist() == [0.5, 1.0]


def test_nothing_is_copied_without_need():
    array = np.array([0.5, 1.0])
    assert np.shares_memory(checks.confidence(array), array)
    array.flags.writeable = False
    assert np.shares_memory(checks.confidence(array), array)
    half = np.zeros((2, 3), np.float16)
    assert checks.floats(half, "logits", ndim=2).dtype == np.float16  # its own precision
    assert checks.floats([1, 2], "conf").dtype == np.float64


def test_the_input_is_not_written_to_when_nan_is_rejected():
    array = np.array([1.0, np.nan])
    with pytest.warns(RejectedNaN, match="conf: 1 of 2 rows are NaN and are ranked lowest"):
        got = checks.confidence(array, nan="reject")
    assert got.tolist() == [1.0, -np.inf]
    assert np.isnan(array[1])


class FakeTensor:
    """As much of a torch tensor as the door may use."""

    layout, is_sparse, is_meta, is_quantized = "torch.strided", False, False, False

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return self

    def __init__(self, array, dtype="float32", steps=()):
        self.array, self.dtype, self.steps = array, dtype, steps

    def detach(self):
        return FakeTensor(self.array, self.dtype, (*self.steps, "detach"))

    def cpu(self):
        return FakeTensor(self.array, self.dtype, (*self.steps, "cpu"))

    def float(self):
        return FakeTensor(self.array, "float32", (*self.steps, "float"))

    def numpy(self):
        if self.dtype == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        assert self.steps[:2] == ("detach", "cpu")
        return self.array

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_tensors_enter_and_torch_is_not_imported(monkeypatch, dtype):
    torch = types.ModuleType("torch")
    torch.Tensor, torch.bfloat16 = FakeTensor, "bfloat16"
    monkeypatch.setitem(sys.modules, "torch", torch)
    tensor = FakeTensor(np.array([0.5, 0.25], np.float32), dtype)
    assert checks.confidence(tensor).tolist() == [0.5, 0.25]


def odd_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ones = torch.ones(3)
    return {
        "sparse": (ones.to_sparse(), r"conf is a sparse tensor \(torch.sparse_coo\); pass conf.to_dense\(\)"),
        "compressed": (torch.ones(2, 2).to_sparse_csr(), r"conf is a sparse tensor \(torch.sparse_csr\)"),
        "meta": (torch.ones(3, device="meta"), "conf is a tensor on the device meta, which holds no values"),
        "quantised": (
            torch.quantize_per_tensor(ones, 0.1, 0, torch.quint8),
            r"conf is a quantised tensor \(torch.quint8\); pass conf.dequantize\(\)",
        ),
        "complex": (torch.ones(3, dtype=torch.complex64), "conf must hold numbers, got dtype complex64"),
    }


@pytest.mark.parametrize("name", ["sparse", "compressed", "meta", "quantised", "complex"])
@pytest.mark.filterwarnings("ignore")  # torch announces the end of quantised tensors and the beta of sparse ones
def test_tensors_without_plain_values_are_one_error(name):
    tensor, message = odd_tensors()[name]
    with pytest.raises(InvalidInput, match=message):
        checks.confidence(tensor)


def test_small_floats_of_torch_and_ml_dtypes_are_read():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for kind in ("float8_e4m3fn", "float8_e5m2"):
        assert checks.confidence(torch.tensor([0.5, 2.0]).to(getattr(torch, kind))).tolist() == [0.5, 2.0]
        assert checks.confidence(np.array([0.5, 2.0], getattr(ml_dtypes, kind))).tolist() == [0.5, 2.0]


@pytest.mark.parametrize("value", [[10**400, 1], [10**400, 0.5], [2**64, 1], [2**70], np.array([10**400, 1], object)])
def test_integers_beyond_floats_are_one_error(value):
    with pytest.raises(InvalidInput, match=r"conf holds integers .* rank"):
        checks.confidence(value)
    with pytest.raises(InvalidInput, match="tpr must be a number that float64 can hold"):
        checks.number(10**400, "tpr", 0, 1)


@pytest.mark.parametrize("value", [np.array([0, 2**64 - 1], np.uint64), np.array([0, 2**63], np.uint64), [0.0, 1e300]])
@pytest.mark.parametrize("classes", [3, None])
def test_labels_beyond_int64_do_not_wrap_round(value, classes):
    """2^64 - 1 would become -1, a label that means OOD."""
    with pytest.raises(InvalidInput, match=r"labels must be .* in row 1"):
        checks.labels(value, classes=classes)
    assert checks.labels(np.array([0, 2], np.uint64), classes=3).tolist() == [0, 2]


def test_ids_beyond_int64_do_not_wrap_round():
    with pytest.raises(InvalidInput, match=r"ids must be integers below 2\^63"):
        twofold.Outputs(np.eye(2), ids=np.array([1, 2**64 - 1], np.uint64))


def test_without_torch_nothing_looks_for_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    assert checks.confidence([0.5]).tolist() == [0.5]


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    assert checks.confidence(np.array([0.5, 2.0], ml_dtypes.bfloat16)).tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0], [3.0]], r"conf must be a rectangular array, got rows of different lengths"),
        (["0.5", "0.7"], r"conf must hold numbers, got dtype <U3"),
        (np.array([1j, 2]), r"conf must hold numbers, got dtype complex128"),
        (np.array(["2020-01-01"], "M8[D]"), r"conf must hold numbers, got dtype datetime64"),
        ([object(), object()], r"conf must hold numbers, got object objects"),
        ([True, False], r"conf must be floats, got booleans"),
        (0.5, r"conf must be one-dimensional \(N,\), got shape \(\)"),
        ([[0.5, 0.7]], r"conf must be one-dimensional \(N,\), got shape \(1, 2\)"),
        ([], r"conf is empty \(shape \(0,\)\); at least one row is needed"),
        ({"a": 1.0}, r"conf must"),
        (None, r"conf must"),
        ("high", r"conf must hold numbers"),
    ],
    ids=lambda v: repr(v).partition(" at 0x")[0][:40],
)
def test_what_is_no_confidence(value, message):
    with pytest.raises(InvalidInput, match=message):
        checks.confidence(value)


@pytest.mark.parametrize(
    "value", [np.array(["0.9", "0.1"], dtype=object), pd.Series(["0.9", "0.1"])], ids=["object array", "Series"]
)
def test_text_is_no_number_however_it_is_stored(value):
    """A column read from a file as text is a mistake to hear about, like the <U3 array above."""
    with pytest.raises(InvalidInput, match="conf must hold numbers, got str"):
        checks.confidence(value)


def test_missing_values_of_pandas_are_nan():
    for column in (pd.Series([0.5, None], dtype="Float64"), pd.Series([1, None], dtype="Int64"), [0.5, None]):
        with pytest.raises(InvalidInput, match=r"conf has NaN in row 1 \(1 of 2 rows\)"):
            checks.confidence(column)


@pytest.mark.parametrize("column", [pd.Series([True, None], dtype="boolean"), [True, None]], ids=["pandas", "list"])
def test_a_missing_truth_is_named(column):
    with pytest.raises(InvalidInput, match=r"correct must be booleans or 0/1, got nan in row 1"):
        checks.mask(column, "correct")


# -------------------------------------------------------------------------------- confidences and losses


def test_nan_names_the_first_row_and_what_to_do():
    with pytest.raises(InvalidInput) as caught:
        checks.confidence([1.0, 2.0, np.nan, 3.0, np.nan], "conf_ood", nan="error")
    message = str(caught.value)
    assert message.startswith("conf_ood has NaN in row 2 (2 of 5 rows)")
    assert 'nan="reject"' in message
    with pytest.raises(InvalidInput, match=r"row 0 \(1 of 1 rows\); fix the score$"):  # of a function without nan=
        checks.confidence([np.nan])
    with pytest.raises(InvalidInput, match="nan: no choice 'rejct'; did you mean 'reject'"):
        checks.confidence([1.0], nan="rejct")


def test_infinity_is_a_legal_confidence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checks.confidence([np.inf, -np.inf]).tolist() == [np.inf, -np.inf]


def test_losses_are_finite():
    assert checks.losses([0, 1, 2]).dtype == np.float64
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(InvalidInput, match=rf"loss must be finite, got {bad} in row 1 \(2 such values\)"):
            checks.losses([0.0, bad, 1.0, bad])


def test_finite_looks_at_every_element_but_only_when_the_sum_is_not():
    checks.finite(np.array([1e308, 1e308, 1e308]), "loss")  # the sum overflows, no element does
    checks.finite(np.full(10, 6e4, np.float16), "logits")
    with pytest.raises(InvalidInput, match=r"logits must be finite, got nan in row 1 \(1 such values\)"):
        checks.finite(np.array([[0.0, 1.0], [2.0, np.nan]]), "logits")
    with pytest.raises(InvalidInput, match="got inf in row 0"):
        checks.finite(np.array([np.inf, -np.inf]), "loss")  # the sum is NaN


# -------------------------------------------------------------------------------- masks and labels


@pytest.mark.parametrize(
    "value", [[True, False], [1, 0], [1.0, 0.0], np.array([1, 0], np.uint8), pd.array([True, False], dtype="boolean")]
)
def test_masks(value):
    got = checks.mask(value, "correct")
    assert got.dtype == bool
    assert got.tolist() == [True, False]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0, 1, 2], "got 2 in row 2"),
        ([0.0, 0.3], r"got 0\.3 in row 1"),
        ([-1, 0], "got -1 in row 0"),
        ([1.0, np.nan], "got nan in row 1"),
    ],
)
def test_losses_and_labels_are_no_mask(value, message):
    with pytest.raises(InvalidInput, match=f"correct must be booleans or 0/1, {message}"):
        checks.mask(value, "correct")


def test_labels():
    assert checks.labels([2.0, -1.0, 0.0]).tolist() == [2, -1, 0]
    assert checks.labels(np.array([3, 0], np.uint8)).dtype == np.int64


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ([0, 5], {"classes": 3}, r"labels must be in \[-1, 3\) \(-1 means no class of this model\), got 5 in row 1"),
        ([0, -2], {"classes": 3}, r"labels must be in \[-1, 3\) .*, got -2 in row 1"),
        ([0, -2], {}, r"labels must be in >= -1 .*, got -2 in row 1"),
        ([0, -1], {"ood": False, "classes": 3}, r"labels must be in \[0, 3\), got -1 in row 1"),
        ([0.5, 1.0], {}, r"labels must be integer class labels, got 0\.5 in row 0"),
        ([1.0, np.nan], {}, r"labels must be integer class labels, got nan in row 1"),
        ([1.0, np.inf], {}, r"labels must be integer class labels, got inf in row 1"),
        ([True, False], {}, r"labels must be integer class labels, got booleans"),
        ([[1, 2]], {}, r"labels must be one-dimensional \(N,\), got shape \(1, 2\)"),
    ],
)
def test_what_is_no_label(value, options, message):
    with pytest.raises(InvalidInput, match=message):
        checks.labels(value, **options)


# -------------------------------------------------------------------------------- several arrays


def test_same_rows():
    assert checks.same_rows(conf=np.zeros(3), loss=None, correct=np.ones(3)) == 3
    with pytest.raises(InvalidInput, match="features has 90 rows but logits has 100"):
        checks.same_rows(logits=np.zeros((100, 2)), features=np.zeros((90, 5)))


def test_right_answers_are_id():
    right, inside = checks.joint([1, 0], None, conf=np.zeros(2))
    assert right.tolist() == [True, False]
    assert inside is None
    right, inside = checks.joint([1, 0], [1, 0], conf=np.zeros(2))
    assert inside.tolist() == [True, False]
    with pytest.raises(InvalidInput) as caught:
        checks.joint([0, 1, 1], [1, 0, 0])
    assert "correct must be False on OOD samples, got True in row 1" in str(caught.value)
    assert "no prediction is correct" in str(caught.value)
    with pytest.raises(InvalidInput, match="is_id has 1 rows but correct has 2"):
        checks.joint([1, 0], [1])


# -------------------------------------------------------------------------------- settings


def test_choice():
    assert checks.choice("grid", "method", ("exact", "grid")) == "grid"
    with pytest.raises(InvalidInput, match="method: no choice 'exat'; did you mean 'exact'"):
        checks.choice("exat", "method", ("exact", "grid"))
    with pytest.raises(InvalidInput, match="method: no choice 'zzz'; known: exact, grid"):
        checks.choice("zzz", "method", ("exact", "grid"))
    for odd in (None, 3, ["grid"]):
        with pytest.raises(InvalidInput, match="method: no choice"):
            checks.choice(odd, "method", ("exact", "grid"))


def test_number():
    assert checks.number(1, "tpr", 0, 1) == 1.0
    assert checks.number(np.float32(0.5), "tpr", 0, 1) == 0.5
    for bad, message in (
        (1.5, r"tpr must be in \[0, 1\], got 1\.5"),
        (-0.1, r"tpr must be in \[0, 1\], got -0\.1"),
        (np.nan, r"tpr must be in \[0, 1\], got nan"),
        ("much", r"tpr must be a number, got 'much'"),
        (None, r"tpr must be a number, got None"),
        ([0.5], r"tpr must be a number, got \[0\.5\]"),
    ):
        with pytest.raises(InvalidInput, match=message):
            checks.number(bad, "tpr", 0, 1)
    with pytest.raises(InvalidInput, match=r"share must be in \[0, 1\), got 1"):
        checks.number(1, "share", 0, 1, open_high=True)
    with pytest.raises(InvalidInput, match=r"rate must be in \(0, 1\], got 0"):
        checks.number(0, "rate", 0, 1, open_low=True)
    with pytest.raises(InvalidInput, match=r"cost must be in \[0, inf\), got inf"):
        checks.number(np.inf, "cost", 0, np.inf, open_high=True)


def test_whole():
    assert checks.whole(np.int32(5), "bins", 1) == 5
    for bad in (0, 1.0, "3", None, True, np.float64(2)):
        with pytest.raises(InvalidInput, match="bins must be a whole number of at least 1, got "):
            checks.whole(bad, "bins", 1)


# -------------------------------------------------------------------------------- the tree of errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InvalidInput, ValueError),
        (errors.UndefinedMetric, ValueError),
        (errors.UnknownName, LookupError),
        (errors.NameTaken, ValueError),
        (errors.RunError, OSError),
        (errors.MissingExtra, ImportError),
        (errors.UnfitData, ValueError),
        (errors.NotFitted, RuntimeError),
    ],
)
def test_every_error_is_ours_and_the_built_in_one(error, builtin):
    assert issubclass(error, errors.TwofoldError)
    assert issubclass(error, builtin)
    assert error.__doc__


def test_unknown_names():
    assert str(errors.UnknownName.of("metric", "aucr", ["aurc", "auroc"])) == (
        "no metric 'aucr'; did you mean 'aurc' or 'auroc'?"
    )
    assert str(errors.UnknownName.of("metric", "zzz", ["b", "a"])) == "no metric 'zzz'; known: a, b"


def test_warnings_are_user_warnings():
    assert issubclass(errors.RejectedNaN, UserWarning)


def test_masked_values_are_named():
    value = np.ma.masked_array([0.1, 0.2, 0.3], mask=[False, False, True])
    with pytest.raises(InvalidInput, match="conf has a masked value in row 2"):
        checks.confidence(value)
    assert checks.confidence(np.ma.masked_array([0.1, 0.2])).tolist() == [0.1, 0.2]


def test_integers_beyond_float64_are_refused():
    with pytest.raises(InvalidInput, match="conf holds integers of 2\\^53 or more"):
        checks.confidence([2**53, 2**53 + 1])
    assert checks.confidence([2**52, 1]).tolist() == [2.0**52, 1.0]


def test_a_number_in_quotes_is_no_number():
    with pytest.raises(InvalidInput, match=r"tpr must be a number, got '0\.5'"):
        checks.number("0.5", "tpr", 0, 1)
