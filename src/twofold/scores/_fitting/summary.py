"""Training arrays of which only mergeable statistics are known, for fits on partitioned data."""

from __future__ import annotations

from typing import Any

from twofold.errors import InvalidInput


class RowsNeeded(InvalidInput):
    """Report a fit that reads training rows where only merged statistics are known."""


class Summary:
    """Stand for a training array: its shape and perhaps its moments are known, its rows are not.

    Parameters
    ----------
    shape : tuple of int
        Shape of the whole array.
    moments : Moments, optional
        Moments by class of its rows.
    labels : Summary, optional
        What stands for the labels by which the moments were computed.

    Examples
    --------
    >>> len(Summary((5, 2)))
    5
    """

    def __init__(self, shape: tuple[int, ...], moments: Any = None, labels: Summary | None = None) -> None:
        self.shape = shape
        self.moments = moments
        self.labels = labels

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *args: object, **options: object) -> Any:
        raise RowsNeeded("the rows of this training array are not known, only statistics that add up over partitions")

    def __getitem__(self, index: object) -> Any:
        return self.__array__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__array__()
