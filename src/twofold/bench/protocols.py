"""Protocols: which rows of which data sets enter a number, how numbers are averaged, and what may be tuned on.

A protocol sees names and roles of data sets only. It answers with views, each of which turns scored data sets into the
arrays that metrics take, and with averages of views. Metrics are named as :func:`twofold.metrics.names` lists them.

Correctness is that of the prediction which a score declares (the averaged one for scores of several passes), and it is
in ``ScoredSet.correct`` already. Where a protocol removes wrong predictions it therefore removes them score by score:
two scores of one model may be judged on different rows, as in FD-Shifts.

>>> test = ScoredSet([True, True, False], [True] * 3, [0.9, 0.4, 0.3])
>>> svhn = ScoredSet([False, False], [False] * 2, [0.5, 0.1])
>>> views = protocol("fd_shifts").views({"test": "test", "svhn": "far"})
>>> [(view.shift, view.role) for view in views]
[('test', 'iid'), ('svhn', 'far')]
>>> views[1].collect({"test": test, "svhn": svhn}).conf
array([0.9, 0.4, 0.5, 0.1])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

import numpy as np

from twofold import _checks
from twofold._checks import Array, Integers, Mask
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName
from twofold.roles import OOD_TEST, ROLES
from twofold.stats.table import Better

Rule = Literal["known", "joint", "proposed", "original"]
Sets = Mapping[str, tuple[str, ...]]  # names of data sets by role


@dataclass(frozen=True, eq=False)
class ScoredSet:
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
    columns : mapping of str to ndarray of shape (n_samples,), default={}
        What added metrics need of each row; see :mod:`twofold.bench.added_metrics`.

    Raises
    ------
    InvalidInput
        If arrays differ in length, hold NaN, or ``group`` is not of integers.
    """

    correct: Mask
    is_id: Mask
    conf: Array
    conf_ood: Array | None = None
    group: Integers | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        conf = _checks.confidence(self.conf)
        conf_ood = None
        if self.conf_ood is not None:
            conf_ood = _checks.confidence(self.conf_ood, "conf_ood")
        group = None
        if self.group is not None:
            group = _checks.plain(self.group, "group")
            if group.dtype.kind not in "iu":
                raise InvalidInput(f"group must be integers, one per row, got dtype {group.dtype}")
        correct, is_id = _checks.joint(self.correct, self.is_id, conf=conf, conf_ood=conf_ood, group=group)
        vars(self).update(correct=correct, is_id=is_id, conf=conf, conf_ood=conf_ood, group=group)

    def __len__(self) -> int:
        return len(self.conf)


