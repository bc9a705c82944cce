"""Rows of results: what is rejected, and which rows count data once."""

import numpy as np
import pytest
from example_rows import replicates_of, row

from twofold.bench.results import Results
from twofold.bench.rows import finest, method
from twofold.errors import InvalidInput


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(valeu=1)], "row 0: no column 'valeu'; did you mean 'value'"),
        ([row(), row("knn", value="high")], "value of row 1 must be a number or None, got 'high'"),
        ([row(value=True)], "value of row 0 must be a number"),
        ([row(n=1.5)], "n of row 0 must be a whole number"),
        ([row(n=2**63)], "n of row 0 must be a whole number"),
        ([row(better="up")], "better of row 0: no choice 'up'"),
        ([row(score=3)], "score of row 0 must be text"),
        ([row(reason="a\0b")], "NUL"),
        ([row(reason="\ud800")], "UTF-8"),
        ([row(metric=None)], "has the value 0.1 but no metric"),
        ([row(), row(value=0.2)], "two rows have score 'msp', shift 'svhn', protocol 'fd_shifts', metric 'aurc'"),
        (["msp"], "row 0 must be a mapping"),
    ],
)
def test_wrong_rows_are_refused(rows, message):
    with pytest.raises(InvalidInput, match=message):
        Results.of(rows)


def test_wrong_replicates_are_refused():
    with pytest.raises(InvalidInput, match="belong to no row"):
        Results.of([row()], replicates_of([row("knn")], [[1.0]]))
    with pytest.raises(InvalidInput, match="one-dimensional"):
        Results.of([row()], replicates_of([row()], [[[1.0]]]))
    given = np.array([1.0, 2.0])
    made = Results.of([row()], replicates_of([row()], [given]))
    given[0] = 5.0
    ((_, kept),) = made.replicates.items()
    assert kept.tolist() == [1.0, 2.0]


def test_finest_rows():
    def left(*shifts):
        rows = [row(shift=shift, role=role) for shift, role in shifts]
        return [r["shift"] for r in finest(Results.of(rows))]

    near, far = ("near", "near"), ("far", "far")
    assert left(near, ("cifar100", "near"), far, ("validation", "val")) == ["cifar100", "far"]
    assert left(("pooled", "pooled"), near, far) == ["near", "far"]
    assert left(("pooled", "pooled")) == ["pooled"]
    assert left(("shift", "shift"), ("sketch", "shift")) == ["shift", "sketch"]  # a data set of that name, no average


def test_a_method_is_a_score_or_a_pair():
    assert method({"score": "msp", "pair": None}) == "msp"
    assert method({"score": "msp", "pair": "knn"}) == "msp + knn"
