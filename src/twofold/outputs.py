"""What one model computed for one data set: logits, and whatever else was recorded beside them.

Everything after extraction works on :class:`Outputs`. Arrays are validated once, when :class:`Outputs` is built. They
keep their own float precision, are not copied without need, and are read-only views afterwards.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from twofold._checks import (
    Array,
    ArrayLike,
    Labels,
    Mask,
    choice,
    dims,
    finite,
    floats,
    plain,
    same_rows,
    whole,
)
from twofold._checks import labels as class_labels
from twofold._files import read_npz, replacing
from twofold._math import Floats, log_softmax
from twofold.errors import InvalidInput

AnyArray = npt.NDArray[Any]
Made = TypeVar("Made")

LAW_ROWS = 256  # rows on which features @ weight.T + bias is compared with the logits
FINE, COARSE = 1e-3, 1e-2  # tolerances of that: usual and half precision, relative to max(1, max|logit|)
SCALE_ROWS = 16  # rows on which logits are tested for being logarithms of probabilities
BLOCK_BYTES = 1 << 24  # internal passes over large arrays hold about this much at a time

NAMES = ("ids", "groups")  # integers or strings that identify a row or its group
ARRAYS = ("logits", "labels", "features", "predictions", *NAMES, "passes")
FIELDS = (*ARRAYS, "layers", "learned", "head", "class_names")
PASS_ARRAYS = ("mean_prob", "mean_logits", "mean_entropy", "prob_std")
KNOWN_KEYS = (
    *ARRAYS,
    "layers/NAME",
    "learned/NAME",
    *(f"passes.{name}" for name in PASS_ARRAYS),
    "passes.count",
)
NPZ_KEYS = (*KNOWN_KEYS, "probs", "head.weight", "head.bias", "class_names")


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Head:
    """Hold the last linear layer of a classifier: ``logits = features @ weight.T + bias``.

    Parameters
    ----------
    weight : array-like of shape (C, D)
        Weight as ``torch.nn.Linear`` keeps it: one row per class, one column per feature.
    bias : array-like of shape (C,), optional
        Bias of each class; without it zeros are used.

    Raises
    ------
    InvalidInput
        If a value is not finite, or ``bias`` does not have one value per row of ``weight``.

    Examples
    --------
    >>> head = Head(weight=[[1.0, 0.0], [0.0, 2.0]], bias=[0.5, 0.0])
    >>> head.logits(np.array([[3.0, 1.0]]))
    array([[3.5, 2. ]])
    """

    weight: Floats
    bias: Floats

    def __init__(self, weight: ArrayLike, bias: ArrayLike = None) -> None:
        w = _floats(weight, "head.weight", 2)
        finite(w, "head.weight")
        b = np.zeros(len(w), w.dtype) if bias is None else _floats(bias, "head.bias", 1)
        finite(b, "head.bias")
        if len(b) != len(w):
            raise InvalidInput(
                f"head.bias has {len(b)} values but head.weight has {len(w)} rows (shape {w.shape}); "
                "weight is (C, D) and bias (C,), one row and one value per class"
            )
        # a frozen dataclass refuses assignment, so fields are set through vars() here and below
        vars(self).update(weight=_read_only(w), bias=_read_only(b), _half=is_half(weight) or is_half(bias))

    def logits(self, features: Floats) -> Array:
        """Compute ``features @ weight.T + bias`` in float64, a block of rows at a time.

        Parameters
        ----------
        features : ndarray of shape (N, D)
            Input of the layer, in any float precision; memory-mapped arrays are read block by block.

        Returns
        -------
        ndarray of shape (N, C)
            The logits, float64.

        Examples
        --------
        >>> Head(weight=[[1.0, 0.0], [0.0, 2.0]]).logits(np.array([[3.0, 1.0]]))
        array([[3., 2.]])
        """
        weight, bias = self.weight.astype(np.float64).T, self.bias.astype(np.float64)
        result = np.empty((len(features), len(bias)))
        for rows in row_slices(len(features), 8 * features.shape[1]):
            np.matmul(features[rows].astype(np.float64), weight, out=result[rows])
            release(features)
        result += bias
        return result

    def __repr__(self) -> str:
        classes, columns = self.weight.shape
        return f"Head({classes} classes, {columns} features)"

    def same_as(self, other: Head) -> bool:
        """Check whether both heads hold the same numbers.

        Parameters
        ----------
        other : Head
            The head to compare with.

        Returns
        -------
        bool
            True if weights and biases are equal element by element, whatever their precision.

        Examples
        --------
        >>> Head(weight=[[1.0, 0.0]]).same_as(Head(weight=[[1.0, 0.0]], bias=[0.0]))
        True
        """
        return np.array_equal(self.weight, other.weight) and np.array_equal(self.bias, other.bias)


@dataclass(frozen=True, eq=False, init=False)
class Passes:
    """Hold the averages of several stochastic forward passes, or of the members of an ensemble.

    Parameters
    ----------
    mean_prob : array-like of shape (N, C)
        Mean softmax probabilities, in [0, 1].
    mean_logits : array-like of shape (N, C)
        Mean logits.
    mean_entropy : array-like of shape (N,)
        Mean over passes of the entropy of the softmax, in nats.
    prob_std : array-like of shape (N, C)
        Standard deviation of the probabilities over passes, in the population form (divided by ``count``).
    count : int
        Number of passes, at least 1.

    Raises
    ------
    InvalidInput
        If shapes do not fit together, a value is not finite, ``mean_prob`` lies outside [0, 1], or ``count`` is below
        1.

    Examples
    --------
    >>> means = Passes.from_logits(np.log([[[0.9, 0.1]], [[0.5, 0.5]]]))
    >>> means.mean_prob.round(3), means.prob_std.round(3), means.count
    (array([[0.7, 0.3]]), array([[0.2, 0.2]]), 2)
    """

    mean_prob: Floats
    mean_logits: Floats
    mean_entropy: Floats
    prob_std: Floats
    count: int

    def __init__(
        self,
        mean_prob: ArrayLike,
        mean_logits: ArrayLike,
        mean_entropy: ArrayLike,
        prob_std: ArrayLike,
        count: int,
    ) -> None:
        given = dict(zip(PASS_ARRAYS, (mean_prob, mean_logits, mean_entropy, prob_std), strict=True))
        arrays = {name: check_rows(f"passes.{name}", value) for name, value in given.items()}
        same_rows(**{f"passes.{name}": array for name, array in arrays.items()})
        for name in ("mean_logits", "prob_std"):
            if arrays[name].shape != arrays["mean_prob"].shape:
                want = arrays["mean_prob"].shape
                raise InvalidInput(f"passes.{name} has shape {arrays[name].shape} but passes.mean_prob has {want}")
        low, high = arrays["mean_prob"].min(), arrays["mean_prob"].max()
        if low < 0 or high > 1 + FINE:
            raise InvalidInput(
                f"passes.mean_prob must be probabilities in [0, 1], got values from {low:g} to {high:g}; "
                "for logits of single passes use Passes.from_logits"
            )
        vars(self).update(arrays, count=whole(count, "passes.count", 1))

    @classmethod
    def from_logits(cls, passes: ArrayLike | Iterable[ArrayLike]) -> Self:
        """Average the logits of several passes, holding one pass in memory at a time.

        Parameters
        ----------
        passes : array-like of shape (M, N, C), or iterable of array-likes of shape (N, C)
            Logits of each pass. A generator keeps memory small: each pass is dropped once it has been added.

        Returns
        -------
        Passes
            Means over passes, and the standard deviation of the probabilities by Welford's update.

        Raises
        ------
        InvalidInput
            If there is no pass, passes differ in shape, or a value is not finite.

        Examples
        --------
        >>> Passes.from_logits(np.zeros((1, 2)) for _ in range(3)).mean_entropy.round(4)
        array([0.6931])
        """
        count = 0
        for z in passes:
            logits = check_rows("logits", z, label=f"passes[{count}]")
            log_prob = log_softmax(logits)
            prob = np.exp(log_prob)
            entropy = -(prob * log_prob).sum(axis=1)
            if count == 0:
                mean_prob, mean_logits = np.zeros_like(prob), np.zeros_like(prob)
                mean_entropy, spread = np.zeros_like(entropy), np.zeros_like(prob)
            elif prob.shape != mean_prob.shape:
                raise InvalidInput(f"passes[{count}] has shape {prob.shape} but passes[0] has {mean_prob.shape}")
            count += 1
            # Welford's update: one pass over the data without the cancellation of E[p^2] - E[p]^2
            step = prob - mean_prob
            mean_prob += step / count
            spread += step * (prob - mean_prob)
            mean_logits += (logits - mean_logits) / count
            mean_entropy += (entropy - mean_entropy) / count
        if count == 0:
            raise InvalidInput("passes is empty; at least one pass is needed")
        return cls(mean_prob, mean_logits, mean_entropy, np.sqrt(spread / count), count)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Outputs:
    """Hold the validated, frozen arrays of one model on one data set.

    Parameters
    ----------
    logits : array-like of shape (N, C)
        Logits of the model; at least one row.
    labels : array-like of shape (N,), optional
        True classes, -1 for inputs of no class of the model.
    features : array-like of shape (N, D), optional
        The exact input of the last linear layer.
    head : Head, optional
        The last linear layer. With ``features``, ``head.logits(features)`` must reproduce the logits.
    layers : mapping of str to array-like of shape (N, K), optional
        Pooled activations of inner layers by name.
    passes : array-like of shape (M, N, C), or Passes, optional
        Logits of several stochastic passes or ensemble members, or their averages.
    learned : mapping of str to array-like of shape (N,), optional
        Confidences of trained heads by name; infinite values are allowed.
    predictions : array-like of shape (N,), optional
        Predicted classes; by default the argmax of the logits.
    ids : array-like of shape (N,), optional
        Integers or strings that identify the rows.
    class_names : sequence of str, optional
        C names, in the order of the logits.
    groups : array-like of shape (N,), optional
        Integers or strings, the same for rows that depend on each other (scene, patient, user).

    Raises
    ------
    InvalidInput
        If an array has the wrong shape, dtype or number of rows, holds NaN, or ``features`` and ``head`` do not
        reproduce the logits.

    Notes
    -----
    ``layers`` and ``learned`` are empty mappings when they are not passed; every other absent field is None. Indexing
    with a row number, slice, boolean mask or array of row numbers gives :class:`Outputs` of those rows; an empty
    selection is an error.

    The logits are compared with ``head.logits(features)`` on 256 evenly spaced rows, to 1e-3 (1e-2 in half precision)
    relative to ``max(1, max|logit|)``.

    Examples
    --------
    >>> outputs = Outputs([[2.0, 0.0], [0.0, 1.0], [0.3, 0.2]], labels=[0, 0, -1])
    >>> outputs.predictions, outputs.correct
    (array([0, 1, 0]), array([ True, False, False]))
    >>> outputs[outputs.is_id]
    Outputs(2 rows, 2 classes; labels)
    """

    logits: Floats
    labels: Labels | None
    features: Floats | None
    head: Head | None
    layers: Mapping[str, Floats]
    passes: Floats | Passes | None
    learned: Mapping[str, Floats]
    class_names: tuple[str, ...] | None

    def __init__(
        self,
        logits: ArrayLike,
        labels: ArrayLike | None = None,
        features: ArrayLike | None = None,
        head: Head | None = None,
        layers: Mapping[str, ArrayLike] | None = None,
        passes: ArrayLike | Passes | None = None,
        learned: Mapping[str, ArrayLike] | None = None,
        predictions: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        values = (logits, labels, features, predictions, ids, groups, passes, layers, learned, head, class_names)
        vars(self).update(_admit(dict(zip(FIELDS, values, strict=True)), {}))
        _ = self.predictions  # taken now, so that later changes of the caller's array cannot move it

    @classmethod
    def from_probabilities(
        cls,
        probs: ArrayLike,
        labels: ArrayLike | None = None,
        features: ArrayLike | None = None,
        **fields: Any,
    ) -> Outputs:
        r"""Build outputs from class probabilities, where logits are not available.

        The logits become :math:`\log p`, with zeros replaced by the smallest normal number of the precision. Their
        softmax is `p`, so that scores of probabilities (msp, entropy, gen, ...) are what they would be. The scale of
        the logits is lost: scores that read it, such as energy and mls, warn with :class:`~twofold.errors.LostScale`.

        Parameters
        ----------
        probs : array-like of shape (N, C)
            Probabilities in [0, 1]; every row sums to 1 within 1e-3 (1e-2 in half precision).
        labels : array-like of shape (N,), optional
            True classes, -1 for inputs of no class of the model.
        features : array-like of shape (N, D), optional
            Input of the last linear layer.
        **fields
            Other fields of :class:`Outputs`, but no ``head``: with it, ``head.logits(features)`` are the logits.

        Returns
        -------
        Outputs
            Predictions are the argmax of ``probs`` unless they are passed.

        Raises
        ------
        InvalidInput
            If ``probs`` are not probabilities, or ``head`` is passed.

        Examples
        --------
        >>> outputs = Outputs.from_probabilities([[0.9, 0.1], [0.4, 0.6]], labels=[0, 0])
        >>> outputs.correct
        array([ True, False])
        >>> outputs.is_scale_lost
        True
        """
        if fields.get("head") is not None:
            raise InvalidInput(
                "probabilities and a head do not go together; with features and a head, pass the logits: "
                "Outputs(head.logits(features), labels, features, head)"
            )
        checked = _probabilities(probs)
        floor = np.finfo(checked.dtype).tiny
        if fields.get("predictions") is None:
            fields["predictions"] = checked.argmax(axis=1)
        return cls(np.log(np.maximum(checked, floor)), labels, features, **fields)

    @property
    def is_scale_lost(self) -> bool:
        """Whether the logits are logarithms of probabilities, judged by 16 evenly spaced rows."""
        rows = np.unique(np.linspace(0, len(self) - 1, min(len(self), SCALE_ROWS)).astype(np.int64))
        logits = self.logits[rows].astype(np.float64)
        if logits.max() > FINE:  # not a logarithm of a probability, and the exponential may overflow
            return False
        total = np.exp(logits).sum(axis=1)
        return bool((np.abs(total - 1) <= FINE).all())

    @cached_property
    def predictions(self) -> Labels:
        """Predicted class of each row, (N,) int64; outputs of a run that stored none take the argmax on first use."""
        result = np.empty(len(self), np.int64)
        for rows in row_slices(len(self), self.logits.itemsize * self.classes):
            self.logits[rows].argmax(axis=1, out=result[rows])
            release(self.logits)
        return _read_only(result)

    @cached_property
    def ids(self) -> AnyArray | None:
        """Identifiers of the rows, int64 or str, or None."""
        return _decoded(vars(self)["_ids"], "ids")

    @cached_property
    def groups(self) -> AnyArray | None:
        """Group of each row, int64 or str, or None: rows of one group depend on each other, different groups do not."""
        return _decoded(vars(self)["_groups"], "groups")

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return int(self.logits.shape[1])

    @property
    def is_id(self) -> Mask:
        """Boolean mask (N,), True where the input belongs to a class of the model; needs labels."""
        return np.not_equal(self._labels("is_id"), -1)

    @property
    def correct(self) -> Mask:
        """Boolean mask (N,), True where the prediction equals the label and False on every OOD row; needs labels."""
        # predictions are never -1, so OOD rows are False without a special case
        return np.equal(self._labels("correct"), self.predictions)

    def _labels(self, asker: str) -> Labels:
        if self.labels is None:
            raise InvalidInput(f"{asker} needs labels, and these outputs have none; pass labels= to Outputs(...)")
        return self.labels

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, index: Any) -> Outputs:
        rows = _rows(index, len(self))
        return assemble({k: a[rows] for k, a in self.flat().items()}, self.head, self.class_names, self.pass_count)

    def __iter__(self) -> Iterator[Outputs]:
        return (self[row] for row in range(len(self)))

    def blocks(self, size: int = 4096) -> Iterator[Outputs]:
        """Iterate over the rows in blocks of ``size``; of memory-mapped arrays one block is in memory at a time.

        Parameters
        ----------
        size : int, default=4096
            Rows per block; the last block may be shorter.

        Yields
        ------
        Outputs
            The next rows, with all fields.

        Raises
        ------
        InvalidInput
            If ``size`` is below 1.

        Examples
        --------
        >>> [len(block) for block in Outputs(np.eye(5)).blocks(2)]
        [2, 2, 1]
        """
        step = whole(size, "size", 1)
        for start in range(0, len(self), step):
            yield self[start : start + step]
            for array in self.flat().values():
                release(array)

    def replace(self, **changes: Any) -> Outputs:
        """Copy the outputs with some fields changed; predictions stay as they are unless they are passed.

        Only new fields are validated.

        Parameters
        ----------
        **changes
            New values by field name, as in the constructor; None drops a field. New logits must keep their shape.

        Returns
        -------
        Outputs
            The changed copy; unchanged arrays are shared.

        Raises
        ------
        InvalidInput
            If a name is not a field of :class:`Outputs`, or a new value does not fit the other fields.

        Examples
        --------
        >>> sharper = Outputs([[1.0, 0.0]]).replace(logits=[[0.0, 9.0]])
        >>> sharper.predictions  # a transform never changes the prediction that is judged
        array([0])
        """
        for name in changes:
            choice(name, "replace", FIELDS)
        if "logits" in changes:
            _ = self.predictions  # must be those of the old logits
        known = {name: value for name, value in vars(self).items() if name not in NAMES}
        return trusted(Outputs, _admit(changes, known))

    def derived(self, changes: Mapping[str, Any]) -> Outputs:
        """Copy the outputs with fields that a step computed from them, checking only names and rows.

        Unlike :meth:`replace`, values are trusted: nothing is scanned.

        Parameters
        ----------
        changes : mapping
            New values by field name; ``logits`` and ``features`` must be two-dimensional and keep the number of rows,
            ``logits`` also that of classes.

        Returns
        -------
        Outputs
            The changed copy, with the predictions of the old logits.

        Raises
        ------
        InvalidInput
            If a name is not a field of :class:`Outputs`, ``logits`` or ``features`` changed their number of rows or
            are not two-dimensional, or ``logits`` changed the number of classes.

        Examples
        --------
        >>> Outputs([[1.0, 0.0]]).derived({"logits": np.array([[0.0, 9.0]])}).predictions
        array([0])
        """
        _ = self.predictions  # stay those of the old logits
        fields = {name: value for name, value in vars(self).items() if name not in NAMES}
        for name, value in changes.items():
            choice(name, "a step's changes", FIELDS)
            fields[name] = value
            if value is not None and name in ("logits", "features"):
                fields[name] = _read_only(np.asarray(value))
                if np.ndim(value) != 2 or len(value) != len(self):
                    raise InvalidInput(
                        f"a step must keep the {len(self)} rows of {name}, and made shape {np.shape(value)} of them"
                    )
                if name == "logits" and fields[name].shape[1] != self.classes:
                    raise InvalidInput(
                        f"a step must keep the {self.classes} classes of logits, and made shape {np.shape(value)}"
                    )
        return trusted(Outputs, fields)

    def averaged(self) -> Outputs:
        """Copy the outputs with the argmax of the mean probabilities of their passes as predictions.

        Returns
        -------
        Outputs
            The same arrays, judged by the prediction of the ensemble or of the averaged passes.

        Raises
        ------
        InvalidInput
            If these outputs have no passes.

        Examples
        --------
        >>> outputs = Outputs([[1.0, 0.0]], passes=[[[1.0, 0.0]], [[0.0, 4.0]]])
        >>> outputs.predictions, outputs.averaged().predictions
        (array([0]), array([1]))
        """
        if self.passes is None:
            raise InvalidInput(
                "averaged() needs passes, and these outputs have none; pass passes= to Outputs(...): "
                "(M, N, C) logits of several passes, or Passes"
            )
        means = self.passes if isinstance(self.passes, Passes) else Passes.from_logits(self.passes)
        return self.replace(predictions=means.mean_prob.argmax(axis=1))

    @classmethod
    def concat(cls, parts: Iterable[Outputs]) -> Outputs:
        """Stack outputs of one model row-wise; all parts must hold the same fields.

        Parameters
        ----------
        parts : iterable of Outputs
            At least one, with equal fields, widths, head, class names and number of averaged passes.

        Returns
        -------
        Outputs
            All rows, in the order of the parts.

        Raises
        ------
        InvalidInput
            If there is no part, or the parts differ in more than their rows.

        Examples
        --------
        >>> len(Outputs.concat([Outputs(np.eye(3)), Outputs(np.eye(3))]))
        6
        """
        parts = list(parts)
        if not parts:
            raise InvalidInput("concat needs at least one Outputs, got none")
        for i, part in enumerate(parts):
            if not isinstance(part, Outputs):
                raise InvalidInput(f"concat takes Outputs, got {type(part).__name__} as part {i}")
            _ = part.predictions  # flat() holds them once they are known
        _check_alike(parts)
        flats = [part.flat() for part in parts]
        arrays = {key: np.concatenate([flat[key] for flat in flats]) for key in flats[0]}
        first = parts[0]
        return assemble(arrays, first.head, first.class_names, first.pass_count)

    def to_npz(self, path: str | os.PathLike[str]) -> None:
        """Write all fields to one npz file, atomically and without pickle.

        Parameters
        ----------
        path : str or path-like
            The file to write; an existing file is replaced only once the new one is complete.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Outputs(np.eye(2), labels=[0, 1]).to_npz(f"{folder}/test.npz")
        ...     Outputs.from_npz(f"{folder}/test.npz")
        Outputs(2 rows, 2 classes; labels)
        """
        arrays = self.flat()
        for name in NAMES:
            if name in arrays:
                arrays[name] = np.asarray(getattr(self, name))
        if "passes" in arrays:
            arrays["passes"] = np.moveaxis(arrays["passes"], 0, 1)
        if self.head is not None:
            arrays |= {"head.weight": self.head.weight, "head.bias": self.head.bias}
        if self.class_names is not None:
            arrays["class_names"] = np.array(self.class_names)
        if self.pass_count is not None:
            arrays["passes.count"] = np.array(self.pass_count)
        with replacing(Path(path)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # newer stubs take a key for allow_pickle

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str]) -> Outputs:
        """Read an npz file with at least ``logits``; the other keys are those that :meth:`to_npz` writes.

        A file may hold ``probs`` instead of ``logits``: :meth:`from_probabilities` says what is lost.

        Parameters
        ----------
        path : str or path-like
            The file to read.

        Returns
        -------
        Outputs
            The arrays of the file, validated.

        Raises
        ------
        InvalidInput
            If the file is not an npz file of plain arrays, has unknown keys, or its arrays do not fit together.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/test.npz", logits=np.eye(2))
        ...     Outputs.from_npz(f"{folder}/test.npz")
        Outputs(2 rows, 2 classes)
        """
        place = Path(path)
        fields = _fields_of_npz(load_npz(place), place)
        try:
            if "probs" in fields:
                return cls.from_probabilities(**fields)
            return cls(**fields)
        except InvalidInput as error:
            raise InvalidInput(f"{place}: {error}") from error

    @property
    def pass_count(self) -> int | None:
        """Number of passes behind stored averages; None without them."""
        return self.passes.count if isinstance(self.passes, Passes) else None

    def flat(self) -> dict[str, AnyArray]:
        """Return every array under one name, with rows first: the form that is indexed, stacked and stored.

        Returns
        -------
        dict of str to ndarray
            Arrays by name: ``logits``, ``layers/NAME``, ``learned/NAME``, ``passes`` as (N, M, C) or
            ``passes.mean_prob`` and so on. Absent fields are left out.

        Notes
        -----
        Predictions are left out until something has asked for them. String ids and groups are UTF-8 bytes.

        Examples
        --------
        >>> list(Outputs(np.eye(2), labels=[0, 1]).flat())
        ['logits', 'labels', 'predictions']
        """
        named: dict[str, AnyArray | None] = {
            "logits": self.logits,
            "labels": self.labels,
            "predictions": vars(self).get("predictions"),
            "features": self.features,
            **{f"layers/{key}": array for key, array in self.layers.items()},
            **{f"learned/{key}": array for key, array in self.learned.items()},
            "ids": vars(self)["_ids"],
            "groups": vars(self)["_groups"],
        }
        if isinstance(self.passes, Passes):
            named |= {f"passes.{name}": getattr(self.passes, name) for name in PASS_ARRAYS}
        elif self.passes is not None:
            named["passes"] = np.moveaxis(self.passes, 1, 0)
        return {name: array for name, array in named.items() if array is not None}

    def __repr__(self) -> str:
        extras = [n for n in ("labels", "features", "head", "passes") if vars(self).get(n) is not None]
        extras += [n for n in NAMES if vars(self)[f"_{n}"] is not None]
        extras += [*self.layers, *self.learned]
        what = f"; {', '.join(extras)}" if extras else ""
        return f"Outputs({len(self)} rows, {self.classes} classes{what})"

    def __reduce__(self) -> tuple[Any, ...]:
        # read-only mappings cannot be pickled; the flat form can, and processes exchange outputs
        return assemble, (self.flat(), self.head, self.class_names, self.pass_count)


def assemble(
    arrays: Mapping[str, AnyArray],
    head: Head | None,
    class_names: tuple[str, ...] | None,
    pass_count: int | None,
) -> Outputs:
    """Build outputs from arrays in :meth:`Outputs.flat` form that were validated before; nothing is scanned.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays by name, with rows first.
    head : Head or None
        The last linear layer.
    class_names : tuple of str or None
        Names of the classes.
    pass_count : int or None
        Number of passes behind the arrays ``passes.*``; None if there are none.

    Returns
    -------
    Outputs
        The outputs, with read-only views of the arrays.

    Examples
    --------
    >>> assemble({"logits": np.eye(2)}, None, None, None)
    Outputs(2 rows, 2 classes)
    """
    arrays = {name: _read_only(array) for name, array in arrays.items()}

    def group(name: str) -> Mapping[str, AnyArray]:
        start = len(name) + 1
        return MappingProxyType({key[start:]: a for key, a in arrays.items() if key.startswith(name + "/")})

    passes: AnyArray | Passes | None = None
    if pass_count is not None:
        passes = trusted(Passes, {n: arrays[f"passes.{n}"] for n in PASS_ARRAYS} | {"count": pass_count})
    elif "passes" in arrays:
        passes = np.moveaxis(arrays["passes"], 0, 1)
    fields: dict[str, Any] = {name: arrays.get(name) for name in ("logits", "labels", "features")}
    fields |= {"layers": group("layers"), "learned": group("learned"), "passes": passes, "head": head}
    fields |= {"_ids": arrays.get("ids"), "_groups": arrays.get("groups"), "class_names": class_names}
    if "predictions" in arrays:
        fields["predictions"] = arrays["predictions"]
    return trusted(Outputs, fields)


def check_rows(name: str, value: ArrayLike, *, classes: int | None = None, label: str | None = None) -> AnyArray:
    """Validate the content of one array of :meth:`Outputs.flat`.

    Parameters
    ----------
    name : str
        Name of the array, which decides dtype and number of dimensions.
    value : array-like
        The array, with rows first.
    classes : int, optional
        Number of classes; labels and predictions must lie below it.
    label : str, optional
        How messages call the array; by default ``name``.

    Returns
    -------
    ndarray
        A read-only view: int64 for labels and predictions, int64 or bytes for ids and groups, otherwise floats.

    Raises
    ------
    InvalidInput
        If shape or dtype are wrong, or a value is not allowed: not finite (NaN for ``learned/NAME``), or not a class.

    Examples
    --------
    >>> check_rows("labels", [0, 1, -1], classes=2)
    array([ 0,  1, -1])
    """
    label = name if label is None else label
    if name == "labels":
        return _read_only(class_labels(value, label, classes=classes))
    if name == "predictions":
        return _read_only(class_labels(value, label, classes=classes, ood=False))
    if name in NAMES:
        return _read_only(_identifiers(value, label))
    if name.startswith("learned/"):
        array = _floats(value, label, 1)
        if np.isnan(array).any():  # infinite confidences are legal
            row = int(np.isnan(array).argmax())
            raise InvalidInput(f"{label} must not be NaN, got NaN in row {row}; mend the confidence that made it")
        return _read_only(array)
    array = _floats(value, label, {"passes": 3, "passes.mean_entropy": 1}.get(name, 2))
    finite(array, label)
    return _read_only(array)


def _probabilities(value: ArrayLike) -> Floats:
    """Check that every row is a distribution over classes; half precision becomes float32."""
    tolerance = COARSE if is_half(value) else FINE
    array = plain(value, "probs")
    one_number = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if one_number and array.size:
        raise InvalidInput(
            f"probs must be (N, C), one column per class, got shape {array.shape}; "
            "for two classes pass np.column_stack([1 - p, p])"
        )
    probs = _floats(array, "probs", 2)
    if probs.dtype.itemsize < 4:
        probs = probs.astype(np.float32)
    finite(probs, "probs")
    low, high = float(probs.min()), float(probs.max())
    if low < 0 or high > 1 + tolerance:
        raise InvalidInput(f"probs must be in [0, 1], got values from {low:g} to {high:g}; pass logits as logits")
    total = probs.sum(axis=1, dtype=np.float64)
    off = np.abs(total - 1)
    if off.max() > tolerance:
        row = int((off > tolerance).argmax())
        raise InvalidInput(
            f"every row of probs must sum to 1, got {total[row]:g} in row {row}; give every class a column, "
            "or pass logits as logits"
        )
    return probs


def check_head(
    logits: AnyArray, features: AnyArray, head: Head, *, half: bool = False, where: str = "features"
) -> None:
    """Raise unless ``features @ head.weight.T + head.bias`` gives the logits on 256 evenly spaced rows.

    Parameters
    ----------
    logits : ndarray of shape (N, C)
        Logits of the model.
    features : ndarray of shape (N, D)
        Input of the last linear layer.
    head : Head
        The last linear layer.
    half : bool, default=False
        Use the tolerance of half precision (1e-2 instead of 1e-3, relative to ``max(1, max|logit|)``) even where the
        dtypes do not show it, such as for bfloat16 stored as float32.
    where : str, default="features"
        How the message calls the features.

    Raises
    ------
    InvalidInput
        If a logit differs by more than the tolerance; the message names the row.

    Examples
    --------
    >>> check_head(np.eye(2), np.eye(2), Head(np.eye(2)))
    """
    tolerance = COARSE if half or is_half(logits) or is_half(features) or is_half(head) else FINE
    gap, row = _head_gap(logits, features, head)
    if gap > tolerance:
        raise InvalidInput(
            f"{where} @ head.weight.T + head.bias must equal logits to {tolerance:g} of max(1, max|logit|), "
            f"got a relative difference of {gap:.3g} in row {row}; features must be the exact input of the "
            "model's last linear layer (after pooling, activation and normalisation, dropout off), for the "
            "same rows in the same order, and head its weight and bias; pass head=None if there is none"
        )


def check_head_shape(head: Head, classes: int, columns: int | None) -> None:
    """Raise unless the head gives ``classes`` logits from features of ``columns`` columns.

    Parameters
    ----------
    head : Head
        The last linear layer.
    classes : int
        Number of classes.
    columns : int or None
        Number of features; None if it is not known.

    Raises
    ------
    InvalidInput
        If the shape of the weight does not fit; the message says if it looks transposed.

    Examples
    --------
    >>> check_head_shape(Head(np.zeros((10, 512))), 10, 512)
    """
    shape = head.weight.shape
    hint = ""
    if shape != (classes, columns) and shape == (columns, classes):
        hint = "; it looks transposed, pass Head(weight.T, bias)"
    if shape[0] != classes:
        raise InvalidInput(
            f"head.weight must be (C, D), one row per class, got shape {shape} for {classes} classes{hint}"
        )
    if columns is not None and shape[1] != columns:
        raise InvalidInput(
            f"head.weight must be (C, D), one column per feature, got shape {shape} "
            f"but features has {columns} columns{hint}"
        )


def row_slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Split rows into slices of about ``BLOCK_BYTES`` (16 MiB).

    Parameters
    ----------
    rows : int
        Number of rows.
    row_bytes : int
        Bytes of one row.

    Returns
    -------
    iterator of slice
        Slices in order, of at least one row each.

    Examples
    --------
    >>> list(row_slices(5, BLOCK_BYTES // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def release(array: AnyArray) -> None:
    """Return the pages of a read-only memory map to the operating system; they are read again when needed.

    The system would do so under memory pressure. Until then a pass over a 10 GB file looks like 10 GB of memory.

    Parameters
    ----------
    array : ndarray
        Any array; nothing happens unless it is a view of a memory map opened with mode ``"r"``, where ``madvise``
        exists.
    """
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    # any other mode may hold changes that exist in memory alone
    if isinstance(owner.base, mmap.mmap) and getattr(owner, "mode", None) == "r" and hasattr(mmap, "MADV_DONTNEED"):
        owner.base.madvise(mmap.MADV_DONTNEED)


def trusted(kind: type[Made], fields: Mapping[str, Any]) -> Made:
    """Create an instance of a frozen class from fields that were validated before, without calling its constructor.

    Parameters
    ----------
    kind : type
        The class.
    fields : mapping of str to object
        Values by attribute name.

    Returns
    -------
    object
        An instance of ``kind``.
    """
    made = object.__new__(kind)
    vars(made).update(fields)
    return made


def _read_only(array: AnyArray) -> AnyArray:
    view = array.view()
    view.flags.writeable = False
    return view


def is_half(value: Any) -> bool:
    """Check whether a value was passed in half precision.

    Validation turns bfloat16 into float32, so this must be asked of the original value.

    Parameters
    ----------
    value : object
        An array, tensor or :class:`Head`.

    Returns
    -------
    bool
        True for float16 and bfloat16, and for a head that was built from them.

    Examples
    --------
    >>> is_half(np.zeros(2, np.float16)), is_half(np.zeros(2))
    (True, False)
    """
    return getattr(value, "_half", False) or str(getattr(value, "dtype", "")).endswith("float16")


def _floats(value: ArrayLike, name: str, ndim: int) -> Floats:
    """Convert to floats in their own precision; long doubles become float64, and bytes are in native order."""
    array = floats(value, name, ndim=ndim)
    kind = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return array.astype(kind, copy=False)


def _decoded(stored: AnyArray | None, name: str) -> AnyArray | None:
    """Decode stored ids or groups to int64 or str."""
    if stored is None or stored.dtype.kind != "S":
        return stored
    try:
        return _read_only(np.char.decode(stored, "utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} must be UTF-8 text ({error}); the file that holds them is damaged") from error


def _identifiers(value: ArrayLike, name: str) -> AnyArray:
    """Convert integers to int64, and strings to UTF-8 bytes, so that files hold them without Python objects."""
    array = np.asarray(value) if not hasattr(value, "detach") else plain(value, name)
    if array.dtype.kind == "O" and all(isinstance(x, str) for x in array.flat):
        array = array.astype(str)
    if array.dtype.kind == "T":  # NumPy's variable-width strings
        array = array.astype(str)
    dims(array, name, 1)
    if array.dtype.kind not in "iuU":
        odd = next((x for x in array if not isinstance(x, str)), None)
        raise InvalidInput(f"{name} must be integers or strings, all of one kind, got {odd!r} (dtype {array.dtype})")
    if array.dtype.kind != "U":
        if (array >= 2**63).any():
            raise InvalidInput(f"{name} must be integers below 2^63, or strings, got {array.max()}")
        return array.astype(np.int64)
    try:
        return np.char.encode(array, "utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} must be text that UTF-8 can hold ({error.reason})") from error


def _admit(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the content of the passed fields, then that all fields fit; ``known`` fields were validated before."""
    admitted = dict(known)
    if "logits" in given:
        admitted["logits"] = check_rows("logits", given["logits"])
    logits: AnyArray = admitted["logits"]
    if known and logits.shape != known["logits"].shape:
        raise InvalidInput(
            f"logits must keep the shape {known['logits'].shape} of these outputs, got {logits.shape}; "
            "index the outputs for fewer rows, build new Outputs for other classes"
        )
    for name in given:
        if name != "logits":
            admitted[f"_{name}" if name in NAMES else name] = _check_field(name, given[name], logits.shape[1])
    if admitted.get("predictions") is None:
        admitted.pop("predictions", None)  # the cached property takes the argmax
    made = trusted(Outputs, admitted)
    _check_fit(made)
    if made.head is not None and made.features is not None and {"logits", "features", "head"} & set(given):
        half = any(is_half(given.get(name)) for name in ("logits", "features"))
        check_head(made.logits, made.features, made.head, half=half or _law_was_coarse(known))
    return admitted