@dataclass(frozen=True, eq=False)
class MetricInputs:
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
    columns : mapping of str to ndarray of shape (n_samples,), default={}
        What added metrics need of each row.
    """

    correct: Mask
    is_id: Mask | None
    conf: Array
    conf_ood: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class ProtocolView:
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
    leave ``is_id`` out: all that counts is correct prediction or failure, and accuracy is the share of correct
    predictions among the rows, as FD-Shifts prints it.
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
        """The data sets that enter, the known ones first.

        Examples
        --------
        >>> protocol("joint").views({"svhn": "far", "test": "test"})[0].sets
        ('test', 'svhn')
        """
        return self.known + self.unknown

    def collect(self, scored: Mapping[str, ScoredSet]) -> MetricInputs:
        """Collect the rows of this view.

        Parameters
        ----------
        scored : mapping of str to ScoredSet
            Scored data sets by name; those that do not belong to the view are ignored.

        Returns
        -------
        MetricInputs
            The arrays that metrics take.

        Raises
        ------
        InvalidInput
            If a data set of the view is missing, holds rows that contradict its role, or only some have ``conf_ood``.
        """
        parts = [self._scored_set(scored, name) for name in self.sets]
        conf = np.concatenate([part.conf for part in parts])
        conf_ood = self._join_conf_ood(parts)
        is_id = np.concatenate([part.is_id for part in parts])
        correct = np.concatenate([part.correct for part in parts])
        if self.rule == "original":
            correct = is_id
        enters = self.row_mask(scored)
        known = second = None
        if self.rule == "joint":
            known = is_id[enters]
        if conf_ood is not None:
            second = conf_ood[enters]
        columns = {}
        for name in parts[0].columns:
            columns[name] = np.concatenate([part.columns[name] for part in parts])[enters]
        return MetricInputs(correct[enters], known, conf[enters], second, columns)

    def row_mask(self, scored: Mapping[str, ScoredSet]) -> Mask:
        """Mark the rows that :meth:`collect` takes.

        Parameters
        ----------
        scored : mapping of str to ScoredSet
            Scored data sets by name.

        Returns
        -------
        ndarray of bool
            One value per row, one data set of :attr:`sets` after the other.
        """
        masks = []
        for name in self.sets:
            part = scored[name]
            if self.rule == "proposed":
                masks.append(part.correct | ~part.is_id)
            else:
                masks.append(np.ones(len(part), bool))
        return np.concatenate(masks)

    def _scored_set(self, scored: Mapping[str, ScoredSet], name: str) -> ScoredSet:
        """Look up a data set of the view and check that its rows agree with its role."""
        if name not in scored:
            have = ", ".join(sorted(scored)) or "none"
            raise InvalidInput(f"the view {self.shift} needs the data set {name}, which is not scored; scored: {have}")
        part = scored[name]
        known = name in self.known
        contradicts = part.is_id != known
        if contradicts.any():
            inputs, found = "unknown", "a known class (is_id True)"
            if known:
                inputs, found = "known", "no known class (is_id False)"
            raise InvalidInput(
                f"the view {self.shift} takes {name} as {inputs} inputs, but row {int(contradicts.argmax())} is of "
                f"{found} ({int(contradicts.sum())} such rows); drop these rows or change the role of the data set"
            )
        return part

    def _join_conf_ood(self, parts: Sequence[ScoredSet]) -> Array | None:
        """Join the OOD confidences, which all data sets of the view must have, or none."""
        found: list[Array] = []
        without: list[str] = []
        for name, part in zip(self.sets, parts, strict=True):
            if part.conf_ood is None:
                without.append(name)
            else:
                found.append(part.conf_ood)
        if not found:
            return None
        if without:
            raise InvalidInput(f"{without[0]} has no conf_ood, but other data sets of the view {self.shift} have one")
        return np.concatenate(found)


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
    grids : tuple of (str, tuple), default=()
        Values to try of settings ``STEP.SETTING`` that a score leaves open, in place of those that the score declares.

    Notes
    -----
    With ``temperature``, scores of several passes and of features alone stay as they are, and so does a chain with a
    temperature of its own.
    """

    metric: str
    sets: tuple[str, ...]
    temperature: bool = False
    grids: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Convert to plain values, for digests of what was tuned.

        Returns
        -------
        dict
            The fields; grids are left out where there are none.

        Examples
        --------
        >>> Tuning("aurc", ("val",)).to_dict()
        {'metric': 'aurc', 'sets': ('val',), 'temperature': False}
        """
        facts: dict[str, object] = {"metric": self.metric, "sets": self.sets, "temperature": self.temperature}
        if self.grids:
            facts["grids"] = self.grids
        return facts


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
    build: Callable[[Sets], list[ProtocolView]]
    averaged: tuple[str, ...] = ()

    def views(self, roles: Mapping[str, str]) -> tuple[ProtocolView, ...]:
        """List the views of data sets with these roles.

        Parameters
        ----------
        roles : mapping of str to str
            Role by name of the data set; sets of role train, val and ood_val enter no view.

        Returns
        -------
        tuple of ProtocolView
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
            _checks.choice(role, f"role of {name}", ROLES)
        views = tuple(self.build(_names_by_role(roles)))
        shifts = [view.shift for view in views]
        shifts += [average.shift for average in self._averages(views)]
        for shift in shifts:
            if shifts.count(shift) > 1:
                raise InvalidInput(
                    f"protocol {self.name}: two rows of the results would be called {shift!r}; rename that data set"
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
        return self._averages(self.views(roles))

    def _averages(self, views: Sequence[ProtocolView]) -> tuple[Average, ...]:
        """Average the views of each role of ``averaged`` that has any."""
        averages = []
        for role in self.averaged:
            members = tuple(view.shift for view in views if view.role == role)
            if members:
                averages.append(Average(role, role, members))
        return tuple(averages)


def _names_by_role(roles: Mapping[str, str]) -> Sets:
    """List the names of the data sets of every role, empty for roles without any."""
    names: dict[str, tuple[str, ...]] = dict.fromkeys(ROLES, ())
    for name, role in roles.items():
        names[role] += (name,)
    return names


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


def _iid(sets: Sets, metrics: tuple[str, ...]) -> list[ProtocolView]:
    """View the known test set alone."""
    if not sets["test"]:
        return []
    return [ProtocolView("test", "iid", sets["test"], (), "known", metrics)]


def _each(
    sets: Sets, roles: tuple[str, ...], rule: Rule, metrics: tuple[str, ...], pair_metrics: tuple[str, ...] = ()
) -> list[ProtocolView]:
    """View the whole known test set with each unknown set separately."""
    if not sets["test"]:
        return []
    views = []
    for role in roles:
        for name in sets[role]:
            views.append(ProtocolView(name, role, sets["test"], (name,), rule, metrics, pair_metrics))
    return views


def _pools(sets: Sets, metrics: tuple[str, ...], pair_metrics: tuple[str, ...] = ()) -> list[ProtocolView]:
    """View the known test set with all unknown sets of a role together."""
    if not sets["test"]:
        return []
    views = []
    for role in OOD_TEST:
        if sets[role]:
            views.append(ProtocolView(role, role, sets["test"], sets[role], "joint", metrics, pair_metrics))
    return views


def _shifts(sets: Sets, metrics: tuple[str, ...]) -> list[ProtocolView]:
    """View shifted sets of known classes alone; sets ``NAME/1`` to ``NAME/5`` are pooled by level of corruption."""
    levels: dict[str, tuple[str, ...]] = {}
    views = []
    for name in sets["shift"]:
        level = re.search(r"/([1-5])$", name)
        if level:
            levels[level[1]] = (*levels.get(level[1], ()), name)
        else:
            views.append(ProtocolView(name, "shift", (name,), (), "known", metrics))
    for level_name, names in sorted(levels.items()):
        views.append(ProtocolView(f"corruption/{level_name}", "corruption", names, (), "known", metrics))
    return views


def _joint(sets: Sets) -> list[ProtocolView]:
    return _each(sets, OOD_TEST, "joint", SINGLE, PAIR)


def _joint_pooled(sets: Sets) -> list[ProtocolView]:
    return _pools(sets, SINGLE, PAIR)


def _openood(sets: Sets) -> list[ProtocolView]:
    return _iid(sets, ("accuracy",)) + _each(sets, OOD_TEST, "joint", DETECTION)


def _unknown(sets: Sets) -> list[ProtocolView]:
    unknown: tuple[str, ...] = ()
    for role in OOD_TEST:
        unknown += sets[role]
    views = []
    if sets["test"] and unknown:
        views.append(ProtocolView("pooled", "pooled", sets["test"], unknown, "joint", ("aurc", "eaurc")))
    views += _iid(sets, ("accuracy", "aurc", "eaurc", "auroc", "fpr95"))
    views += _pools(sets, ("aurc", "auroc_ood", "fpr95_ood"))
    return views + _each(sets, OOD_TEST, "joint", ("auroc_ood", "fpr95_ood"))


def _fd_shifts(sets: Sets) -> list[ProtocolView]:
    return _iid(sets, FAILURES) + _shifts(sets, FAILURES) + _each(sets, OOD_TEST, "proposed", FAILURES)


def _fd_shifts_original(sets: Sets) -> list[ProtocolView]:
    return _iid(sets, FAILURES) + _shifts(sets, FAILURES) + _each(sets, OOD_TEST, "original", FAILURES)


def _open_set(sets: Sets) -> list[ProtocolView]:
    return _each(sets, ("near",), "proposed", FAILURES)


def _stratified(sets: Sets) -> list[ProtocolView]:
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
# The study tunes by validation AUGRC and prints no grids. Its text bounds the exponents of GEN and REN to (0, 1) and
# tunes the bandwidth of the kernel; subspaces are tried from narrow features on.
_DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512, 1000)
_STRATIFIED_GRIDS = (
    ("gen.gamma", (0.01, 0.1, 0.3, 0.5, 0.7, 0.9)),
    ("gen.top", (10, 100)),
    ("renyi.alpha", (0.1, 0.3, 0.5, 0.7, 0.9)),
    ("renyi.top", (10, 100)),
    ("kpca_error.gamma", (0.5, 1.0, 2.0, 4.0)),
    ("kpca_error.variance", (0.8, 0.9, 0.95)),
    ("neco.dim", _DIMENSIONS),
    ("vim.dim", _DIMENSIONS),
    ("residual.dim", _DIMENSIONS),
)
_BY_AUGRC = Tuning("augrc", ("val",), temperature=True, grids=_STRATIFIED_GRIDS)

