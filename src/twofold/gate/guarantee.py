r"""Thresholds whose risk is guaranteed: one part of the data learns a path of pairs, the other part tests it.

The validation sample is cut in two by the places of its rows. The first part (``LEARN`` of it) chooses a path of
threshold pairs, from strict to loose, through the pair that is best there, and the pair at which the walk begins: the
one most likely to pass. On the second part the pairs are tested one after another, each at the full level delta, and
the walk ends at the first that fails (fixed-sequence testing; Angelopoulos et al., Learn then Test,
arXiv:2110.01052). The last pair that passed is returned. One score is a path of one column. Against a fixed diagonal,
Holm and Bonferroni over a grid, and SGR (Geifman & El-Yaniv) it covers most; ``benchmarks/gate.py`` has the numbers.

What is proven, for any scores, ties or not, and any sample size: path and start do not depend on the second part. A
wrong promise means that the first pair of the path with a true risk above r was passed, and that happens with a
probability of at most delta, because each test is exact:

* Without ``ood_share`` all samples are independent draws from what the gate will meet. Given how many are accepted,
  the failures among them are binomial, and the p-value is :math:`P(\mathrm{Bin}(n, r) \le e)`.
* With ``ood_share`` s the ID and OOD samples are two independent samples, of any sizes. With :math:`\alpha`, q the
  accepted shares of ID and OOD inputs and :math:`\rho` the share of wrong labels among accepted ID inputs, the risk
  exceeds r where :math:`\rho > r - s(1-r) q / ((1-s)\alpha)`. A tenth of delta pays for a lower bound of
  :math:`\alpha`. For every q the exact binomial p-values of q and of :math:`\rho` are turned into normal scores, cut
  off at -``CUT``, and summed with weights fixed on the first part; the least sum over all q (cells of a grid, each at
  its worst corner) gives the p-value, and the cut is paid for.

* With groups of dependent rows, whole groups learn or test, and the p-value is that of :mod:`twofold.gate.grouped`.
  Everything above asks for independent rows.

Thresholds lie between neighbouring confidences of the first part: in the middle of the gap below the confidence at
the wanted quantile. They are functions of the first part alone, so the proof above holds for them as it stands, and
no row of the second part lies on one but by chance. Moving them once more, after the tests, between neighbours in
*both* parts would make the returned pair depend on the rows that tested it. The proof does not cover that, so it is
not done.

Not proven but counted in the slow tests: validation put together by hand from an ID and an OOD set, without
``ood_share``, is no independent draw of a mixture. Its failures vary less than binomial ones, and the promise, for the
share that the data have, is broken less often than delta. A risk read off an Infeasible and asked of the same data
again was chosen by those data, which 1 - delta does not cover.

Nothing is promised for inputs of another distribution. Gates that promise a risk of 0.05 where a fifth of the inputs
are OOD have on average a true risk of 0.046 there, of 0.077 where two fifths are OOD, and of 0.101 where half are
(``tests/gate/test_promise.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold._checks import Array
from twofold.errors import Infeasible
from twofold.gate.choice import SLACK, Pair, Scored, gap_middles
from twofold.gate.grouped import GroupTest, first_accepting
from twofold.metrics.joint import DoubleCurve

LEARN = 0.3  # part of the sample that chooses the path; 0.2 to 0.5 cover alike
GOLDEN = (5.0**0.5 - 1.0) / 2.0
CUT = 0.75  # normal scores below -CUT count as -CUT
REACH = 4.0  # the grid over q ends at this normal score; what lies beyond is paid for
CELLS = 64  # 112 cover alike
STARTS = 48  # about so many pairs are considered for the start
BLOCK = 16  # pairs tested together
STEP = 0.01  # share of the samples by which twice as strict is stricter, where the best pair rejects fewer
# Quantiles of the path's pairs relative to those of the best pair: above 1 stricter, below 1 looser, 0 accepts all
SCALE = np.concatenate(
    [np.geomspace(64.0, 2.0, 24), np.geomspace(2.0, 1.0, 97)[1:], np.linspace(1.0, 0.4, 97)[1:], [0.3, 0.2, 0.1, 0.0]]
)


@dataclass(frozen=True, eq=False)
class Counts:
    """Of ``ids`` ID and ``oods`` OOD samples, those accepted, and accepted with a wrong label, at each pair."""

    ids: float
    oods: float
    known: Array
    wrong: Array
    outside: Array

    @classmethod
    def of(cls, data: Scored, pairs: Array) -> Counts:
        """Count at each pair of a path from strict to loose: what one pair accepts, every later one accepts."""
        first = first_accepting(data, pairs)

        def counted(kind: npt.NDArray[np.bool_]) -> Array:
            return np.cumsum(np.bincount(first[kind], minlength=len(pairs) + 1)[: len(pairs)]).astype(np.float64)

        ids, oods = float(data.is_id.sum()), float((~data.is_id).sum())
        return cls(ids, oods, counted(data.is_id), counted(data.is_id & ~data.correct), counted(~data.is_id))

    def scaled(self, factor: float) -> Counts:
        """What a sample so much larger would count."""
        kept = (self.known * factor, self.wrong * factor, self.outside * factor)
        return Counts(self.ids * factor, self.oods * factor, *kept)

    def at(self, places: slice) -> Counts:
        """The counts at some of the pairs."""
        return Counts(self.ids, self.oods, self.known[places], self.wrong[places], self.outside[places])


def split(
    is_id: npt.NDArray[np.bool_], share: float | None, groups: npt.NDArray[np.int64] | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split rows into those that learn and those that test, by their places alone, and never within a group.

    Multiples of the golden ratio spread what learns evenly, so that data put together from several sets are cut in the
    same proportion in each. (One fixed shuffle would err on the same side for everybody.)

    Parameters
    ----------
    is_id : ndarray of shape (n_samples,)
        True for ID rows. With ``share``, ID and OOD rows are split apart; of groups, those with ID rows alone, with OOD
        rows alone, and with both.
    share : float or None
        The OOD share that is expected in use.
    groups : ndarray of shape (n_samples,), optional
        The group of each row, numbered from 0 in the order in which they appear; by default each row is one.

    Returns
    -------
    tuple of ndarray
        The rows that learn and the rows that test.
    """
    if groups is None:
        groups = np.arange(len(is_id))
    count = int(groups.max()) + 1
    kinds = [np.arange(count)]
    if share is not None:
        known = np.bincount(groups[is_id], minlength=count) > 0
        unknown = np.bincount(groups[~is_id], minlength=count) > 0
        kinds = [np.flatnonzero(known & ~unknown), np.flatnonzero(~known), np.flatnonzero(known & unknown)]
    learns = np.zeros(count, bool)
    for places in kinds:
        learns[places] = (0.5 + np.arange(len(places)) * GOLDEN) % 1.0 < LEARN
        learns[places[:1]] = True
    return np.flatnonzero(learns[groups]), np.flatnonzero(~learns[groups])


