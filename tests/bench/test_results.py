"""Results: filters, the best rows, and conversions."""

import json
import math

import pytest
from example_rows import NAN, replicates_of, row, several

from twofold.bench.results import Results
from twofold.bench.rows import COLUMNS
from twofold.errors import UnknownName


def test_filter_keeps_rows_and_their_replicates():
    rows = [row(s, v, shift=d) for s, v in (("msp", 0.1), ("knn", 0.2)) for d in ("svhn", "lsun")]
    made = Results.of(rows, replicates_of(rows, [[float(i)] for i in range(4)]))
    kept = made.filter(score=("knn", "mds"), shift="lsun")
    assert [(r["score"], r["shift"]) for r in kept] == [("knn", "lsun")]
    assert [a.tolist() for a in kept.replicates.values()] == [[3.0]]
    assert len(made.filter(score={"knn"}, metric="auroc")) == 0
    assert len(made.filter(pair=None)) == 4
    with pytest.raises(UnknownName, match="no column 'scor'"):
        made.filter(scor="msp")


def test_to_dicts_is_json():
    made = several()
    rows = json.loads(json.dumps(made.to_dicts()))
    assert [one["value"] for one in rows] == [0.1, 1e-300, None, math.inf, None]
    assert list(rows[0]) == list(COLUMNS)


def test_to_pandas():
    pytest.importorskip("pandas")
    frame = several().to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["n"].dtype == "Int64"
    assert frame["n"].isna().tolist() == [False, True, True, True, True]
    assert frame["value"].isna().sum() == 2


def test_best_is_never_nan_and_follows_the_direction():
    rows = [row("a", 0.3), row("b", 0.1), row("c", NAN), row("d", 0.1)]
    assert [r["score"] for r in Results.of(rows).best()] == ["b"]
    rows = [one | {"metric": "auroc"} for one in rows]
    assert [r["score"] for r in Results.of(rows).best()] == ["a"]
    assert [r["score"] for r in Results.of(rows).best(per=("score",))] == ["a", "b", "d"]
