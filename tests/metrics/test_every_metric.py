"""Laws that hold for every registered metric, and an oracle for each."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import ORACLES, Undefined

from twofold import metrics
from twofold.errors import InvalidInput, NameTaken, RejectedNaN, UndefinedMetric, UnknownName
from twofold.metrics import _registry

NAMES = [name for name in metrics.names() if metrics.info(name).task != "ood"]  # those have a law of their own
CONFIDENCES = ("conf", "conf_id", "conf_ood")
SCALE_MATTERS = {"autc"}
RANKING = [n for n in NAMES if set(metrics.info(n).arrays) & set(CONFIDENCES) and n not in SCALE_MATTERS]
# sums of given losses, of class weights or of probabilities may differ in the last digits after a permutation
COUNTING = [n for n in RANKING if not n.startswith(("joint_", "balanced_"))]
DETECTION = metrics.names("detection")
JOINT_WITH_ID = ["f1", "aurc_id", "ds_f1", "ds_aurc"]
# their optimum has no ties, so the tie that a copy makes counts against them; aurac reads quantiles of n - 1 steps
NOT_INVARIANT_TO_COPIES = {"eaurc", "naurc", "prr", "aurac"}


def optional_arrays(name):
    parameters = inspect.signature(metrics.info(name).function).parameters
    return [a for a in metrics.info(name).arrays if parameters[a].default is None]


CASES = [
    pytest.param(name, full, id=f"{name}-{'all' if full else 'required'}")
    for name in NAMES
    for full in ((False, True) if optional_arrays(name) else (False,))
]


def pool(n, seed, *, levels=7, ood=True):
    """Arrays of the whole vocabulary: tied confidences, three kinds of sample, exact binary fractions."""
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.6 if ood else np.ones(n, bool)
    is_id[:2] = True, True
    if ood:
        is_id[2] = False
    correct = is_id & (rng.random(n) < 0.6)
    correct[:2] = True, False
    grid = np.arange(levels) - levels // 2
    return {
        "is_id": is_id,
        "correct": correct,
        "truth": correct.copy(),
        "conf": rng.choice(grid, n) * 0.5,
        "conf_id": rng.choice(grid, n) * 0.5,
        "conf_ood": rng.choice(grid, n) * 0.5,
        "loss": rng.integers(0, 9, n) / 8,
        "prob": rng.integers(0, 17, n) / 16,
        "labels": rng.integers(0, 4, n),
        "logits": rng.integers(-4, 5, (n, 4)) / 2,
    }


def arrays_of(name, full, n=40, seed=0, **options):
    everything = pool(n, seed, **options)
    skip = () if full else optional_arrays(name)
    return {a: everything[a] for a in metrics.info(name).arrays if a not in skip}


def value(name, arrays, **settings):
    return metrics.info(name).value(**arrays, **settings)


def outcome(compute):
    """The value, or None where there is none."""
    try:
        return compute()
    except (Undefined, UndefinedMetric):
        return None


def expected(name, arrays):
    """What the oracle says; None where the definition gives no value."""
    return outcome(lambda: ORACLES[name](**arrays))


def exactly_or_closely(name, arrays):
    return 0.0 if name in COUNTING and "loss" not in arrays else 1e-12


def rows(arrays, index):
    return {k: v[index] for k, v in arrays.items()}


# -------------------------------------------------------------------------------- the table itself


def test_every_metric_has_an_oracle():
    assert set(ORACLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_complete(name):
    record = metrics.info(name)
    assert record.name == name
    assert getattr(metrics, name) is record.function  # the decorator gave the function back
    assert record.better in ("higher", "lower")
    assert record.bounds[0] < record.bounds[1]
    assert record.formula
    assert record.reference
    assert record.summary.endswith((".", "."))
    positional = [
        p.name
        for p in inspect.signature(record.function).parameters.values()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert set(positional) - {"tpr"} <= set(record.arrays)  # arrays positional, settings by keyword
    assert not set(optional_arrays(name)) - {"is_id", "loss"}


def test_names_can_be_asked_by_task():
    by_task = [metrics.names(t) for t in ("selective", "detection", "joint", "calibration")]
    assert sorted(itertools.chain(*by_task)) == sorted(NAMES)
    with pytest.raises(UnknownName, match=r"no metric 'aucr'; did you mean .*'aurc'"):
        metrics.info("aucr")


@pytest.mark.parametrize("name", metrics.names("ood"))
def test_every_detection_metric_has_a_form_of_id_against_ood(name):
    record = metrics.info(name)
    failures = metrics.info(record.failure_form)
    assert name == f"{failures.name}_ood"
    assert record.arrays == ("is_id", "conf")
    assert record.required_arrays == ("is_id", "conf")
    assert (record.better, record.bounds, record.reference) == (failures.better, failures.bounds, failures.reference)
    everything = pool(40, seed=0)
    is_id, conf = everything["is_id"], everything["conf"]
    assert record.value(is_id, conf) == record.value(is_id=is_id, conf=conf) == failures.value(is_id, conf)
    with pytest.raises(InvalidInput, match="is_id must be booleans or 0/1"):
        record.value(conf, conf)
    assert record.summary == f"Compute :func:`{failures.name}` of ID against OOD samples."
    if hasattr(failures.function, "weighted"):
        drawn = np.full(40, 2, np.uint8)
        assert record.function.weighted(is_id, conf)(drawn) == failures.function.weighted(is_id, conf)(drawn)


def test_every_detection_metric_is_registered_twice():
    assert [metrics.info(name).failure_form for name in metrics.names("ood")] == DETECTION
    register = metrics.register_metric(
        "new", task="detection", better="lower", bounds=(0, 1), formula="x", reference="y"
    )
    try:
        register(lambda truth, conf: 0.5)
        assert metrics.info("new_ood").value([True], [1.0]) == 0.5
        with pytest.raises(NameTaken, match="'new' is registered already"):
            register(lambda truth, conf: 0.5)
    finally:
        for name in ("new", "new_ood"):
            del _registry._METRICS[name]


def test_a_name_taken_twice_is_an_error():
    register = metrics.register_metric(
        "aurc", task="selective", better="lower", bounds=(0, 1), formula="x", reference="y"
    )
    with pytest.raises(NameTaken, match="'aurc' is registered already"):
        register(lambda correct, conf: 0.0)
    assert metrics.info("aurc").function is metrics.aurc


# -------------------------------------------------------------------------------- against the oracle


@pytest.mark.parametrize(("name", "full"), CASES)
def test_agrees_with_the_oracle(name, full):
    for seed in range(12):
        arrays = arrays_of(name, full, n=6 + 2 * seed, seed=seed, levels=3 + seed % 5)
        assert value(name, arrays) == pytest.approx(ORACLES[name](**arrays), abs=1e-12), f"seed {seed}"


@st.composite
def vocabulary(draw):
    """Any small set with an ID sample: one sample, one class, all tied and infinite scores included."""
    n = draw(st.integers(1, 14))
    ints = draw(st.integers(0, 6))
    level = st.one_of(
        st.integers(-ints, ints).map(float),
        st.floats(-1e6, 1e6),
        st.sampled_from([-math.inf, math.inf, -0.0]),
    )

    def column(elements):
        return np.array(draw(st.lists(elements, min_size=n, max_size=n)))

    is_id = column(st.booleans())
    is_id[draw(st.integers(0, n - 1))] = True
    correct = is_id & column(st.booleans())
    return {
        "is_id": is_id,
        "correct": correct,
        "truth": correct,
        "conf": column(level),
        "conf_id": column(level),
        "conf_ood": column(level),
        "loss": column(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1, allow_subnormal=False))),
        "prob": column(st.one_of(st.integers(0, 15).map(lambda k: k / 15), st.floats(0, 1))),
        "labels": column(st.integers(0, 2)),
        "logits": column(st.lists(st.integers(-9, 9).map(float), min_size=3, max_size=3)),
    }


@pytest.mark.parametrize(("name", "full"), CASES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(everything=vocabulary(), seed=st.integers(0, 999))
def test_any_input_oracle_bounds_and_order(name, full, everything, seed):
    skip = () if full else optional_arrays(name)
    arrays = {a: everything[a] for a in metrics.info(name).arrays if a not in skip}
    if name in SCALE_MATTERS and not np.isfinite(arrays["conf"]).all():
        with pytest.raises(InvalidInput, match="finite"):
            value(name, arrays)
        return
    try:
        want = ORACLES[name](**arrays)
    except Undefined:
        with pytest.raises(UndefinedMetric):
            value(name, arrays)
        return
    got = value(name, arrays)
    assert got == pytest.approx(want, abs=1e-10)
    low, high = metrics.info(name).bounds
    assert low - 1e-12 <= got <= high + 1e-12
    shuffled = rows(arrays, np.random.default_rng(seed).permutation(len(next(iter(arrays.values())))))
    assert value(name, shuffled) == pytest.approx(got, rel=0, abs=exactly_or_closely(name, arrays))


# -------------------------------------------------------------------------------- laws


@pytest.mark.parametrize(("name", "full"), CASES)
def test_the_order_of_samples_changes_nothing(name, full):
    arrays = arrays_of(name, full, n=300, seed=1)
    first = value(name, arrays)
    for seed in range(5):
        shuffled = rows(arrays, np.random.default_rng(seed).permutation(300))
        assert value(name, shuffled) == pytest.approx(first, rel=0, abs=exactly_or_closely(name, arrays))


@pytest.mark.parametrize("name", RANKING)
def test_the_order_among_ties_changes_nothing(name):
    """Right answers first or last inside each tie group: a stable sort would tell them apart."""
    arrays = arrays_of(name, False, n=200, seed=2, levels=3)
    failed = ~arrays.get("correct", arrays.get("truth"))
    confs = [arrays[c] for c in CONFIDENCES if c in arrays]
    right_first = rows(arrays, np.lexsort((failed, *confs)))
    wrong_first = rows(arrays, np.lexsort((~failed, *confs)))
    assert value(name, right_first) == pytest.approx(
        value(name, wrong_first), rel=0, abs=exactly_or_closely(name, arrays)
    )


def ends_to_infinity(x):
    return np.where(x == x.max(), np.inf, np.where(x == x.min(), -np.inf, x))


MAPS = {
    "exp": lambda x: np.exp(10 * x),
    "exp of exp": lambda x: np.exp(np.exp(2 * x)),
    "cubic": lambda x: x**3 + x,
    "shift by -15": lambda x: x - 15,
    "huge scale": lambda x: x * 1e307,
    "tiny scale": lambda x: x * 1e-300,
    "saturating": np.tanh,
    "ends at infinity": ends_to_infinity,
}


@pytest.mark.parametrize("increasing", MAPS.values(), ids=MAPS.keys())
@pytest.mark.parametrize("name", RANKING)
def test_increasing_maps_change_no_ranking_metric(name, increasing):
    arrays = arrays_of(name, True, n=60, seed=3)
    before = value(name, arrays)
    confs = [c for c in CONFIDENCES if c in arrays]
    for mapped in [*([c] for c in confs), confs]:
        changed = {k: increasing(v) if k in mapped else v for k, v in arrays.items()}
        for c in mapped:
            assert len(np.unique(changed[c])) == len(np.unique(arrays[c]))  # the map is strict
        assert value(name, changed) == before


def test_autc_depends_on_scale_and_only_on_affine_terms_not():
    arrays = arrays_of("autc", False, n=60, seed=3)
    moved = arrays | {"conf": 3 * arrays["conf"] - 15}
    bent = arrays | {"conf": np.exp(arrays["conf"])}
    assert value("autc", moved) == pytest.approx(value("autc", arrays), abs=1e-12)
    assert abs(value("autc", bent) - value("autc", arrays)) > 1e-3


@pytest.mark.parametrize(("name", "full"), CASES)
def test_copies_of_every_sample_change_nothing(name, full):
    for seed in range(4):
        arrays = arrays_of(name, full, n=30, seed=seed)
        thrice = {k: np.repeat(v, 3, axis=0) for k, v in arrays.items()}
        if name in NOT_INVARIANT_TO_COPIES:
            assert value(name, thrice) != pytest.approx(value(name, arrays), abs=1e-6)
        else:
            assert value(name, thrice) == pytest.approx(value(name, arrays), abs=1e-12)


def no_worse(name, after, before):
    sign = 1 if metrics.info(name).better == "higher" else -1
    return sign * (after - before) >= -1e-12


# A mean of one rate per positive (or ID) sample: with ties, a sample that rises into a bad group takes on the
# rate of that group. Two unsafe above ten tied safe ones: AP is 10/12, after a swap (1/2 + 9 * 10/12) / 10.
WORSE_WITH_TIES = {"average_precision", "average_precision_unsafe", "aupr", "aupr_unsafe", "aurc_id", "ds_aurc"}


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("name", [*RANKING, "autc"])
def test_mending_a_wrong_order_never_worsens(name, ties):
    """Swap the scores of a failure and a right answer that is trusted less; `better` says which way is up."""
    if ties and name in WORSE_WITH_TIES:
        pytest.skip(f"by its definition {name} is not monotone when scores are tied")
    improved = 0
    for seed in range(25):
        arrays = arrays_of(name, False, n=25, seed=seed, levels=4)
        right = arrays.get("correct", arrays.get("truth"))
        confs = [c for c in CONFIDENCES if c in arrays]
        if not ties:
            rng = np.random.default_rng(seed)
            arrays |= {c: rng.permutation(25) * 1.0 for c in confs}
        before = value(name, arrays)
        for i, j in itertools.product(np.flatnonzero(~right), np.flatnonzero(right)):
            if all(arrays[c][i] >= arrays[c][j] for c in confs):
                swapped = dict(arrays)
                for c in confs:
                    swapped[c] = arrays[c].copy()
                    swapped[c][[i, j]] = arrays[c][[j, i]]
                after = value(name, swapped)
                assert no_worse(name, after, before), (seed, i, j)
                improved += after != before
    assert improved > 0


@pytest.mark.parametrize("name", [n for n in NAMES if metrics.info(n).arrays == ("labels", "logits")])
def test_raising_the_logit_of_the_label_never_worsens(name):
    arrays = arrays_of(name, False, n=30, seed=4)
    before = value(name, arrays)
    raised = arrays["logits"].copy()
    raised[np.arange(30), arrays["labels"]] += 2.0
    after = value(name, arrays | {"logits": raised})
    assert no_worse(name, after, before)
    assert after != before


def ranked(right, *, perfect, ties=False):
    """A strict (or two-level) score that is perfect, or perfectly wrong."""
    order = np.argsort(right if perfect else ~right, kind="stable")
    conf = np.empty(len(right))
    conf[order] = np.arange(len(right))
    return (right == perfect).astype(float) if ties else conf


R, W = 13, 7  # right and wrong answers
N, E = R + W, W / (R + W)
BEST_AURC = sum(j / (R + j) for j in range(1, W + 1)) / N
WORST_AURC = (W + sum(W / (W + j) for j in range(1, R + 1))) / N
KNOWN = {  # in closed form
    "auroc": (1.0, 0.0),
    "average_precision": (1.0, sum(k / (W + k) for k in range(1, R + 1)) / R),
    "average_precision_unsafe": (1.0, sum(k / (R + k) for k in range(1, W + 1)) / W),
    "aupr": (1.0, sum((k / (W + k) + (k - 1) / (W + k - 1)) / 2 for k in range(1, R + 1)) / R),
    "aupr_unsafe": (1.0, sum((k / (R + k) + (k - 1) / (R + k - 1)) / 2 for k in range(1, W + 1)) / W),
    "fpr_at_tpr": (0.0, 1.0),
    "fpr95": (0.0, 1.0),
    "fpr95_unsafe": (0.0, 1.0),
    "detection_error": (0.0, 0.5),
    "aurc": (BEST_AURC, WORST_AURC),
    "aurc_id": (BEST_AURC, WORST_AURC),
    "joint_aurc": (BEST_AURC, WORST_AURC),
    "ds_aurc": (BEST_AURC, WORST_AURC),
    "eaurc": (0.0, WORST_AURC - BEST_AURC),
    "naurc": (0.0, (WORST_AURC - BEST_AURC) / (E - BEST_AURC)),
    "augrc": (E**2 / 2, E - E**2 / 2),
    "joint_augrc": (E**2 / 2, E - E**2 / 2),
    "balanced_augrc": (E**2 / 2, E - E**2 / 2),  # one class only
    "balanced_aurc": (BEST_AURC, WORST_AURC),
    "eaugrc": (0.0, E * (1 - E)),
    "achievable_aurc": (E + (1 - E) * math.log(1 - E), E),
    "f1": (2 * R / (R + N), R / N),
    "ds_f1": (2 * R / (R + N), R / N),
}


@pytest.mark.parametrize("name", [n for n in RANKING if n != "oscr"])
def test_perfect_and_reversed_scores_reach_best_and_worst(name):
    """Without OOD samples; with W = 7 failures after (or before) R = 13 right answers, no ties."""
    right = np.random.default_rng(5).permutation(np.arange(N) < R)
    rest = {"correct": right, "truth": right, "is_id": np.ones(N, bool), "labels": np.zeros(N, int)}
    found = []
    for perfect in (True, False):
        everything = rest | dict.fromkeys(CONFIDENCES, ranked(right, perfect=perfect))
        arrays = {a: everything[a] for a in metrics.info(name).arrays if a != "loss"}
        found.append(value(name, arrays))
        assert found[-1] == pytest.approx(expected(name, arrays), abs=1e-14)
    best, worst = found
    assert best != worst
    assert no_worse(name, best, worst)
    if name in KNOWN:
        assert found == pytest.approx(KNOWN[name], abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_the_better_bound_is_reached_where_nothing_is_wrong(name):
    """Bounds are no wider than they need be: 1, 0 or what the perfect classifier with perfect scores attains."""
    right = np.arange(N) < R if metrics.info(name).task == "detection" or name == "oscr" else np.ones(N, bool)
    is_id = right if name == "oscr" else np.ones(N, bool)
    everything = {"correct": right, "truth": right, "is_id": is_id, "labels": np.zeros(N, int)}
    everything |= {"prob": np.ones(N), "logits": np.tile([900.0, 0.0, 0.0], (N, 1))}
    everything |= dict.fromkeys(("conf", "conf_id", "conf_ood"), right.astype(float) + np.arange(N) / 1000)
    if name == "autc":
        everything["conf"] = right.astype(float)  # all of one class alike
    arrays = {a: everything[a] for a in metrics.info(name).arrays if a != "loss"}
    low, high = metrics.info(name).bounds
    want = high if metrics.info(name).better == "higher" else low
    try:
        assert value(name, arrays) == pytest.approx(max(want, -1e9), abs=1e-12)
    except UndefinedMetric:
        assert name in ("naurc", "prr")  # no failure to rank


def test_perfect_and_reversed_scores_with_ood():
    is_id = np.array([True] * 6 + [False] * 4)
    correct = np.array([True] * 4 + [False] * 6)
    best, worst = np.arange(10)[::-1] * 1.0, np.arange(10) * 1.0
    assert metrics.oscr(correct, best, is_id) == 4 / 6  # the accuracy
    assert metrics.oscr(correct, worst, is_id) == 0.0
    assert metrics.f1(correct, best, is_id).value == 2 * 4 / (4 + 6)
    assert metrics.ds_f1(correct, worst, worst, is_id).value == 2 * 4 / (10 + 6)  # accept everything
    assert metrics.autc(correct, correct.astype(float)) == 0.0
    assert metrics.autc(correct, 1.0 - correct) == 1.0


# -------------------------------------------------------------------------------- what may be handed over


@pytest.mark.parametrize(("name", "full"), CASES)
def test_inputs_are_not_written_to_and_may_be_read_only(name, full):
    arrays = arrays_of(name, full, n=50, seed=6)
    copies = {k: v.copy() for k, v in arrays.items()}
    want = value(name, arrays)
    for array in arrays.values():
        array.flags.writeable = False
    assert value(name, arrays) == want
    for k in arrays:
        np.testing.assert_array_equal(arrays[k], copies[k])


def as_memmap(array, path):
    path.write_bytes(np.ascontiguousarray(array).tobytes())
    return np.memmap(path, dtype=array.dtype, mode="r", shape=array.shape)


NULLABLE = {"b": "boolean", "f": "Float64", "i": "Int64"}


def as_pandas(array, *, nullable=False):
    """A Series or a DataFrame whose index is not 0..n-1."""
    index = np.arange(len(array))[::-1] + 100
    if array.ndim == 2:
        return pd.DataFrame(array, index=index)
    return pd.Series(array, index=index, dtype=NULLABLE[array.dtype.kind] if nullable else None)


class HasArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


def to_float(array, dtype):
    return array.astype(dtype) if array.dtype.kind == "f" else array


FORMS = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "pandas": as_pandas,
    "nullable pandas": lambda a: as_pandas(a, nullable=True),
    "float32": lambda a: to_float(a, np.float32),
    "float16": lambda a: to_float(a, np.float16),
    "big-endian": lambda a: to_float(a, ">f8"),
    "0/1 integers": lambda a: a.astype(np.uint8) if a.dtype.kind == "b" else a,
    "0/1 floats": lambda a: a.astype(np.float32) if a.dtype.kind == "b" else a,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "reversed twice": lambda a: a[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "__array__": HasArray,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("name", NAMES)
def test_any_array_like_gives_the_same_value(name, form):
    arrays = arrays_of(name, True, n=30, seed=7)
    assert value(name, {k: form(v) for k, v in arrays.items()}) == value(name, arrays)


@pytest.mark.parametrize("name", NAMES)
def test_memory_maps_are_accepted(name, tmp_path):
    arrays = arrays_of(name, True, n=30, seed=7)
    mapped = {k: as_memmap(v, tmp_path / k) for k, v in arrays.items()}
    assert value(name, mapped) == value(name, arrays)


# -------------------------------------------------------------------------------- NaN, infinity, edges


@pytest.mark.parametrize("name", [*RANKING, "autc"])
def test_nan_is_an_error_that_names_the_first_row(name):
    for conf in set(CONFIDENCES) & set(metrics.info(name).arrays):
        arrays = arrays_of(name, False, n=30, seed=8)
        arrays[conf][[17, 23]] = np.nan
        with pytest.raises(InvalidInput, match=rf"{conf} has NaN in row 17 \(2 of 30 rows\)"):
            value(name, arrays)


@pytest.mark.parametrize("name", RANKING)
def test_nan_can_be_ranked_lowest_with_a_warning(name):
    for conf in set(CONFIDENCES) & set(metrics.info(name).arrays):
        arrays = arrays_of(name, False, n=30, seed=8)
        lowest = {k: v.copy() for k, v in arrays.items()}
        arrays[conf][[3, 4, 23]] = np.nan
        lowest[conf][[3, 4, 23]] = -np.inf
        with pytest.warns(RejectedNaN, match=rf"{conf}: 3 of 30 rows are NaN and are ranked lowest"):
            got = value(name, arrays, nan="reject")
        assert got == value(name, lowest)
        with pytest.raises(InvalidInput, match="nan: no choice 'drop'"):
            value(name, lowest, nan="drop")


@pytest.mark.parametrize("name", [n for n in NAMES if "loss" in metrics.info(n).arrays])
def test_losses_must_be_finite(name):
    arrays = arrays_of(name, True, n=30, seed=9)
    for bad in (np.nan, np.inf, -np.inf):
        loss = arrays["loss"].copy()
        loss[11] = bad
        with pytest.raises(InvalidInput, match=r"loss must be finite, got .* in row 11"):
            value(name, arrays | {"loss": loss})


@pytest.mark.parametrize(("name", "full"), CASES)
def test_empty_input_is_an_error(name, full):
    with pytest.raises(InvalidInput, match="is empty"):
        value(name, rows(arrays_of(name, full), slice(0, 0)))


@pytest.mark.parametrize(("name", "full"), CASES)
def test_arrays_of_different_lengths_are_an_error(name, full):
    arrays = arrays_of(name, full, n=30)
    for short in arrays:
        with pytest.raises(InvalidInput, match=r"has (29|30) rows.* but .* has (29|30)"):
            value(name, arrays | {short: arrays[short][:-1]})


@pytest.mark.parametrize("name", NAMES)
def test_wrong_dimensions_are_an_error(name):
    arrays = arrays_of(name, True, n=30)
    for wide in arrays:
        with pytest.raises(InvalidInput, match=rf"{wide} must be (one|two)-dimensional .*, got shape"):
            value(name, arrays | {wide: arrays[wide][:, None]})


@pytest.mark.parametrize("name", [n for n in NAMES if "correct" in metrics.info(n).arrays])
def test_correct_must_be_boolean_and_false_on_ood(name):
    arrays = arrays_of(name, True, n=30)
    bad = arrays["correct"].astype(float)
    bad[5] = 0.3
    with pytest.raises(InvalidInput, match=r"correct must be booleans or 0/1, got 0.3 in row 5"):
        value(name, arrays | {"correct": bad})
    if "is_id" in arrays:
        outside = int(np.flatnonzero(~arrays["is_id"])[0])
        right = arrays["correct"].copy()
        right[outside] = True
        with pytest.raises(InvalidInput, match=rf"correct must be False on OOD .* True in row {outside}"):
            value(name, arrays | {"correct": right})


def one_class(name, right, n=5, tied=False):
    """Arrays of n samples that are all right or all wrong, all ID, with distinct or equal scores."""
    conf = np.zeros(n) if tied else np.arange(n) * 1.0
    everything = dict.fromkeys(CONFIDENCES, conf) | {
        "correct": np.full(n, right),
        "truth": np.full(n, right),
        "is_id": np.ones(n, bool),
        "labels": np.zeros(n, int),
    }
    return {a: everything[a] for a in metrics.info(name).arrays if a != "loss"}


# (all right, all wrong) in closed form; None = UndefinedMetric
ONE_CLASS = dict.fromkeys([*DETECTION, "naurc", "oscr"], (None, None)) | {
    "aurc": (0.0, 1.0),
    "eaurc": (0.0, 0.0),
    "augrc": (0.0, 0.5),
    "eaugrc": (0.0, 0.0),
    "achievable_aurc": (0.0, 1.0),
    "joint_aurc": (0.0, 1.0),
    "joint_augrc": (0.0, 0.5),
    "balanced_augrc": (0.0, 0.5),
    "balanced_aurc": (0.0, 1.0),
    "f1": (1.0, 0.0),
    "aurc_id": (0.0, 1.0),
    "ds_f1": (1.0, 0.0),
    "ds_aurc": (0.0, 1.0),
}


@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", [*RANKING, "autc"])
def test_one_class_and_one_sample(name, n, tied):
    for place, right in enumerate((True, False)):
        arrays = one_class(name, right, n, tied)
        got = outcome(lambda arrays=arrays: value(name, arrays))
        assert got == pytest.approx(expected(name, arrays), abs=1e-15)
        if name in ONE_CLASS:
            assert got == pytest.approx(ONE_CLASS[name][place], abs=1e-15)


# 13 right and 7 wrong with one and the same score: a coin, or one threshold that accepts everything; in closed form
ALL_TIED = {
    "auroc": 0.5,
    "average_precision": 1 - E,
    "average_precision_unsafe": E,
    "aupr": (1 + 1 - E) / 2,
    "aupr_unsafe": (1 + E) / 2,
    "fpr_at_tpr": 1.0,
    "fpr95": 1.0,
    "fpr95_unsafe": 1.0,
    "detection_error": 0.5,
    "aurc": E,
    "eaurc": E - BEST_AURC,
    "naurc": 1.0,
    "augrc": E / 2,
    "eaugrc": E * (1 - E) / 2,
    "achievable_aurc": E,
    "joint_aurc": E,
    "joint_augrc": E / 2,
    "balanced_augrc": E / 2,
    "balanced_aurc": E,
    "f1": R / N,
    "aurc_id": E,
    "ds_f1": R / N,
    "ds_aurc": E,
}


@pytest.mark.parametrize("name", [n for n in RANKING if n != "oscr"])
def test_all_tied(name):
    arrays = one_class(name, True, N, tied=True)
    for judged in {"correct", "truth"} & set(arrays):
        arrays[judged] = np.arange(N) < R
    got = value(name, arrays)
    assert got == pytest.approx(expected(name, arrays), abs=1e-14)
    if name in ALL_TIED:
        assert got == pytest.approx(ALL_TIED[name], abs=1e-14)


def test_autc_without_two_levels_is_undefined():
    with pytest.raises(UndefinedMetric, match="two distinct"):
        metrics.autc([True, False], [1.0, 1.0])


@pytest.mark.parametrize("name", [n for n in NAMES if "is_id" in metrics.info(n).arrays])
def test_all_ood(name):
    arrays = one_class(name, False, 4) | {"is_id": np.zeros(4, bool)}
    if name in JOINT_WITH_ID:
        with pytest.raises(InvalidInput, match="at least one ID sample"):
            value(name, arrays)
    elif name in ("oscr", "naurc"):
        with pytest.raises(UndefinedMetric):
            value(name, arrays)
    else:
        got = outcome(lambda: value(name, arrays))
        assert got == pytest.approx(expected(name, arrays), abs=1e-15)
        if name in ONE_CLASS:
            assert got == pytest.approx(ONE_CLASS[name][1], abs=1e-15)


SHARED = [n for n in NAMES if "ood_share" in inspect.signature(metrics.info(n).function).parameters]


@pytest.mark.parametrize("name", SHARED)
def test_ood_share_needs_both_kinds_and_a_rate(name):
    arrays = arrays_of(name, True, n=20)
    for bad in (-0.1, 1.0, 1.5, np.nan, "half"):
        with pytest.raises(InvalidInput, match="ood_share must be"):
            value(name, arrays, ood_share=bad)
    with pytest.raises(InvalidInput, match="at least one of each"):
        value(name, arrays | {"is_id": np.ones(20, bool)}, ood_share=0.5)
    if "is_id" in optional_arrays(name):
        without = {k: v for k, v in arrays.items() if k != "is_id"}
        with pytest.raises(InvalidInput, match="pass is_id"):
            value(name, without, ood_share=0.5)


@pytest.mark.parametrize("name", [n for n in SHARED if hasattr(metrics.info(n).function, "weighted")])
def test_the_weighted_form_refuses_an_ood_share_without_both_kinds(name):
    """It is refused before the first resample, also where all samples are of one kind."""
    arrays = arrays_of(name, True, n=20)
    weighted = metrics.info(name).function.weighted
    weighted(**arrays, ood_share=0.5)
    for inside in (True, False):
        one_kind = arrays | {"is_id": np.full(20, inside)} | {"correct": np.full(20, inside)}
        with pytest.raises(InvalidInput, match="at least one"):
            weighted(**one_kind, ood_share=0.5)


@pytest.mark.parametrize("full", [False, True], ids=["0/1", "loss"])
@pytest.mark.parametrize("name", SHARED)
def test_ood_share_equals_copies_of_ood_samples(name, full):
    """A weight of m is m copies; the perfect ranking may split copies, so the excess forms differ there."""
    if full and "loss" not in metrics.info(name).arrays:
        pytest.skip(f"{name} takes no losses")
    if name in NOT_INVARIANT_TO_COPIES:
        pytest.skip(f"the optimum of {name} may split copies")
    for seed, copies in itertools.product(range(4), (1, 2, 5)):
        arrays = arrays_of(name, True, n=24, seed=seed)
        if not full:
            arrays.pop("loss", None)
        inside = int(arrays["is_id"].sum())
        outside = 24 - inside
        share = copies * outside / (inside + copies * outside)
        repeated = {k: np.repeat(v, np.where(arrays["is_id"], 1, copies), axis=0) for k, v in arrays.items()}
        assert value(name, arrays, ood_share=share) == pytest.approx(value(name, repeated), abs=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_ood_share_zero_leaves_the_id_samples(name):
    """0 is a legal share: OOD samples then weigh nothing, wherever they rank."""
    for seed in range(6):
        arrays = arrays_of(name, True, n=24, seed=seed)
        arrays.pop("loss", None)
        for c in set(CONFIDENCES) & set(arrays):
            if seed % 2:  # an OOD sample above all others
                arrays[c][2] = 99.0
        inside = rows(arrays, arrays["is_id"])
        assert value(name, arrays, ood_share=0.0) == pytest.approx(value(name, inside), abs=1e-12)