def guaranteed(learn: Scored, test: Scored, *, risk: float, delta: float) -> Pair:
    """The loosest pair of the path whose risk is at most ``risk`` with confidence 1 - ``delta``, or Infeasible."""
    if learn.is_id.any() and test.is_id.any():
        curve = learn.curve()
        found = walk(learn, test, curve, risk, delta)
        if found is not None:
            return found
        low, high = risk, 1.0
        for _ in range(7):
            middle = (low + high) / 2
            low, high = (low, middle) if walk(learn, test, curve, middle, delta) is not None else (middle, high)
        surer, doubtful = 1.0, delta
        for _ in range(7):
            middle = (surer + doubtful) / 2
            passed = walk(learn, test, curve, risk, middle) is not None
            surer, doubtful = (middle, doubtful) if passed else (surer, middle)
        best = {"risk": high, "delta": surer}
    else:
        best = {"risk": 1.0, "delta": 1.0}
    samples = f"{len(learn.correct)} + {len(test.correct)} validation samples"
    if learn.groups is not None and test.groups is not None:
        samples += f" in {len(np.unique(learn.groups)) + len(np.unique(test.groups))} groups"
    hint = f"about {best['risk']:.3g} can be at this delta" if best["risk"] < 1.0 else "no risk below 1 can be"
    raise Infeasible(
        f"a risk of at most {risk:g} cannot be guaranteed at delta = {delta:g} with {samples}; "
        f"{hint}: ask for a larger risk or delta, or bring more {'samples' if learn.groups is None else 'groups'}",
        best,
    )


