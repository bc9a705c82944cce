"""What scores share of a training set: computed once, forgotten with it, and never stale."""

import gc
import weakref

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores._fitting.moments import whiten_rows
from twofold.scores._fitting.shared import once
from twofold.scores._fitting.spaces import groups
from twofold.scores.chain import fit_all


def frozen(array):
    array = np.array(array, dtype=float)
    array.flags.writeable = False
    return array


def test_once_for_each_set_of_arrays():
    calls = []

    @once
    def total(a, b, power=1):
        calls.append((a, b, power))
        return (a.sum() + b.sum()) ** power

    a, b, c = frozen([1, 2]), frozen([3]), frozen([3])
    assert [total(a, b), total(a, b), total(a, c), total(a, b, 2), total(a, b, 2)] == [6, 6, 6, 36, 36]
    assert len(calls) == 3


def test_writable_arrays_are_computed_again():
    first = once(lambda a: a[0])
    a = np.array([1.0])
    assert first(a) == 1.0
    a[0] = 2.0
    assert first(a) == 2.0


def test_results_go_with_the_arrays():
    class Result:
        pass

    make = once(lambda a: Result())
    a = frozen([1])
    held = weakref.ref(make(a))
    gc.collect()
    assert held() is not None
    del a
    gc.collect()
    assert held() is None


def test_an_array_at_the_same_address_is_another_array():
    mean = once(lambda a: a.mean())
    for value in range(200):  # freed and allocated again and again
        assert mean(frozen([value, value])) == value


def test_a_training_set_is_read_a_few_times_for_many_scores(monkeypatch):
    from twofold.scores._fitting import moments

    reads = []
    of = moments.Moments.of.__func__
    monkeypatch.setattr(moments.Moments, "of", classmethod(lambda cls, *a: reads.append(1) or of(cls, *a)))
    rng = np.random.default_rng(0)
    head = Head(rng.normal(size=(3, 6)))
    features = np.abs(rng.normal(size=(90, 6)))
    train = Outputs(head.logits(features), np.arange(90) % 3, features, head)
    fit_all(["mds", "rmds", "cosine_mean", "mds(covariance='total')"], train)
    assert len(reads) == 1  # of classes
    fit_all(["fdbd", "nci", "vim", "residual", "pca_error", "neco", "dice|energy", "sirc(s2='residual')"], train)
    assert len(reads) == 2  # of all rows


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (7, 3), (9, 8), (3, 1)])
def test_triangular_products(shape):
    rng = np.random.default_rng(0)
    lower, rows = np.tril(rng.normal(size=shape)), rng.normal(size=(4, shape[0]))
    assert whiten_rows(rows, lower) == pytest.approx(rows @ lower)


def test_groups_are_the_rows_of_each_class_in_order():
    for labels in ([2, 1, 2, -1, 1], [0, 0], [-1, 2], [1, 0, -1]):
        want = {c: [i for i, y in enumerate(labels) if y == c] for c in range(3) if c in labels}
        assert {c: rows.tolist() for c, rows in groups(np.array(labels), 3)} == want
    with pytest.raises(InvalidInput, match="all are -1"):
        list(groups(np.array([-1, -1]), 3))
