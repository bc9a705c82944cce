"""Choose the settings of a score, and the pair of scores that separates both kinds of failure best.

Everything is computed from stored outputs; the network never runs again. The result records what was chosen on which
data: ``label`` of a chain is ``untuned``, ``ID-tuned`` or ``OOD-tuned``.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from twofold import _checks, metrics
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput, TwofoldWarning, UndefinedMetric
from twofold.metrics import MetricInfo
from twofold.outputs import FIELDS, Outputs
from twofold.roles import FITTING, OOD_TEST
from twofold.run import Run
from twofold.scores.chain import Chain, fit_all, scorer, select_id_rows
from twofold.scores.registry import step_names
from twofold.scores.scoring import reads_scale, score_all
from twofold.scores.step import ChainStep
from twofold.stats import Interval, bootstrap, holm

USUAL = ("msp", "energy", "mls", "entropy", "gen", "knn", "mds", "vim", "neco", "fdbd")
"""Scores whose pairs :func:`choose_pairs` tries unless others are asked for, as far as the outputs allow them."""

Done = Callable[[str], Any]
Grid = Mapping[str, Iterable[Any]]


@dataclass(frozen=True)
class Trial:
    """Record one choice of settings and the value it reached.

    Parameters
    ----------
    spec : str
        The chain as text.
    value : float
        Value of the metric; NaN where the settings could not be tried, or the metric is undefined.
    problem : str, default=""
        Why the value is NaN.
    """

    spec: str
    value: float
    problem: str = ""


@dataclass(frozen=True)
class Tuned:
    """Hold the best chain, fitted, and every trial, best first.

    Parameters
    ----------
    chain : Chain
        The best chain, fitted.
    value : float
        Its value on the validation outputs.
    metric : str
        Name of the metric.
    trials : tuple of Trial
        All trials, best first; those that could not be tried come last.
    """

    chain: Chain
    value: float
    metric: str
    trials: tuple[Trial, ...]

    @property
    def label(self) -> Literal["untuned", "ID-tuned", "OOD-tuned"]:
        """On what the settings were chosen: ``ID-tuned`` or ``OOD-tuned``."""
        return self.chain.label


def tune(
    chain: str | Chain,
    train: Outputs,
    val: Outputs,
    ood_val: Outputs | None = None,
    metric: str = "augrc",
    *,
    grid: Grid | None = None,
    done: Done = lambda _: None,
) -> Tuned:
    """Try the settings that the steps of a chain declare, and keep the best by a metric on validation outputs.

    Parameters
    ----------
    chain : str or Chain
        The chain. Settings that it states are not changed.
    train : Outputs
        Training set for steps that learn. Rows labelled -1 are left out.
    val : Outputs
        Labelled validation set. Rows labelled -1 are left out.
    ood_val : Outputs, optional
        OOD validation set. Without it the metric separates correct from wrong predictions (ID-tuned). With it, all its
        rows are failures too, and detection metrics separate ID from OOD inputs (OOD-tuned: such numbers are optimistic
        for OOD inputs of that kind).
    metric : str, default="augrc"
        Name of a registered metric of one confidence, such as aurc, augrc or auroc.
    grid : mapping of str to iterable, optional
        Values to try instead of the declared ones: ``{"react.percentile": (85, 95)}``.
    done : callable, optional
        Called with the text of each finished trial, for progress.

    Returns
    -------
    Tuned
        The best chain, fitted, its value and all trials.

    Raises
    ------
    UnknownName
        If there is no such metric or step.
    InvalidInput
        If nothing is left to tune, ``grid`` names no step or setting of the chain, no settings fit the outputs, or the
        metric needs arrays that are not there.
    UndefinedMetric
        If the metric has no value for any setting.

    Notes
    -----
    Settings that do not fit the data are skipped and listed with the reason. Among equal values the first in the grid
    wins, and the defaults come before all others.

    Examples
    --------
    >>> train = Outputs([[2.0, 1.0], [0.0, 1.0], [1.0, 0.5], [0.0, 3.0]], labels=[0, 1, 1, 1])
    >>> found = tune("maxlogit_pnorm", train, train)
    >>> found.chain.spec, found.label, len(found.trials)
    ('maxlogit_pnorm(p=0)', 'ID-tuned', 10)
    """
    record = metrics.info(metric)
    base = scorer(chain)
    candidates = [base, *_candidates(base, grid)]
    train, val = select_id_rows(train), select_id_rows(val)
    fitted, problems = _fitted(candidates, train, val, ood_val)
    if not fitted:
        raise InvalidInput(
            f"none of the settings of {base.spec} fit these outputs; the first problem: {problems[0].problem}"
        )
    sets = [val] if ood_val is None else [val, ood_val]
    scores = [np.concatenate(parts) for parts in zip(*(score_all(fitted, o) for o in sets), strict=True)]
    judged = [o.averaged() if base.judges == "passes" else o for o in sets]
    right = np.concatenate([judged[0].correct, *(np.zeros(len(o), bool) for o in judged[1:])])
    inside = None if ood_val is None else np.arange(len(right)) < len(val)
    trials = []
    for one, conf in zip(fitted, scores, strict=True):
        trials.append(_trial(record, one.spec, right, conf, inside))
        done(one.spec)
    sign = 1.0 if record.better == "lower" else -1.0
    order = sorted(range(len(trials)), key=lambda i: (math.isnan(trials[i].value), sign * trials[i].value))
    best = trials[order[0]]
    if math.isnan(best.value):
        raise UndefinedMetric(f"{metric} has no value for any setting of {base.spec}: {best.problem}")
    found = dataclasses.replace(fitted[order[0]], tuned_on="val" if ood_val is None else "ood_val")
    return Tuned(found, best.value, metric, (*(trials[i] for i in order), *problems))


def _candidates(base: Chain, grid: Grid | None) -> list[Chain]:
    """Build one chain for each combination of the settings that the chain leaves open."""
    open_settings: dict[tuple[int, str], tuple[Any, ...]] = {}
    for i, step in enumerate(base.steps):
        for name, values in step.info.grid.items():
            if name not in step.settings:
                open_settings[i, name] = values
    if grid is not None:
        open_settings = {}
        for key, wanted in grid.items():
            step_name, _, name = key.rpartition(".")
            places = [i for i, step in enumerate(base.steps) if step.info.name == step_name]
            if not places:
                known = ", ".join(f"{step.info.name}.SETTING" for step in base.steps)
                raise InvalidInput(f"grid: {key!r} names no step of {base.spec}; write {known}")
            ChainStep.make(base.steps[places[0]].info, {name: None})  # raises at an unknown setting
            open_settings[places[0], name] = tuple(wanted)
    if not open_settings:
        raise InvalidInput(
            f"{base.spec} declares nothing to tune; pass grid={{'step.setting': values}}, or use it as it is"
        )
    chains = []
    for values in product(*open_settings.values()):
        settings: list[dict[str, Any]] = [dict(step.settings) for step in base.steps]
        for (i, name), value in zip(open_settings, values, strict=True):
            settings[i][name] = value
        made = [ChainStep.make(step.info, chosen) for step, chosen in zip(base.steps, settings, strict=True)]
        chains.append(Chain(tuple(made)))
    return chains


def _fitted(
    chains: Sequence[Chain], train: Outputs, val: Outputs | None, ood_val: Outputs | None
) -> tuple[list[Chain], list[Trial]]:
    """Return the chains that could be fitted, and why the others could not."""
    fitted, problems = [], []
    for chain in chains:
        try:
            scorer(chain.spec)  # raises if the steps do not go together
            fitted += fit_all([chain], train, val=val, ood_val=ood_val)
        except InvalidInput as error:
            problems.append(Trial(chain.spec, math.nan, str(error)))
    return fitted, problems


def _trial(record: MetricInfo, spec: str, right: Mask, conf: Array, inside: Mask | None) -> Trial:
    arrays = {"correct": right, "conf": conf, "conf_id": conf, "conf_ood": conf}
    arrays["truth"] = right if inside is None else inside
    if inside is not None:
        arrays["is_id"] = inside
    missing = [name for name in record.arrays if name not in (*arrays, "loss", "is_id")]
    if missing or ("is_id" in record.arrays and inside is None and record.task in ("joint", "ood")):
        needed = missing[0] if missing else "ood_val"
        raise InvalidInput(f"{record.name} cannot choose settings here: it needs {needed}; use aurc, augrc or auroc")
    given = {name: array for name, array in arrays.items() if name in record.arrays}
    try:
        return Trial(spec, record.value(**given))
    except UndefinedMetric as error:
        return Trial(spec, math.nan, str(error))


@dataclass(frozen=True)
class Pair:
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
    behind: Interval | None  # value of the best minus this one; None for the best itself
    p: float  # of that difference, adjusted for the number of pairs shown
    top: bool  # in the clique of the best: not significantly different from it


@dataclass(frozen=True, repr=False)
class Recommendation:
    """Hold pairs of scores ranked by a joint metric on validation outputs, best first.

    Parameters
    ----------
    metric : str
        Name of the metric.
    pairs : tuple of Pair
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
    pairs: tuple[Pair, ...]
    tried: int
    chains: Mapping[str, Chain]  # fitted, those of the pairs
    skipped: Mapping[str, str]  # scores that could not be tried, and why
    cautions: tuple[str, ...]

    @property
    def best(self) -> Pair:
        """The best pair."""
        return self.pairs[0]

    @property
    def clique(self) -> tuple[Pair, ...]:
        """The best pair and those that are statistically tied with it."""
        return tuple(pair for pair in self.pairs if pair.top)

    def __repr__(self) -> str:
        best, tied = self.best, len(self.clique) - 1
        return (
            f"Recommendation({best.id_score} + {best.ood_score} by {self.metric}, {tied} tied, of {self.tried} pairs)"
        )

    def __str__(self) -> str:
        wide = max(len(f"{p.id_score} + {p.ood_score}") for p in self.pairs)
        lines = [f"{self.metric} of the best {len(self.pairs)} of {self.tried} pairs (id score + ood score)"]
        for pair in self.pairs:
            mark = "*" if pair.top else " "
            lines.append(f"{mark} {f'{pair.id_score} + {pair.ood_score}':<{wide}}  {pair.value}")
        lines.append("* not told apart from the best")
        return "\n".join([*lines, *(f"Caution: {text}" for text in self.cautions)])


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
    done: Done = lambda _: None,
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
    record = metrics.info(metric)
    if not {"conf_id", "conf_ood"} <= set(record.arrays):
        raise InvalidInput(f"recommend chooses by a metric of two scores, ds_f1 or ds_aurc, got {metric!r}")
    train, val, unknown = _sets(run, ood)
    firsts = _scores(id_scores, (train, val, unknown))
    seconds = _scores(ood_scores, (train, val, unknown))
    chains, skipped = {}, {}
    for spec in dict.fromkeys([*firsts, *seconds]):
        fitted, problems = _fitted([scorer(spec)], train, val, None)
        if problems:
            skipped[spec] = problems[0].problem
        else:
            chains[spec] = fitted[0]
        done(f"fitting {spec}")
    scores = _distinct(chains, val, unknown, skipped)
    right = {"logits": val.correct, "passes": val.averaged().correct if val.passes is not None else val.correct}
    nothing = np.zeros(len(unknown), bool)
    truth = {judged: np.concatenate([correct, nothing]) for judged, correct in right.items()}
    inside = np.arange(len(val) + len(unknown)) < len(val)
    sign = 1.0 if record.better == "higher" else -1.0
    doubt = {spec: metrics.aurc(right[chains[spec].judges], conf[: len(val)]) for spec, conf in scores.items()}
    table = []
    for first, second, free in _pairs(firsts, seconds, scores, chains):
        value = record.value(truth[chains[first].judges], scores[first], scores[second], is_id=inside)
        turned = free and doubt[second] < doubt[first]
        table.append((sign * value, *((second, first) if turned else (first, second))))
        if second == seconds[-1]:
            done(f"pairs of {first}")
    if not table:
        reasons = "; ".join(f"{spec}: {why}" for spec, why in list(skipped.items())[:3])
        raise InvalidInput(f"no pair of scores could be tried ({reasons})")
    ranked = sorted(table, key=lambda row: -row[0])[: _checks.whole(show, "show", 1)]

    def interval(first: str, second: str, versus: tuple[str, str] | None = None) -> Interval:
        def arrays(one: str, other: str) -> tuple[Array, ...]:
            return truth[chains[one].judges], scores[one], scores[other]

        against = None if versus is None else arrays(first, second)
        given = arrays(first, second) if versus is None else arrays(*versus)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TwofoldWarning)  # undefined resamples are counted in the interval
            return bootstrap(
                record.function, *given, versus=against, is_id=inside, stratify=inside, n=n, level=level, seed=seed
            )

    best = ranked[0][1:]
    values, behind = [], []
    for _, first, second in ranked:
        values.append(interval(first, second))
        behind.append(None if (first, second) == best else interval(first, second, versus=best))
        done(f"interval of {first} + {second}")
    p = np.ones(len(ranked))
    p[1:] = holm([gap.p for gap in behind if gap is not None])
    pairs = tuple(
        Pair(first, second, value, gap, float(adjusted), bool(adjusted >= alpha))
        for (_, first, second), value, gap, adjusted in zip(ranked, values, behind, p, strict=True)
    )
    used = {spec for pair in pairs for spec in (pair.id_score, pair.ood_score)}
    kept = {spec: dataclasses.replace(chains[spec], tuned_on="ood_val") for spec in chains if spec in used}
    return Recommendation(metric, pairs, len(table), kept, skipped, tuple(_cautions(run, ood, unknown)))