def walk(learn: Scored, test: Scored, curve: DoubleCurve, risk: float, delta: float) -> Pair | None:
    """The last pair that passed, or None if the first one failed."""
    pairs = path(learn, curve, risk)
    if learn.groups is None:
        tested: RowTest | GroupTest = RowTest(learn, test, pairs, risk, delta)
    else:
        tested = GroupTest(learn, test, pairs, risk, delta)
    start = stop = tested.start
    while stop < len(pairs):  # in blocks, because the walk may end early
        failed = np.flatnonzero(~(tested.p_values(slice(stop, stop + BLOCK)) <= delta))
        stop += int(failed[0]) if len(failed) else min(BLOCK, len(pairs) - stop)
        if len(failed):
            break
    return Pair(*(float(t) for t in pairs[stop - 1])) if stop > start else None


class RowTest:
    """The p-values of "the risk exceeds ``risk``" along a path of pairs, from independent rows."""

    def __init__(self, learn: Scored, test: Scored, pairs: Array, risk: float, delta: float) -> None:
        self.risk, self.delta, self.share = risk, delta, learn.share
        first = Counts.of(learn, pairs)
        self.weights = combining_weights(first, risk, learn.share)
        self.counts = Counts.of(test, pairs)
        self.expected = first.scaled(len(test.correct) / len(learn.correct))

    @property
    def start(self) -> int:
        """The pair most likely to pass, judged by the part that learns."""
        stride = max(1, len(self.weights) // STARTS)
        coarse = slice(0, None, stride)
        found = p_values(self.expected.at(coarse), self.risk, self.delta, self.share, self.weights[coarse])
        return stride * int(np.argmin(found))

    def p_values(self, places: slice) -> Array:
        """P-values at some pairs of the path."""
        return p_values(self.counts.at(places), self.risk, self.delta, self.share, self.weights[places])


def path(learn: Scored, curve: DoubleCurve, risk: float) -> Array:
    """Pairs from strict to loose through the one with most coverage at this risk, on a line between quantiles."""
    levels = curve.risk
    good = np.flatnonzero(levels <= risk + SLACK)
    at = int(good[-1]) if len(good) else int(np.flatnonzero(levels == levels.min())[-1])
    through = curve.tau_id[at], curve.tau_ood[at]
    columns = []
    for conf, tau in zip((learn.conf_id, learn.conf_ood), through, strict=True):
        ranked = np.sort(conf)
        below = np.searchsorted(ranked, tau) / len(ranked)
        above = np.maximum(SCALE, 1.0)
        stricter = np.minimum(below + max(below, STEP) * (above - 1.0), 1.0 - (1.0 - below) / above)
        quantile = np.where(SCALE > 1.0, stricter, below * SCALE)
        place = np.minimum(np.rint(quantile * len(ranked)).astype(np.int64), len(ranked) - 1)
        columns.append(np.where(place > 0, _between(ranked)[place], -np.inf))
    pairs = np.column_stack(columns)
    changed = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))
    return np.asarray(pairs[changed])


def _between(ranked: Array) -> Array:
    """The middle of the gap below each of some sorted confidences; infinite ones stay as they are."""
    finite = np.isfinite(ranked)
    levels, places = np.unique(ranked[finite], return_inverse=True)
    cuts = ranked.copy()
    cuts[finite] = gap_middles(levels)[places]
    return cuts


