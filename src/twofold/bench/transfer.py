"""Thresholds chosen on validation data and kept for test data, beside those that are best on the test data.

Li et al., From Misclassifications to Outliers, arXiv:2603.03903, Table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from twofold import metrics
from twofold.bench.catalogue import Benchmark
from twofold.bench.confidences import Confidences, compute_confidences
from twofold.bench.protocols import protocol
from twofold.bench.subjects import Subject
from twofold.errors import InvalidInput, UnknownName
from twofold.metrics.evaluate import EvaluationMethod
from twofold.metrics.operating_points import operating_point
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import Array, Mask

Stage: TypeAlias = Literal["chosen", "moved", "best"]
Scoring: TypeAlias = Literal["id", "ood", "both"]
SCORINGS: tuple[Scoring, ...] = ("id", "ood", "both")


@dataclass(frozen=True)
class TransferredPoint:
    """Hold the F1 of one threshold, or of a pair of thresholds, on some data.

    Parameters
    ----------
    stage : {"chosen", "moved", "best"}
        Whether the thresholds are judged where they were chosen, were moved to other data, or are the best of those
        other data.
    scoring : {"id", "ood", "both"}
        Whether the ID score decides alone, the OOD score alone, or both.
    data : str
        Known and unknown data set, with a plus sign between them.
    tau_id, tau_ood : float or None
        The thresholds: a probability for ``msp``, else in the unit of the score; None for a score that does not decide.
        By the published method, those of the OOD score are shares of its range on the data.
    f1, precision, recall, coverage : float
        What they reach.
    """

    stage: Stage
    scoring: Scoring
    data: str
    tau_id: float | None
    tau_ood: float | None
    f1: float
    precision: float
    recall: float
    coverage: float


@dataclass(frozen=True, eq=False)
class _Pool:
    """Hold a known and an unknown data set under both scores."""

    name: str
    correct: Mask
    is_id: Mask
    conf_id: Array
    conf_ood: Array


def transfer_thresholds(
    benchmark: Benchmark,
    run: Run | str | Path,
    *,
    ood_score: str,
    id_score: str = "msp",
    choose: tuple[str, str],
    judge: tuple[str, str],
    method: EvaluationMethod = "exact",
) -> tuple[TransferredPoint, ...]:
    """Choose the thresholds of best F1 on some data, and judge them there and on other data.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark that the run belongs to; its joint protocol says how open settings of scores are chosen.
    run : Run, str or Path
        The run.
    ood_score : str
        Score of known against unknown inputs.
    id_score : str, default="msp"
        Score of correct against wrong labels.
    choose : tuple of (str, str)
        Known and unknown data set on which thresholds are chosen, such as ``("val", "cifar10")``.
    judge : tuple of (str, str)
        Known and unknown data set to which they are moved, such as ``("test", "mnist")``.
    method : {"exact", "published"}, default="exact"
        Which thresholds are tried: all, or the linear grid of the released code, which scales the OOD score to [0, 1]
        anew on each data set.

    Returns
    -------
    tuple of TransferredPoint
        For each scoring: where chosen, moved, and the best of the data they were moved to.

    Raises
    ------
    InvalidInput
        If the run lacks a data set, two data sets are not one known and one unknown, or a score cannot be computed.
    UnknownName
        If a data set is not of the benchmark.
    """
    subject = Subject.of(run, benchmark)
    names = (*choose, *judge)
    _check_sets(subject, benchmark, choose)
    _check_sets(subject, benchmark, judge)
    missing = {scorer(id_score).spec: names, scorer(ood_score).spec: names}
    found = compute_confidences(subject.folder, subject.roles, missing, protocol("joint").tuning)
    for spec, own in found.items():
        if own.reason:
            raise InvalidInput(f"{spec} cannot be computed: {own.reason}")
    first, second = found[scorer(id_score).spec], found[scorer(ood_score).spec]
    chosen_on = _read_pool(subject, choose, first, second)
    judged_on = _read_pool(subject, judge, first, second)
    points = []
    for scoring in SCORINGS:
        points += _move(scoring, chosen_on, judged_on, method, first.chosen)
    return tuple(sorted(points, key=lambda point: ("chosen", "moved", "best").index(point.stage)))


def _check_sets(subject: Subject, benchmark: Benchmark, names: Sequence[str]) -> None:
    """Check that a run holds a known and an unknown data set of these names."""
    known, unknown = names
    for name in names:
        if name not in benchmark.names():
            raise UnknownName.of(f"data set of {benchmark.name}", name, benchmark.names())
        if name not in subject.roles:
            raise InvalidInput(f"{subject.folder} does not hold {name}; extract it with `twofold bench extract`")
    roles = benchmark.roles
    if roles[known] not in ("val", "test", "train"):
        raise InvalidInput(f"the first data set must be of known classes, got {known}, whose role is {roles[known]}")
    if roles[unknown] in ("val", "test", "train", "shift"):
        raise InvalidInput(f"the second data set must be unknown inputs, got {unknown}, of role {roles[unknown]}")


def _read_pool(subject: Subject, names: Sequence[str], first: Confidences, second: Confidences) -> _Pool:
    """Put a known and an unknown data set together, with confidences on the scale that papers print."""
    truths = [subject.truth(name, first.judges) for name in names]
    conf_id = np.concatenate([first.conf[name] for name in names])
    conf_ood = np.concatenate([second.conf[name] for name in names])
    return _Pool(
        name="+".join(names),
        correct=np.concatenate([correct for correct, _ in truths]),
        is_id=np.concatenate([is_id for _, is_id in truths]),
        conf_id=conf_id,
        conf_ood=conf_ood,
    )


def _move(
    scoring: Scoring, chosen_on: _Pool, judged_on: _Pool, method: EvaluationMethod, id_spec: str
) -> list[TransferredPoint]:
    """Choose thresholds, move them, and find the best ones of where they are moved to."""
    here, there = chosen_on, judged_on
    if method == "published":
        here, there = _to_paper_scale(here, scoring, id_spec), _to_paper_scale(there, scoring, id_spec)
    chosen = _best_thresholds(here, scoring, method)
    best = _best_thresholds(there, scoring, method)
    stages: list[tuple[Stage, _Pool, tuple[float, float]]] = [
        ("chosen", here, chosen),
        ("moved", there, chosen),
        ("best", there, best),
    ]
    points = []
    for stage, pool, taus in stages:
        points.append(_judge(stage, scoring, pool, taus, None if method == "published" else id_spec))
    return points


def _to_paper_scale(pool: _Pool, scoring: Scoring, id_spec: str) -> _Pool:
    """Scale scores as the released code does: linearly to [0, 1], but for the ID score of a pair."""
    conf_id = scorer(id_spec).to_printed_scale(pool.conf_id)
    if scoring == "id":
        conf_id = _scale(conf_id)
    return _Pool(pool.name, pool.correct, pool.is_id, conf_id, _scale(pool.conf_ood))


def _scale(conf: Array) -> Array:
    scaled: Array = (conf - conf.min()) / (conf.max() - conf.min() + 1e-12)
    return scaled


def _best_thresholds(pool: _Pool, scoring: Scoring, method: EvaluationMethod) -> tuple[float, float]:
    """Find the thresholds of best F1; minus infinity for a score that does not decide."""
    if scoring == "both":
        double = metrics.ds_f1(pool.correct, pool.conf_id, pool.conf_ood, pool.is_id, method=method)
        return double.tau_id, double.tau_ood
    if scoring == "id":
        return metrics.f1(pool.correct, pool.conf_id, pool.is_id, method=method).threshold, -np.inf
    return -np.inf, metrics.f1(pool.correct, pool.conf_ood, pool.is_id, method=method).threshold


def _judge(
    stage: Stage, scoring: Scoring, pool: _Pool, taus: tuple[float, float], id_spec: str | None
) -> TransferredPoint:
    """Compute what thresholds reach; ``id_spec`` is the ID score whose threshold is shown on the printed scale."""
    tau_id, tau_ood = taus
    accepted = (pool.conf_id >= tau_id) & (pool.conf_ood >= tau_ood)
    right = float((accepted & pool.correct).sum())
    known = float((accepted & pool.is_id).sum())
    point = operating_point(right, known, float(accepted.sum()) - known, float(pool.is_id.sum()))
    if id_spec is not None:
        tau_id = float(scorer(id_spec).to_printed_scale(np.array([tau_id]))[0])
    return TransferredPoint(
        stage=stage,
        scoring=scoring,
        data=pool.name,
        tau_id=None if scoring == "ood" else float(tau_id),
        tau_ood=None if scoring == "id" else float(tau_ood),
        f1=point["value"],
        precision=point["precision"],
        recall=point["recall"],
        coverage=point["coverage"],
    )
