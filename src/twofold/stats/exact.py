r"""Compute what a rank test can find in a table of some size, and the exact distribution of Friedman's statistic.

Under the hypothesis that all methods are alike, every block has its ranks in each order with equal chance, whatever
the other blocks. A table of N blocks thus has :math:`\prod_i M_i` equally likely arrangements, where :math:`M_i` is
the number of different orders of block i (k! without ties). No test by ranks can have a p-value below the share of the
arrangements that speak most strongly against the hypothesis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from twofold import _checks
from twofold._checks import Array
from twofold._math import SMALLEST_NORMAL

LEAST_BLOCKS = 3
"""Blocks that a comparison needs at least. Of two, Friedman's statistic is a function of the rank correlation between
them alone (Conover 1999, section 5.8), so methods that differ look like two data sets that are alike."""

LARGEST_EXACT = {2: 50, 3: 30, 4: 15, 5: 6, 6: 4}
"""Blocks, by number of methods, up to which Friedman's p is counted out; the largest counts take half a second."""

Ranks = tuple[int, ...]  # doubled ranks of a block in rising order; doubling makes mid-ranks whole


def orders(block: Ranks) -> int:
    """Count the different orders of the ranks of a block.

    Parameters
    ----------
    block : tuple of int
        Doubled ranks of one block; doubling makes mid-ranks whole.

    Returns
    -------
    int
        k! divided by the factorials of the sizes of tie groups.

    Examples
    --------
    >>> orders((2, 4, 6)), orders((3, 3, 6))
    (6, 3)
    """
    ties = math.prod(math.factorial(n) for n in Counter(block).values())
    return math.factorial(len(block)) // ties


def sorted_blocks(ranks: Array) -> tuple[Ranks, ...]:
    """Return the doubled ranks of every block in rising order, which is all that is fixed under the hypothesis.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    tuple of tuples of int
        One tuple for each block.

    Examples
    --------
    >>> sorted_blocks(np.array([[1.5, 3.0, 1.5], [3.0, 1.0, 2.0]]))
    ((3, 3, 6), (2, 4, 6))
    """
    doubled = np.sort(np.rint(2 * ranks).astype(int), axis=1)
    return tuple(tuple(row) for row in doubled.tolist())


def least_friedman_p(ranks: Array) -> float:
    r"""Return the smallest p-value that Friedman's exact test can have in a table with these ties.

    Friedman's statistic is largest where all blocks put the methods in one order. The tables that do so are the
    relabellings of one table, so

    .. math:: p_{\min} = \frac{k! / \prod_g m_g!}{\prod_i M_i}

    with :math:`m_g` the sizes of groups of methods that share the rank in every block; without ties it is
    :math:`(k!)^{1-N}`.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    float
        In (0, 1]; the smallest positive normal number where it is smaller than that.

    Examples
    --------
    >>> least_friedman_p(np.array([[1.0, 2.0], [2.0, 1.0]]))
    0.5
    >>> round(least_friedman_p(np.tile([1.0, 2.0, 3.0], (3, 1))) * 36, 9)
    1.0
    """
    blocks = sorted_blocks(ranks)
    columns = Counter(zip(*blocks, strict=True))
    same_order = math.factorial(ranks.shape[1]) // math.prod(math.factorial(n) for n in columns.values())
    return _share(same_order, blocks)


def least_conover_p(ranks: Array) -> float:
    r"""Return a p-value below which Conover's t of a pair cannot fall in a table with these ties.

    The statistic is infinite where all blocks have the same ranks and those of the pair differ, which
    :math:`M (1 - \sum_g t_g (t_g - 1) / (k (k - 1)))` tables have, with :math:`t_g` the sizes of the groups of ties in
    a block: a share of :math:`(k!)^{1-N}` without ties, which is the smallest p. Where blocks have different ties no
    table has an infinite statistic, and the bound counts the strongest table and the one with the pair exchanged.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> round(least_conover_p(np.tile([1.0, 2.0, 3.0], (3, 1))) * 36, 9)
    1.0
    """
    blocks = sorted_blocks(ranks)
    if len(set(blocks)) > 1:
        return min(1.0, _share(2, blocks))
    methods = ranks.shape[1]
    tied_pairs = sum(n * (n - 1) for n in Counter(blocks[0]).values())
    untied = orders(blocks[0]) * (methods * (methods - 1) - tied_pairs) // (methods * (methods - 1))
    return _share(max(untied, 1), blocks)


def least_rank_z_p(ranks: Array) -> float:
    r"""Return the smallest p-value that the exact test of a difference of two rank sums can have.

    The difference is largest where one method is best and the other worst in every block, one way or the other:

    .. math:: p_{\min} = 2 \prod_i \frac{a_i b_i}{k (k - 1)}

    with :math:`a_i` and :math:`b_i` the numbers of methods that share the best and the worst rank of block i, over the
    blocks that are not tied throughout: :math:`2 / (k (k-1))^N` without ties.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    float
        In (0, 1].

    References
    ----------
    Eisinga et al., BMC Bioinformatics 18:68, 2017.

    Examples
    --------
    >>> round(1 / least_rank_z_p(np.tile([1.0, 2.0, 3.0], (3, 1))), 9)
    108.0
    """
    methods = ranks.shape[1]
    chance = 2.0
    for block in sorted_blocks(ranks):
        if block[0] != block[-1]:
            chance *= block.count(block[0]) * block.count(block[-1]) / (methods * (methods - 1))
    return max(min(chance, 1.0), SMALLEST_NORMAL)


