"""Number the groups of a table, and hold how many rows of each kind they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twofold._checks import Integers
from twofold.errors import InvalidInput
from twofold.logs.ordered import CHANGED, Counts

Key = tuple[Any, ...]  # values of the group columns

_NAN = float("nan")


@dataclass(frozen=True, eq=False)
class CountedGroups:
    """Hold the groups of a table and how many rows of each kind they have, in the order of the engine.

    Parameters
    ----------
    keys : list of tuple
        Values of the group columns; one empty tuple without groups.
    totals : ndarray of int, shape (n_groups, 3)
        Correct, wrong and OOD rows.
    missing : ndarray of int, shape (n_groups,)
        Rows with a missing confidence.
    order : tuple of str, default=()
        What the engine sorts by to bring the rows of each group together.
    names : tuple of str, default=()
        Plain names of the group columns.
    """

    keys: list[Key]
    totals: Counts
    missing: Counts
    order: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def rows(self) -> Counts:
        """Rows of each group."""
        return np.asarray(self.totals.sum(axis=1))

    @cached_property
    def places(self) -> dict[Key, int]:
        """Place of each group in ``keys``."""
        places = {}
        for place, key in enumerate(self.keys):
            places[same_nan(key)] = place
        return places

    def code_rows(self, groups: Sequence[Any]) -> Counts:
        """Find the group of each row.

        Parameters
        ----------
        groups : sequence of pyarrow.Array
            The group columns of some rows.

        Returns
        -------
        ndarray of int, shape (n_rows,)
            The place of each row's group in ``keys``.

        Raises
        ------
        InvalidInput
            If a row belongs to no group that was counted.
        """
        if len(groups[0]) == 0:
            return np.empty(0, np.int64)
        keys, number = number_groups(groups)
        places = np.empty(len(keys), np.int64)
        for rank, key in enumerate(keys):
            place = self.places.get(same_nan(key))
            if place is None:
                raise InvalidInput(CHANGED)
            places[rank] = place
        return places[number]


def same_nan(key: Iterable[Any]) -> Key:
    """Return the values of a group with one NaN for all, so that equal groups are equal keys.

    Parameters
    ----------
    key : iterable
        Values of the group columns.

    Returns
    -------
    tuple
        The values.

    Examples
    --------
    >>> same_nan([float("nan")]) == same_nan([float("nan")])
    True
    """
    values = []
    for value in key:
        is_nan = isinstance(value, float) and value != value
        values.append(_NAN if is_nan else value)
    return tuple(values)


def sort_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return what groups are sorted by: their values, null last.

    Parameters
    ----------
    values : iterable
        Values of the group columns.

    Returns
    -------
    tuple
        A key for ``sorted``.

    Examples
    --------
    >>> sorted([(None,), ("a",)], key=sort_key)
    [('a',), (None,)]
    """
    return tuple((value is None, 0 if value is None else value) for value in values)


def number_groups(groups: Sequence[Any]) -> tuple[list[Key], Integers]:
    """Find the distinct combinations of group values, and which one each row has.

    Parameters
    ----------
    groups : sequence of pyarrow.Array
        The group columns.

    Returns
    -------
    keys : list of tuple
        The combinations, sorted, null last.
    number : ndarray of int, shape (n_rows,)
        The place of each row's combination.

    Examples
    --------
    >>> import pyarrow as pa
    >>> keys, number = number_groups([pa.array(["b", "a", "b"])])
    >>> keys, number.tolist()
    ([('a',), ('b',)], [1, 0, 1])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    code = np.zeros(len(groups[0]), np.int64)
    dictionaries = []
    for group in groups:
        array = group.combine_chunks() if isinstance(group, pa.ChunkedArray) else group
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        values = encoded.dictionary
        rank = np.empty(len(values), np.int64)
        rank[pc.array_sort_indices(values, null_placement="at_end").to_numpy()] = np.arange(len(values))
        ordered = values.take(pa.array(np.argsort(rank))).to_pylist()
        code = code * len(ordered) + rank[encoded.indices.to_numpy(zero_copy_only=False)]
        dictionaries.append(ordered)
    present, number = np.unique(code, return_inverse=True)
    keys = []
    for combined in present.tolist():
        values_of_key: list[Any] = []
        for ordered in reversed(dictionaries):
            combined, place = divmod(combined, len(ordered))
            values_of_key.insert(0, ordered[place])
        keys.append(tuple(values_of_key))
    return keys, number
