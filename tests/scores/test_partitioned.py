"""Scores fitted on partitions learn what they learn from all rows; those that cannot, say so."""

import numpy as np
import pytest

from twofold import Head, Outputs, scorer
from twofold.errors import InvalidInput
from twofold.scores import fit_partitioned, info, names

MERGED = [
    "mds",
    'mds(covariance="total")',
    "rmds",
    "residual(dim=3)",
    "neco",
    "pca_error",
    "cosine_mean",
    "fdbd",
    "nci",
    "dice|energy",
    "weiper",
    "gradorth",
]


def outputs(n, seed, head):
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 4, n)
    features = rng.normal(size=(n, 8)) * np.arange(1, 9) + 3.0 * labels[:, None] + 100.0
    return Outputs(head.logits(features), labels, features, head)


@pytest.fixture(scope="module")
def partitions():
    rng = np.random.default_rng(9)
    head = Head(rng.normal(size=(4, 8)), rng.normal(size=4))
    return [outputs(n, seed, head) for seed, n in enumerate((300, 70, 5, 401))]


def check_same(merged, whole, rows):
    got, want = merged.score(rows), whole.score(rows)
    assert np.abs(got - want).max() <= 1e-8 * np.ptp(want)
    assert merged.fitted_on == whole.fitted_on


@pytest.mark.parametrize("spec", MERGED)
def test_partitions_teach_what_all_rows_teach(spec, partitions):
    whole = scorer(spec).fit(Outputs.concat(partitions))
    check_same(fit_partitioned(spec, partitions), whole, partitions[0])
    lazily = [lambda part=part: part for part in partitions]
    check_same(fit_partitioned(scorer(spec), iter(lazily)), whole, partitions[0])


def test_a_partition_without_known_classes_adds_nothing(partitions):
    unknown = partitions[0].replace(labels=np.full(len(partitions[0]), -1))
    whole = scorer("mds").fit(Outputs.concat(partitions))
    check_same(fit_partitioned("mds", [*partitions, unknown]), whole, partitions[0])
    with pytest.raises(InvalidInput, match="all are -1"):
        fit_partitioned("mds", [unknown])


@pytest.mark.parametrize(
    "spec", ["knn", "klm", "she", "caref", "vim(dim=3)", "react|energy", "temperature|msp", "dice|mds"]
)
def test_scores_that_need_rows_say_so(spec, partitions):
    with pytest.raises(InvalidInput, match=r"cannot be fitted on partitions.*fit it on one machine"):
        fit_partitioned(spec, partitions)


def test_every_score_is_merged_equally_or_refused(partitions):
    """No score is fitted wrongly without an error."""
    whole = Outputs.concat(partitions)
    for name in names(needs=["logits", "features", "head", "labels"]):
        if not info(name).learns:
            continue
        try:
            merged = fit_partitioned(name, partitions)
        except InvalidInput:
            continue
        check_same(merged, scorer(name).fit(whole), partitions[0])


def test_scores_that_learn_nothing_stay_as_they_are(partitions):
    assert fit_partitioned("energy", partitions).fitted_on == ""


def test_bad_partitions_are_named(partitions):
    with pytest.raises(InvalidInput, match="at least one partition"):
        fit_partitioned("mds", [])
    with pytest.raises(InvalidInput, match=r"must be Outputs.*got list"):
        fit_partitioned("mds", [[1, 2]])
    with pytest.raises(InvalidInput, match="must have features"):
        fit_partitioned("mds", [Outputs([[1.0, 0.0]], labels=[0])])
    other = Outputs(np.zeros((2, 4)), [0, 1], np.eye(2, 3))
    with pytest.raises(InvalidInput, match="of one model: 4 classes and features of width 8"):
        fit_partitioned("mds", [partitions[0], other])
    with pytest.raises(InvalidInput, match="all partitions have labels"):
        fit_partitioned("mds", [partitions[0], partitions[1].replace(labels=None)])
    with pytest.raises(InvalidInput, match="needs labels"):
        fit_partitioned("mds", [partitions[0].replace(labels=None)])


def test_dask_computes_partitions_where_they_lie(partitions):
    dask = pytest.importorskip("dask", reason="dask is not installed")
    delayed = [dask.delayed(lambda part: part)(part) for part in partitions]
    check_same(fit_partitioned("mds", delayed), scorer("mds").fit(Outputs.concat(partitions)), partitions[0])
