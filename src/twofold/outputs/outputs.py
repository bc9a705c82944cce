"""What one model computed for one data set: logits, and whatever else was recorded beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from twofold._checks import (
    AnyArray,
    Array,
    ArrayLike,
    Labels,
    Mask,
    choice,
    dims,
    finite,
    number,
    plain,
    same_rows,
    whole,
)
from twofold._files import replacing
from twofold._math import Floats
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput
from twofold.outputs._fields import (
    FIELDS,
    FINE,
    NAMES,
    PASS_ARRAYS,
    FieldValues,
    check_floats,
    check_probabilities,
    check_rows,
    decode_names,
    is_half,
)
from twofold.outputs._memory import (
    build_unchecked,
    check_index,
    evenly_spaced_rows,
    read_only,
    release,
    row_slices,
)
from twofold.outputs.head import Head, check_head, check_head_shape, measure_head_gap
from twofold.outputs.npz import load_npz, parse_npz
from twofold.outputs.passes import Passes

SCALE_ROWS = 16  # rows on which logits are tested for being logarithms of probabilities


def _unit_embeddings(rows: Floats, name: str) -> Array:
    """Scale embeddings to length 1; raise where one is not finite or all zeros."""
    finite(rows, name)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if not lengths.all():
        raise InvalidInput(f"{name} is all zeros in row {int(lengths[:, 0].argmin())}, which has no direction")
    return np.asarray(rows / lengths, dtype=np.float64)


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
        fields = {
            "logits": logits,
            "labels": labels,
            "features": features,
            "predictions": predictions,
            "ids": ids,
            "groups": groups,
            "passes": passes,
            "layers": layers,
            "learned": learned,
            "head": head,
            "class_names": class_names,
        }
        vars(self).update(_validate(fields, {}))
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
        checked = check_probabilities(probs)
        floor = np.finfo(checked.dtype).tiny
        if fields.get("predictions") is None:
            fields["predictions"] = checked.argmax(axis=1)
        return cls(np.log(np.maximum(checked, floor)), labels, features, **fields)

    @classmethod
    def from_embeddings(
        cls,
        images: ArrayLike,
        class_texts: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        temperature: float = 0.01,
        **fields: Any,
    ) -> Outputs:
        r"""Build outputs of a zero-shot classifier, such as CLIP, from image and text embeddings.

        .. math:: z_k = \cos(h, t_k) / \tau

        Features are the image embeddings at length 1, and the head holds the text embeddings at length 1 divided by the
        temperature, so every score of features and head applies; ``mcm`` and ``neglabel`` are made for such outputs.

        Parameters
        ----------
        images : array-like of shape (N, D)
            Image embeddings, of any length.
        class_texts : array-like of shape (C, D) or (C, P, D)
            Text embeddings of the classes, of any length. With several prompts for each class their directions are
            averaged.
        labels : array-like of shape (N,), optional
            True classes, -1 for inputs of no class of the model.
        temperature : float, default=0.01
            Temperature :math:`\tau` of the logits, above 0: 1 over the factor that the network was trained with, 100
            for CLIP.
        **fields
            Other fields of :class:`Outputs`, but no ``features`` or ``head``.

        Returns
        -------
        Outputs
            Logits, features and head.

        Raises
        ------
        InvalidInput
            If the embeddings differ in width or are not finite, an embedding is all zeros, or the temperature is not
            above 0.

        Examples
        --------
        >>> outputs = Outputs.from_embeddings([[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], temperature=0.1)
        >>> outputs.logits.round(6)
        array([[ 6.,  8.],
               [ 0., 10.]])
        """
        tau = number(temperature, "temperature", 0.0, np.inf, open_low=True, open_high=True)
        rows = _unit_embeddings(check_floats(images, "images", 2), "images")
        texts = plain(class_texts, "class_texts")
        if texts.ndim == 3:
            width = texts.shape[2]
            prompts = _unit_embeddings(check_floats(texts.reshape(-1, width), "class_texts", 2), "class_texts")
            texts = prompts.reshape(*texts.shape).mean(axis=1)
        classes = _unit_embeddings(check_floats(texts, "class_texts", 2), "class_texts")
        if rows.shape[1] != classes.shape[1]:
            raise InvalidInput(
                f"images have {rows.shape[1]} columns, and class_texts {classes.shape[1]}; use one network for both"
            )
        head = Head(classes / tau)
        return cls(head.logits(rows), labels, rows, head, **fields)

    @property
    def is_scale_lost(self) -> bool:
        """Whether the logits are logarithms of probabilities, whose scale says nothing.

        Returns
        -------
        bool
            True if the exponentials of the logits sum to 1 on 16 evenly spaced rows, within 1e-3.

        Examples
        --------
        >>> Outputs(np.log([[0.9, 0.1]])).is_scale_lost, Outputs([[2.0, 0.0]]).is_scale_lost
        (True, False)
        """
        rows = evenly_spaced_rows(len(self), SCALE_ROWS)
        logits = self.logits[rows].astype(np.float64)
        if logits.max() > FINE:  # not a logarithm of a probability, and the exponential may overflow
            return False
        total = np.exp(logits).sum(axis=1)
        return bool((np.abs(total - 1) <= FINE).all())

    @cached_property
    def predictions(self) -> Labels:
        """Predicted class of each row.

        Returns
        -------
        ndarray of shape (N,)
            Classes, int64: those that were passed or stored, else the argmax of the logits.

        Notes
        -----
        Outputs of a run that stored none take the argmax on first use. Transforms and :meth:`replace` keep them.
        """
        result = np.empty(len(self), np.int64)
        for rows in row_slices(len(self), self.logits.itemsize * self.classes):
            self.logits[rows].argmax(axis=1, out=result[rows])
            release(self.logits)
        return read_only(result)

    @cached_property
    def ids(self) -> AnyArray | None:
        """Identifiers of the rows, int64 or str, or None."""
        return decode_names(vars(self)["_ids"], "ids")

    @cached_property
    def groups(self) -> AnyArray | None:
        """Group of each row, int64 or str, or None: rows of one group depend on each other, different groups do not."""
        return decode_names(vars(self)["_groups"], "groups")

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return int(self.logits.shape[1])

    @property
    def is_id(self) -> Mask:
        """Mask of the rows whose input belongs to a class of the model.

        Returns
        -------
        ndarray of shape (N,)
            True where the label is not -1.

        Raises
        ------
        InvalidInput
            If these outputs have no labels.

        Examples
        --------
        >>> Outputs(np.eye(2), labels=[0, -1]).is_id
        array([ True, False])
        """
        return np.not_equal(self._labels("is_id"), -1)

    @property
    def correct(self) -> Mask:
        """Mask of the rows whose prediction is the label.

        Returns
        -------
        ndarray of shape (N,)
            True where prediction and label are equal; False on every OOD row.

        Raises
        ------
        InvalidInput
            If these outputs have no labels.

        Examples
        --------
        >>> Outputs([[2.0, 0.0], [0.0, 1.0], [0.3, 0.2]], labels=[0, 0, -1]).correct
        array([ True, False, False])
        """
        # predictions are never -1, so OOD rows are False without a special case
        return np.equal(self._labels("correct"), self.predictions)

    def _labels(self, asker: str) -> Labels:
        if self.labels is None:
            raise InvalidInput(f"{asker} needs labels, and these outputs have none; pass labels= to Outputs(...)")
        return self.labels

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, index: object) -> Outputs:
        rows = check_index(index, len(self))
        arrays = {name: array[rows] for name, array in self.flat().items()}
        return assemble(arrays, self.head, self.class_names, self.pass_count)

    def __iter__(self) -> Iterator[Outputs]:
        for row in range(len(self)):
            yield self[row]

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
        return build_unchecked(Outputs, _validate(changes, self._stored_fields()))

    def _stored_fields(self) -> FieldValues:
        """Return the fields as they are stored, without what was computed from them on the way."""
        return {name: value for name, value in vars(self).items() if name not in NAMES}

    def derived(self, changes: Mapping[str, object]) -> Outputs:
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
        fields = self._stored_fields()
        for name, value in changes.items():
            choice(name, "a step's changes", FIELDS)
            fields[name] = value
            if value is not None and name in ("logits", "features"):
                fields[name] = self._check_derived(name, np.asarray(value))
        return build_unchecked(Outputs, fields)

    def _check_derived(self, name: str, array: AnyArray) -> AnyArray:
        """Raise unless logits or features of a step have the rows of these outputs, and logits their classes."""
        if array.ndim != 2 or len(array) != len(self):
            raise InvalidInput(f"a step must keep the {len(self)} rows of {name}, and made shape {array.shape} of them")
        if name == "logits" and array.shape[1] != self.classes:
            raise InvalidInput(f"a step must keep the {self.classes} classes of logits, and made shape {array.shape}")
        return read_only(array)

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
        means = self.passes
        if not isinstance(means, Passes):
            means = Passes.from_logits(means)
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
        _check_same_fields(parts)
        first = parts[0]
        for i, part in enumerate(parts[1:], 1):
            _check_same_model(part, first, i)
        flats = [part.flat() for part in parts]
        arrays = {}
        for key in flats[0]:
            arrays[key] = np.concatenate([flat[key] for flat in flats])
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
        fields = parse_npz(load_npz(place), place)
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
        Predictions are left out until they are first used. String ids and groups are UTF-8 bytes.

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
        }
        for key, layer in self.layers.items():
            named[f"layers/{key}"] = layer
        for key, confidence in self.learned.items():
            named[f"learned/{key}"] = confidence
        for name in NAMES:
            named[name] = vars(self)[f"_{name}"]
        if isinstance(self.passes, Passes):
            for name in PASS_ARRAYS:
                named[f"passes.{name}"] = getattr(self.passes, name)
        elif self.passes is not None:
            named["passes"] = np.moveaxis(self.passes, 1, 0)
        return {name: array for name, array in named.items() if array is not None}

    def __repr__(self) -> str:
        present = [name for name in ("labels", "features", "head", "passes") if vars(self)[name] is not None]
        present += [name for name in NAMES if vars(self)[f"_{name}"] is not None]
        present += [*self.layers, *self.learned]
        text = f"{len(self)} rows, {self.classes} classes"
        if present:
            text += f"; {', '.join(present)}"
        return f"Outputs({text})"

    def _repr_html_(self) -> str:
        rows = []
        for name, array in self.flat().items():
            rows.append((name, " x ".join(map(str, array.shape)), str(array.dtype)))
        facts: dict[str, object] = {"rows": len(self), "classes": self.classes}
        if self.labels is not None:
            facts["OOD rows"] = int((~self.is_id).sum())
        if self.head is not None:
            facts["head"] = repr(self.head)
        return card("Outputs", facts, NotebookTable(("array", "shape", "type"), rows))

    def __reduce__(self) -> tuple[object, ...]:
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
    views = {name: read_only(array) for name, array in arrays.items()}
    passes: AnyArray | Passes | None = None
    if pass_count is not None:
        means: dict[str, object] = {name: views[f"passes.{name}"] for name in PASS_ARRAYS}
        passes = build_unchecked(Passes, {**means, "count": pass_count})
    elif "passes" in views:
        passes = np.moveaxis(views["passes"], 0, 1)
    fields = {
        "logits": views["logits"],
        "labels": views.get("labels"),
        "features": views.get("features"),
        "layers": _select_group(views, "layers"),
        "learned": _select_group(views, "learned"),
        "passes": passes,
        "head": head,
        "_ids": views.get("ids"),
        "_groups": views.get("groups"),
        "class_names": class_names,
    }
    if "predictions" in views:
        fields["predictions"] = views["predictions"]
    return build_unchecked(Outputs, fields)


def _select_group(arrays: Mapping[str, AnyArray], group: str) -> Mapping[str, AnyArray]:
    """Select the arrays of one group, such as ``layers/NAME``, by their own names."""
    start = f"{group}/"
    selected = {}
    for key, array in arrays.items():
        if key.startswith(start):
            selected[key.removeprefix(start)] = array
    return MappingProxyType(selected)


def _validate(changes: FieldValues, known: FieldValues) -> FieldValues:
    """Validate the content of the changed fields, then that all fields fit; ``known`` fields were validated before."""
    fields = dict(known)
    if "logits" in changes:
        fields["logits"] = check_rows("logits", changes["logits"])
    logits: AnyArray = fields["logits"]
    if known and logits.shape != known["logits"].shape:
        raise InvalidInput(
            f"logits must keep the shape {known['logits'].shape} of these outputs, got {logits.shape}; "
            "index the outputs for fewer rows, build new Outputs for other classes"
        )
    for name, value in changes.items():
        if name in NAMES:
            fields[f"_{name}"] = _check_field(name, value, logits.shape[1])
        elif name != "logits":
            fields[name] = _check_field(name, value, logits.shape[1])
    if fields.get("predictions") is None:
        fields.pop("predictions", None)  # the cached property takes the argmax
    outputs = build_unchecked(Outputs, fields)
    _check_fit(outputs)
    is_law_touched = not changes.keys().isdisjoint({"logits", "features", "head"})
    if outputs.head is not None and outputs.features is not None and is_law_touched:
        half = is_half(changes.get("logits")) or is_half(changes.get("features")) or _was_checked_coarsely(known)
        check_head(outputs.logits, outputs.features, outputs.head, half=half)
    return fields


def _check_field(name: str, value: Any, classes: int) -> Any:
    if name in ("layers", "learned"):
        return _check_group(name, value, classes)
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


def _check_group(name: str, value: object, classes: int) -> Mapping[str, AnyArray]:
    if value is None:
        return MappingProxyType({})
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a dictionary of arrays by name, got {type(value).__name__}")
    for key in value:
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"{name} must have non-empty strings as keys, got {key!r}")
    checked = {}
    for key, array in value.items():
        checked[key] = check_rows(f"{name}/{key}", array, classes=classes)
    return MappingProxyType(checked)


def _check_class_names(value: object, classes: int) -> tuple[str, ...]:
    names: tuple[str, ...] = ()
    if isinstance(value, Iterable) and not isinstance(value, str):
        names = tuple(value)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"class_names must be a list of {classes} strings, got {value!r}")
    names = tuple(map(str, names))  # plain strings, also of those that NumPy makes
    if len(names) != classes:
        raise InvalidInput(f"class_names has {len(names)} names but logits has {classes} classes (columns)")
    return names


def _check_fit(outputs: Outputs) -> None:
    same_rows(**outputs.flat())
    passes = outputs.passes
    if isinstance(passes, Passes):
        passes = passes.mean_prob
    if passes is not None and passes.shape[-1] != outputs.classes:
        raise InvalidInput(f"passes has {passes.shape[-1]} classes but logits has {outputs.classes}")
    if outputs.head is not None:
        columns = None
        if outputs.features is not None:
            columns = outputs.features.shape[1]
        check_head_shape(outputs.head, outputs.classes, columns)


def _was_checked_coarsely(known: FieldValues) -> bool:
    """Check whether outputs were validated with the tolerance of half precision.

    What was passed as bfloat16 is float32 by now, here or in a Run, so the arrays themselves have to show it.
    """
    if known.get("head") is None or known.get("features") is None:
        return False
    gap, _ = measure_head_gap(known["logits"], known["features"], known["head"])
    return gap > FINE


def _check_same_fields(parts: Sequence[Outputs]) -> None:
    """Raise unless all parts hold the same fields."""
    fields = []
    for part in parts:
        own = set(part.flat())
        if part.head is not None:
            own.add("head")
        fields.append(own)
    for key in sorted(set.union(*fields)):
        has_key = [key in own for own in fields]
        if not all(has_key):
            raise InvalidInput(
                f"concat: {key} is in part {has_key.index(True)} but not in part {has_key.index(False)}; "
                "give it to every part, or drop it with .replace(...)"
            )


def _check_same_model(part: Outputs, first: Outputs, i: int) -> None:
    """Raise unless the ``i``-th part and the first have rows of the same shape, and come from the same model."""
    others = first.flat()
    for key, array in part.flat().items():
        here, there = array.shape[1:], others[key].shape[1:]
        if here != there:
            raise InvalidInput(f"concat: rows of {key} have shape {here} in part {i} but {there} in part 0")
        if array.dtype.kind != others[key].dtype.kind:
            raise InvalidInput(f"concat: {key} holds integers in one of parts 0 and {i}, strings in the other")
    if part.head is not None and first.head is not None and not part.head.same_as(first.head):
        raise InvalidInput(f"concat: part {i} has another head than part 0; parts must come from one model")
    if part.class_names != first.class_names:
        raise InvalidInput(f"concat: part {i} has other class_names than part 0; parts must come from one model")
    if part.pass_count != first.pass_count:
        raise InvalidInput(f"concat: part {i} averages {part.pass_count} passes, part 0 {first.pass_count}")
