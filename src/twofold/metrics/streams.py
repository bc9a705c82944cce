"""Summarise streams: summaries of fixed size that add up over batches and processes, with bounds that always hold.

A summary counts correct, wrong and OOD samples per cell of one confidence (:class:`ScoreSummary`) or of the
plane of two (:class:`PairSummary`). Where each cell holds a single value, the counts are all that a ranking
metric depends on, and it is exact. A cell of several values leaves the order of its samples open; the metric
then comes with the least and the largest value that any order, ties included, allows.

Each axis has two states:

* **exact** while at most ``cells`` distinct confidences were seen: each has its own cell;
* **fixed** afterwards, or from the start with ``edges``: cut at quantiles of what was seen until then, cell i
  holding edges[i-1] <= conf < edges[i]. A value with more than the mass of two cells is cut out on both
  sides and stays a pure tie for good. Each cell knows its smallest and largest confidence, so a cell of one
  value is known as a tie whatever its width.

Cuts never move once fixed, so summaries with the same cuts add up, in any order, to the same bytes. To
spread a stream over processes, start all of them from ``pilot.freeze().empty()``. If the first batch is unlike
the rest, its cuts keep the bounds true and only make them wide, as ``error`` shows; let the first batch be
large and mixed.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from twofold import _checks, _math
from twofold._checks import AnyArray, Array, ArrayLike, Mask, NaNPolicy
from twofold._files import arrays_digest, read_regular, replacing
from twofold._npz import NPZ_DAMAGE, check_archive
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics._axis import Axis, Integers, choose_cuts, join_axes, move_counts
from twofold.metrics.operating_points import (
    DoublePoint,
    OperatingPoint,
    check_ood_share,
    ood_weight,
    operating_point,
)
from twofold.metrics.selective import Coverage

__all__ = [
    "Bounded",
    "PairSummary",
    "ScoreSummary",
]

_FORMAT = 2  # of the npz file


@dataclass(frozen=True)
class Bounded:
    """Hold a metric and the interval that contains its exact value, up to rounding (about 1e-12).

    Parameters
    ----------
    value : float
        Estimate of the metric from the counts.
    low : float
        Least value that the counts allow.
    high : float
        Largest value that the counts allow.
    point : OperatingPoint or DoublePoint, optional
        The operating point that attains ``value``, where thresholds were searched.

    Examples
    --------
    >>> Bounded(value=0.5, low=0.25, high=0.625).error
    0.25
    """

    value: float
    low: float
    high: float
    point: OperatingPoint | DoublePoint | None = None

    @property
    def error(self) -> float:
        """Largest distance of the exact metric from ``value``."""
        return max(self.high - self.value, self.value - self.low)

    @property
    def exact(self) -> bool:
        """Whether the counts leave nothing open, so that ``value`` is the exact metric."""
        return self.low == self.high


_KINDS = np.arange(3)  # correct, wrong, OOD: the last axis of a table of counts


def _table_shape(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the shape of a table of counts: the cells of each axis, and the three kinds of sample."""
    return (*map(len, axes), len(_KINDS))