def combining_weights(counts: Counts, risk: float, share: float | None) -> Array:
    """Weights of the normal scores of wrong labels and of accepted OOD inputs: their standard errors, scaled."""
    if not share:
        return np.ones((len(counts.known), 2))
    alpha = (counts.known + 1.0) / (counts.ids + 2.0)
    rho = (counts.wrong + 0.5) / (counts.known + 1.0)
    q = (counts.outside + 0.5) / (counts.oods + 1.0)
    wrong = (1.0 - share) * np.sqrt(alpha * rho * (1.0 - rho) / max(counts.ids, 1.0))
    outside = share * (1.0 - risk) * np.sqrt(q * (1.0 - q) / max(counts.oods, 1.0))
    angle = np.clip(np.arctan2(outside, wrong), 0.05, np.pi / 2 - 0.05)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def p_values(counts: Counts, risk: float, delta: float, share: float | None, weights: Array) -> Array:
    """P-values of "the risk exceeds ``risk``" at each pair; with ``share`` valid at the level ``delta`` alone."""
    if share is None:
        return binomial_tail(counts.wrong + counts.outside, counts.known + counts.outside, risk)
    if share == 0.0:
        return binomial_tail(counts.wrong, counts.known, risk)
    return _mixture_tail(counts, risk, delta, share, weights)


def binomial_tail(errors: Array, n: Array | float, rate: Array | float) -> Array:
    r""":math:`P(\mathrm{Bin}(n, \mathrm{rate}) \le \mathrm{errors})`, also between whole numbers.

    >>> binomial_tail(np.array([1.0]), np.array([3.0]), 0.5)
    array([0.5])
    """
    from scipy.special import betaincc

    left = np.maximum(n - errors, SLACK)
    return np.asarray(np.where(errors >= n, 1.0, betaincc(errors + 1.0, left, np.clip(rate, 0.0, 1.0))))


def _mixture_tail(counts: Counts, risk: float, delta: float, share: float, weights: Array) -> Array:
    from scipy.special import betaincinv, ndtr, ndtri

    paid = delta / 10.0
    alpha = np.where(
        counts.known > 0,
        betaincinv(np.maximum(counts.known, 0.5), np.maximum(counts.ids - counts.known, 0.0) + 1.0, paid),
        0.0,
    )[:, None]
    oods = counts.oods
    levels, back = np.unique(counts.outside, return_inverse=True)  # few: one grid serves all pairs that let in as many
    outside = levels[:, None]
    left = oods - outside
    # steps of about equal normal score over the q that are not excluded, the last one exact
    last = np.where(left > 0, betaincinv(outside + 1.0, np.maximum(left, 1.0), ndtr(REACH)), 1.0)
    middle = np.arcsin(np.sqrt((outside + 0.375) / (oods + 0.75)))
    angle = middle + np.linspace(-CUT - 0.5, REACH, CELLS) / (2.0 * np.sqrt(oods + 0.5))
    q = np.minimum(np.sin(np.clip(angle, 0.0, np.pi / 2)) ** 2, last)
    q[:, -1:] = last
    score = np.clip(-ndtri(binomial_tail(outside, oods, q)), -CUT, REACH)
    q, score = q[back], score[back]
    with np.errstate(divide="ignore", invalid="ignore"):
        allowed = risk - share * (1.0 - risk) * q / ((1.0 - share) * alpha)
    allowed = np.where(alpha > 0, allowed, -1.0)
    tail = binomial_tail(counts.wrong[:, None], counts.known[:, None], np.maximum(allowed, 0.0))
    safe = np.clip(-ndtri(np.where(allowed > 0, tail, 1.0)), -CUT, 8.0)
    # a cell from one q to the next counts with the score of q at its lower end and that of rho at its upper end
    lower = np.concatenate([np.full((len(score), 1), -CUT), score[:, :-1]], axis=1)
    first, second = weights[:, 0], weights[:, 1]
    z = (first[:, None] * safe + second[:, None] * lower).min(axis=1)
    cut = ndtr(-CUT) * (ndtr(-(z + first * CUT) / second) + ndtr(-(z + second * CUT) / first))
    p = ndtr(-z) + cut + ndtr(-REACH) + paid
    return np.asarray(np.where(z > 0, p, 1.0))
