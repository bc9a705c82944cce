"""Paired differences of methods from the best one, from bootstrap replicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold._checks import Array
from twofold.bench.blocks import Block, BlockTable


@dataclass(frozen=True)
class Difference:
    """Hold the mean difference of a method from the best, with its paired bootstrap interval.

    Parameters
    ----------
    value : float
        Mean over blocks of the method's value minus that of the best method.
    low, high : float
        Limits of the interval.
    blocks : int
        Number of blocks, before averaging, in which both have paired replicates.
    of : int
        Number of all blocks, before averaging.
    resamples : int
        Number of bootstrap replicates with a value.
    """

    value: float
    low: float
    high: float
    blocks: int
    of: int
    resamples: int

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0.0 <= self.high

    def to_dict(self) -> dict[str, float]:
        """Convert to plain values for JSON.

        Returns
        -------
        dict of str to float
            All fields.
        """
        return vars(self).copy()


def block_weights(groups: Mapping[Block, Sequence[int]], n_blocks: int) -> Array:
    """Compute the weight of each block in the mean over groups of the means inside them.

    Parameters
    ----------
    groups : mapping of tuple to sequence of int
        Indices of the blocks of each group.
    n_blocks : int
        Number of blocks.

    Returns
    -------
    ndarray of shape (n_blocks,)
        Weights that sum to 1.

    Examples
    --------
    >>> block_weights({("near",): [0, 1], ("far",): [2]}, 3).tolist()
    [0.25, 0.25, 0.5]
    """
    weights = np.zeros(n_blocks)
    for members in groups.values():
        weights[list(members)] = 1 / (len(members) * len(groups))
    return weights


def paired_differences(
    table: BlockTable, blocks: Sequence[Block], methods: Sequence[str], weights: Array, alpha: float
) -> dict[str, Difference]:
    """Compute paired differences from the first method, over the blocks in which both have replicates of one length.

    Parameters
    ----------
    table : BlockTable
        Rows and replicates.
    blocks : sequence of tuple
        Blocks in which every method has a value.
    methods : sequence of str
        Methods, best first.
    weights : ndarray of shape (n_blocks,)
        Weight of each block in the mean.
    alpha : float
        The intervals have level 1 - ``alpha``.

    Returns
    -------
    dict of str to Difference
        By method, for those that have paired replicates.
    """
    values = table.values(blocks, methods)
    best_replicates = [table.replicates_of(block, methods[0]) for block in blocks]
    differences = {}
    for j, name in enumerate(methods[1:], start=1):
        own_replicates = [table.replicates_of(block, name) for block in blocks]
        gaps = _pair_replicates(own_replicates, best_replicates)
        if not gaps:
            continue
        used = list(gaps)
        share = weights[used] / weights[used].sum()
        mean_gaps = share @ np.stack(list(gaps.values()))
        mean_gaps = mean_gaps[~np.isnan(mean_gaps)]
        if not len(mean_gaps):
            continue
        low, high = np.quantile(mean_gaps, (alpha / 2, 1 - alpha / 2))
        differences[name] = Difference(
            value=float(share @ (values[used, j] - values[used, 0])),
            low=float(low),
            high=float(high),
            blocks=len(used),
            of=len(blocks),
            resamples=len(mean_gaps),
        )
    return differences


def _pair_replicates(own: Sequence[Array | None], best: Sequence[Array | None]) -> dict[int, Array]:
    """Subtract the replicates of the best method, by index of the block; keep the most frequent length."""
    gaps: dict[int, Array] = {}
    for i, (mine, leading) in enumerate(zip(own, best, strict=True)):
        if mine is not None and leading is not None and len(mine) == len(leading) > 0:
            gaps[i] = mine - leading
    if not gaps:
        return gaps
    counts = Counter(map(len, gaps.values()))
    most_frequent = max(counts, key=lambda length: (counts[length], length))
    return {i: gap for i, gap in gaps.items() if len(gap) == most_frequent}
