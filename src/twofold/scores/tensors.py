"""The arrays of a step: collected for a file, checked when they are loaded, and put back.

A step declares learnt arrays with :func:`twofold.typing.state`, settings that are arrays with
:func:`twofold.typing.array_setting`, and the chains that it fits with :func:`twofold.typing.chain_state`. Arrays of the
i-th inner chain carry the prefix ``i.``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.scores.registry import StepInfo, dataclass_fields
from twofold.typing import Array, StateField, StepHooks

if TYPE_CHECKING:
    from twofold.scores.chain import Chain

T = TypeVar("T")
DTYPE_KINDS = {"float": "f", "integer": "iu", "bool": "b", "byte": "u"}  # NumPy's kinds for each kind of StateField


def is_array_like(value: object) -> bool:
    """Check whether the value of a setting is an array that a text cannot hold.

    Parameters
    ----------
    value : object
        Value of a setting.

    Returns
    -------
    bool
        False for None, for the ``...`` that stands for an array, and for the literals of a text.

    Examples
    --------
    >>> is_array_like(np.eye(2)), is_array_like(((1.0, 0.0),)), is_array_like("mean")
    (True, False, False)
    """
    return hasattr(value, "shape")


def check_array_setting(value: Any, declared: StateField, where: str) -> Array:
    """Copy an array among the settings to a read-only array in float64, and check its shape.

    Parameters
    ----------
    value : array-like
        A NumPy array or a tensor.
    declared : StateField
        Shapes that it may have.
    where : str
        Names of step and setting, for the error.

    Returns
    -------
    ndarray
        The copy.

    Raises
    ------
    InvalidInput
        If it does not have the declared shape, or holds values that are not finite.

    Examples
    --------
    >>> check_array_setting(np.eye(2), StateField("M D", "float", True, False), "mcm: text").shape
    (2, 2)
    """
    array: Array = _checks.plain(value, where).astype(np.float64, order="C", copy=True)
    _check_array(array, declared, {}, where)
    _checks.finite(array, where)
    array.flags.writeable = False
    return array


def restore_settings(
    record: StepInfo, settings: Mapping[str, object], tensors: Mapping[str, Array]
) -> tuple[dict[str, object], dict[str, Array]]:
    """Put loaded arrays in the place of the ``...`` among the settings of a step.

    Parameters
    ----------
    record : StepInfo
        Record of the step.
    settings : mapping of str to object
        Settings by name.
    tensors : mapping of str to ndarray
        Arrays of the step by name.

    Returns
    -------
    settings : dict of str to object
        The settings, with their arrays.
    tensors : dict of str to ndarray
        The other arrays.

    Raises
    ------
    InvalidInput
        If an array is missing, or does not have the declared kind and shape.
    """
    restored, others = dict(settings), dict(tensors)
    for name, declared in record.array_settings.items():
        if settings.get(name) is not ...:
            continue
        where = f"{record.name}: {name}"
        if name not in others:
            raise InvalidInput(f"{where} is missing")
        loaded = others.pop(name)
        if loaded.dtype.kind != "f":
            raise InvalidInput(f"{where} must hold numbers of the kind float, got {loaded.dtype}")
        restored[name] = check_array_setting(loaded, declared, where)
    return restored, others


def make_contiguous(fitted: T) -> T:
    """Put the learnt arrays into the layout in which they are saved, so that loading them changes no bit of a score.

    Parameters
    ----------
    fitted : dataclass
        A fitted step.

    Returns
    -------
    dataclass
        The step with its arrays in C order.
    """
    arrays = {}
    for field in dataclass_fields(fitted):
        value = getattr(fitted, field.name)
        if "state" in field.metadata and value is not None:
            arrays[field.name] = np.asarray(value, order="C")
    return dataclasses.replace(fitted, **arrays)  # type: ignore[type-var]


def collect_arrays(fitted: object) -> dict[str, Array]:
    """Copy the learnt arrays of a fitted step, including those of the chains inside it.

    Parameters
    ----------
    fitted : dataclass
        A fitted step.

    Returns
    -------
    dict of str to ndarray
        Arrays by name, in C order.
    """
    found: dict[str, Array] = {}
    for field in dataclass_fields(fitted):
        value = getattr(fitted, field.name)
        if "state" in field.metadata and value is not None:
            found[field.name] = np.array(value, order="C")  # keeps scalars scalar
        elif "chains" in field.metadata:
            for i, chain in enumerate(value):
                found |= add_prefix(chain.tensors(), i)
    return found


def restore_step(
    record: StepInfo, settings: Mapping[str, object], inner: tuple[Chain, ...], tensors: Mapping[str, Array]
) -> object:
    """Build a fitted step from its settings and the arrays that :func:`collect_arrays` returned.

    Parameters
    ----------
    record : StepInfo
        Record of a step that learns.
    settings : mapping of str to object
        Settings by name.
    inner : tuple of Chain
        The chains inside the step, not fitted.
    tensors : mapping of str to ndarray
        Arrays by name.

    Returns
    -------
    dataclass
        The fitted step.

    Raises
    ------
    InvalidInput
        If an array is missing, unknown, or does not have the declared kind and shape.
    """
    learnt: dict[str, object] = {}
    sizes: dict[str, int] = {}
    unknown = set(tensors)
    for field in dataclass_fields(record.maker):
        if "chains" in field.metadata:
            restored = []
            for i, chain in enumerate(inner):
                own = remove_prefix(tensors, i)
                unknown -= add_prefix(own, i).keys()
                restored.append(chain.restore(own))
            learnt[field.name] = tuple(restored)
        elif "state" in field.metadata:
            declared: StateField = field.metadata["state"]
            where = f"{record.name}: {field.name}"
            if field.name in tensors:
                _check_array(tensors[field.name], declared, sizes, where)
                learnt[field.name] = tensors[field.name]
                unknown.remove(field.name)
            elif not declared.optional:
                raise InvalidInput(f"{where} is missing")
    reject_unknown(record.name, unknown)
    step = record.maker(**settings, **learnt)
    if isinstance(step, StepHooks):
        try:
            step.check_state()
        except InvalidInput as error:
            raise InvalidInput(f"{record.name}: {error}") from error
    return step


def count_learnt_classes(fitted: object) -> int:
    """Count the classes that a fitted step, or a chain inside it, has learnt something about.

    Parameters
    ----------
    fitted : dataclass
        A fitted step.

    Returns
    -------
    int
        The largest size that its arrays declare as ``C``; 0 if there is none.

    Examples
    --------
    >>> from twofold.outputs import Outputs
    >>> from twofold.scores.chain import scorer
    >>> she = scorer("she").fit(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1], features=np.eye(2)))
    >>> count_learnt_classes(she.steps[0].learnt)
    2
    """
    most = 0
    for field in dataclass_fields(fitted):
        value = getattr(fitted, field.name)
        if "chains" in field.metadata:
            for chain in value:
                for step in chain.steps:
                    if step.learnt is not None:
                        most = max(most, count_learnt_classes(step.learnt))
        elif "state" in field.metadata and value is not None:
            sizes: dict[str, int] = {}
            _has_declared_shape(value, field.metadata["state"], sizes)
            most = max(most, sizes.get("C", 0))
    return most


def reject_unknown(name: str, unknown: Set[str]) -> None:
    """Raise if arrays are left that belong to no step.

    Parameters
    ----------
    name : str
        Name of the step or chain, for the error.
    unknown : set of str
        Names of these arrays.

    Raises
    ------
    InvalidInput
        If there is one.
    """
    if unknown:
        raise InvalidInput(f"{name} has no array {min(unknown)!r}")


def add_prefix(arrays: Mapping[str, Array], place: int | str) -> dict[str, Array]:
    """Put a number or a word before the names of arrays.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays by name.
    place : int or str
        Place of their step or chain.

    Returns
    -------
    dict of str to ndarray
        The same arrays.

    Examples
    --------
    >>> list(add_prefix({"means": np.zeros(2)}, 0))
    ['0.means']
    """
    return {f"{place}.{name}": array for name, array in arrays.items()}


def remove_prefix(arrays: Mapping[str, Array], place: int | str) -> dict[str, Array]:
    """Select the arrays whose name starts with a number or a word, and remove it from their names.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays by name.
    place : int or str
        Place of their step or chain.

    Returns
    -------
    dict of str to ndarray
        The selected arrays.

    Examples
    --------
    >>> list(remove_prefix({"0.means": np.zeros(2), "1.means": np.ones(2)}, 0))
    ['means']
    """
    prefix = f"{place}."
    selected = {}
    for name, array in arrays.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = array
    return selected


def _check_array(array: Array, declared: StateField, sizes: dict[str, int], where: str) -> None:
    """Raise unless a loaded array has the declared kind and shape; ``sizes`` collects what the words stand for."""
    if declared.shape is not None:
        if array.dtype.kind not in DTYPE_KINDS[declared.kind]:
            raise InvalidInput(f"{where} must hold numbers of the kind {declared.kind}, got {array.dtype}")
        if not _has_declared_shape(array, declared, sizes):
            shapes = [shape.split() for shape in declared.shape.split("|")]
            allowed = " or ".join(f"({', '.join(words)})" for words in shapes)
            known = ", ".join(f"{word} = {size}" for word, size in sizes.items())
            if known:
                allowed += f" with {known}"
            raise InvalidInput(f"{where} must have shape {allowed}, got {array.shape}")
    if not declared.nan and array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidInput(f"{where} holds NaN")


def _has_declared_shape(array: Array, declared: StateField, sizes: dict[str, int]) -> bool:
    """Check whether an array has one of the declared shapes; if so, ``sizes`` gets what the words stand for."""
    if declared.shape is None:
        return True
    return any(_has_shape(np.shape(array), shape.split(), sizes) for shape in declared.shape.split("|"))


def _has_shape(shape: tuple[int, ...], words: list[str], sizes: dict[str, int]) -> bool:
    """Check whether a shape is as declared; if so, words that were not known before get their sizes."""
    if len(shape) != len(words):
        return False
    found = dict(sizes)
    for size, text in zip(shape, words, strict=True):
        word, _, more = text.partition("+")
        base = size - int(more or 0)
        expected = int(word) if word.isdigit() else found.setdefault(word, base)
        if base != expected or base < 0:
            return False
    sizes.update(found)
    return True