def least_wilcoxon_p(blocks: int) -> float:
    r"""Return the smallest p-value of Wilcoxon's signed-rank test, :math:`2^{1-N}` for N blocks.

    Parameters
    ----------
    blocks : int
        Number of blocks.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> least_wilcoxon_p(6)
    0.03125
    """
    return max(math.ldexp(1.0, 1 - blocks), SMALLEST_NORMAL)


def required_blocks(methods: int, *, test: str, alpha: float) -> int:
    """Return the number of blocks from which a comparison can find a difference at all.

    From this number on, and not before, the smallest p-values that N blocks without ties can give are below ``alpha``:
    that of Friedman's exact test, and that of a pair under ``test`` after Holm's correction over all pairs. At least
    3, see :data:`LEAST_BLOCKS`.

    Parameters
    ----------
    methods : int
        Number of methods, at least 2.
    test : {"conover_t", "conover_holm", "rank_z", "wilcoxon"}
        The pairwise test.
    alpha : float
        Level, above 0 and at most 1.

    Returns
    -------
    int
        Number of blocks.

    Raises
    ------
    InvalidInput
        If a value is out of range.

    Notes
    -----
    Published tables of Friedman's statistic have no critical value below this number either (two blocks of three
    methods have none at 5 %). The number is necessary, not sufficient: Demšar asks for more than 10 blocks and more
    than 5 methods before the usual approximations are trusted (section 3.2.2).

    References
    ----------
    Demšar, JMLR 7, 2006.

    Examples
    --------
    >>> [required_blocks(k, test="conover_t", alpha=0.05) for k in (2, 3, 4, 20)]
    [6, 4, 3, 3]
    >>> [required_blocks(k, test="wilcoxon", alpha=0.05) for k in (2, 3, 20)]
    [6, 7, 13]
    """
    _checks.whole(methods, "methods", 2)
    _checks.choice(test, "test", ("conover_t", "conover_holm", "rank_z", "wilcoxon"))
    _checks.number(alpha, "alpha", 0.0, 1.0, open_low=True)
    pairs = math.comb(methods, 2)
    blocks = LEAST_BLOCKS
    while True:
        ranks = np.tile(np.arange(1.0, methods + 1), (blocks, 1))
        if test == "wilcoxon":
            pair = least_wilcoxon_p(blocks)
        elif test == "rank_z":
            pair = least_rank_z_p(ranks)
        else:
            pair = least_conover_p(ranks)
        if least_friedman_p(ranks) < alpha and pairs * pair < alpha:
            return blocks
        blocks += 1


def exact_friedman_p(ranks: Array) -> float | None:
    r"""Return Friedman's exact p-value, or None where the table is too large to count.

    .. math:: p = P\Big(\sum_j R_j^2 \ge \text{the observed}\Big)

    over all orders of the ranks inside each block, ties as they are.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    float or None
        In (0, 1]; None beyond the size in :data:`LARGEST_EXACT`.

    Notes
    -----
    For fixed ties the statistic rises with :math:`\sum_j R_j^2`. Rank sums are collected block by block; since methods
    are exchangeable, only the sorted rank sums are kept.

    Examples
    --------
    >>> round(exact_friedman_p(np.tile([1.0, 2.0, 3.0], (3, 1))) * 36, 9)
    1.0
    """
    count, methods = ranks.shape
    if count > LARGEST_EXACT.get(methods, 0):
        return None
    squares, chances = _friedman_distribution(tuple(sorted(sorted_blocks(ranks))))
    seen = int((np.rint(2 * ranks.sum(axis=0)).astype(int) ** 2).sum())
    return min(1.0, float(chances[squares >= seen].sum()))


@lru_cache(maxsize=64)
def _friedman_distribution(blocks: tuple[Ranks, ...]) -> tuple[Array, Array]:
    """Compute the values of the sum of squared rank sums (of doubled ranks) and their chances."""
    sums = np.array([blocks[0]])  # the first block may stand in any order: methods are exchangeable
    chances = np.ones(1)
    for block in blocks[1:-1]:
        sums, chances = _add_block(sums, chances, block)
    last = _arrangements(blocks[-1])
    squares = (sums**2).sum(axis=1)[:, None] + (last[0] ** 2).sum() + 2 * sums @ last.T
    values, place = np.unique(squares, return_inverse=True)
    weights = np.repeat(chances / len(last), len(last))
    return values, np.bincount(place.ravel(), weights=weights).astype(np.float64)


def _add_block(sums: Array, chances: Array, block: Ranks) -> tuple[Array, Array]:
    """Compute the sorted rank sums, with their chances, after one more block."""
    arrangements = _arrangements(block)
    reached = np.sort((sums[:, None, :] + arrangements).reshape(-1, len(block)), axis=1)
    digits = int(reached.max()) + 1
    codes = reached @ digits ** np.arange(len(block))  # one integer for each row: faster to compare than rows
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    weights = np.repeat(chances / len(arrangements), len(arrangements))
    return reached[first], np.bincount(place.ravel(), weights=weights).astype(np.float64)


def _arrangements(block: Ranks) -> Array:
    """List all different orders of the ranks of a block."""
    return np.array(sorted(set(permutations(block))))


def _share(tables: int, blocks: Sequence[Ranks]) -> float:
    """Compute the share of some tables among all arrangements; Python's integers neither overflow nor underflow."""
    everything = math.prod(orders(block) for block in blocks)
    log_share = math.log(tables) - math.log(everything)
    if log_share <= math.log(SMALLEST_NORMAL):
        return SMALLEST_NORMAL
    return max(math.exp(log_share), SMALLEST_NORMAL)