def _check_field(name: str, value: Any, classes: int) -> Any:
    if name in ("layers", "learned"):
        return _check_group(name, {} if value is None else value, classes)
    if value is None:
        return None
    if name == "head":
        if not isinstance(value, Head):
            raise InvalidInput(f"head must be a Head, got {type(value).__name__}; pass Head(weight, bias)")
        return value
    if name == "passes":
        if isinstance(value, Passes):
            return value
        array = plain(value, name)
        dims(array, name, 3)
        return np.moveaxis(check_rows(name, np.moveaxis(array, 1, 0)), 0, 1)
    if name == "class_names":
        return _check_class_names(value, classes)
    return check_rows(name, value, classes=classes)


def _check_group(name: str, value: Any, classes: int) -> Mapping[str, AnyArray]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a dictionary of arrays by name, got {type(value).__name__}")
    for key in value:
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"{name} must have non-empty strings as keys, got {key!r}")
    return MappingProxyType({key: check_rows(f"{name}/{key}", a, classes=classes) for key, a in value.items()})


def _check_class_names(value: Any, classes: int) -> tuple[str, ...]:
    names = () if isinstance(value, str) else tuple(value)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"class_names must be a list of {classes} strings, got {value!r}")
    if len(names) != classes:
        raise InvalidInput(f"class_names has {len(names)} names but logits has {classes} classes (columns)")
    return tuple(str(name) for name in names)


