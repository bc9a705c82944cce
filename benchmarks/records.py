"""Lists of records of one dataclass, such as report cards."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Records(list[T]):
    """A list of records, from which records are selected and fields collected.

    >>> from types import SimpleNamespace as Record
    >>> records = Records([Record(kind="fresh", risk=0.1), Record(kind="set", risk=0.3), Record(kind="set", risk=0.5)])
    >>> len(records.where(kind="set"))
    2
    >>> records.where(kind="set").mean("risk")
    0.4
    """

    def where(self, **wanted: object) -> Records[T]:
        """Select the records whose fields have these values."""
        found = self
        for name, value in wanted.items():
            found = found.within(name, (value,))
        return found

    def within(self, name: str, allowed: Collection[object]) -> Records[T]:
        """Select the records whose field is among some values."""
        return Records(record for record in self if getattr(record, name) in allowed)

    def values(self, name: str) -> np.ndarray:
        """Collect one field or property of all records."""
        return np.array([getattr(record, name) for record in self])

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))

    def count(self, name: str) -> int:
        """Count the records for which a field or property is true."""
        return int(np.count_nonzero(self.values(name)))

    def highest(self, name: str) -> T:
        """Return the first record with the most of a field or property."""
        return max(self, key=lambda record: getattr(record, name))

    def lowest(self, name: str) -> T:
        """Return the first record with the least of a field or property."""
        return min(self, key=lambda record: getattr(record, name))
