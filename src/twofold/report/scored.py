"""What a report on one classifier is made from: scored data sets, and the pairs of scores that are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from twofold.roles import OOD_TEST
from twofold.typing import Array, Labels, Mask

ScalarT = TypeVar("ScalarT", bound=np.generic)

UNKNOWN = (*OOD_TEST, "unknown")  # roles of inputs of no known class; the last where nobody says which


@dataclass(frozen=True, eq=False)
class ReportSet:
    """Hold one data set with its confidences by score.

    Parameters
    ----------
    name : str
        Name of the data set.
    role : str
        One of test, shift, near, mid, far and unknown.
    correct : ndarray of bool, shape (n_samples,)
        Whether the prediction is correct; False on unknown inputs.
    conf : mapping of str to ndarray of shape (n_samples,)
        Confidences by score.
    prob : ndarray of shape (n_samples,), optional
        Probability of the predicted class.
    predictions, labels : ndarray of int, shape (n_samples,), optional
        Predicted and true classes.
    ids : ndarray of shape (n_samples,), optional
        Identifiers of the rows.
    softmax : ndarray of shape (n_unknown_classes, n_classes), optional
        Mean softmax over the rows of each class in ``unknown_classes``; only on unknown inputs.
    unknown_classes : tuple of str, default=()
        Classes of the unknown inputs; one empty name for the whole set where they are not known.
    """

    name: str
    role: str
    correct: Mask
    conf: Mapping[str, Array]
    prob: Array | None = None
    predictions: Labels | None = None
    labels: Labels | None = None
    ids: npt.NDArray[np.generic] | None = None
    softmax: Array | None = None
    unknown_classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def is_known(self) -> bool:
        """Whether the inputs are of classes that the model knows."""
        return self.role not in UNKNOWN


@dataclass(frozen=True)
class ScorePair:
    """Hold two scores, and thresholds chosen on validation data where there are some.

    Parameters
    ----------
    id : str
        Score against wrong predictions.
    ood : str
        Score against unknown inputs; the same as ``id`` for one score alone.
    tau_id, tau_ood : float, default=NaN
        Their thresholds.

    Examples
    --------
    >>> ScorePair("msp", "energy").name, ScorePair("msp", "msp").name
    ('msp + energy', 'msp')
    """

    id: str
    ood: str
    tau_id: float = math.nan
    tau_ood: float = math.nan

    @property
    def is_single(self) -> bool:
        """Whether one score does both."""
        return self.id == self.ood

    @property
    def name(self) -> str:
        """The names of both scores; one name where they are the same."""
        return " + ".join(self.scores)

    @property
    def scores(self) -> tuple[str, ...]:
        """The different scores of the pair: one or two."""
        if self.is_single:
            return (self.id,)
        return (self.id, self.ood)

    @property
    def second(self) -> str | None:
        """The second score; None where one score does both."""
        if self.is_single:
            return None
        return self.ood


@dataclass(frozen=True, eq=False)
class Pool:
    """Hold the rows of several sets, one after the other.

    Parameters
    ----------
    correct : ndarray of bool, shape (n_samples,)
        Whether the prediction is correct.
    is_id : ndarray of bool, shape (n_samples,)
        Whether the row is of a known class.
    role : ndarray of str, shape (n_samples,)
        Role of each row.
    conf : mapping of str to ndarray of shape (n_samples,)
        Confidences by score.
    prob : ndarray of shape (n_samples,), optional
        Probability of the predicted class; None where a set lacks it.
    predictions, labels : ndarray of int, shape (n_samples,), optional
        Predicted and true classes; None where a set lacks them.
    """

    correct: Mask
    is_id: Mask
    role: npt.NDArray[np.str_]
    conf: Mapping[str, Array]
    prob: Array | None = None
    predictions: Labels | None = None
    labels: Labels | None = None

    @classmethod
    def stack(cls, sets: Sequence[ReportSet], scores: Sequence[str]) -> Pool:
        """Stack sets; scores that one of them lacks are left out.

        Parameters
        ----------
        sets : sequence of ReportSet
            The sets.
        scores : sequence of str
            The scores to keep.

        Returns
        -------
        Pool
            All rows.
        """
        role = np.concatenate([np.full(len(one), one.role) for one in sets])
        conf = {}
        for score in scores:
            stacked = _stack([one.conf.get(score) for one in sets])
            if stacked is not None:
                conf[score] = stacked
        correct = np.concatenate([one.correct for one in sets])
        return cls(
            correct=correct,
            is_id=~np.isin(role, UNKNOWN),
            role=role,
            conf=conf,
            prob=_stack([one.prob for one in sets]),
            predictions=_stack([one.predictions for one in sets]),
            labels=_stack([one.labels for one in sets]),
        )

    @property
    def is_id_or_none(self) -> Mask | None:
        """The mask ``is_id`` as metrics take it: None where nothing is unknown."""
        if self.is_id.all():
            return None
        return self.is_id

    @property
    def covered(self) -> Literal["all", "id"]:
        """Whose coverage areas under the risk are taken over: known inputs, or all where nothing is unknown."""
        if self.is_id.all():
            return "all"
        return "id"

    @property
    def kinds(self) -> dict[str, Mask]:
        """Disjoint masks: correct, wrong, and each kind of unknown inputs."""
        masks = {"correct": self.correct, "wrong": self.is_id & ~self.correct}
        for role in UNKNOWN:
            mask = self.role == role
            if mask.any():
                masks[role] = mask
        return masks


def _stack(arrays: Sequence[npt.NDArray[ScalarT] | None]) -> npt.NDArray[ScalarT] | None:
    """Concatenate arrays; None where one of them is missing."""
    present = []
    for array in arrays:
        if array is None:
            return None
        present.append(array)
    return np.concatenate(present)


@dataclass(frozen=True, eq=False)
class ReportSource:
    """Hold what a report on one classifier is made from.

    Parameters
    ----------
    title : str
        Name of the classifier.
    path : str
        Folder of the run, or path of the file.
    sets : tuple of ReportSet
        The scored data sets.
    pairs : tuple of ScorePair
        The pairs of scores that are shown; the report is on the first.
    scores : tuple of str
        All scores.
    how_chosen : str
        A sentence that says how the first pair was chosen.
    cautions : tuple of str
        Warnings for the reader.
    facts : mapping of str to str
        Provenance.
    class_names : tuple of str, optional
        Names of the known classes.
    superclasses : mapping of str to str, default={}
        Super-class of each class, where the run's provenance has them.
    skipped : mapping of str to str, default={}
        Scores that were left out, and why.
    is_run : bool, default=False
        Whether the source is a run, not a file.
    is_validated : bool, default=False
        Whether the thresholds come from validation data.
    no_gate_reason : str, default=""
        Why there is no command that makes the gate; empty where there is one.
    gate_share : float, optional
        Share of unknown inputs that a gate is fitted for; None for that of its data.
    gate_chooses : bool, default=False
        Whether the thresholds are those that ``Gate.fit`` chooses.
    gate_has_unknown : bool, default=False
        Whether the data that a gate is fitted on hold unknown inputs.
    judges : mapping of str to str, default={}
        Which prediction each score judges.
    headline_sets : tuple of str, default=()
        Data sets of the run that the headline is on.
    has_test_role : bool, default=False
        Whether the run has sets with the role test.
    """

    title: str
    path: str
    sets: tuple[ReportSet, ...]
    pairs: tuple[ScorePair, ...]
    scores: tuple[str, ...]
    how_chosen: str
    cautions: tuple[str, ...]
    facts: Mapping[str, str]
    class_names: tuple[str, ...] | None = None
    superclasses: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    is_run: bool = False
    is_validated: bool = False
    no_gate_reason: str = ""
    gate_share: float | None = None
    gate_chooses: bool = False
    gate_has_unknown: bool = False
    judges: Mapping[str, str] = field(default_factory=dict)
    headline_sets: tuple[str, ...] = ()
    has_test_role: bool = False

    @property
    def tests(self) -> tuple[ReportSet, ...]:
        """Test sets of known classes, without shifts."""
        return self.sets_of("test")

    @property
    def unknown_roles(self) -> tuple[str, ...]:
        """Kinds of unknown inputs in the data."""
        present = {one.role for one in self.sets}
        return tuple(role for role in UNKNOWN if role in present)

    @property
    def unknown_sets(self) -> tuple[ReportSet, ...]:
        """Sets of unknown inputs."""
        return self.sets_of(*UNKNOWN)

    @property
    def sets_in_order(self) -> tuple[ReportSet, ...]:
        """All sets: tests, then shifts, then unknown inputs."""
        return self.sets_of("test", "shift", *UNKNOWN)

    def sets_of(self, *roles: str) -> tuple[ReportSet, ...]:
        """List the sets of some roles.

        Parameters
        ----------
        *roles : str
            The roles.

        Returns
        -------
        tuple of ReportSet
            The sets, role by role.
        """
        found: list[ReportSet] = []
        for role in roles:
            found += [one for one in self.sets if one.role == role]
        return tuple(found)

    def pool(self, *roles: str) -> Pool:
        """Stack the test sets and all sets of some roles.

        Parameters
        ----------
        *roles : str
            The roles.

        Returns
        -------
        Pool
            All rows.
        """
        return Pool.stack(self.sets_of("test", *roles), self.scores)
