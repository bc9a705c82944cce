"""Read what a report is on: score the data sets of a run or a file, and choose the pairs of scores to show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twofold._checks import confidence, joint
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.errors import InvalidInput, TwofoldError
from twofold.gate import Gate
from twofold.gate.inputs import fit_chain, join_sets
from twofold.outputs import Outputs, load_npz
from twofold.report.document import format_count, join_words
from twofold.report.options import ReportOptions
from twofold.report.scored import UNKNOWN, ReportSet, ReportSource, ScorePair
from twofold.roles import OOD_TEST
from twofold.run import Run
from twofold.scores.candidates import USUAL, common_fields, computable_scores, judged_sets
from twofold.scores.chain import Chain, scorer
from twofold.scores.logits import probability
from twofold.scores.pairs import choose_pairs
from twofold.scores.scoring import score_all
from twofold.typing import Array, ArrayLike, Mask

PLAIN = ScorePair(DEFAULT_ID, DEFAULT_OOD)  # what everybody tries first
BASELINE = ScorePair(DEFAULT_ID, DEFAULT_ID)  # the one score that pairs are compared with
BEST = 2  # recommended pairs that are shown beside the plain one
MOST_CLASSES = 300  # classes of unknown inputs whose mean probabilities are shown one by one
LOST_SCALE = (
    "The outputs are probabilities, which no longer have the scale of the logits: scores that depend on it (energy, "
    "mls, ...) are left out unless requested."
)
NO_VALIDATION = "the run has no validation set to fit a gate on; add one with the role val"
ASKED_FOR = "The pair of scores was requested; no other pair was tried."


def read_source(source: Run | str | Path, options: ReportOptions) -> ReportSource:
    """Score the sets of a run or of an npz file, and choose the pairs of scores to show.

    Parameters
    ----------
    source : Run, str or Path
        A run or its folder, or an npz file of outputs or confidences.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    ReportSource
        Scored sets, pairs and provenance.

    Raises
    ------
    InvalidInput
        If labels are missing, no input is of a known class, a score that was asked for cannot be used, or an option
        does not fit the source.
    """
    if isinstance(source, Run):
        return _read_run(source, options)
    path = Path(source)
    if path.is_dir():
        return _read_run(Run.open(path), options)
    if options.ood_classes is not None:
        raise InvalidInput(
            f"ood_classes names data sets of a run, and {path} is a file; make a run of it, or leave it out"
        )
    arrays = load_npz(path)
    if "logits" in arrays or "probs" in arrays:
        return _read_outputs_file(path, options)
    return _read_confidences_file(path, arrays, options)


# --- a run ----------------------------------------------------------------------------------------------------------


def _read_run(run: Run, options: ReportOptions) -> ReportSource:
    tests = run.names("test") or run.names("val")
    _check_run(run, tests, options)
    unknown = run.names(OOD_TEST)
    has_test, has_validation = bool(run.names("test")), bool(run.names("val"))
    has_unknown_validation = bool(run.names("ood_val"))
    data = _FittingData.from_run(run)
    chains, skipped = _fit_scores(data, options)
    choice = _choose_pairs(run, chains, options)
    pairs = list(dict.fromkeys([*choice.pairs, _plain_pair(chains), BASELINE]))
    averaged = chains[pairs[0].id].judges == "passes"
    share = _unknown_share(run, tests, unknown)
    is_validated = has_validation and has_test and (has_unknown_validation or not share)
    gate_share = None
    if is_validated and data.validation is not None:
        if has_unknown_validation:
            gate_share = share
        pairs = _add_thresholds(data.validation, pairs, chains, gate_share)
    sets = []
    for name in tests:
        sets += _score_run_set(run, name, "test", pairs, chains, averaged, options.ood_classes)
        options.done(f"scoring {name}")
    for name in (*run.names("shift"), *unknown):
        sets += _score_run_set(run, name, run.roles[name], pairs, chains, averaged, options.ood_classes)
        options.done(f"scoring {name}")
    no_gate_reason = ""
    if not has_validation:
        no_gate_reason = NO_VALIDATION
    return ReportSource(
        title=str(run.provenance.get("model") or run.path.name),
        path=str(run.path),
        sets=tuple(sets),
        pairs=tuple(pairs),
        scores=tuple(chains),
        how_chosen=choice.explanation,
        cautions=tuple(_run_cautions(run, tests, choice, averaged=averaged)),
        facts=_run_facts(run),
        class_names=run.class_names,
        superclasses=_superclasses(run),
        skipped=skipped,
        is_run=True,
        is_validated=is_validated,
        no_gate_reason=no_gate_reason,
        gate_share=gate_share,
        gate_chooses=is_validated,
        gate_has_unknown=has_unknown_validation,
        judges=_judges_of(chains),
        headline_sets=(*tests, *unknown),
        has_test_role=has_test,
    )


def _run_cautions(run: Run, tests: Sequence[str], choice: _PairChoice, *, averaged: bool) -> list[str]:
    """List what the reader of a report on this run must know."""
    cautions = []
    if not run.names("test"):
        cautions.append("The run has no test set: this report is on its validation set.")
    if any(run[name].is_scale_lost for name in tests):
        cautions.append(LOST_SCALE)
    cautions += choice.cautions
    if averaged:
        cautions.append("Predictions are those of the mean over several passes, which is what the first score judges.")
    return cautions + _dropped_rows(run)


def _judges_of(chains: Mapping[str, Chain]) -> dict[str, str]:
    """Say for each score whose prediction it judges."""
    return {spec: chain.judges for spec, chain in chains.items()}


def _check_run(run: Run, tests: Sequence[str], options: ReportOptions) -> None:
    """Check that a run has labelled test sets, and the sets whose classes are named."""
    if not tests:
        held_sets = ", ".join(f"{name} ({role})" for name, role in run.roles.items())
        raise InvalidInput(
            f"{run.path} has no data set with the role test; add one with run.add(..., role='test'); "
            f"it holds {held_sets or 'nothing'}"
        )
    for name in (*tests, *run.names("shift")):
        if run[name].labels is None:
            raise InvalidInput(
                f"{name} has no labels, which tell correct predictions from wrong ones; add it with labels"
            )
    for name in options.ood_classes or ():
        if name not in run:
            raise InvalidInput(f"ood_classes: the run has no data set {name!r}; it holds {', '.join(run.names())}")


def _unknown_share(run: Run, tests: Sequence[str], unknown: Sequence[str]) -> float:
    """Compute the share of unknown inputs in the data shown: sets of unknown inputs, and test rows labelled -1."""
    known = sum(int(run[name].is_id.sum()) for name in tests)
    total = sum(len(run[name]) for name in (*tests, *unknown))
    return (total - known) / total


def _run_facts(run: Run) -> dict[str, str]:
    """List the provenance of a run, and the digests of its files."""
    facts = {}
    for key, value in run.provenance.items():
        if value is not None and key not in ("versions", "superclasses"):
            facts[key] = str(value)
    for package, version in dict(run.provenance.get("versions") or {}).items():
        facts[f"{package} version"] = str(version)
    for name, digest in run.digests().items():
        facts[f"SHA-256 of {name}"] = digest
    return facts


def _superclasses(run: Run) -> dict[str, str]:
    stored = run.provenance.get("superclasses")
    if not isinstance(stored, Mapping):
        return {}
    return {str(name): str(above) for name, above in stored.items()}


# --- scores and pairs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _FittingData:
    """Hold the data that scores are fitted on and that they must be computable on.

    Parameters
    ----------
    judged : sequence of Outputs
        Sets that every score is computed on.
    train, validation : Outputs, optional
        Sets that scores learn from.
    """

    judged: Sequence[Outputs]
    train: Outputs | None = None
    validation: Outputs | None = None

    @cached_property
    def fields(self) -> set[str]:
        """Fields of outputs that all judged sets have."""
        return common_fields(self.judged)

    @cached_property
    def computable_scores(self) -> list[str]:
        """Scores that all judged sets allow, including the scale of the logits."""
        return computable_scores(self.judged)

    @classmethod
    def from_run(cls, run: Run) -> _FittingData:
        """Collect the sets of a run by role.

        Parameters
        ----------
        run : Run
            The run.

        Returns
        -------
        _FittingData
            Its training data, its validation data with unknown inputs, and the sets that are judged.
        """
        train = validation = None
        if run.names("train"):
            train = join_sets(run, run.names("train"))
        if run.names("val"):
            validation = join_sets(run, [*run.names("val"), *run.names("ood_val")])
        return cls(judged_sets(run), train, validation)


def _fit_scores(data: _FittingData, options: ReportOptions) -> tuple[dict[str, Chain], dict[str, str]]:
    """Fit the scores to compare, as :meth:`~twofold.Gate.fit` does, and say why others are left out.

    A score that was asked for must work: where it does not, its error is raised.
    """
    asked = options.named_scores()
    candidates = [*asked, *PLAIN.scores, *(options.scores or USUAL)]
    required = set(map(_full_spec, (*asked, *(options.scores or ()))))
    chains: dict[str, Chain] = {}
    skipped: dict[str, str] = {}
    for spec in dict.fromkeys(map(_full_spec, candidates)):
        try:
            chains[spec] = _fit_score(scorer(spec), data, is_required=spec in required)
        except TwofoldError as error:
            if spec in required:
                raise InvalidInput(f"{spec} cannot be used here: {error}") from error
            skipped[spec] = str(error)
            continue
        options.done(f"fitting {spec}")
    return chains, skipped


def _full_spec(score: str) -> str:
    """Spell a score out, so that two spellings of one score are found to be the same."""
    return scorer(score).spec


def _fit_score(chain: Chain, data: _FittingData, *, is_required: bool) -> Chain:
    """Fit one score; a score that was not asked for must also keep its meaning where the outputs are probabilities."""
    needed = f"needs {' and '.join(chain.needs)}, which not all sets have"
    if is_required and not set(chain.needs) <= data.fields:
        raise InvalidInput(needed)
    if not is_required and chain.steps[-1].info.name not in data.computable_scores:
        if chain.needs == ("logits",):  # which all sets have
            raise InvalidInput("depends on the scale of the logits, which probabilities no longer have")
        raise InvalidInput(needed)
    if chain.ready:
        return chain
    if data.train is None:
        raise InvalidInput("must be fitted on a training set, and there is none")
    if data.validation is None:
        return chain.fit(data.train)
    return fit_chain(chain, data.train, data.validation)


@dataclass(frozen=True)
class _PairChoice:
    """Hold the pairs of scores to report on, and how they were chosen.

    Parameters
    ----------
    pairs : tuple of ScorePair
        The pairs, the best first.
    explanation : str
        A sentence that says how the first was chosen.
    cautions : tuple of str, default=()
        Warnings for the reader.
    """

    pairs: tuple[ScorePair, ...]
    explanation: str
    cautions: tuple[str, ...] = ()


def _choose_pairs(run: Run, chains: Mapping[str, Chain], options: ReportOptions) -> _PairChoice:
    """Take the pair that was asked for, else the best on validation data, else the plain one."""
    plain = _plain_pair(chains)
    if options.id is not None or options.ood is not None:
        return _PairChoice((_requested_pair(options, plain),), ASKED_FOR)
    lacking = []
    for role, kind in {"train": "training", "val": "validation", "ood_val": "unknown validation"}.items():
        if not run.names(role):
            lacking.append(f"{kind} data (role {role})")
    if lacking:
        missing = " and ".join(lacking)
        explanation = f"The pair is the default one. No other pair was tried: the run has no {missing} to choose on."
        return _PairChoice((plain,), explanation)
    resamples = min(options.resamples, 1000)
    found = choose_pairs(run, list(chains), show=BEST, n=resamples, seed=options.seed, done=options.done)
    pairs = [ScorePair(pair.id_score, pair.ood_score) for pair in found.pairs]
    explanation = (
        f"The pair is the best of {format_count(found.tried, 'pair')} by DS-F1 on validation data; the test data shown "
        f"here were not used. Every pair of {join_words(list(chains), len(chains))} was tried, except scores that rank "
        "inputs identically."
    )
    return _PairChoice(tuple(pairs), explanation, tuple(map(_as_sentence, found.cautions)))


def _requested_pair(options: ReportOptions, plain: ScorePair) -> ScorePair:
    """Build the pair of scores that was asked for; without a second score ("none") the first does both."""
    first, second = plain.id, plain.ood
    if options.id is not None:
        first = scorer(options.id).spec
    if options.ood == "none" or (options.ood is None and plain.is_single):
        second = first
    elif options.ood is not None:
        second = scorer(options.ood).spec
    return ScorePair(first, second)


def _plain_pair(scores: Collection[str]) -> ScorePair:
    """Choose the pair that everybody tries first; msp alone where its second score cannot be used."""
    if PLAIN.ood in scores:
        return PLAIN
    return BASELINE


def _add_thresholds(
    data: Outputs, pairs: Sequence[ScorePair], chains: Mapping[str, Chain], share: float | None
) -> list[ScorePair]:
    """Add to pairs the thresholds of a gate with the best DS-F1 on these data, for this share of unknown inputs."""
    found = []
    for pair in pairs:
        second = None
        if pair.second is not None:
            second = chains[pair.second]
        gate = Gate.fit(data, chains[pair.id], second, ood_share=share)
        found.append(ScorePair(pair.id, pair.ood, gate.tau_id, gate.tau_ood))
    return found


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


# --- data sets ------------------------------------------------------------------------------------------------------


def _score_run_set(
    run: Run,
    name: str,
    role: str,
    pairs: Sequence[ScorePair],
    chains: Mapping[str, Chain],
    averaged: bool,
    ood_classes: Mapping[str, ArrayLike] | None,
) -> list[ReportSet]:
    """Score one data set of a run.

    A test set that holds rows of no known class (label -1) becomes two sets; such rows are dropped from a shifted set,
    on which only the scores of the pairs shown are computed.
    """
    outputs = run[name]
    classes = (ood_classes or {}).get(name)
    if role in UNKNOWN:
        return [_score_set(name, role, outputs, chains, averaged, classes)]
    if role == "shift":
        shown = ["msp"]
        for pair in pairs:
            shown += pair.scores
        chains = {spec: chains[spec] for spec in dict.fromkeys(shown)}
    known, unknown = _split_rows(outputs.is_id)
    sets = []
    if len(known):
        sets.append(_score_set(name, role, _take_rows(outputs, known), chains, averaged))
    if len(unknown) and role != "shift":
        rows = _take_rows(outputs, unknown)
        sets.append(_score_set(f"{name}, unknown rows", "unknown", rows, chains, averaged, classes))
    return sets


def _dropped_rows(run: Run) -> list[str]:
    """Say how many rows of no known class the shifted sets hold, which the report leaves out."""
    cautions = []
    for name in run.names("shift"):
        count = int((~run[name].is_id).sum())
        if count:
            left_out = format_count(count, "unknown input")
            cautions.append(f"The report leaves out {left_out} in the shifted set {name}.")
    return cautions


def _split_rows(is_id: Mask) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the indices of known and of unknown rows."""
    return np.flatnonzero(is_id), np.flatnonzero(~is_id)


