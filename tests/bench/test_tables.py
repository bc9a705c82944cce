"""Tables of one metric: marks of the best and tied values, notes, and conflicts."""

import numpy as np
import pytest
from example_rows import NAN, recipes, replicates_of, row

from twofold.bench.results import Results
from twofold.errors import InvalidInput, UnknownName


def test_pivot_marks_by_paired_replicates_else_by_the_interval():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=200)
    rows = [
        row("msp", 0.10, run="a", low=0.0, high=0.3, level=0.95),
        row("knn", 0.12, run="a", low=0.0, high=0.3, level=0.95),  # worse in every resample
        row("mds", 0.11, run="a", low=0.0, high=0.3, level=0.95),  # now better, now worse
        row("vim", 0.13, run="a", low=0.09, high=0.3, level=0.95),  # no replicates; the interval holds the best
        row("gen", 0.13, run="a", low=0.11, high=0.3, level=0.95),
        row("far", 0.10, run="a"),
    ]
    rows[-1] |= {"shift": "lsun"}
    best = 0.1 + 0.05 * noise
    arrays = [best, best + 0.02, best + 0.02 * rng.normal(size=200)]
    pivot = Results.of(rows, replicates_of(rows[:3], arrays)).pivot(metric="aurc")
    assert pivot.index == ("msp", "knn", "mds", "vim", "gen", "far")
    assert pivot.columns == ("svhn", "lsun")
    assert pivot.best[:, 0].tolist() == [True, False, False, False, False, False]
    assert pivot.tied[:, 0].tolist() == [False, False, True, True, False, False]
    assert pivot.best[:, 1].tolist() == [False] * 5 + [True]
    assert "msp, lsun: not in the results" in pivot.notes
    text = pivot.to_markdown(digits=1)
    assert text.splitlines()[2:5] == ["| msp | **100.0** | – |", "| knn | 120.0 | – |", "| mds | 110.0† | – |"]
    assert "the 95% interval of the paired bootstrap difference" in text


def test_pivot_leaves_validation_out_and_refuses_doubles():
    rows = [*recipes(), {"score": "mc", "protocol": "fd_shifts", "reason": "needs passes", "value": NAN}]
    pivot = Results.of(rows).filter(run=("plain", None)).pivot(metric="aurc")
    assert pivot.columns == ("svhn",)
    assert pivot.notes == ("mc: needs passes",)
    with pytest.raises(InvalidInput, match=r"recipe \(plain and dropout\), run"):
        Results.of(rows).pivot(metric="aurc")
    assert Results.of(rows).pivot(("score", "run"), metric="aurc").index == ("msp / plain", "msp / dropout")
    with pytest.raises(UnknownName, match="did you mean 'aurc'"):
        Results.of(rows).pivot(metric="aucr")
    with pytest.raises(InvalidInput, match="several protocols"):
        Results.of([row(), row(protocol="joint")]).pivot(metric="aurc")
    with pytest.raises(InvalidInput, match="disagree on whether higher or lower"):
        Results.of([row(better="lower"), row("knn", better="higher")]).pivot(metric="aurc")