class _Summary(ABC):
    """Hold the axes and the (cells of each axis..., 3) table of correct, wrong and OOD counts; neither ever changes."""

    _names: tuple[str, ...]
    _axes: tuple[Axis, ...]
    _counts: Integers

    @abstractmethod
    def __init__(self) -> None: ...

    def _store(self, axes: tuple[Axis, ...], counts: Integers | None = None) -> None:
        self._axes = axes
        self._counts = np.zeros(_table_shape(axes), np.int64) if counts is None else counts
        self._counts.flags.writeable = False
        for axis in axes:
            for array in axis.arrays:
                array.flags.writeable = False

    def _new(self, axes: Iterable[Axis], counts: Integers | None = None) -> Self:
        made = object.__new__(type(self))
        made._store(tuple(axes), counts)
        return made

    def __repr__(self) -> str:
        right, wrong, outside = self._kinds
        state = "cuts fixed"
        if all(axis.edges is None for axis in self._axes):
            state = "every value kept"
        shape = " x ".join(str(len(axis)) for axis in self._axes)
        return f"{type(self).__name__}({right} right, {wrong} wrong, {outside} OOD; {shape} cells, {state})"

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def _kinds(self) -> tuple[int, int, int]:
        right, wrong, outside = self._counts.reshape(-1, 3).sum(axis=0)
        return int(right), int(wrong), int(outside)

    @property
    def exact(self) -> bool:
        """Whether every cell holds one value, so that every metric is exact."""
        return not any(axis.mixed.any() for axis in self._axes)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        total = self._counts.nbytes
        for axis in self._axes:
            for array in axis.arrays:
                total += array.nbytes
        return total

    def empty(self) -> Self:
        """Return a summary with the same cuts (none if none are fixed yet) and no samples.

        Start the workers of a stream from ``summary.freeze().empty()``, so that their summaries can be merged.

        Returns
        -------
        ScoreSummary or PairSummary
            A new summary; this one is unchanged.

        Examples
        --------
        >>> ScoreSummary(edges=[0.5]).update([1, 0], [0.9, 0.2]).empty()
        ScoreSummary(0 right, 0 wrong, 0 OOD; 2 cells, cuts fixed)
        """
        return self._new(axis.empty() for axis in self._axes)

    def freeze(self) -> Self:
        """Return a summary of the same samples with its cuts fixed now, at quantiles of what was seen.

        Cuts that are fixed already stay as they are.

        Returns
        -------
        ScoreSummary or PairSummary
            A new summary; this one is unchanged.

        Raises
        ------
        InvalidInput
            If the cuts are not fixed and no sample was seen yet.

        Examples
        --------
        >>> ScoreSummary().update([1, 0], [0.9, 0.2]).freeze().edges is None
        False
        """
        starts = []
        for d, axis in enumerate(self._axes):
            edges = axis.edges
            if edges is None:
                if len(axis) == 0:
                    raise InvalidInput(
                        "cuts are quantiles of the samples seen, and there is none yet; call update first"
                    )
                edges = choose_cuts(axis.low, self._mass(d), axis.limit)
            starts.append(Axis.cut(edges, axis.limit))
        return type(self).merge([self._new(starts), self])

    def _mass(self, d: int) -> Integers:
        others = tuple(i for i in range(self._counts.ndim) if i != d)
        return np.asarray(self._counts.sum(axis=others))

    def __add__(self, other: object) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self).merge([self, other])

    @classmethod
    def merge(cls, parts: Iterable[Self]) -> Self:
        """Add up the samples of several summaries; the order of the parts does not matter.

        ``a + b`` is the same as ``merge([a, b])``.

        Parameters
        ----------
        parts : iterable of ScoreSummary or of PairSummary
            At least one summary, all of this class.

        Returns
        -------
        ScoreSummary or PairSummary
            A new summary; the parts are unchanged.

        Raises
        ------
        InvalidInput
            If there is no part, a part is of another class, fixed cuts differ, or unfixed parts differ in ``cells``.

        Notes
        -----
        Parts whose cuts are fixed must share them; parts that still keep every value adopt them. Where no cuts are
        fixed and the values no longer fit, cuts are fixed at quantiles of all parts together.

        Examples
        --------
        >>> parts = [ScoreSummary().update([1, 0], [0.9, 0.8]), ScoreSummary().update([1, 0], [0.8, 0.1])]
        >>> ScoreSummary.merge(parts)
        ScoreSummary(2 right, 2 wrong, 0 OOD; 3 cells, every value kept)
        """
        summaries = list(parts)
        if not summaries:
            raise InvalidInput("merge needs at least one summary")
        for part in summaries:
            if not isinstance(part, cls):
                raise InvalidInput(f"merge adds up {cls.__name__} objects, got {type(part).__name__}")
        axes = []
        places: list[list[Integers]] = [[] for _ in summaries]  # of each summary, where the cells of each axis go
        for d, name in enumerate(summaries[0]._names):
            own = [part._axes[d] for part in summaries]
            masses = [part._mass(d) for part in summaries]
            axis, where = join_axes(own, masses, name)
            axes.append(axis)
            for part_places, cells in zip(places, where, strict=True):
                part_places.append(cells)
        counts = np.zeros(_table_shape(axes), np.int64)
        for part, part_places in zip(summaries, places, strict=True):
            counts += move_counts(part._counts, [*part_places, _KINDS], counts.shape)
        return summaries[0]._new(axes, counts)

    def _add(self, confs: Sequence[Array], right: Mask, inside: Mask | None) -> Self:
        """Return the summary with the samples of a batch."""
        ones = np.broadcast_to(np.int64(1), len(right))
        axes, old, new = [], [], []
        for d, conf in enumerate(confs):
            values = conf + 0.0  # -0.0 becomes 0.0, so that equal samples give equal bytes
            batch = Axis(self._axes[d].limit, None, values, values)
            axis, (before, here) = join_axes([self._axes[d], batch], [self._mass(d), ones], self._names[d])
            axes.append(axis)
            old.append(before)
            new.append(here)
        shape = _table_shape(axes)
        known = np.ones(len(right), bool) if inside is None else inside
        kind = 2 - known.astype(np.int64) - right  # 0 correct, 1 wrong, 2 OOD
        flat = np.ravel_multi_index([*new, kind], shape)
        counts = move_counts(self._counts, [*old, _KINDS], shape)
        counts += np.bincount(flat, minlength=counts.size).reshape(shape)
        return self._new(axes, counts)

    def _weights(self, name: str, share: float | None, *, known: bool = False) -> tuple[float, float, float]:
        """Return the number of ID samples and the weights of one OOD and of all samples; raise if there is none."""
        right, wrong, outside = self._kinds
        if right + wrong + outside == 0:
            raise UndefinedMetric(f"{name}: the summary holds no sample; call update first")
        if known and right + wrong == 0:
            raise UndefinedMetric(f"{name} needs at least one ID sample; all {outside} samples are OOD")
        share = check_ood_share(share, np.repeat([True, False], [right + wrong > 0, outside > 0]))
        weight = ood_weight(share, right + wrong, outside)
        return float(right + wrong), weight, right + wrong + weight * outside

    def _point(self, taken: tuple[float, float, float], weight: float) -> dict[str, Any]:
        """Describe the operating point of an accepted set, ``taken`` = its numbers of correct, ID and OOD samples."""
        right, known, outside = taken
        n_right, n_wrong, _ = self._kinds
        point: dict[str, Any] = dict(operating_point(right, known, weight * outside, n_right + n_wrong))
        point["method"] = "exact" if self.exact else "grid"
        return point

    def to_npz(self, path: str | os.PathLike[str]) -> None:
        """Write the summary to one npz file, without pickle.

        Parameters
        ----------
        path : path-like
            The file to write; an existing one is replaced atomically.

        Notes
        -----
        Equal summaries give equal bytes. The file holds a SHA-256 digest, which :meth:`from_npz` checks.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ScoreSummary().update([1, 0], [0.9, 0.2]).to_npz(f"{folder}/summary.npz")
        ...     ScoreSummary.from_npz(f"{folder}/summary.npz")
        ScoreSummary(1 right, 1 wrong, 0 OOD; 2 cells, every value kept)
        """
        arrays: dict[str, AnyArray] = {
            "twofold": np.asarray(type(self).__name__),
            "format": np.asarray(_FORMAT),
            "counts": self._counts,
        }
        for d, axis in enumerate(self._axes):
            arrays |= {f"cells{d}": np.asarray(axis.limit), f"low{d}": axis.low, f"high{d}": axis.high}
            if axis.edges is not None:
                arrays[f"edges{d}"] = axis.edges
        arrays["sha256"] = np.asarray(arrays_digest(arrays, {}))
        with replacing(Path(path)) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # none is called allow_pickle

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str]) -> Self:
        """Read a summary that :meth:`to_npz` wrote; the counts are equal to the last bit.

        Parameters
        ----------
        path : path-like
            The file to read.

        Returns
        -------
        ScoreSummary or PairSummary
            A summary that can be updated and merged.

        Raises
        ------
        InvalidInput
            If the file holds something else, is damaged (its digest does not match), or is of an older format.
        OSError
            If the file is missing or cannot be opened; ``RunError`` if it is a folder, device or pipe.
        """
        where, writer = os.fspath(path), f"{cls.__name__}.to_npz"
        problem = f"{where} does not hold a {cls.__name__}; write it with {writer}"
        raw = read_regular(Path(path))
        try:
            with np.load(io.BytesIO(raw), allow_pickle=False) as file:
                check_archive(file.zip, where)
                held = dict(file)
            if str(held["twofold"]) != cls.__name__:
                raise InvalidInput(problem)
            digest = held.pop("sha256", None)
            if digest is None or int(held["format"]) != _FORMAT:
                raise InvalidInput(f"{where} is of an older format without a digest; write it again with {writer}")
            if str(digest) != arrays_digest(held, {}):
                raise InvalidInput(f"{where} is damaged: its SHA-256 does not fit; write it again with {writer}")
            axes = []
            for d in range(len(cls._names)):
                axis = Axis(int(held[f"cells{d}"]), held.get(f"edges{d}"), held[f"low{d}"], held[f"high{d}"])
                axis.check()
                axes.append(axis)
            counts = held["counts"]
            fits = counts.dtype.kind == "i" and counts.shape == _table_shape(axes)
            if not fits or (counts < 0).any():
                raise InvalidInput(f"{problem}, not by hand: its counts do not fit")
        except InvalidInput:
            raise
        except (*NPZ_DAMAGE, OSError) as error:
            raise InvalidInput(problem) from error
        made = object.__new__(cls)
        made._store(tuple(axes), counts)
        return made


