"""Rank pairs of an ID score and an OOD score by a joint metric, with intervals and what they do not promise."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold import _checks, metrics
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput, TwofoldWarning
from twofold.metrics import MetricInfo
from twofold.outputs import Outputs
from twofold.roles import FITTING, OOD_TEST
from twofold.run import Run
from twofold.scores.candidates import computable_scores, usual_scores
from twofold.scores.chain import Chain, scorer, select_id_rows
from twofold.scores.registry import Judged
from twofold.scores.tuning import Progress, ignore_progress
from twofold.stats import Interval, bootstrap, holm
from twofold.typing import Array, Mask

ONE_KIND = "chosen on OOD inputs of one kind (OOD-tuned): on other kinds another pair may be better."


@dataclass(frozen=True)
class RankedPair:
    """Record one pair of scores: its value, and its difference from the best pair.

    Parameters
    ----------
    id_score : str
        Score of correct against wrong predictions.
    ood_score : str
        Score of ID against OOD inputs.
    value : Interval
        Value of the metric, with a bootstrap interval.
    behind : Interval or None
        Value of the best pair minus that of this one; None for the best itself.
    p : float
        P-value of that difference, adjusted for the number of pairs shown; 1 for the best itself.
    top : bool
        Whether the pair is in the clique of the best: not significantly different from it.
    """

    id_score: str
    ood_score: str
    value: Interval
    behind: Interval | None
    p: float
    top: bool


@dataclass(frozen=True, repr=False)
class Recommendation:
    """Hold pairs of scores ranked by a joint metric on validation outputs, best first.

    Parameters
    ----------
    metric : str
        Name of the metric.
    pairs : tuple of RankedPair
        The best pairs, best first.
    tried : int
        Number of pairs that were tried.
    chains : mapping of str to Chain
        Fitted chains of the pairs, by their text.
    skipped : mapping of str to str
        Scores that could not be tried, or rank as another one, and why.
    cautions : tuple of str
        What the numbers do not promise, as sentences to show.
    """

    metric: str
    pairs: tuple[RankedPair, ...]
    tried: int
    chains: Mapping[str, Chain]
    skipped: Mapping[str, str]
    cautions: tuple[str, ...]

    @property
    def best(self) -> RankedPair:
        """The best pair."""
        return self.pairs[0]

    @property
    def clique(self) -> tuple[RankedPair, ...]:
        """The best pair and those that are statistically tied with it."""
        return tuple(pair for pair in self.pairs if pair.top)

    def __repr__(self) -> str:
        best, tied = self.best, len(self.clique) - 1
        return (
            f"Recommendation({best.id_score} + {best.ood_score} by {self.metric}, {tied} tied, of {self.tried} pairs)"
        )

    def _repr_html_(self) -> str:
        rows = []
        for pair in self.pairs:
            rows.append((pair.id_score, pair.ood_score, str(pair.value), "tied for best" if pair.top else ""))
        title = f"Recommendation by {self.metric}: the best {len(self.pairs)} of {self.tried:,} pairs"
        return card(title, None, NotebookTable(("ID score", "OOD score", "value", ""), rows), self.cautions)

    def __str__(self) -> str:
        names = [f"{pair.id_score} + {pair.ood_score}" for pair in self.pairs]
        width = max(map(len, names))
        lines = [f"{self.metric} of the best {len(self.pairs)} of {self.tried} pairs (id score + ood score)"]
        for name, pair in zip(names, self.pairs, strict=True):
            mark = "*" if pair.top else " "
            lines.append(f"{mark} {name:<{width}}  {pair.value}")
        lines.append("* statistically tied with the best")
        lines += [f"Caution: {text}" for text in self.cautions]
        return "\n".join(lines)


@dataclass(frozen=True)
class _TriedPair:
    """Record the value of one pair."""

    id_score: str
    ood_score: str
    value: float

    @property
    def names(self) -> tuple[str, str]:
        """Both scores, the ID score first."""
        return self.id_score, self.ood_score


@dataclass(frozen=True, eq=False)
class _ScoredRows:
    """Hold the confidences of validation rows, followed by OOD validation rows, and what they are compared with."""

    metric: MetricInfo
    chains: Mapping[str, Chain]  # fitted, by their text
    conf: Mapping[str, Array]  # by the text of the chain
    correct: Mapping[Judged, Mask]  # by the prediction that is judged
    is_id: Mask

    @classmethod
    def of(
        cls, metric: MetricInfo, chains: Mapping[str, Chain], conf: Mapping[str, Array], val: Outputs, n_ood: int
    ) -> _ScoredRows:
        """Join what is correct on the validation rows with ``n_ood`` OOD rows, which are all failures."""
        ood = np.zeros(n_ood, bool)
        by_logits = np.concatenate([val.correct, ood])
        by_passes = by_logits
        if val.passes is not None:
            by_passes = np.concatenate([val.averaged().correct, ood])
        is_id = np.arange(len(val) + n_ood) < len(val)
        return cls(metric, chains, conf, {"logits": by_logits, "passes": by_passes}, is_id)

    def arrays(self, id_score: str, ood_score: str) -> tuple[Mask, Array, Array]:
        """Return what the metric takes: the prediction that the ID score judges, and both confidences."""
        return self.correct[self.chains[id_score].judges], self.conf[id_score], self.conf[ood_score]

    def value(self, id_score: str, ood_score: str) -> float:
        """Compute the metric of a pair."""
        return self.metric.value(*self.arrays(id_score, ood_score), is_id=self.is_id)

    def aurc(self, spec: str) -> float:
        """Compute the AURC of one score on the validation rows."""
        correct = self.correct[self.chains[spec].judges]
        return metrics.aurc(correct[self.is_id], self.conf[spec][self.is_id])


@dataclass(frozen=True)
class _Resampling:
    """Hold the settings of the bootstrap."""

    n: int
    level: float
    seed: int

    def interval(self, rows: _ScoredRows, pair: _TriedPair, better: _TriedPair | None = None) -> Interval:
        """Estimate the value of a pair, or by how much another pair is better."""
        arrays, versus = rows.arrays(*pair.names), None
        if better is not None:
            arrays, versus = rows.arrays(*better.names), arrays
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TwofoldWarning)  # undefined resamples are counted in the interval
            return bootstrap(
                rows.metric.function,
                *arrays,
                versus=versus,
                is_id=rows.is_id,
                stratify=rows.is_id,
                n=self.n,
                level=self.level,
                seed=self.seed,
            )


def recommend(
    run: Run,
    *,
    metric: str = "ds_f1",
    id_scores: Iterable[str] | None = None,
    ood_scores: Iterable[str] | None = None,
    ood: str | None = None,
    show: int = 10,
    n: int = 1000,
    level: float = 0.95,
    alpha: float = 0.05,
    seed: int = 0,
    done: Progress = ignore_progress,
) -> Recommendation:
    """Rank the pairs (ID score, OOD score) of a run by a joint metric on its validation outputs.

    Every score that the run's outputs allow (or those passed) is fitted on the set with role ``train``, and all pairs
    are evaluated on ``val`` together with ``ood_val``, or with the set named by ``ood``.

    Parameters
    ----------
    run : Run
        A run with the roles train and val, and ood_val unless ``ood`` is set.
    metric : {"ds_f1", "ds_aurc"}, default="ds_f1"
        Joint metric of two scores.
    id_scores : iterable of str, optional
        Candidates for the ID score; by default all scores that the outputs allow.
    ood_scores : iterable of str, optional
        Candidates for the OOD score; by default all scores that the outputs allow.
    ood : str, optional
        Name of a data set to use instead of the role ood_val.
    show : int, default=10
        Number of the best pairs that are returned, with bootstrap intervals.
    n : int, default=1000
        Number of bootstrap resamples, drawn separately within ID and OOD inputs.
    level : float, default=0.95
        Confidence level of the intervals.
    alpha : float, default=0.05
        Significance level of the differences from the best pair, after Holm's correction.
    seed : int, default=0
        Seed of the bootstrap.
    done : callable, optional
        Called with a text after each finished part, for progress.

    Returns
    -------
    Recommendation
        The best pairs. Its ``clique`` is the best pair and all shown pairs whose paired bootstrap difference from it is
        not significant. Its ``cautions`` say what the numbers do not promise.

    Raises
    ------
    InvalidInput
        If the metric does not take two scores, the run lacks one of the roles, or no pair can be tried.
    UnknownName
        If there is no such metric, score or data set.

    Notes
    -----
    Both metrics treat the two scores alike, so a pair is tried one way round; its ID score is the one with the lower
    AURC on ``val``. Scores that rank the validation samples exactly as an earlier one are skipped. The chains of the
    result are labelled OOD-tuned.
    """
    train, val, ood_val = _find_sets(run, ood)
    found = rank_pairs(
        train,
        val,
        ood_val,
        metric=metric,
        id_scores=id_scores,
        ood_scores=ood_scores,
        show=show,
        n=n,
        level=level,
        alpha=alpha,
        seed=seed,
        done=done,
    )
    cautions = [*_cautions_of_tests(run, ood, ood_val), *found.cautions]
    return dataclasses.replace(found, cautions=tuple(cautions))


def rank_pairs(
    train: Outputs | None,
    val: Outputs,
    ood_val: Outputs,
    *,
    metric: str = "ds_f1",
    id_scores: Iterable[str | Chain] | None = None,
    ood_scores: Iterable[str | Chain] | None = None,
    show: int = 10,
    baseline: tuple[str, str] | None = None,
    n: int = 1000,
    level: float = 0.95,
    alpha: float = 0.05,
    seed: int = 0,
    done: Progress = ignore_progress,
) -> Recommendation:
    """Rank the pairs (ID score, OOD score) of outputs in memory, as :func:`recommend` does those of a run.

    Parameters
    ----------
    train : Outputs or None
        Training outputs, which scores learn from; without them scores that learn are skipped.
    val : Outputs
        Labelled validation outputs of known classes.
    ood_val : Outputs
        Validation outputs of no known class.
    metric : {"ds_f1", "ds_aurc"}, default="ds_f1"
        Joint metric of two scores.
    id_scores : iterable of str or Chain, optional
        Candidates for the ID score; by default all scores that the outputs allow. A fitted chain is used as it is.
    ood_scores : iterable of str or Chain, optional
        Candidates for the OOD score, likewise.
    show : int, default=10
        Number of the best pairs that are returned, with bootstrap intervals.
    baseline : pair of str, optional
        A pair that is returned too, whatever its rank, if it was tried.
    n : int, default=1000
        Number of bootstrap resamples, drawn separately within ID and OOD inputs.
    level : float, default=0.95
        Confidence level of the intervals.
    alpha : float, default=0.05
        Significance level of the differences from the best pair, after Holm's correction.
    seed : int, default=0
        Seed of the bootstrap.
    done : callable, optional
        Called with a text after each finished part, for progress.

    Returns
    -------
    Recommendation
        The best pairs, as :func:`recommend` returns them.

    Raises
    ------
    InvalidInput
        If the metric does not take two scores, or no pair can be tried.
    UnknownName
        If there is no such metric or score.

    Examples
    --------
    >>> val = Outputs([[4.0, 0.0], [0.0, 3.0], [1.0, 0.5]], labels=[0, 1, 1])
    >>> found = rank_pairs(None, val, Outputs([[0.2, 0.1], [0.1, 0.3]]), id_scores=["msp"], ood_scores=["energy"], n=20)
    >>> found.best.id_score, found.best.ood_score, found.tried
    ('msp', 'energy', 1)
    """
    record = metrics.info(metric)
    if not {"conf_id", "conf_ood"} <= set(record.arrays):
        raise InvalidInput(f"recommend chooses by a metric of two scores, ds_f1 or ds_aurc, got {metric!r}")
    _checks.whole(show, "show", 1)
    sets = [val, ood_val] if train is None else [train, val, ood_val]
    first_chains, second_chains = _read_candidates(id_scores, sets), _read_candidates(ood_scores, sets)
    firsts, seconds = list(first_chains), list(second_chains)
    chains, skipped = _fit_scores({**first_chains, **second_chains}, train, val, done)
    conf = _score_distinct(chains, val, ood_val, skipped, firsts, seconds)
    rows = _ScoredRows.of(record, chains, conf, val, len(ood_val))
    tried = _try_pairs(rows, firsts, seconds, done)
    if not tried:
        reasons = "; ".join(f"{spec}: {reason}" for spec, reason in list(skipped.items())[:3])
        raise InvalidInput(f"no pair of scores could be tried ({reasons})")
    tried.sort(key=lambda pair: pair.value, reverse=record.better == "higher")
    best = tried[:show]
    best += [pair for pair in tried[show:] if baseline is not None and set(pair.names) == set(baseline)]
    pairs = _compare_with_best(rows, best, _Resampling(n, level, seed), alpha, done)
    shown: set[str] = set()
    for pair in pairs:
        shown |= {pair.id_score, pair.ood_score}
    kept = {}
    for spec, chain in chains.items():
        if spec in shown:
            kept[spec] = dataclasses.replace(chain, tuned_on="ood_val")
    return Recommendation(metric, pairs, len(tried), kept, skipped, (ONE_KIND,))


def _find_sets(run: Run, ood: str | None) -> tuple[Outputs, Outputs, Outputs]:
    """Return training, validation and OOD validation outputs."""
    sets = []
    for role in FITTING:
        names = run.names(role)
        if role == "ood_val" and ood is not None:
            names = [ood]
        if not names:
            remedy = "add them with run.add"
            if role == "ood_val":
                remedy += "; or name one with ood="
            raise InvalidInput(f"recommend needs outputs with role {role}, and the run has none; {remedy}")
        parts = [run[name] for name in names]
        if len(parts) == 1:
            sets.append(parts[0])
        else:
            sets.append(Outputs.concat(parts))
    train, val, ood_val = sets
    return select_id_rows(train), select_id_rows(val), ood_val


def _read_candidates(scores: Iterable[str | Chain] | None, sets: Sequence[Outputs]) -> dict[str, Chain]:
    """Return the requested scores by their text, or all that need only what every set holds."""
    if scores is None:
        scores = computable_scores(sets)
    chains = {}
    for score in scores:
        chain = scorer(score)
        chains[chain.spec] = chain
    return chains


def _fit_scores(
    candidates: Mapping[str, Chain], train: Outputs | None, val: Outputs, done: Progress
) -> tuple[dict[str, Chain], dict[str, str]]:
    """Fit every score that is not fitted; return the chains, and why others could not be fitted."""
    chains, skipped = {}, {}
    for spec, chain in candidates.items():
        try:
            if chain.fitted_on or (train is None and chain.ready):
                chains[spec] = chain
            elif train is None:
                skipped[spec] = f"{spec} learns from a training set, and there is none"
            else:
                chains[spec] = chain.fit(train, val=val)
        except InvalidInput as error:
            skipped[spec] = str(error)
        done(f"fitting {spec}")
    return chains, skipped


def _score_distinct(
    chains: Mapping[str, Chain],
    val: Outputs,
    ood_val: Outputs,
    skipped: dict[str, str],
    id_scores: Sequence[str],
    ood_scores: Sequence[str],
) -> dict[str, Array]:
    """Compute the scores on both sets, without those that fail or rank as an earlier candidate of the same kind."""
    scores: dict[str, Array] = {}
    rankings: dict[tuple[bytes, bool, bool], str] = {}
    for spec, chain in chains.items():
        try:
            conf = np.concatenate([chain.score(val), chain.score(ood_val)])
        except InvalidInput as error:
            skipped[spec] = str(error)
            continue
        ranking = (np.unique(conf, return_inverse=True)[1].tobytes(), spec in id_scores, spec in ood_scores)
        if ranking in rankings:
            skipped[spec] = f"ranks the validation samples as {rankings[ranking]} does"
        else:
            rankings[ranking] = spec
            scores[spec] = conf
    return scores


def _try_pairs(
    rows: _ScoredRows, id_scores: Sequence[str], ood_scores: Sequence[str], done: Progress
) -> list[_TriedPair]:
    """Compute the metric of every pair; of two orders the one whose ID score has the lower AURC is reported."""
    aurc = {spec: rows.aurc(spec) for spec in rows.conf}
    tried = []
    seen: set[tuple[str, str]] = set()
    for first in id_scores:
        if first not in rows.conf:
            continue
        for second in ood_scores:
            if second not in rows.conf or (first, second) in seen:
                continue
            seen.add((first, second))
            value = rows.value(first, second)
            in_both = first in ood_scores and second in id_scores
            either_order = in_both and rows.chains[first].judges == rows.chains[second].judges
            if either_order:
                seen.add((second, first))
            if either_order and aurc[second] < aurc[first]:
                tried.append(_TriedPair(second, first, value))
            else:
                tried.append(_TriedPair(first, second, value))
        done(f"pairs of {first}")
    return tried


def _compare_with_best(
    rows: _ScoredRows, tried: Sequence[_TriedPair], resampling: _Resampling, alpha: float, done: Progress
) -> tuple[RankedPair, ...]:
    """Estimate intervals of the pairs and of their differences from the first one, which is the best."""
    best = tried[0]
    values: list[Interval] = []
    behind: list[Interval | None] = []
    p_values = []
    for pair in tried:
        values.append(resampling.interval(rows, pair))
        if pair.names == best.names:
            behind.append(None)
        else:
            difference = resampling.interval(rows, pair, better=best)
            behind.append(difference)
            p_values.append(difference.p)
        done(f"interval of {pair.id_score} + {pair.ood_score}")
    p = np.ones(len(tried))
    p[1:] = holm(np.array(p_values, dtype=np.float64))
    ranked = []
    for i, pair in enumerate(tried):
        is_tied = bool(p[i] >= alpha)
        ranked.append(RankedPair(pair.id_score, pair.ood_score, values[i], behind[i], float(p[i]), is_tied))
    return tuple(ranked)


def _cautions_of_tests(run: Run, ood: str | None, ood_val: Outputs) -> Iterator[str]:
    """Say which test sets of a run the pair was chosen on, in whole sentences."""
    tests = [name for name, role in run.roles.items() if role in OOD_TEST]
    if ood is not None and ood in tests:
        yield (
            f"the pair was chosen on {ood}, which is a test set of this run: its numbers on {ood} are no longer test "
            "results. Choose on other OOD inputs, or report other sets."
        )
        tests.remove(ood)
    chosen_on = set(_row_bytes(ood_val))
    for name in tests:
        shared = sum(row in chosen_on for row in _row_bytes(run[name]))
        if shared:
            yield (
                f"{shared} of {len(run[name])} samples of the test set {name} are among the OOD inputs that the pair "
                "was chosen on: numbers on them are optimistic."
            )


def _row_bytes(outputs: Outputs) -> Iterator[bytes]:
    """Return the logits of each row as bytes, by which equal samples are found."""
    for row in np.asarray(outputs.logits):
        yield row.tobytes()


def choose_pairs(
    run: Run,
    scores: Sequence[str] | None = None,
    *,
    show: int = 3,
    n: int = 1000,
    seed: int = 0,
    done: Progress = ignore_progress,
) -> Recommendation:
    """Choose pairs of scores by the rule of the demo and the report: best DS-F1 on validation data.

    Every pair of the candidates is tried, one way round, on the run's sets with the roles ``val`` and ``ood_val``, at
    their own share of OOD inputs; test sets are not used.

    Parameters
    ----------
    run : Run
        A run with the roles train, val and ood_val.
    scores : sequence of str, optional
        The candidates; by default those of ``USUAL`` that the outputs of every judged set allow.
    show : int, default=3
        Number of the best pairs that are returned.
    n : int, default=1000
        Number of bootstrap resamples of the intervals; it does not change which pair is best.
    seed : int, default=0
        Seed of the bootstrap; it does not change which pair is best.
    done : callable, optional
        Called with a text after each finished part, for progress.

    Returns
    -------
    Recommendation
        The best pairs; ``tried`` counts all of them.

    Raises
    ------
    InvalidInput
        If the run lacks one of the roles, or no candidate can be used.
    """
    candidates = scores
    if candidates is None:
        candidates = usual_scores(run)
    return recommend(run, id_scores=candidates, ood_scores=candidates, show=show, n=n, seed=seed, done=done)