def _take_rows(outputs: Outputs, rows: npt.NDArray[np.int64]) -> Outputs:
    """Return some rows; all of them without a copy."""
    if len(rows) == len(outputs):
        return outputs
    return outputs[rows]


def _score_set(
    name: str,
    role: str,
    outputs: Outputs,
    chains: Mapping[str, Chain],
    averaged: bool,
    classes: ArrayLike | None = None,
) -> ReportSet:
    """Score one data set; with ``averaged``, predictions are those of the mean over passes."""
    conf = dict(zip(chains, score_all(list(chains.values()), outputs), strict=True))
    if averaged:
        outputs = outputs.averaged()
    if role in UNKNOWN:
        correct = np.zeros(len(outputs), bool)
        softmax, unknown_classes = _mean_softmax(name, outputs, classes)
    else:
        correct = outputs.correct
        softmax, unknown_classes = None, ()
    return ReportSet(
        name=name,
        role=role,
        correct=correct,
        conf=conf,
        prob=probability(outputs),
        predictions=outputs.predictions,
        labels=outputs.labels,
        ids=outputs.ids,
        softmax=softmax,
        unknown_classes=unknown_classes,
    )


def _mean_softmax(name: str, outputs: Outputs, classes: ArrayLike | None) -> tuple[Array, tuple[str, ...]]:
    """Compute mean probabilities of each class of unknown inputs; of the whole set where the classes are not known."""
    class_of_row = _unknown_classes(name, outputs, classes)
    names, place = np.unique(class_of_row, return_inverse=True)
    one_class_per_row = len(names) == len(outputs) > 1
    if len(names) > MOST_CLASSES or one_class_per_row:
        names, place = np.array([""]), np.zeros(len(outputs), int)
    sums = np.zeros((len(names), outputs.classes))
    start = 0
    for block in outputs.blocks():
        logits = np.asarray(block.logits, dtype=np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        softmax = powers / powers.sum(axis=1, keepdims=True)
        np.add.at(sums, place[start : start + len(logits)], softmax)
        start += len(logits)
    return sums / np.bincount(place)[:, None], tuple(names.tolist())


def _unknown_classes(name: str, outputs: Outputs, classes: ArrayLike | None) -> list[str]:
    """List the class of each unknown input: as given, or from ids such as CLASS/FILE and SUPERCLASS/CLASS/FILE.

    All classes are empty where they are not known.
    """
    if classes is not None:
        class_names = list(map(str, np.asarray(classes)))
        if len(class_names) != len(outputs):
            raise InvalidInput(f"ood_classes: {name} has {len(outputs)} rows but {len(class_names)} class names")
        return class_names
    if outputs.ids is not None and outputs.ids.dtype.kind == "U":
        folders = [str(one).rpartition("/")[0] for one in outputs.ids]
        if all(folders):
            return folders
    return [""] * len(outputs)


# --- files ----------------------------------------------------------------------------------------------------------


def _read_outputs_file(path: Path, options: ReportOptions) -> ReportSource:
    """Read an npz file with logits or probs and labels, -1 for unknown inputs."""
    outputs = Outputs.from_npz(path)
    if outputs.labels is None:
        raise InvalidInput(
            f"{path} has no labels, which tell correct predictions from wrong ones; add labels (-1: unknown input)"
        )
    chains, skipped = _fit_scores(_FittingData([outputs]), options)
    plain = _plain_pair(chains)
    known, unknown = _split_rows(outputs.is_id)
    if not len(known):
        raise InvalidInput(f"{path} has the label -1 everywhere; a report needs inputs of known classes")
    pairs = list(dict.fromkeys([_requested_pair(options, plain), plain, BASELINE]))
    averaged = chains[pairs[0].id].judges == "passes"
    sets = [_score_set(path.stem, "test", outputs[known], chains, averaged)]
    if len(unknown):
        sets.append(_score_set("unknown inputs", "unknown", outputs[unknown], chains, averaged))
    how_chosen = "The pair is the default one. No other pair was tried: a file has no other data to choose on."
    if options.named_scores():
        how_chosen = ASKED_FOR
    cautions = []
    if outputs.is_scale_lost:
        cautions.append(LOST_SCALE)
    return ReportSource(
        title=path.name,
        path=str(path),
        sets=tuple(sets),
        pairs=tuple(_add_thresholds(outputs, pairs, chains, None)),
        scores=tuple(chains),
        how_chosen=how_chosen,
        cautions=tuple(cautions),
        facts={"file": path.name},
        class_names=outputs.class_names,
        skipped=skipped,
        gate_chooses=True,
        gate_has_unknown=len(unknown) > 0,
        judges=_judges_of(chains),
    )


def _read_confidences_file(path: Path, arrays: Mapping[str, ArrayLike], options: ReportOptions) -> ReportSource:
    """Read an npz file with correct and conf, and optionally is_id and conf_ood."""
    names = set(arrays)
    if not {"correct", "conf"} <= names or not names <= {"correct", "conf", "is_id", "conf_ood"}:
        raise InvalidInput(
            f"{path} must hold logits and labels, or correct and conf, optionally with is_id and conf_ood; "
            f"it holds {', '.join(sorted(names)) or 'nothing'}"
        )
    if options.id is not None or options.ood is not None:
        raise InvalidInput(f"{path} holds confidences, so scores cannot be chosen; leave out id and ood")
    conf = {"conf": confidence(arrays["conf"], "conf")}
    if "conf_ood" in arrays:
        conf["conf_ood"] = confidence(arrays["conf_ood"], "conf_ood")
    correct, is_id = joint(arrays["correct"], arrays.get("is_id"), **conf)
    if is_id is None:
        is_id = np.ones(len(correct), bool)
    if not is_id.any():
        raise InvalidInput(f"{path}: is_id is False everywhere; a report needs inputs of known classes")
    sets = [_confidences_set(path.stem, "test", correct, conf, is_id)]
    if not is_id.all():
        sets.append(_confidences_set("unknown inputs", "unknown", correct, conf, ~is_id))
    single = ScorePair("conf", "conf")
    pairs = [single]
    if "conf_ood" in conf:
        pairs = [ScorePair("conf", "conf_ood"), single]
    return ReportSource(
        title=path.name,
        path=str(path),
        sets=tuple(sets),
        pairs=tuple(pairs),
        scores=tuple(conf),
        how_chosen="The confidences are those of the file.",
        cautions=(),
        facts={"file": path.name},
        no_gate_reason="the file holds confidences without the outputs they come from, so no gate can be fitted on it",
    )


def _confidences_set(name: str, role: str, correct: Mask, conf: Mapping[str, Array], rows: Mask) -> ReportSet:
    """Select the rows of one role; the first confidence is a probability where all of it is between 0 and 1."""
    chosen = {score: np.ascontiguousarray(values[rows]) for score, values in conf.items()}
    first = conf["conf"]
    prob = None
    if first.min() >= 0.0 and first.max() <= 1.0:
        prob = first[rows]
    return ReportSet(name, role, correct[rows], chosen, prob)