def choose_pairs(
    run: Run,
    scores: Sequence[str] | None = None,
    *,
    show: int = 3,
    n: int = 1000,
    seed: int = 0,
    done: Done = lambda _: None,
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
    candidates = usual_scores(run) if scores is None else list(scores)
    return recommend(run, id_scores=candidates, ood_scores=candidates, show=show, n=n, seed=seed, done=done)


def usual_scores(run: Run) -> list[str]:
    """List the scores of ``USUAL`` that the outputs of every judged set of a run allow.

    Parameters
    ----------
    run : Run
        The run; its sets with the roles train and shift are not considered.

    Returns
    -------
    list of str
        Names of scores, in the order of ``USUAL``.
    """
    allowed = computable(judged_sets(run))
    return [name for name in USUAL if name in allowed]


def judged_sets(run: Run) -> list[Outputs]:
    """Return the sets that scores are chosen and judged on: all but those with the roles train and shift.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    list of Outputs
        Outputs of each such set, in the order in which they were added.
    """
    return [run[name] for name, role in run.roles.items() if role not in ("train", "shift")]


def _sets(run: Run, ood: str | None) -> tuple[Outputs, Outputs, Outputs]:
    """Return training, validation and OOD validation outputs."""
    found = []
    for role in FITTING:
        named = [ood] if role == "ood_val" and ood is not None else run.names(role)
        if not named:
            hint = "; or name one with ood=" if role == "ood_val" else ""
            raise InvalidInput(
                f"recommend needs outputs with role {role}, and the run has none; add them with run.add{hint}"
            )
        found.append(run[named[0]] if len(named) == 1 else Outputs.concat([run[name] for name in named]))
    train, val, unknown = found
    return select_id_rows(train), select_id_rows(val), unknown


def _scores(given: Iterable[str] | None, sets: Sequence[Outputs]) -> list[str]:
    """Return the requested scores, or all that need only what every set holds."""
    return computable(sets) if given is None else [scorer(spec).spec for spec in given]


def computable(sets: Sequence[Outputs]) -> list[str]:
    """List the scores that need only what all of these outputs hold, including the scale of the logits.

    Parameters
    ----------
    sets : sequence of Outputs
        At least one.

    Returns
    -------
    list of str
        Names of scores, without the combinations sum, product and mc. Where the logits of a set come from
        probabilities, scores that read their scale are left out, as far as this can be tested before a fit.

    Examples
    --------
    >>> "energy" in computable([Outputs([[2.0, 1.0]])])
    True
    >>> "energy" in computable([Outputs.from_probabilities([[0.9, 0.1]])])
    False
    """
    names = [name for name in step_names("score", needs=held(sets)) if name not in ("sum", "product", "mc")]
    normalised = [one for one in sets if one.is_scale_lost]
    if not normalised:
        return names
    return [name for name in names if not scorer(name).ready or not reads_scale(scorer(name), normalised[0])]


def held(sets: Sequence[Outputs]) -> set[str]:
    """Return the fields that all of these outputs hold.

    Parameters
    ----------
    sets : sequence of Outputs
        At least one.

    Returns
    -------
    set of str
        Names of fields; empty mappings do not count.

    Examples
    --------
    >>> sorted(held([Outputs([[2.0, 1.0]], labels=[0]), Outputs([[2.0, 1.0]])]))
    ['logits', 'predictions']
    """
    return set.intersection(*({name for name in FIELDS if _held(one, name)} for one in sets))


def _held(outputs: Outputs, name: str) -> bool:
    value = getattr(outputs, name)
    return value is not None and not (isinstance(value, Mapping) and not value)


def _distinct(chains: Mapping[str, Chain], val: Outputs, unknown: Outputs, skipped: dict[str, str]) -> dict[str, Array]:
    """Compute the scores on both sets, without those that fail or rank as an earlier one."""
    scores: dict[str, Array] = {}
    rankings: dict[bytes, str] = {}
    for spec, chain in chains.items():
        try:
            conf = np.concatenate([chain.score(val), chain.score(unknown)])
        except InvalidInput as error:
            skipped[spec] = str(error)
            continue
        ranking = np.unique(conf, return_inverse=True)[1].tobytes()
        if ranking in rankings:
            skipped[spec] = f"ranks the validation samples as {rankings[ranking]} does"
        else:
            rankings[ranking] = spec
            scores[spec] = conf
    return scores


def _pairs(
    firsts: Sequence[str], seconds: Sequence[str], scores: Mapping[str, Array], chains: Mapping[str, Chain]
) -> Iterator[tuple[str, str, bool]]:
    """Iterate over every pair once, with whether it may be turned round."""
    seen = set()
    for first in (s for s in firsts if s in scores):
        for second in (s for s in seconds if s in scores):
            free = first in seconds and second in firsts and chains[first].judges == chains[second].judges
            key = frozenset((first, second)) if free else (first, second)
            if key not in seen:
                seen.add(key)
                yield first, second, free


def _cautions(run: Run, ood: str | None, unknown: Outputs) -> Iterable[str]:
    """Say what the numbers do not promise, in plain words."""
    tests = [name for name, role in run.roles.items() if role in OOD_TEST]
    if ood is not None and ood in tests:
        yield (
            f"the pair was chosen on {ood}, which is a test set of this run: its numbers on {ood} are no test any "
            "more. Choose on other unknown inputs, or report other sets."
        )
        tests.remove(ood)
    seen = {row.tobytes() for row in np.asarray(unknown.logits)}
    for name in tests:
        shared = sum(row.tobytes() in seen for row in np.asarray(run[name].logits))
        if shared:
            yield (
                f"{shared} of {len(run[name])} samples of the test set {name} are among the unknown inputs the pair "
                "was chosen on: numbers on them are optimistic."
            )
    yield "chosen on unknown inputs of one kind (OOD-tuned): on other kinds another pair may be better."
