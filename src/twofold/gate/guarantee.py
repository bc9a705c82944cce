r"""Choose thresholds whose risk is guaranteed: one part of the data learns a path of pairs, the other part tests it.

The validation sample is split in two by the positions of its rows. The first part (``LEARN`` of it) chooses a path of
threshold pairs, from strict to loose, through the pair that is best there, and the pair at which the walk starts: the
one most likely to pass. On the second part the pairs are tested one after another, each at the full level delta, and
the walk ends at the first that fails (fixed-sequence testing; Angelopoulos et al., Learn then Test,
arXiv:2110.01052). The last pair that passed is returned. One score is a path of one column. Compared with a fixed
diagonal, Holm and Bonferroni over a grid, and SGR (Geifman & El-Yaniv) it reaches the largest coverage;
``benchmarks/gate.py`` has the numbers.

What is proven, for any scores, ties or not, and any sample size: path and start do not depend on the second part. A
wrong promise means that the first pair of the path with a true risk above r was passed, and that happens with a
probability of at most delta, because each test is exact:

* Without ``ood_share`` all samples are independent draws of the inputs in deployment. Given how many are accepted,
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

Not proven, but measured in the slow tests: validation data concatenated from an ID and an OOD set, without
``ood_share``, are not independent draws of a mixture. Their failures vary less than binomial ones, and the promise,
for the share that the data have, is broken less often than delta. A risk that was read off an Infeasible and is
requested on the same data again was chosen by those data; 1 - delta does not cover that.

Nothing is promised for inputs of another distribution. Gates that promise a risk of 0.05 where a fifth of the inputs
are OOD have on average a true risk of 0.046 there, of 0.077 where two fifths are OOD, and of 0.101 where half are
(``tests/gate/test_promise.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold._checks import Array
from twofold.errors import Infeasible
from twofold.gate.grouped import GroupTest, first_accepting
from twofold.gate.thresholds import SLACK, ScoredSamples, Thresholds, gap_middles
from twofold.metrics.joint import DoubleCurve

LEARN = 0.3  # part of the sample that chooses the path; 0.2 to 0.5 reach the same coverage
GOLDEN = (5.0**0.5 - 1.0) / 2.0
CUT = 0.75  # normal scores below -CUT count as -CUT
REACH = 4.0  # the grid over q ends at this normal score; what lies beyond is paid for
CELLS = 64  # cells of the grid over q; 112 reach the same coverage
STARTS = 48  # about this many pairs are considered for the start
BLOCK = 16  # pairs tested together
STEP = 0.01  # share of the samples that a pair twice as strict rejects in addition, where the best rejects fewer
# Quantiles of the path's pairs relative to those of the best pair: above 1 stricter, below 1 looser, 0 accepts all
SCALE = np.concatenate(
    [np.geomspace(64.0, 2.0, 24), np.geomspace(2.0, 1.0, 97)[1:], np.linspace(1.0, 0.4, 97)[1:], [0.3, 0.2, 0.1, 0.0]]
)


@dataclass(frozen=True, eq=False)
class Counts:
    """Hold how many samples each pair of thresholds accepts, and how many of those fail.

    Parameters
    ----------
    ids : float
        Number of ID samples.
    oods : float
        Number of OOD samples.
    known : ndarray of shape (n_pairs,)
        Accepted ID samples at each pair.
    wrong : ndarray of shape (n_pairs,)
        Accepted ID samples with a wrong label at each pair.
    outside : ndarray of shape (n_pairs,)
        Accepted OOD samples at each pair.

    Notes
    -----
    Counts are floats, because :meth:`scaled` makes fractions of samples.
    """

    ids: float
    oods: float
    known: Array
    wrong: Array
    outside: Array

    @classmethod
    def of(cls, data: ScoredSamples, pairs: Array) -> Counts:
        """Count the accepted samples at each pair of a path.

        Parameters
        ----------
        data : ScoredSamples
            Labelled samples with both confidences.
        pairs : ndarray of shape (n_pairs, 2)
            Thresholds ``(tau_id, tau_ood)`` from strict to loose: what one pair accepts, every later one accepts.

        Returns
        -------
        Counts
            One entry per pair.

        Examples
        --------
        >>> correct, is_id = np.array([True, False]), np.array([True, True])
        >>> data = ScoredSamples(correct, is_id, conf_id=np.array([0.9, 0.4]), conf_ood=np.zeros(2))
        >>> counts = Counts.of(data, np.array([[0.5, -np.inf], [0.0, -np.inf]]))
        >>> counts.known, counts.wrong
        (array([1., 2.]), array([0., 1.]))
        """
        first = first_accepting(data, pairs)

        def count(kind: npt.NDArray[np.bool_]) -> Array:
            # samples of a kind that each pair accepts
            newly_accepted = np.bincount(first[kind], minlength=len(pairs) + 1)[: len(pairs)]
            return np.cumsum(newly_accepted).astype(np.float64)

        return cls(
            ids=float(data.is_id.sum()),
            oods=float((~data.is_id).sum()),
            known=count(data.is_id),
            wrong=count(data.is_id & ~data.correct),
            outside=count(~data.is_id),
        )

    def scaled(self, factor: float) -> Counts:
        """Scale all counts to those expected in a sample ``factor`` times as large.

        Parameters
        ----------
        factor : float
            Ratio of the sample sizes.

        Returns
        -------
        Counts
            The scaled counts, in general not whole numbers.
        """
        return Counts(
            ids=self.ids * factor,
            oods=self.oods * factor,
            known=self.known * factor,
            wrong=self.wrong * factor,
            outside=self.outside * factor,
        )

    def at(self, places: slice) -> Counts:
        """Select the counts at some of the pairs.

        Parameters
        ----------
        places : slice
            Which pairs.

        Returns
        -------
        Counts
            Counts at these pairs.
        """
        return Counts(self.ids, self.oods, self.known[places], self.wrong[places], self.outside[places])


def split(
    is_id: npt.NDArray[np.bool_], share: float | None, groups: npt.NDArray[np.int64] | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split rows into those that learn and those that test, by their places alone, and never within a group.

    Multiples of the golden ratio spread the rows that learn evenly, so that data concatenated from several sets are
    split in the same proportion in each. (One fixed shuffle would err on the same side for everybody.)

    Parameters
    ----------
    is_id : ndarray of shape (n_samples,)
        True for ID rows. With ``share``, ID and OOD rows are split separately. Of groups, three kinds are split
        separately: those with ID rows alone, those with OOD rows alone, and those with both.
    share : float or None
        OOD share that is expected in deployment.
    groups : ndarray of shape (n_samples,), optional
        Group of each row, numbered from 0 in the order in which they appear; by default each row is a group.

    Returns
    -------
    tuple of ndarray
        Indices of the rows that learn, and of the rows that test.

    Examples
    --------
    >>> split(np.ones(8, bool), None)
    (array([0, 1, 6]), array([2, 3, 4, 5, 7]))
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


def choose_guaranteed(learn: ScoredSamples, test: ScoredSamples, *, risk: float, delta: float) -> Thresholds:
    """Choose the loosest pair of the path whose risk is at most ``risk`` with confidence 1 - ``delta``.

    Parameters
    ----------
    learn : ScoredSamples
        Samples that choose the path of pairs and its start.
    test : ScoredSamples
        Samples that test the pairs, independent of ``learn``.
    risk : float
        Largest allowed share of failures (wrong labels and OOD inputs) among accepted inputs.
    delta : float
        Largest allowed probability that the risk is exceeded.

    Returns
    -------
    Thresholds
        Thresholds of the last pair that passed.

    Raises
    ------
    Infeasible
        If no pair passed, or one part has no ID sample. Its ``best`` holds about the least ``risk`` at this delta, and
        about the least ``delta`` at this risk, each found by bisection; 1 if there is none.

    Examples
    --------
    >>> from twofold.errors import Infeasible
    >>> few = ScoredSamples(np.ones(5, bool), np.ones(5, bool), conf_id=np.arange(5.0), conf_ood=np.zeros(5))
    >>> try:
    ...     choose_guaranteed(few, few, risk=0.01, delta=0.1)
    ... except Infeasible as error:
    ...     print(round(error.best["risk"], 2))
    0.37
    """
    best = {"risk": 1.0, "delta": 1.0}
    if learn.is_id.any() and test.is_id.any():
        curve = learn.curve()
        found = walk(learn, test, curve, risk, delta)
        if found is not None:
            return found
        best = {
            "risk": _least_passing(lambda other: walk(learn, test, curve, other, delta) is not None, risk),
            "delta": _least_passing(lambda other: walk(learn, test, curve, risk, other) is not None, delta),
        }
    units = "samples"
    available = f"{len(learn.correct)} + {len(test.correct)} validation samples"
    if learn.groups is not None and test.groups is not None:
        units = "groups"
        available += f" in {len(np.unique(learn.groups)) + len(np.unique(test.groups))} groups"
    hint = "no risk below 1 can be"
    if best["risk"] < 1.0:
        hint = f"about {best['risk']:.3g} can be at this delta"
    raise Infeasible(
        f"a risk of at most {risk:g} cannot be guaranteed at delta = {delta:g} with {available}; "
        f"{hint}: ask for a larger risk or delta, or bring more {units}",
        best,
    )


def _least_passing(passes: Callable[[float], bool], failing: float) -> float:
    """Find about the least value above ``failing`` that passes, by bisection; 1 if none below 1 does."""
    passing = 1.0
    for _ in range(7):
        middle = (failing + passing) / 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing


def walk(learn: ScoredSamples, test: ScoredSamples, curve: DoubleCurve, risk: float, delta: float) -> Thresholds | None:
    """Test the pairs of the path one after another, and return the last one that passed.

    Parameters
    ----------
    learn : ScoredSamples
        Samples that choose the path and its start.
    test : ScoredSamples
        Samples that test the pairs.
    curve : DoubleCurve
        Risk-coverage curve of ``learn`` over all pairs.
    risk : float
        Risk to be guaranteed.
    delta : float
        Level of each test.

    Returns
    -------
    Thresholds or None
        None if the first pair failed.
    """
    pairs = path(learn, curve, risk)
    if learn.groups is None:
        tested: RowTest | GroupTest = RowTest(learn, test, pairs, risk, delta)
    else:
        tested = GroupTest(learn, test, pairs, risk, delta)
    start = stop = tested.start  # pairs from start to stop have passed
    while stop < len(pairs):  # in blocks, because the walk may end early
        failed = np.flatnonzero(~(tested.p_values(slice(stop, stop + BLOCK)) <= delta))
        if len(failed):
            stop += int(failed[0])
            break
        stop = min(stop + BLOCK, len(pairs))
    if stop == start:
        return None
    tau_id, tau_ood = pairs[stop - 1]
    return Thresholds(float(tau_id), float(tau_ood))


class RowTest:
    """Compute p-values of "the risk exceeds ``risk``" along a path of pairs, from independent rows.

    Parameters
    ----------
    learn : ScoredSamples
        Samples that chose the path; they also fix the start and the combining weights.
    test : ScoredSamples
        Samples that test the pairs.
    pairs : ndarray of shape (n_pairs, 2)
        The path, from strict to loose.
    risk : float
        Risk to be guaranteed.
    delta : float
        Level of the test.
    """

    def __init__(self, learn: ScoredSamples, test: ScoredSamples, pairs: Array, risk: float, delta: float) -> None:
        self.risk, self.delta, self.share = risk, delta, learn.share
        first = Counts.of(learn, pairs)
        self.weights = combining_weights(first, risk, learn.share)
        self.counts = Counts.of(test, pairs)
        self.expected = first.scaled(len(test.correct) / len(learn.correct))

    @property
    def start(self) -> int:
        """Index of the pair that is most likely to pass, judged by the part that learns."""
        stride = max(1, len(self.weights) // STARTS)
        coarse = slice(0, None, stride)
        found = p_values(self.expected.at(coarse), self.risk, self.delta, self.share, self.weights[coarse])
        return stride * int(np.argmin(found))

    def p_values(self, places: slice) -> Array:
        """Compute the p-values at some pairs of the path.

        Parameters
        ----------
        places : slice
            Which pairs.

        Returns
        -------
        ndarray of shape (n_places,)
            P-values, valid at the level ``delta``.
        """
        return p_values(self.counts.at(places), self.risk, self.delta, self.share, self.weights[places])


def path(learn: ScoredSamples, curve: DoubleCurve, risk: float) -> Array:
    """Construct the path of pairs, from strict to loose, through the pair with most coverage at this risk.

    Both thresholds move together along a line between quantiles of their confidences. If no pair has this risk on the
    part that learns, the path goes through the pair of least risk with most coverage.

    Parameters
    ----------
    learn : ScoredSamples
        Samples that choose the path.
    curve : DoubleCurve
        Their risk-coverage curve over all pairs.
    risk : float
        Risk to be guaranteed.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Distinct thresholds ``(tau_id, tau_ood)``, each in the gap below a confidence; the last pair accepts everything.
    """
    feasible = np.flatnonzero(curve.risk <= risk + SLACK)
    if not len(feasible):
        feasible = np.flatnonzero(curve.risk == curve.risk.min())
    best = feasible[-1]
    through = curve.tau_id[best], curve.tau_ood[best]
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
    """Return the middle of the gap below each sorted confidence; infinite ones stay as they are."""
    finite = np.isfinite(ranked)
    levels, places = np.unique(ranked[finite], return_inverse=True)
    cuts = ranked.copy()
    cuts[finite] = gap_middles(levels)[places]
    return cuts


def combining_weights(counts: Counts, risk: float, share: float | None) -> Array:
    """Compute the weights of the normal scores of wrong labels and of accepted OOD inputs.

    They are proportional to the standard errors of the two parts of the risk, with unit length, and the angle is kept
    0.05 away from either axis.

    Parameters
    ----------
    counts : Counts
        Counts of the part that learns.
    risk : float
        Risk to be guaranteed.
    share : float or None
        OOD share that is expected in deployment; without it (or at 0) the weights are 1 and are not used.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Weights of wrong labels and of accepted OOD inputs at each pair.
    """
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
    """Compute the p-value of "the risk exceeds ``risk``" at each pair.

    Parameters
    ----------
    counts : Counts
        Counts of the part that tests.
    risk : float
        Risk to be guaranteed.
    delta : float
        Level of the test; a tenth of it pays for a bound of the ID coverage where ``share`` is above 0.
    share : float or None
        OOD share that is expected in deployment; None for that of the samples.
    weights : ndarray of shape (n_pairs, 2)
        Weights from :func:`combining_weights`; used where ``share`` is above 0.

    Returns
    -------
    ndarray of shape (n_pairs,)
        P-values; with a ``share`` above 0 they are valid at the level ``delta`` only.
    """
    if share is None:
        return binomial_tail(counts.wrong + counts.outside, counts.known + counts.outside, risk)
    if share == 0.0:
        return binomial_tail(counts.wrong, counts.known, risk)
    return _mixture_tail(counts, risk, delta, share, weights)


def binomial_tail(errors: Array, n: Array | float, rate: Array | float) -> Array:
    r"""Compute :math:`P(\mathrm{Bin}(n, \mathrm{rate}) \le \mathrm{errors})`, also between whole numbers.

    Parameters
    ----------
    errors : ndarray
        Number of failures.
    n : ndarray or float
        Number of trials.
    rate : ndarray or float
        Probability of a failure; values outside [0, 1] are clipped.

    Returns
    -------
    ndarray
        Probabilities, by the regularised incomplete beta function; 1 where ``errors >= n``.

    Examples
    --------
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
    levels, back = np.unique(counts.outside, return_inverse=True)  # few: one grid serves all pairs that accept as many
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