def _check_fit(outputs: Outputs) -> None:
    same_rows(**outputs.flat())
    classes, passes = outputs.classes, outputs.passes
    if passes is not None:
        columns = (passes.mean_prob if isinstance(passes, Passes) else passes).shape[-1]
        if columns != classes:
            raise InvalidInput(f"passes has {columns} classes but logits has {classes}")
    if outputs.head is not None:
        check_head_shape(outputs.head, classes, None if outputs.features is None else outputs.features.shape[1])


def _head_gap(logits: AnyArray, features: AnyArray, head: Head) -> tuple[float, int]:
    """Return the largest difference relative to max(1, max|logit|) on the checked rows, and its row."""
    rows = np.unique(np.linspace(0, len(logits) - 1, min(len(logits), LAW_ROWS)).astype(np.int64))
    said = logits[rows].astype(np.float64)
    apart = np.abs(head.logits(features[rows]) - said).max(axis=1)
    worst = int(apart.argmax())
    return float(apart[worst] / max(1.0, np.abs(said).max())), int(rows[worst])


def _law_was_coarse(known: Mapping[str, Any]) -> bool:
    """Check whether outputs were validated with the tolerance of half precision.

    What was passed as bfloat16 is float32 by now, here or in a Run, so the arrays themselves have to show it.
    """
    if known.get("head") is None or known.get("features") is None:
        return False
    return _head_gap(known["logits"], known["features"], known["head"])[0] > FINE