# One score


@dataclass(frozen=True, eq=False)
class _Cells:
    """Hold the cells that weigh something, most confident first, with what is accepted before and after each."""

    low: Array
    mixed: Mask  # several values: the order inside is open
    right: Array
    wrong: Array
    outside: Array  # OOD samples, each of ``weight``
    weight: float

    @property
    def failed(self) -> Array:
        return np.asarray(self.wrong + self.weight * self.outside)

    @property
    def mass(self) -> Array:
        return np.asarray(self.right + self.failed)


def _before(steps: Array) -> Array:
    return np.concatenate(([0.0], np.cumsum(steps)[:-1]))


def _gap(start: Array, steps: Array) -> Array:
    """Compute H_{start+steps} - H_start: the sum of 1/(start + j) for j = 1..steps."""
    return _math.harmonic(start + steps) - _math.harmonic(start)


def _ratio(above: Array, below: Array) -> Array:
    """Divide above by below, with 0 where both are 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class ScoreSummary(_Summary):
    """Count correct, wrong and OOD samples along one confidence, in at most ``cells`` cells.

    Its metrics equal those of :mod:`twofold.metrics` on the same samples until more than ``cells`` distinct
    confidences were seen. From then on every metric is a :class:`Bounded` interval: the least and the largest value
    over all orders and ties inside the cells. Summaries never change: ``update`` and ``+`` return new ones.

    Parameters
    ----------
    cells : int, default=4096
        Largest number of cells, at least 2; more cells give narrower bounds. Ignored with ``edges``.
    edges : array-like of float, shape (n_edges,), optional
        Strictly increasing cuts to use from the start. By default they are fixed at quantiles once there are more than
        ``cells`` distinct confidences.

    Raises
    ------
    InvalidInput
        If ``cells`` is below 2, or ``edges`` do not increase strictly.

    Notes
    -----
    Widths fall like 1/cells. Here is ``error``, in units of 1e-6, for a million distinct confidences with 17 %
    failures that came as one batch (``test_widths`` checks it, and that the ``value`` of the three areas is at least
    fifty times closer than that):

    ===== ===== ===== ===== =====
    cells AURC  AUGRC AUROC F1
    ===== ===== ===== ===== =====
    256   452   186   1301  983
    1024  111   46    325   245
    4096  27.8  11.6  81.0  59.6
    16384 6.9   2.9   20.0  15.1
    ===== ===== ===== ===== =====

    Cuts from the first ``cells`` samples alone make the bounds wider, F1's most.

    Examples
    --------
    >>> summary = ScoreSummary()
    >>> for batch in ([1, 0], [0.9, 0.8]), ([1, 0], [0.8, 0.1]):
    ...     summary = summary.update(*batch)
    >>> summary.augrc()
    Bounded(value=0.15625, low=0.15625, high=0.15625, point=None)
    >>> rough = ScoreSummary(edges=[0.5]).update([1, 0, 1, 0], [0.9, 0.8, 0.8, 0.1])
    >>> rough.auroc()
    Bounded(value=0.75, low=0.5, high=1.0, point=None)
    """

    _names = ("conf",)

    def __init__(self, cells: int = 4096, *, edges: ArrayLike | None = None):
        self._store((Axis.start(cells, edges, "edges"),))

    @property
    def edges(self) -> Array | None:
        """The cuts, ascending; None while every distinct confidence has its own cell."""
        return self._axes[0].edges

    @classmethod
    def from_counts(cls, edges: Array, low: Array, high: Array, counts: Integers) -> Self:
        """Make a summary of rows that were counted elsewhere.

        Parameters
        ----------
        edges : ndarray of float, shape (n_edges,)
            Strictly increasing cuts.
        low, high : ndarray of float, shape (n_edges + 1,)
            Smallest and largest confidence of each cell; inf and -inf for an empty one.
        counts : ndarray of int, shape (n_edges + 1, 3)
            Correct, wrong and OOD samples of each cell.

        Returns
        -------
        ScoreSummary
            The summary.

        Examples
        --------
        >>> ends = np.array([0.2, 0.9])
        >>> ScoreSummary.from_counts(np.array([0.5]), ends, ends, np.eye(2, 3, dtype=int))
        ScoreSummary(1 right, 1 wrong, 0 OOD; 2 cells, cuts fixed)
        """
        return cls(edges=edges)._new([Axis(len(edges) + 1, edges, low, high)], counts)

    def update(
        self, correct: ArrayLike, conf: ArrayLike, is_id: ArrayLike | None = None, *, nan: NaNPolicy = "error"
    ) -> Self:
        """Return the summary with a batch added.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct; False on every OOD sample.
        conf : array-like of float, shape (n_samples,)
            Confidence, higher is safer to accept. Infinities are allowed.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples. By default the batch is all ID.
        nan : {"error", "reject"}, default="error"
            Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

        Returns
        -------
        ScoreSummary
            A new summary; this one is unchanged.

        Raises
        ------
        InvalidInput
            If the arrays are empty, differ in length, hold NaN or impossible values, or ``correct`` is True on an OOD
            sample.

        Examples
        --------
        >>> ScoreSummary().update([True, False], [0.9, 0.5], [True, False])
        ScoreSummary(1 right, 0 wrong, 1 OOD; 2 cells, every value kept)
        """
        conf = _checks.confidence(conf, nan=nan)
        right, inside = _checks.joint(correct, is_id, conf=conf)
        return self._add([conf], right, inside)

    def _falling(self, weight: float) -> _Cells:
        axis, counts = self._axes[0], self._counts
        some = (counts[:, :2].sum(axis=1) + weight * counts[:, 2] > 0)[::-1]
        right, wrong, outside = counts[::-1][some].T.astype(np.float64)
        mixed = axis.mixed[::-1][some]
        return _Cells(axis.low[::-1][some], mixed, right, wrong, outside, weight)

    def aurc(self, *, coverage: Coverage = "all", ood_share: float | None = None) -> Bounded:
        r"""Bound the area under the risk-coverage curve, the ``empirical`` estimator of :func:`twofold.metrics.aurc`.

        Parameters
        ----------
        coverage : {"all", "id"}, default="all"
            Average the risk over all samples, or over ID samples as :func:`twofold.metrics.aurc_id` does.
        ood_share : float, optional
            Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
            sample weighs 1.

        Returns
        -------
        Bounded
            The area with its bounds.

        Raises
        ------
        InvalidInput
            If ``coverage`` or ``ood_share`` is out of range, or ``ood_share`` lacks ID or OOD samples.
        UndefinedMetric
            If the summary holds no sample, or no ID sample with ``coverage="id"``.

        Notes
        -----
        A cell with c correct samples and failures of weight f, after accepted weight N of loss L, adds at most

        .. math:: f \frac{L+f}{N+f} + (L+f)(H_{N+f+c} - H_{N+f})

        (failures tied on top, then correct samples one by one: no failure has a risk above (L+f)/(N+f), and
        not the k-th correct sample above (L+f)/(N+f+k)), and at least

        .. math:: c \frac{L}{N+c} + f - (N+c-L)(H_{N+c+f} - H_{N+c})

        (correct samples tied on top, then failures one by one, lighter ones first). Both are attained.
        ``value`` is the mean over random orders of the samples in a cell (with ``ood_share``, nearly).

        Examples
        --------
        >>> area = ScoreSummary(edges=[0.5]).update([1, 0, 1], [0.9, 0.8, 0.1]).aurc()
        >>> round(area.low, 6), round(area.value, 6), round(area.high, 6)
        (0.277778, 0.444444, 0.611111)
        """
        _checks.choice(coverage, "coverage", ("all", "id"))
        known, weight, total = self._weights("aurc", ood_share, known=coverage == "id")
        cells = self._falling(weight)
        c, f, m = cells.right, cells.failed, cells.mass
        n, loss = _before(m), _before(f)
        if coverage == "id":
            mean_of, over = c + cells.wrong, known  # what the risk is averaged over, and all of it
            runs = [(cells.wrong, 1.0)]
        else:
            mean_of, over = m, total
            runs = [(cells.wrong, 1.0)]
            if weight > 0:
                runs.append((cells.outside, weight))
                runs.sort(key=lambda run: run[1])
        tie = mean_of * (loss + f) / (n + m)
        high = (mean_of - c) * _ratio(loss + f, n + f) + (loss + f) * _gap(n + f, c)
        low = c * _ratio(loss, n + c)
        after = n + c
        for count, atom in runs:
            low += atom * count - (n + c - loss) * _gap(after / atom, count)
            after = after + atom * count
        value = mean_of * (f + (loss - f / m * n) * _gap(n, m)) / m
        low = np.where(cells.mixed, low, tie)
        high = np.where(cells.mixed, high, tie)
        value = np.where(cells.mixed, np.clip(value, low, high), tie)
        return Bounded(float(value.sum() / over), float(low.sum() / over), float(high.sum() / over))

    def augrc(self, *, ood_share: float | None = None) -> Bounded:
        r"""Bound the area under the generalised-risk-coverage curve, as :func:`twofold.metrics.augrc` defines it.

        Parameters
        ----------
        ood_share : float, optional
            Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
            sample weighs 1.

        Returns
        -------
        Bounded
            The area with its bounds.

        Raises
        ------
        InvalidInput
            If ``ood_share`` is out of range, or lacks ID or OOD samples.
        UndefinedMetric
            If the summary holds no sample.

        Notes
        -----
        Only pairs of a correct sample and a failure in one cell are open; ``value`` counts half of each:

        .. math:: \mathrm{error} = \frac{1}{2 n^2} \sum_{\text{mixed cells}} c\, f
                  \le \frac{1}{8} \max_j \frac{m_j}{n} \text{ for cells of } m_j \text{ samples}

        Examples
        --------
        >>> ScoreSummary(edges=[0.5]).update([1, 0, 1, 0], [0.9, 0.8, 0.8, 0.1]).augrc()
        Bounded(value=0.1875, low=0.125, high=0.25, point=None)
        """
        _, weight, total = self._weights("augrc", ood_share)
        cells = self._falling(weight)
        # a failure counts at every coverage from its own on; in a cell, from the middle on
        rest = total - _before(cells.mass) - cells.mass / 2.0
        value = float(cells.failed @ rest) / total**2
        open_pairs = float(cells.right[cells.mixed] @ cells.failed[cells.mixed]) / 2.0 / total**2
        return Bounded(value, value - open_pairs, value + open_pairs)

    def auroc(self) -> Bounded:
        """Bound the AUROC of correct predictions against failures: ``metrics.auroc(correct, conf)``.

        It is the chance that a correct prediction has a higher confidence than a failure; OOD samples are failures.

        Returns
        -------
        Bounded
            The AUROC with its bounds; the error is half the share of pairs that meet in a cell of several values.

        Raises
        ------
        UndefinedMetric
            If there is no correct prediction or no failure.

        Examples
        --------
        >>> ScoreSummary().update([1, 0, 1, 0], [0.9, 0.8, 0.4, 0.3]).auroc().value
        0.75
        """
        _, weight, _ = self._weights("auroc", None)
        cells = self._falling(weight)
        return _pairs(cells.right, cells.failed, cells.mixed, "auroc", ("right", "failed"))

    def auroc_ood(self) -> Bounded:
        """Bound the AUROC of ID against OOD samples: ``metrics.auroc(is_id, conf)``.

        It is the chance that an ID sample has a higher confidence than an OOD sample.

        Returns
        -------
        Bounded
            The AUROC with its bounds; the error is half the share of pairs that meet in a cell of several values.

        Raises
        ------
        UndefinedMetric
            If there is no ID sample or no OOD sample.

        Examples
        --------
        >>> ScoreSummary().update([1, 0, 0], [0.9, 0.2, 0.4], [1, 1, 0]).auroc_ood().value
        0.5
        """
        _, weight, _ = self._weights("auroc_ood", None)
        cells = self._falling(weight)
        return _pairs(cells.right + cells.wrong, cells.outside, cells.mixed, "auroc_ood", ("ID", "OOD"))

    def f1(self, *, ood_share: float | None = None) -> Bounded:
        """Bound the best F1 over every threshold, as :func:`twofold.metrics.f1` defines it.

        Parameters
        ----------
        ood_share : float, optional
            Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
            sample weighs 1.

        Returns
        -------
        Bounded
            The best F1 with its bounds, and the threshold that attains ``value`` as ``point``.

        Raises
        ------
        InvalidInput
            If ``ood_share`` is out of range, or lacks ID or OOD samples.
        UndefinedMetric
            If there is no ID sample.

        Notes
        -----
        ``value`` and ``low`` are the best over thresholds at cell boundaries, which ``point`` attains. A threshold
        inside a cell accepts at best all of its correct samples and none of its failures: that gives ``high``.

        Examples
        --------
        >>> best = ScoreSummary().update([1, 1, 0, 0], [0.9, 0.6, 0.5, 0.7], [1, 1, 1, 0]).f1()
        >>> best.value, best.point.threshold
        (0.6666666666666666, 0.6)
        """
        known, weight, _ = self._weights("f1", ood_share, known=True)
        cells = self._falling(weight)
        right = np.cumsum(cells.right)
        failed = np.cumsum(cells.failed)
        f1 = 2.0 * right / (right + failed + known)
        inside = 2.0 * right / (right + np.where(cells.mixed, _before(cells.failed), failed) + known)
        best = int(np.argmax(f1))  # the first maximiser accepts fewest
        low, high = float(f1[best]), float(inside.max())
        if low == 0.0:
            point = OperatingPoint(threshold=np.inf, **self._point((0.0, 0.0, 0.0), weight))
        else:
            known_here = float((cells.right + cells.wrong)[: best + 1].sum())
            taken = float(right[best]), known_here, float(cells.outside[: best + 1].sum())
            point = OperatingPoint(threshold=float(cells.low[best]), **self._point(taken, weight))
        return Bounded(low, low, high, point)


def _pairs(safe: Array, unsafe: Array, mixed: Mask, name: str, kinds: tuple[str, str]) -> Bounded:
    total = float(safe.sum() * unsafe.sum())
    if total == 0:
        missing = kinds[0] if safe.sum() == 0 else kinds[1]
        raise UndefinedMetric(f"{name} compares two classes, and there is no {missing} sample")
    value = float(unsafe @ (_before(safe) + safe / 2.0)) / total
    open_pairs = float(safe[mixed] @ unsafe[mixed]) / 2.0 / total
    return Bounded(value, value - open_pairs, value + open_pairs)


# Two scores


@dataclass(frozen=True, eq=False)
class _Corners:
    """Hold what each pair of cell boundaries accepts: rows are cells of conf_id, columns of conf_ood, falling.

    A threshold inside a mixed cell accepts at least what the boundary before the cell does (the inner one)
    and at most what the boundary after it does. A cell of one value is accepted whole or not at all.
    """

    tau_id: Array
    tau_ood: Array
    right: Array
    known: Array
    outside: Array  # OOD samples, each of ``weight``
    failed: Array
    least_failed: Array  # at the inner boundaries
    useful: Mask  # both cells hold correct samples: where the best F1 is to be found


def _corners(axes: tuple[Axis, ...], counts: Integers, weight: float) -> _Corners:
    axis_id, axis_ood = axes
    filled_id = counts.sum(axis=(1, 2))[::-1] > 0
    filled_ood = counts.sum(axis=(0, 2))[::-1] > 0
    table = counts[::-1, ::-1][np.ix_(filled_id, filled_ood)]
    tau_id, tau_ood = axis_id.low[::-1][filled_id], axis_ood.low[::-1][filled_ood]
    mixed_id, mixed_ood = axis_id.mixed[::-1][filled_id], axis_ood.mixed[::-1][filled_ood]
    useful = np.logical_and.outer(table[..., 0].any(axis=1), table[..., 0].any(axis=0))
    accepted = np.zeros((table.shape[0] + 1, table.shape[1] + 1, 3))
    accepted[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
    failed = accepted[..., 1] + weight * accepted[..., 2]
    inner_id = np.arange(1, len(mixed_id) + 1) - mixed_id
    inner_ood = np.arange(1, len(mixed_ood) + 1) - mixed_ood
    right, wrong, outside = np.moveaxis(accepted[1:, 1:], 2, 0)
    least = failed[np.ix_(inner_id, inner_ood)]
    return _Corners(tau_id, tau_ood, right, right + wrong, outside, failed[1:, 1:], least, useful)


def _area(known: Array, risk: Array, *, monotone: bool = True) -> float:
    """Sum over k = 1..n the least risk at the next attained level (monotone: at any level) from k on."""
    level, group = np.unique(known, return_inverse=True)
    least = np.full(len(level), np.inf)
    np.minimum.at(least, group, risk)
    if monotone:
        least = np.minimum.accumulate(least[::-1])[::-1]
    return float(np.diff(level, prepend=0.0) @ least)


class PairSummary(_Summary):
    r"""Count correct, wrong and OOD samples over two confidences, in at most ``cells`` x ``cells`` cells.

    Each axis behaves like that of :class:`ScoreSummary`, independently of the other: exact until it has seen more than
    ``cells`` distinct values. Summaries never change: ``update`` and ``+`` return new ones.

    Parameters
    ----------
    cells : int, default=256
        Largest number of cells per axis, at least 2; more cells give narrower bounds. Ignored on an axis with
        ``edges``.
    edges : pair of array-like or None, optional
        Strictly increasing cuts of ``conf_id`` and of ``conf_ood`` to use from the start; either may be None, so that
        they are fixed at quantiles once there are more than ``cells`` distinct values.

    Raises
    ------
    InvalidInput
        If ``cells`` is below 2, or the cuts of an axis do not increase strictly.

    Notes
    -----
    Memory is 24 cells\ :sup:`2` bytes (1.6 MB for 256) however long the stream. Widths fall like 1/cells. Here is
    high - low, in units of 1e-3, for 20,000 samples of distinct confidences, a quarter of them OOD, that came as one
    batch (``test_pair_widths`` checks it):

    ===== ===== =======
    cells DS-F1 DS-AURC
    ===== ===== =======
    64    6.2   12.1
    128   3.2   6.1
    256   1.6   3.0
    512   0.8   1.5
    ===== ===== =======

    Examples
    --------
    >>> summary = PairSummary()
    >>> summary = summary.update([1, 1, 1], [0.95, 0.9, 0.8], [5, 1, 4])
    >>> summary = summary.update([0, 1, 0, 0, 0, 0], [0.7, 0.6, 0.4, 0.85, 0.55, 0.3], [3, 2, -1, 0, 2.5, -2],
    ...                          [1, 1, 1, 0, 0, 0])
    >>> best = summary.ds_f1()
    >>> round(best.value, 6), best.point.tau_id, best.point.tau_ood, best.exact
    (0.727273, 0.6, 1.0, True)
    """

    _names = ("conf_id", "conf_ood")

    def __init__(self, cells: int = 256, *, edges: tuple[ArrayLike | None, ArrayLike | None] | None = None):
        first, second = (None, None) if edges is None else edges
        self._store((Axis.start(cells, first, "edges[0]"), Axis.start(cells, second, "edges[1]")))

    @property
    def edges(self) -> tuple[Array | None, Array | None]:
        """The cuts of conf_id and of conf_ood; None while every distinct confidence has its own cell."""
        return self._axes[0].edges, self._axes[1].edges

    @classmethod
    def from_counts(cls, edges: tuple[Array, Array], ends: Sequence[Array], counts: Integers) -> Self:
        """Make a summary of rows that were counted elsewhere.

        Parameters
        ----------
        edges : pair of ndarray of float
            Strictly increasing cuts of ``conf_id`` and of ``conf_ood``.
        ends : sequence of four ndarray of float
            Smallest and largest ``conf_id`` of each of its cells, then those of ``conf_ood``; inf and -inf for an empty
            cell.
        counts : ndarray of int, shape (cells of conf_id, cells of conf_ood, 3)
            Correct, wrong and OOD samples.

        Returns
        -------
        PairSummary
            The summary.
        """
        axes = []
        for d, cuts in enumerate(edges):
            axes.append(Axis(len(cuts) + 1, cuts, ends[2 * d], ends[2 * d + 1]))
        return cls(edges=edges)._new(axes, counts)

    def update(
        self,
        correct: ArrayLike,
        conf_id: ArrayLike,
        conf_ood: ArrayLike,
        is_id: ArrayLike | None = None,
        *,
        nan: NaNPolicy = "error",
    ) -> Self:
        """Return the summary with a batch added.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct; False on every OOD sample.
        conf_id : array-like of float, shape (n_samples,)
            Confidence against misclassification, higher is safer to accept. Infinities are allowed.
        conf_ood : array-like of float, shape (n_samples,)
            Confidence against OOD inputs, higher is safer to accept. Infinities are allowed.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples. By default the batch is all ID.
        nan : {"error", "reject"}, default="error"
            Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

        Returns
        -------
        PairSummary
            A new summary; this one is unchanged.

        Raises
        ------
        InvalidInput
            If the arrays are empty, differ in length, hold NaN or impossible values, or ``correct`` is True on an OOD
            sample.

        Examples
        --------
        >>> PairSummary(edges=([0.5], None)).update([1, 0], [0.9, 0.4], [3.0, 1.0])
        PairSummary(1 right, 1 wrong, 0 OOD; 2 x 2 cells, cuts fixed)
        """
        first = _checks.confidence(conf_id, "conf_id", nan=nan)
        second = _checks.confidence(conf_ood, "conf_ood", nan=nan)
        right, inside = _checks.joint(correct, is_id, conf_id=first, conf_ood=second)
        return self._add([first, second], right, inside)

    def ds_f1(self, *, ood_share: float | None = None) -> Bounded:
        r"""Bound the best F1 with two thresholds, as :func:`twofold.metrics.ds_f1` defines it.

        Parameters
        ----------
        ood_share : float, optional
            Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
            sample weighs 1.

        Returns
        -------
        Bounded
            The best F1 with its bounds, and the thresholds that attain ``value`` as ``point``.

        Raises
        ------
        InvalidInput
            If ``ood_share`` is out of range, or lacks ID or OOD samples.
        UndefinedMetric
            If there is no ID sample.

        Notes
        -----
        ``value`` and ``low`` are the best over pairs of cell boundaries, which ``point`` attains. A pair inside the
        cells (i, j) accepts at most the correct samples TA of the boundaries after both cells and at least the failures
        FA of those before both, so that

        .. math:: F_1 \le \frac{2\,TA_{after}}{TA_{after} + FA_{before} + n_{ID}}

        whose maximum is ``high``; some order inside the cells attains it.

        Examples
        --------
        >>> data = [1, 1, 0, 0], [0.9, 0.6, 0.7, 0.5], [3.0, 2.0, 1.0, 2.5], [1, 1, 1, 0]
        >>> PairSummary(edges=([0.55], [1.5])).update(*data).ds_f1().high
        0.8
        """
        known, weight, _ = self._weights("ds_f1", ood_share, known=True)
        at = _corners(self._axes, self._counts, weight)
        f1 = 2.0 * at.right / (at.right + at.failed + known)
        high = float((2.0 * at.right / (at.right + at.least_failed + known)).max())
        if not at.useful.any():
            point = DoublePoint(tau_id=np.inf, tau_ood=np.inf, **self._point((0.0, 0.0, 0.0), weight))
            return Bounded(0.0, 0.0, high, point)
        # among maximisers: fewest accepted, then largest tau_id, then largest tau_ood
        f1 = np.where(at.useful, f1, -1.0)
        ties = np.argwhere(f1 == f1.max())
        accepted = (at.right + at.failed)[tuple(ties.T)]
        i, j = ties[accepted == accepted.min()][0]
        taken = float(at.right[i, j]), float(at.known[i, j]), float(at.outside[i, j])
        point = DoublePoint(tau_id=float(at.tau_id[i]), tau_ood=float(at.tau_ood[j]), **self._point(taken, weight))
        return Bounded(float(f1[i, j]), float(f1[i, j]), high, point)

    def ds_aurc(self, *, monotone: bool = True, ood_share: float | None = None) -> Bounded:
        r"""Bound the area under the least risk of two thresholds: ``metrics.ds_aurc(..., monotone=True)``.

        .. math:: \frac{1}{n_{ID}} \sum_{k=1}^{n_{ID}} \min_{\tau_{id}, \tau_{ood}}
                  \left\{ 1 - \frac{TA}{|A|} : |A \cap ID| \ge k \right\}

        Parameters
        ----------
        monotone : bool, default=True
            Take the least risk over pairs that accept at least k ID samples. False asks for exactly k, which is
            possible only while the summary is exact. Mind that :func:`twofold.metrics.ds_aurc` has the other default.
        ood_share : float, optional
            Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
            sample weighs 1.

        Returns
        -------
        Bounded
            The area with its bounds.

        Raises
        ------
        InvalidInput
            If ``monotone`` is False and the summary is no longer exact, or ``ood_share`` is out of range or lacks ID or
            OOD samples.
        UndefinedMetric
            If there is no ID sample.

        Notes
        -----
        ``value`` and ``high`` take pairs of cell boundaries, which are thresholds one can use. A pair inside the cells
        (i, j) has a risk of at least FA/(TA + FA), with the correct samples TA of the boundaries after both cells and
        the failures FA of those before both: that gives ``low``.

        With ``monotone=False``, which numbers of accepted ID samples are attained at all, and by how bad a pair,
        depends on the order inside the cells, so counts give no useful bound.

        Examples
        --------
        >>> PairSummary().update([1, 0, 0], [0.9, 0.5, 0.7], [3.0, 2.0, 1.0], [1, 1, 0]).ds_aurc().value
        0.25
        """
        known, weight, _ = self._weights("ds_aurc", ood_share, known=True)
        if not monotone and not self.exact:
            raise InvalidInput(
                "monotone=False asks which numbers of ID samples are attained exactly, and cells of "
                "several values do not tell; use monotone=True, more cells, or metrics.ds_aurc on the samples"
            )
        at = _corners(self._axes, self._counts, weight)
        some = at.known > 0
        right, level = at.right[some], at.known[some]
        risk = at.failed[some] / (right + at.failed[some])
        least = at.least_failed[some]
        lowest = np.where(right > 0, least / np.where(right > 0, right + least, 1.0), 1.0)
        low, high = (_area(level, part, monotone=monotone) / known for part in (lowest, risk))
        return Bounded(high, low, high)
