"""Confidences of scores on the data sets of a run, fitted and tuned as a protocol asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twofold import metrics
from twofold._checks import Array
from twofold.bench.cache import definition_digest, digest, source_digest
from twofold.bench.protocols import Tuning
from twofold.bench.subjects import Subject
from twofold.errors import TwofoldError
from twofold.outputs import Outputs
from twofold.roles import FITTING
from twofold.run import Run
from twofold.scores.chain import Chain, scorer, select_id_rows
from twofold.scores.scoring import score_all
from twofold.scores.tuning import tune

SCORING = (
    *("_math.py", "_kernels.py", "outputs"),
    *(f"scores/{name}.py" for name in ("chain", "overflow", "parser", "registry", "scoring", "step", "tensors")),
    *("scores/tuning.py", "scores/transforms.py", "scores/_fitting", "scores/neighbours.py", "scores/nearest.py"),
)
"""Source that confidences depend on, beside that of the score itself."""


@dataclass(frozen=True, eq=False)
class Confidences:
    """Hold the confidences of a score on the data sets of a run, as tuned by a rule; or why there are none.

    Parameters
    ----------
    chosen : str, default=""
        The score with its chosen settings.
    tuned : str, default=""
        What its settings were chosen on: ``"untuned"``, ``"ID-tuned"`` or ``"OOD-tuned"``.
    judges : {"logits", "passes"}, default="logits"
        The prediction that the score judges.
    conf : mapping of str to ndarray, default={}
        Confidences by data set.
    reason : str, default=""
        Why there are none.
    digests : mapping of str to str, default={}
        Digest of what the confidences on each data set depend on.
    """

    chosen: str = ""
    tuned: str = ""
    judges: str = "logits"
    conf: Mapping[str, Array] = field(default_factory=dict)
    reason: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoreDigests:
    """Hold digests of what the confidences of a score depend on.

    Parameters
    ----------
    fit : str
        Digest of the data that the score is fitted on, its settings and its code.
    sets : mapping of str to str
        Digest of the fit and the data, by data set.
    """

    fit: str
    sets: Mapping[str, str]


def score_digests(subject: Subject, spec: str, tuning: Tuning) -> ScoreDigests:
    """Compute digests of what the confidences of a score depend on.

    Parameters
    ----------
    subject : Subject
        The run.
    spec : str
        The score.
    tuning : Tuning
        How its settings are chosen.

    Returns
    -------
    ScoreDigests
        One for the fit alone, and one for each data set.
    """
    chain = plan_chain(spec, tuning)
    stored = subject.digests
    fitted_on = [stored[name] for name, role in subject.roles.items() if role in FITTING]
    score_code = definition_digest(*(step.info.maker for step in chain.steps))
    fit = digest(fitted_on, stored.get("head"), chain.spec, tuning.to_dict(), score_code, source_digest(*SCORING))
    sets = {name: digest(fit, stored[name]) for name in subject.scored_sets}
    return ScoreDigests(fit, sets)


def compute_confidences(
    path: str, roles: Mapping[str, str], missing: Mapping[str, Sequence[str]], tuning: Tuning
) -> dict[str, Confidences]:
    """Fit or tune scores on the fitting roles of a run, and score the data sets that each lacks.

    It takes plain values, so that it runs in any process.

    Parameters
    ----------
    path : str
        Folder of the run.
    roles : mapping of str to str
        Role by name of the data set.
    missing : mapping of str to sequence of str
        Data sets to score, by score.
    tuning : Tuning
        How settings that a score leaves open are chosen.

    Returns
    -------
    dict of str to Confidences
        By score; a score that fails has the reason.
    """
    subject = Subject(Run.open(path), roles)
    train, val, ood_val = map(subject.outputs, FITTING)
    assert train is not None
    assert val is not None
    failures: dict[str, str] = {}
    chains: dict[str, Chain] = {}
    for spec in missing:
        try:
            chains[spec] = _fit_chain(spec, train, val, ood_val, tuning)
        except TwofoldError as error:
            failures[spec] = str(error)
    conf: dict[str, dict[str, Array]] = {spec: {} for spec in chains}
    for name in roles:
        wanted = {}
        for spec, chain in chains.items():
            if name in missing[spec] and spec not in failures:
                wanted[spec] = chain
        scored, failed = _score_set(wanted, subject.run[name])
        for spec, own in scored.items():
            conf[spec][name] = own
        for spec, reason in failed.items():
            failures[spec] = f"{name}: {reason}"
    found = {}
    for spec in missing:
        if spec in failures:
            found[spec] = Confidences(reason=failures[spec])
        else:
            chain = chains[spec]
            found[spec] = Confidences(chain.spec, chain.label, chain.judges, conf[spec])
    return found


def _score_set(chains: Mapping[str, Chain], outputs: Outputs) -> tuple[dict[str, Array], dict[str, str]]:
    """Score a data set by several chains; return confidences, and the reasons of chains that cannot score it."""
    try:
        together = score_all(list(chains.values()), outputs)
        return dict(zip(chains, together, strict=True)), {}
    except TwofoldError:  # one of them cannot score this set: score with each by itself
        scored, failed = {}, {}
        for spec, chain in chains.items():
            try:
                scored[spec] = chain.score(outputs)
            except TwofoldError as error:
                failed[spec] = str(error)
        return scored, failed


def plan_chain(spec: str, tuning: Tuning) -> Chain:
    """Parse a score as a protocol judges it: behind a fitted temperature, where the rule asks for one.

    Parameters
    ----------
    spec : str
        The score.
    tuning : Tuning
        The rule of the protocol.

    Returns
    -------
    Chain
        The score, not yet fitted.
    """
    chain = scorer(spec)
    has_temperature = any(step.info.name == "temperature" for step in chain.steps)
    if tuning.temperature and not has_temperature and _reads_logits(chain):
        return scorer(f"temperature|{chain.spec}")
    return chain


def _reads_logits(chain: Chain) -> bool:
    """Check whether a score changes when logits and head are scaled: it reads one of them, or learns from the head.

    Logits that are read in fitting alone only count the classes. Scores of several passes read neither.
    """
    if chain.judges == "passes":
        return False
    for step in chain.steps:
        if "logits" in step.needs or "head" in step.needs or "head" in step.info.fit_needs:
            return True
        if any(_reads_logits(inner) for inner in step.inner_chains):
            return True
    return False


def _fit_chain(spec: str, train: Outputs, val: Outputs, ood_val: Outputs | None, tuning: Tuning) -> Chain:
    """Fit a score by the rule of a protocol: settings left open are chosen on the roles that the rule allows."""
    chain = plan_chain(spec, tuning)
    grid = _open_grid(chain, tuning)
    if not grid:
        return chain.fit(select_id_rows(train), val=select_id_rows(val), ood_val=ood_val)
    tuning_ood = ood_val if "ood_val" in tuning.sets else None
    metric = tuning.metric
    if tuning_ood is None:  # there is no OOD sample to detect, so detection is of failures
        metric = metrics.info(metric).failure_form or metric
    return tune(chain, train, val, tuning_ood, metric=metric, grid=grid).chain


def _open_grid(chain: Chain, tuning: Tuning) -> dict[str, tuple[object, ...]]:
    """Collect the values to try of settings that a score leaves open: those of the protocol before those declared."""
    of_protocol = dict(tuning.grids)
    grid: dict[str, tuple[object, ...]] = {}
    for step in chain.steps:
        for setting, declared in step.info.grid.items():
            if setting not in step.settings:
                grid[f"{step.info.name}.{setting}"] = declared
        for key, values in of_protocol.items():
            name, _, setting = key.partition(".")
            if name == step.info.name and setting not in step.settings:
                grid[key] = values
    return grid