def _rows(index: Any, rows: int) -> slice | AnyArray:
    """Turn a row number, slice, boolean mask or integer array into an index for NumPy that is never empty."""
    if isinstance(index, slice):
        if not len(range(*index.indices(rows))):
            raise InvalidInput(f"the index selects none of the {rows} rows; outputs have at least one")
        return index
    chosen = np.asarray(index) if not hasattr(index, "detach") else plain(index, "index")
    if chosen.ndim == 0 and chosen.dtype.kind in "iu":
        chosen = chosen[None]
    if chosen.size == 0 or (chosen.dtype.kind == "b" and not chosen.any()):
        raise InvalidInput(f"the index selects none of the {rows} rows; outputs have at least one")
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise InvalidInput(
            f"index must be a row number, slice, boolean mask or array of row numbers, got {index!r:.80}"
        )
    if chosen.dtype.kind == "b":
        if len(chosen) != rows:
            raise InvalidInput(f"the boolean index has {len(chosen)} values but there are {rows} rows")
    elif chosen.min() < -rows or chosen.max() >= rows:
        bad = chosen.max() if chosen.max() >= rows else chosen.min()
        raise InvalidInput(f"row {bad} is out of range; there are {rows} rows")
    return chosen


def _check_alike(parts: Sequence[Outputs]) -> None:
    """Raise unless all parts hold the same fields of the same widths, and come from the same model."""
    first, flats = (
        parts[0],
        [part.flat() | ({} if part.head is None else {"head": part.head}) for part in parts],
    )
    for key in dict.fromkeys(key for flat in flats for key in flat):
        having = [i for i, flat in enumerate(flats) if key in flat]
        if len(having) < len(parts):
            lacking = [i for i in range(len(parts)) if i not in having]
            raise InvalidInput(
                f"concat: {key} is in part {having[0]} but not in part {lacking[0]}; "
                "give it to every part, or drop it with .replace(...)"
            )
    for i, part in enumerate(parts[1:], 1):
        for key, array in part.flat().items():
            other = first.flat()[key]
            here, there = array.shape[1:], other.shape[1:]
            if here != there:
                raise InvalidInput(f"concat: rows of {key} have shape {here} in part {i} but {there} in part 0")
            if array.dtype.kind != other.dtype.kind:
                raise InvalidInput(f"concat: {key} holds integers in one of parts 0 and {i}, strings in the other")
        if part.head is not None and first.head is not None and not part.head.same_as(first.head):
            raise InvalidInput(f"concat: part {i} has another head than part 0; parts must come from one model")
        if part.class_names != first.class_names:
            raise InvalidInput(f"concat: part {i} has other class_names than part 0; parts must come from one model")
        if part.pass_count != first.pass_count:
            raise InvalidInput(f"concat: part {i} averages {part.pass_count} passes, part 0 {first.pass_count}")


