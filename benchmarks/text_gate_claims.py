"""Claims on gates of msp and energy over text: two scores against one, thresholds that transfer, and promises."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from script import announce

import numpy as np

from claims import NOWHERE, Claim, judge
from intervals import exact_rate, of_replicates
from stratified_cells import PLAIN
from text_scores import COMMAND, SCALE, TextScores, decide_on_text
from twofold import metrics
from twofold.errors import Infeasible
from twofold.gate import Gate
from twofold.stats import bootstrap, sgr
from twofold.typing import Array

decide = partial(decide_on_text, unit="F1, points")
RESAMPLES, HALVINGS, DRAWS = 500, 200, 1000
CALIBRATION, RISK, DELTA = 2000, 0.02, 0.1


@dataclass(frozen=True)
class Queries:
    """Hold known and unknown queries, and the two confidences that a gate has of them.

    Parameters
    ----------
    correct, known : array of shape (n_queries,)
        Whether a query is known and labelled correctly, and whether it is known.
    msp, energy : array of shape (n_queries,)
        Confidences.
    """

    correct: Array
    known: Array
    msp: Array
    energy: Array

    def __len__(self) -> int:
        return len(self.correct)

    def select(self, rows: Array) -> Queries:
        """Select queries by a mask or by indices."""
        return Queries(self.correct[rows], self.known[rows], self.msp[rows], self.energy[rows])


def read_queries(scores: TextScores, name: str) -> Queries:
    """Return the queries of a set; near and far ones are unknown."""
    outputs = scores.sets[name]
    if name in ("near", "far"):
        correct = known = np.zeros(len(outputs), bool)
    else:
        correct = np.asarray(outputs.correct)
        known = np.ones(len(outputs), bool)
    return Queries(correct, known, scores.conf["MSR", PLAIN][name], scores.conf["Energy", PLAIN][name])


def join(parts: Sequence[Queries]) -> Queries:
    """Put sets of queries one behind the other."""
    return Queries(
        np.concatenate([part.correct for part in parts]),
        np.concatenate([part.known for part in parts]),
        np.concatenate([part.msp for part in parts]),
        np.concatenate([part.energy for part in parts]),
    )


# --- two scores against one -----------------------------------------------------------------------------------------


def claims_on_pairs(scores: TextScores) -> Iterable[Claim]:
    """Decide whether msp with energy has a larger F1 than msp alone, and whether far queries gain more from it."""
    announce("two scores against one")
    near, near_replicates = resample_gain(scores, "near")
    far, far_replicates = resample_gain(scores, "far")
    yield decide(
        "sure_plus",
        "On text two scores are better than msp alone against near queries",
        of_replicates(near, near_replicates),
        printed_at="Table 1",
        printed="F1 +0.25 at best on near sets",
    )
    yield decide(
        "sure_plus",
        "On text two scores are better than msp alone against far queries",
        of_replicates(far, far_replicates),
        printed_at="Table 1",
        printed="F1 +2.13 at best on far sets",
    )
    yield decide(
        "sure_plus",
        "On text far queries gain more from a second score than near ones",
        of_replicates(far - near, far_replicates - near_replicates),
        printed_at="Table 1",
        printed="+0.25 near, +2.13 far",
    )


def resample_gain(scores: TextScores, unknown: str) -> tuple[float, Array]:
    """Compute the gain of two scores with its replicates; known and unknown queries are resampled apart."""
    queries = join([read_queries(scores, "test"), read_queries(scores, unknown)])
    arrays = (queries.correct, queries.known, queries.msp, queries.energy)
    resampled = bootstrap(pair_gain, *arrays, n=RESAMPLES, seed=0, stratify=queries.known)
    return resampled.value, resampled.replicates


def pair_gain(correct: Array, known: Array, msp: Array, energy: Array) -> float:
    """Compute DS-F1 of two scores less F1 of msp alone."""
    return metrics.ds_f1(correct, msp, energy, known).value - metrics.f1(correct, msp, known).value


# --- thresholds that transfer ---------------------------------------------------------------------------------------


def claims_on_thresholds(scores: TextScores) -> Iterable[Claim]:
    """Decide whether a pair at thresholds of near queries stays ahead of both single scores on other queries."""
    announce("thresholds on fresh queries and on another unknown set")
    yield stays_ahead(
        scores,
        "near",
        "beyond",
        "On text thresholds of a pair stay ahead of single scores on fresh queries",
        printed_at=NOWHERE,
        printed="no paper prints it",
    )
    yield stays_ahead(
        scores,
        "far",
        "sure_plus",
        "On text thresholds of a pair stay ahead on another unknown set",
        printed_at="Table 2",
        printed="F1 26.0, single scores 24.4 and 24.9",
    )


def stays_ahead(scores: TextScores, judged: str, paper: str, claim: str, *, printed_at: str, printed: str) -> Claim:
    """Decide whether the pair has a larger F1 than the better single score, over halvings of the queries."""
    queries = join([read_queries(scores, "test"), read_queries(scores, "near")])
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(HALVINGS):
        is_chosen = generator.permutation(len(queries)) < len(queries) // 2
        rest = queries.select(~is_chosen)
        if judged != "near":
            rest = join([rest.select(rest.known), read_queries(scores, judged)])
        rows.append(transferred_f1(queries.select(is_chosen), rest))
    pair, msp, energy = np.array(rows).T
    gains = pair - np.maximum(msp, energy)
    return decide(
        paper,
        claim,
        of_replicates(float(gains.mean()), gains),
        numbers=f"pair {100 * pair.mean():.2f}, msp {100 * msp.mean():.2f}, energy {100 * energy.mean():.2f}",
        printed_at=printed_at,
        printed=printed,
    )


def transferred_f1(chosen: Queries, judged: Queries) -> tuple[float, float, float]:
    """Choose thresholds on some queries; return F1 of the pair, of msp and of energy on others."""
    best_pair = metrics.ds_f1(chosen.correct, chosen.msp, chosen.energy, chosen.known)
    best_msp = metrics.f1(chosen.correct, chosen.msp, chosen.known)
    best_energy = metrics.f1(chosen.correct, chosen.energy, chosen.known)
    by_pair = (judged.msp >= best_pair.tau_id) & (judged.energy >= best_pair.tau_ood)
    by_msp = judged.msp >= best_msp.threshold
    by_energy = judged.energy >= best_energy.threshold
    return accepted_f1(by_pair, judged), accepted_f1(by_msp, judged), accepted_f1(by_energy, judged)


def accepted_f1(accept: Array, queries: Queries) -> float:
    """Compute the F1 of accepting correct predictions."""
    return float(2 * (accept & queries.correct).sum() / (accept.sum() + queries.known.sum()))


# --- promises -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promises:
    """Hold how many of the promises were broken, and the mean coverage."""

    broken: int
    coverage: float


def claims_on_promises(scores: TextScores) -> Iterable[Claim]:
    """Decide whether a promised risk holds on fresh queries, and fails once out-of-scope queries arrive."""
    announce("promises")
    queries = join([read_queries(scores, name) for name in ("val", "test", "near")])
    known = np.flatnonzero(queries.known)
    every = np.arange(len(queries))
    figure = {"printed_at": "Figure 7", "printed": "kept on clean data, exceeded under shift"}
    yield decide_promise(
        "fd_shifts",
        "On text a guaranteed risk holds on fresh known queries",
        count_broken(fit_threshold, queries, drawn_from=known, judged_on=known),
        **figure,
    )
    yield decide_promise(
        "beyond",
        "On text the guarantee of a gate of two scores holds on fresh queries, out-of-scope ones among them",
        count_broken(fit_gate, queries, drawn_from=every, judged_on=every),
        printed_at=NOWHERE,
        printed="no paper prints it",
    )
    yield decide_promise(
        "fd_shifts",
        "On text a guarantee fitted on known queries fails once out-of-scope ones arrive",
        count_broken(fit_threshold, queries, drawn_from=known, judged_on=every),
        fails=True,
        **figure,
    )


def decide_promise(
    paper: str, claim: str, promises: Promises, *, fails: bool = False, printed_at: str, printed: str
) -> Claim:
    """Make a claim that promises are broken less often than allowed, or more often if the claim is that they fail."""
    low, high = exact_rate(promises.broken, DRAWS)
    ends = (DELTA - high, DELTA - low)
    if fails:
        ends = (low - DELTA, high - DELTA)
    return judge(
        paper,
        claim,
        printed_at=printed_at,
        printed=printed,
        ours=f"{promises.broken} of {DRAWS} promises broken, {promises.broken / DRAWS:.1%} [{low:.1%}, {high:.1%}], "
        f"{DELTA:.0%} allowed; mean coverage {promises.coverage:.1%}",
        low=100 * ends[0],
        high=100 * ends[1],
        unit="percent of promises",
        scale=f"{SCALE}; {CALIBRATION:,} calibration queries, {DRAWS} draws, risk {RISK:.0%}, confidence {1 - DELTA:.0%}",
        command=COMMAND,
    )


def count_broken(
    fit: Callable[[Queries, Queries], Array], queries: Queries, *, drawn_from: Array, judged_on: Array
) -> Promises:
    """Count the draws whose promise is broken on the population, and average their coverage.

    Parameters
    ----------
    fit : callable
        Fits a threshold or a gate on the first queries, and returns which of the second ones it accepts.
    queries : Queries
        All queries.
    drawn_from, judged_on : array of int
        Indices of the queries that calibration queries are drawn from, and of the population.
    """
    generator = np.random.default_rng(0)
    population = queries.select(judged_on)
    broken, coverages = 0, []
    for _ in range(DRAWS):
        drawn = queries.select(generator.choice(drawn_from, size=CALIBRATION))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accept = fit(drawn, population)
        coverages.append(accept.mean())
        broken += bool(accept.any() and (~population.correct[accept]).mean() > RISK)
    return Promises(broken, float(np.mean(coverages)))


def fit_threshold(drawn: Queries, population: Queries) -> Array:
    """Accept by a threshold of msp."""
    threshold = sgr(drawn.correct, drawn.msp, risk=RISK, delta=DELTA).threshold
    return population.msp >= threshold


def fit_gate(drawn: Queries, population: Queries) -> Array:
    """Accept by a gate of msp and energy; nothing if the promise is infeasible."""
    try:
        gate = Gate.fit_confidences(
            drawn.correct, drawn.msp, drawn.energy, is_id=drawn.known, objective="risk", risk=RISK, delta=DELTA
        )
    except Infeasible:
        return np.zeros(len(population), bool)
    return np.asarray(gate.decide_confidences(population.msp, population.energy).verdict == "accept")
