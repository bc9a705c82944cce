"""Protocols: which rows of which data sets enter a number, how numbers are averaged, and what may be tuned on.

A protocol sees names and roles of data sets only. It answers with views, each of which turns scored data sets into the
table that metrics see, and with averages of views. Metrics are named as :func:`twofold.metrics.evaluate` takes them in
``only``: a registered metric, ``accuracy``, or a metric of detection with the suffix ``_ood`` (known against unknown).

Correctness is that of the prediction which a score declares (the averaged one for scores of several passes), and it is
in ``Scored.correct`` already. Where a protocol removes wrong predictions it therefore removes them score by score: two
scores of one model may be judged on different rows, as in FD-Shifts.

>>> test = Scored([True, True, False], [True] * 3, [0.9, 0.4, 0.3])
>>> svhn = Scored([False, False], [False] * 2, [0.5, 0.1])
>>> views = protocol("fd_shifts").views({"test": "test", "svhn": "far"})
>>> [(view.shift, view.role) for view in views]
[('test', 'iid'), ('svhn', 'far')]
>>> views[1].table({"test": test, "svhn": svhn}).conf
array([0.9, 0.4, 0.5, 0.1])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName
from twofold.roles import OOD_TEST, PROTOCOL_OOD_TEST, PROTOCOL_ROLES

Rule = Literal["known", "joint", "proposed", "original"]
Better = Literal["higher", "lower"]
Sets = Mapping[str, tuple[str, ...]]  # names of data sets by role


@dataclass(frozen=True, eq=False)
class Scored:
    """Hold one data set under one score, or under a pair of scores.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether the prediction is correct; False on every row of no known class.
    is_id : array-like of bool, shape (n_samples,)
        Whether the row is of a known class.
    conf : array-like of shape (n_samples,)
        Confidence in the label.
    conf_ood : array-like of shape (n_samples,), optional
        Confidence that the input is of a known class, for a pair of scores.
    group : array-like of int, shape (n_samples,), optional
        A group per row, such as the type of corruption; no protocol reads it.

    Raises
    ------
    InvalidInput
        If arrays differ in length, hold NaN, or ``group`` is not of integers.
    """

    correct: Mask
    is_id: Mask
    conf: Array
    conf_ood: Array | None = None
    group: npt.NDArray[np.integer[Any]] | None = None

    def __post_init__(self) -> None:
        conf = _checks.confidence(self.conf)
        conf_ood = None if self.conf_ood is None else _checks.confidence(self.conf_ood, "conf_ood")
        group = None if self.group is None else _checks.plain(self.group, "group")
        if group is not None and group.dtype.kind not in "iu":
            raise InvalidInput(f"group must be integers, one per row, got dtype {group.dtype}")
        correct, is_id = _checks.joint(self.correct, self.is_id, conf=conf, conf_ood=conf_ood, group=group)
        vars(self).update(correct=correct, is_id=is_id, conf=conf, conf_ood=conf_ood, group=group)

    def __len__(self) -> int:
        return len(self.conf)


@dataclass(frozen=True, eq=False)
class Table:
    """Hold the arrays that a metric takes.

    Parameters
    ----------
    correct : ndarray of bool, shape (n_samples,)
        Whether the prediction is correct.
    is_id : ndarray of bool, shape (n_samples,), or None
        Whether the row is of a known class. Without it a row is a correct prediction or a failure, of whatever kind.
    conf : ndarray of shape (n_samples,)
        Confidence in the label.
    conf_ood : ndarray of shape (n_samples,), optional
        Confidence that the input is of a known class.
    """

    correct: Mask
    is_id: Mask | None
    conf: Array
    conf_ood: Array | None = None


@dataclass(frozen=True)
class View:
    """Define one row group of a results table: which data sets enter, by which rule, and what is measured.

    Views are plain values; they pickle, compare and hash.

    Parameters
    ----------
    shift : str
        Name of the row group: a data set, or a group such as near.
    role : str
        Role of the row group, such as ``"iid"``, ``"near"`` or ``"corruption"``.
    known, unknown : tuple of str
        Data sets of known and of unknown inputs.
    rule : {"known", "joint", "proposed", "original"}
        Which rows enter and what counts as a failure; see Notes.
    metrics : tuple of str
        Metrics of a single score.
    pair_metrics : tuple of str, default=()
        Metrics of a pair of scores.

    Notes
    -----
    ``joint``: every row as it is; a wrong prediction and an unknown input are failures, and ``is_id`` distinguishes
    them. ``known``: the known sets alone. ``proposed``: wrong predictions on known sets are removed, so that correct
    ones stand against unknown inputs. ``original``: every prediction on known sets counts as correct. The last three
    make tables without ``is_id``: all that counts is correct prediction or failure, and accuracy is the share of
    correct predictions in the table, as FD-Shifts prints it.
    """

    shift: str
    role: str
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    rule: Rule
    metrics: tuple[str, ...]
    pair_metrics: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[str, ...]:
        """The data sets that enter, the known ones first."""
        return self.known + self.unknown

    def table(self, scored: Mapping[str, Scored]) -> Table:
        """Collect the rows of this view.

        Parameters
        ----------
        scored : mapping of str to Scored
            Scored data sets by name; those that do not belong to the view are ignored.

        Returns
        -------
        Table
            The arrays that metrics take.

        Raises
        ------
        InvalidInput
            If a data set of the view is missing, holds rows that contradict its role, or only some have ``conf_ood``.
        """
        rows = [self._rows(scored, name) for name in self.sets]
        second = [one.conf_ood for one in rows if one.conf_ood is not None]
        if second and len(second) < len(rows):
            without = next(name for name, one in zip(self.sets, rows, strict=True) if one.conf_ood is None)
            raise InvalidInput(f"{without} has no conf_ood, but other data sets of the view {self.shift} have one")
        is_id = np.concatenate([one.is_id for one in rows])
        correct = is_id if self.rule == "original" else np.concatenate([one.correct for one in rows])
        keep = self.kept(scored)
        return Table(
            correct[keep],
            is_id[keep] if self.rule == "joint" else None,
            np.concatenate([one.conf for one in rows])[keep],
            np.concatenate(second)[keep] if second else None,
        )

    def kept(self, scored: Mapping[str, Scored]) -> Mask:
        """Mark the rows that enter the table.

        Parameters
        ----------
        scored : mapping of str to Scored
            Scored data sets by name.

        Returns
        -------
        ndarray of bool
            One value per row, one data set of :attr:`sets` after the other.
        """
        rows = [scored[name] for name in self.sets]
        every = [one.correct | ~one.is_id if self.rule == "proposed" else np.ones(len(one), bool) for one in rows]
        return np.concatenate(every)

    def _rows(self, scored: Mapping[str, Scored], name: str) -> Scored:
        if name not in scored:
            have = ", ".join(sorted(scored)) or "none"
            raise InvalidInput(f"the view {self.shift} needs the data set {name}, which is not scored; scored: {have}")
        one, known = scored[name], name in self.known
        odd = one.is_id != known
        if odd.any():
            kind = "no known class (is_id False)" if known else "a known class (is_id True)"
            raise InvalidInput(
                f"the view {self.shift} takes {name} as {'known' if known else 'unknown'} inputs, but row "
                f"{int(odd.argmax())} is of {kind} ({int(odd.sum())} such rows); drop these rows or mend the role"
            )
        return one


@dataclass(frozen=True)
class Average:
    """Define a value as the unweighted mean of the values of other views, metric by metric.

    Parameters
    ----------
    shift : str
        Name of the average.
    role : str
        Role of its views.
    of : tuple of str
        Names of the views that are averaged.
    """

    shift: str
    role: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class Tuning:
    """Define how settings of scores may be chosen: by which metric, on which roles.

    Parameters
    ----------
    metric : str
        The metric that decides.
    sets : tuple of str
        Roles of the data sets that may be used.
    temperature : bool, default=False
        Whether to put a temperature fitted on ``val`` in front of every score that reads the logits or the head, also
        in chains such as ``project|msp`` or ``react|energy`` and in scores of features such as ``vim``.

    Notes
    -----
    With ``temperature``, scores of several passes and of features alone stay as they are, and so does a chain with a
    temperature of its own. :func:`twofold.tune` knows ``auroc_ood`` as ``auroc`` with ``ood_val``.
    """

    metric: str
    sets: tuple[str, ...]
    temperature: bool = False


@dataclass(frozen=True)
class Protocol:
    """Define a way to judge confidences: a pure function from data sets with roles to views, and what is averaged.

    Parameters
    ----------
    name : str
        Name of the protocol.
    source : str
        The paper it comes from.
    summary : str
        What it measures, in words.
    tuning : Tuning
        How settings of scores may be chosen.
    build : callable
        Function from names of data sets by role to views.
    averaged : tuple of str, default=()
        Roles of views whose values are averaged.

    Notes
    -----
    A role without data sets yields no view, no average and no error. Without a data set of role ``test`` there are no
    views but those of shifts.
    """

    name: str
    source: str
    summary: str
    tuning: Tuning
    build: Callable[[Sets], list[View]]
    averaged: tuple[str, ...] = ()

    def views(self, roles: Mapping[str, str]) -> tuple[View, ...]:
        """List the views of data sets with these roles.

        Parameters
        ----------
        roles : mapping of str to str
            Role by name of the data set; sets of role train, val and ood_val enter no view.

        Returns
        -------
        tuple of View
            The views.

        Raises
        ------
        InvalidInput
            If a role is unknown, or two rows of the results would have the same name.

        Examples
        --------
        >>> [view.shift for view in protocol("joint").views({"test": "test", "svhn": "far"})]
        ['svhn']
        """
        for name, role in roles.items():
            _checks.choice(role, f"role of {name}", PROTOCOL_ROLES)
        views = tuple(self.build({role: tuple(n for n, r in roles.items() if r == role) for role in PROTOCOL_ROLES}))
        rows = [*(view.shift for view in views), *(mean.shift for mean in self._means(views))]
        double = next((name for name in rows if rows.count(name) > 1), None)
        if double is not None:
            raise InvalidInput(
                f"protocol {self.name}: two rows of the results would be called {double!r}; rename that data set"
            )
        return views

    def averages(self, roles: Mapping[str, str]) -> tuple[Average, ...]:
        """List the averages over views of data sets with these roles.

        Parameters
        ----------
        roles : mapping of str to str
            Role by name of the data set.

        Returns
        -------
        tuple of Average
            The averages.

        Raises
        ------
        InvalidInput
            If a role is unknown, or two rows of the results would have the same name.
        """
        return self._means(self.views(roles))

    def _means(self, views: tuple[View, ...]) -> tuple[Average, ...]:
        members = {role: tuple(view.shift for view in views if view.role == role) for role in self.averaged}
        return tuple(Average(role, role, of) for role, of in members.items() if of)


FAILURES = ("aurc", "augrc", "auroc", "fpr95", "accuracy")
SINGLE = ("f1", "aurc_id")
PAIR = ("ds_f1", "ds_aurc")
DETECTION = (
    "auroc_ood",
    "fpr95_ood",
    "fpr95_unsafe_ood",
    "aupr_ood",
    "aupr_unsafe_ood",
    "average_precision_ood",
    "average_precision_unsafe_ood",
)


def _iid(sets: Sets, metrics: tuple[str, ...]) -> list[View]:
    """View the known test set alone."""
    return [View("test", "iid", sets["test"], (), "known", metrics)] if sets["test"] else []


def _each(
    sets: Sets, roles: tuple[str, ...], rule: Rule, metrics: tuple[str, ...], pair: tuple[str, ...] = ()
) -> list[View]:
    """View the whole known test set with each unknown set separately."""
    named = [(role, name) for role in roles for name in sets[role] if sets["test"]]
    return [View(name, role, sets["test"], (name,), rule, metrics, pair) for role, name in named]


def _pools(sets: Sets, metrics: tuple[str, ...], pair: tuple[str, ...] = ()) -> list[View]:
    """View the known test set with all unknown sets of a role together."""
    filled = [role for role in PROTOCOL_OOD_TEST if sets[role] and sets["test"]]
    return [View(role, role, sets["test"], sets[role], "joint", metrics, pair) for role in filled]


def _shifts(sets: Sets, metrics: tuple[str, ...]) -> list[View]:
    """View shifted sets of known classes alone; sets ``NAME/1`` to ``NAME/5`` are pooled by level of corruption."""
    levels: dict[str, list[str]] = {}
    views = []
    for name in sets["shift"]:
        level = re.search(r"/([1-5])$", name)
        if level:
            levels.setdefault(level[1], []).append(name)
        else:
            views.append(View(name, "shift", (name,), (), "known", metrics))
    pooled = [
        View(f"corruption/{level}", "corruption", tuple(names), (), "known", metrics)
        for level, names in sorted(levels.items())
    ]
    return views + pooled


def _joint(sets: Sets) -> list[View]:
    return _each(sets, PROTOCOL_OOD_TEST, "joint", SINGLE, PAIR)


def _joint_pooled(sets: Sets) -> list[View]:
    return _pools(sets, SINGLE, PAIR)


def _openood(sets: Sets) -> list[View]:
    return _iid(sets, ("accuracy",)) + _each(sets, PROTOCOL_OOD_TEST, "joint", DETECTION)


def _unknown(sets: Sets) -> list[View]:
    everything = tuple(name for role in PROTOCOL_OOD_TEST for name in sets[role])
    views = []
    if sets["test"] and everything:
        views.append(View("pooled", "pooled", sets["test"], everything, "joint", ("aurc", "eaurc")))
    views += _iid(sets, ("accuracy", "aurc", "eaurc", "auroc", "fpr95"))
    views += _pools(sets, ("aurc", "auroc_ood", "fpr95_ood"))
    return views + _each(sets, PROTOCOL_OOD_TEST, "joint", ("auroc_ood", "fpr95_ood"))


def _fd_shifts(sets: Sets) -> list[View]:
    return _iid(sets, FAILURES) + _shifts(sets, FAILURES) + _each(sets, PROTOCOL_OOD_TEST, "proposed", FAILURES)


def _fd_shifts_original(sets: Sets) -> list[View]:
    return _iid(sets, FAILURES) + _shifts(sets, FAILURES) + _each(sets, PROTOCOL_OOD_TEST, "original", FAILURES)


def _open_set(sets: Sets) -> list[View]:
    return _each(sets, ("near", "new"), "proposed", FAILURES)


def _stratified(sets: Sets) -> list[View]:
    areas = ("aurc", "augrc")
    return _iid(sets, areas) + _each(sets, OOD_TEST, "proposed", areas)


_JOINT_PAPER = "Li et al., From Misclassifications to Outliers: Joint Reliability Assessment in Classification, Eq. 2-8"
_OPENOOD_PAPER = "Zhang et al. (OpenOOD v1.5), arXiv:2306.09301; Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242"
_UNKNOWN_PAPER = "Kim et al., A Unified Benchmark for the Unknown Detection Capability of Deep Neural Networks"
_FD_SHIFTS_PAPER = "Jaeger et al. (FD-Shifts), ICLR 2023, arXiv:2211.15259"
_STRATIFIED_PAPER = (
    "Claros Olivares & Brockmeier, A Systematic Analysis of Out-of-Distribution Detection Under Representation and "
    "Training Paradigm Shifts"
)

_WITH_OOD = Tuning("auroc_ood", ("val", "ood_val"))
_BY_AURC = Tuning("aurc", ("val",))
_BY_AUGRC = Tuning("augrc", ("val",), temperature=True)

_ALL = (
    Protocol(
        "joint",
        _JOINT_PAPER,
        "The whole known test set with each unknown set separately, by one score and by two; near and far are the "
        "unweighted means of the values per set. AURC counts coverage over known samples.",
        _WITH_OOD,
        _joint,
        PROTOCOL_OOD_TEST,
    ),
    Protocol(
        "joint_pooled",
        _JOINT_PAPER + "; pooled, which the paper does not do",
        "As joint, but all unknown sets of a role form one set with the known test set, so that large sets weigh more. "
        "Not comparable with joint.",
        _WITH_OOD,
        _joint_pooled,
    ),
    Protocol(
        "openood",
        _OPENOOD_PAPER,
        "Known test set, right or wrong, against each unknown set; near and far are unweighted means. fpr95_unsafe_ood "
        "is OpenOOD's FPR@95 (share of known inputs flagged when 95 % of unknown ones are), fpr95_ood the older one "
        "(share of unknown inputs accepted when 95 % of known ones are). aupr_ood and "
        "aupr_unsafe_ood are AUPR-IN and AUPR-OUT by trapezoids; average precision, a little lower, is there as well.",
        _WITH_OOD,
        _openood,
        PROTOCOL_OOD_TEST,
    ),
    Protocol(
        "unknown",
        _UNKNOWN_PAPER,
        "One pool of the known test set and all unknown sets, in which wrong answers and unknown inputs are failures; "
        "AURC over the coverage of all samples. Besides: misclassification on the known test set, the known test set "
        "against all near and against all far inputs, and against each set. The tuning rule is that of methods for "
        "unknown inputs, with the external validation set as ood_val; methods for misclassification are chosen by "
        "accuracy on val. The paper's code gives tied scores no credit in the AUROC and takes the point nearest a "
        "TPR of 95 %; here ties count half, and the TPR is at least 95 %.",
        _WITH_OOD,
        _unknown,
    ),
    Protocol(
        "fd_shifts",
        _FD_SHIFTS_PAPER,
        "Failures on the known test set, on each shifted set of known classes, per level of corruption with all types "
        "pooled (then the mean over the levels that are there), and new classes, each set with the right answers on "
        "the test set: wrong ones are removed, score by score. A less accurate model keeps fewer right answers, so "
        "its accuracy still counts. AURC is the empirical one; the paper's code joins tie groups by straight lines and "
        "asks for a TPR of 94.95 % in FPR95.",
        _BY_AURC,
        _fd_shifts,
        ("corruption",),
    ),
    Protocol(
        "fd_shifts_original",
        _FD_SHIFTS_PAPER,
        "As fd_shifts, but against new classes every answer on the test set counts as right, as is usual in "
        "out-of-distribution detection: all known inputs against all unknown ones.",
        _BY_AURC,
        _fd_shifts_original,
        ("corruption",),
    ),
    Protocol(
        "open_set",
        _FD_SHIFTS_PAPER,
        "Classes held out from training (sets of role near or new) as failures, with the right answers on the test "
        "set; wrong ones are removed. Where the model has outputs for held-out classes, cut these logits before the "
        "softmax, for predictions and scores alike; a view sees confidences only and cannot check it.",
        _BY_AURC,
        _open_set,
    ),
    Protocol(
        "stratified",
        _STRATIFIED_PAPER,
        "The known test set, and each unknown set with the right answers on the test set (wrong ones removed), "
        "averaged within near, mid and far, the groups by distance from the training set; AURC and AUGRC. A "
        "temperature fitted on the validation data stands in front of every score that reads the logits or the head, "
        "chains such as project|msp included; the column chosen shows it.",
        _BY_AUGRC,
        _stratified,
        OOD_TEST,
    ),
)

PROTOCOLS: dict[str, Protocol] = {one.name: one for one in _ALL}
"""Every protocol by name."""


def protocol(name: str) -> Protocol:
    """Look up a protocol by name.

    Parameters
    ----------
    name : str
        One of ``PROTOCOLS``.

    Returns
    -------
    Protocol
        The protocol.

    Raises
    ------
    UnknownName
        If there is no such protocol; the message lists the nearest names.

    Examples
    --------
    >>> protocol("stratified").tuning
    Tuning(metric='augrc', sets=('val',), temperature=True)
    """
    if name not in PROTOCOLS:
        raise UnknownName.of("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


@dataclass(frozen=True)
class Choice:
    """Hold the run chosen for a score.

    Parameters
    ----------
    score : str
        The score.
    run : str
        The chosen run.
    value : float
        Its validation value.
    candidates : tuple of (str, float)
        All runs with their validation values.
    """

    score: str
    run: str
    value: float
    candidates: tuple[tuple[str, float], ...]


def select(values: Mapping[str, Mapping[str, float]], better: Better) -> dict[str, Choice]:
    """Choose for each score among runs (dropout on or off, a reward, a learning rate) by a validation value.

    Parameters
    ----------
    values : mapping of str to mapping of str to float
        Value of each run for each score, on validation data only; for several seeds, their mean.
    better : {"higher", "lower"}
        Direction in which values get better.

    Returns
    -------
    dict of str to Choice
        The choice for each score. Among equals the first run wins, and NaN never does.

    Raises
    ------
    UndefinedMetric
        If all values of a score are NaN.
    InvalidInput
        If a score has no run, or a value is not a number.

    Examples
    --------
    >>> select({"msp": {"plain": 0.02, "dropout": 0.01}}, "lower")["msp"].run
    'dropout'
    """
    _checks.choice(better, "better", ("higher", "lower"))
    return {score: _chosen(score, runs, better) for score, runs in values.items()}


def _chosen(score: str, runs: Mapping[str, float], better: Better) -> Choice:
    if not runs:
        raise InvalidInput(f"there is no run to choose from for {score}; give the validation value of at least one")
    candidates = tuple((run, _value(score, run, value)) for run, value in runs.items())
    valid = [(run, value) for run, value in candidates if not math.isnan(value)]
    if not valid:
        raise UndefinedMetric(f"no run can be chosen for {score}: the validation value of {', '.join(runs)} is NaN")
    pick = max if better == "higher" else min
    run, value = pick(valid, key=lambda one: one[1])
    return Choice(score, run, value, candidates)


def _value(score: str, run: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise InvalidInput(f"the validation value of {run} for {score} must be one number, got {value!r}")
    return float(value)