def load_npz(path: Path) -> dict[str, AnyArray]:
    """Read the arrays of an npz file by key.

    Parameters
    ----------
    path : Path
        The file to read.

    Returns
    -------
    dict of str to ndarray
        Arrays by key.

    Raises
    ------
    InvalidInput
        If the file is damaged, not an npz file, or holds Python objects.
    OSError
        If the file is missing or cannot be opened.
    """
    return read_npz(path)


def _fields_of_npz(arrays: dict[str, AnyArray], path: Path) -> dict[str, Any]:
    """Convert flat npz keys into arguments of :class:`Outputs`."""
    if "logits" not in arrays and "probs" not in arrays:
        raise InvalidInput(f"{path} must hold the key logits, or probs, got {', '.join(arrays) or 'no keys'}")
    if "logits" in arrays and "probs" in arrays:
        raise InvalidInput(f"{path} holds both logits and probs; leave out probs, which say less")
    simple = [name for name in (*ARRAYS, "probs", "class_names") if name in arrays]
    fields: dict[str, Any] = {name: arrays.pop(name) for name in simple}
    for group in ("layers", "learned"):
        keys = [key for key in arrays if key.startswith(group + "/")]
        fields[group] = {key.removeprefix(group + "/"): arrays.pop(key) for key in keys}
    if "head.weight" in arrays:
        fields["head"] = Head(arrays.pop("head.weight"), arrays.pop("head.bias", None))
    means: dict[str, Any] = {name: arrays.pop(f"passes.{name}", None) for name in (*PASS_ARRAYS, "count")}
    if any(value is not None for value in means.values()):
        missing = [f"passes.{name}" for name, value in means.items() if value is None]
        if missing or "passes" in fields:
            what = f"lacks {', '.join(missing)}" if missing else "also holds passes"
            raise InvalidInput(f"{path} holds means of passes but {what}; give all of the means, or passes alone")
        fields["passes"] = Passes(**{**means, "count": int(means["count"])})
    if arrays:
        raise InvalidInput(f"{path} holds unknown keys {', '.join(arrays)}; known are {', '.join(NPZ_KEYS)}")
    return fields