_ALL = (
    Protocol(
        "joint",
        _JOINT_PAPER,
        "The whole known test set with each unknown set separately, by one score and by two; near and far are the "
        "unweighted means of the values per set. AURC counts coverage over known samples.",
        _WITH_OOD,
        _joint,
        OOD_TEST,
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
        "Known test set, correct or not, against each unknown set; near and far are unweighted means. fpr95_unsafe_ood "
        "is OpenOOD's FPR@95 (share of known inputs flagged when 95 % of unknown ones are), fpr95_ood the older one "
        "(share of unknown inputs accepted when 95 % of known ones are). aupr_ood and "
        "aupr_unsafe_ood are AUPR-IN and AUPR-OUT by trapezoids; average precision, a little lower, is there as well.",
        _WITH_OOD,
        _openood,
        OOD_TEST,
    ),
    Protocol(
        "unknown",
        _UNKNOWN_PAPER,
        "One pool of the known test set and all unknown sets, in which wrong predictions and unknown inputs are "
        "failures; AURC over the coverage of all samples. Besides: misclassification on the known test set, the "
        "known test set against all near and against all far inputs, and against each set. The tuning rule is that "
        "of methods for unknown inputs, with the external validation set as ood_val; methods for misclassification "
        "are chosen by accuracy on val. The paper's code gives tied scores no credit in the AUROC and takes the point "
        "nearest a TPR of 95 %; here ties count half, and the TPR is at least 95 %.",
        _WITH_OOD,
        _unknown,
    ),
    Protocol(
        "fd_shifts",
        _FD_SHIFTS_PAPER,
        "Failures on the known test set, on each shifted set of known classes, per level of corruption with all types "
        "pooled (then the mean over the levels that are there), and new classes, each set with the correct "
        "predictions on the test set: wrong ones are removed, score by score. A less accurate model keeps fewer "
        "correct predictions, so its accuracy still counts. AURC is the empirical one; the paper's code "
        "joins tie groups by straight lines and asks for a TPR of 94.95 % in FPR95.",
        _BY_AURC,
        _fd_shifts,
        ("corruption",),
    ),
    Protocol(
        "fd_shifts_original",
        _FD_SHIFTS_PAPER,
        "As fd_shifts, but against new classes every prediction on the test set counts as correct, as is usual in "
        "out-of-distribution detection: all known inputs against all unknown ones.",
        _BY_AURC,
        _fd_shifts_original,
        ("corruption",),
    ),
    Protocol(
        "open_set",
        _FD_SHIFTS_PAPER,
        "Classes held out from training (sets of role near) as failures, with the correct predictions on the test "
        "set; wrong ones are removed. Where the model has outputs for held-out classes, cut these logits before the "
        "softmax, for predictions and scores alike; a view sees confidences only and cannot check it.",
        _BY_AURC,
        _open_set,
    ),
    Protocol(
        "stratified",
        _STRATIFIED_PAPER,
        "The known test set, and each unknown set with the correct predictions on the test set (wrong ones removed), "
        "averaged within near, mid and far, the groups by distance from the training set; AURC and AUGRC. A "
        "temperature fitted on the validation data stands in front of every score that reads the logits or the head, "
        "chains such as project|msp included; the column chosen shows it. Open settings are searched on its own grids: "
        "exponents of GEN and REN in (0, 1), the bandwidth of kernel PCA, and dimensions from 4 on for ViM, Residual "
        "and NeCo.",
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
    >>> protocol("fd_shifts").tuning
    Tuning(metric='aurc', sets=('val',), temperature=False, grids=())
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
    return {score: _choose_run(score, runs, better) for score, runs in values.items()}


def _choose_run(score: str, runs: Mapping[str, float], better: Better) -> Choice:
    if not runs:
        raise InvalidInput(f"there is no run to choose from for {score}; give the validation value of at least one")
    candidates = [(run, _check_value(score, run, value)) for run, value in runs.items()]
    valid = [(run, value) for run, value in candidates if not math.isnan(value)]
    if not valid:
        raise UndefinedMetric(f"no run can be chosen for {score}: the validation value of {', '.join(runs)} is NaN")
    pick = max if better == "higher" else min
    run, value = pick(valid, key=lambda candidate: candidate[1])
    return Choice(score, run, value, tuple(candidates))


def _check_value(score: str, run: str, value: object) -> float:
    if not isinstance(value, Real):
        raise InvalidInput(f"the validation value of {run} for {score} must be one number, got {value!r}")
    return float(value)
