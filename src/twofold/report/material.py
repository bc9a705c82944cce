"""What a report on one classifier is made from: scored test sets, and the pairs of scores that are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twofold._checks import Array, ArrayLike, Labels, Mask, confidence, joint
from twofold.errors import InvalidInput, TwofoldError
from twofold.gate import Gate
from twofold.gate.inputs import fitted, joined
from twofold.outputs import Outputs, load_npz
from twofold.report.document import count, listed
from twofold.roles import FITTING, ID_TEST, OOD_TEST
from twofold.run import Run
from twofold.scores.chain import Chain, scorer
from twofold.scores.logits import probability
from twofold.scores.scoring import score_all
from twofold.scores.tuning import USUAL, choose_pairs, computable, held, judged_sets

PLAIN = ("msp", "energy")  # what everybody tries first
LOST_SCALE = (
    "The outputs are probabilities, which have lost the scale of the logits: scores that read it (energy, mls, ...) "
    "are left out unless they were asked for."
)
ALONE = ("msp", "conf")  # the one score that everything is measured against
UNKNOWN = (*OOD_TEST, "unknown")  # roles of inputs of no known class; the last where nobody says which
BEST = 2  # recommended pairs that are shown beside the plain one
ROWS = 200_000  # above, intervals are narrower than the digits that are printed

Done = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class Scored:
    """Hold one data set with its confidences by score.

    Parameters
    ----------
    name : str
        Name of the data set.
    role : str
        One of test, shift, near, mid, far and unknown.
    correct : ndarray of bool, shape (n_samples,)
        Whether the prediction is correct; False on unknown inputs.
    conf : mapping of str to ndarray of shape (n_samples,)
        Confidences by score.
    prob : ndarray of shape (n_samples,), optional
        Probability of the predicted class.
    predictions, labels : ndarray of int, shape (n_samples,), optional
        Predicted and true classes.
    ids : array-like, optional
        Identifiers of the rows.
    softmax : ndarray, optional
        Mean softmax over the rows, or over those of each class in ``classes``.
    classes : tuple of str, default=()
        Classes of the unknown inputs, where they are known.
    """

    name: str
    role: str  # test, shift, near, mid, far, unknown
    correct: Mask
    conf: Mapping[str, Array]
    prob: Array | None = None  # probability of the predicted class
    predictions: Labels | None = None
    labels: Labels | None = None
    ids: Any = None
    softmax: Array | None = None  # mean over the rows, or over those of each class in ``classes``
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.correct)


@dataclass(frozen=True)
class Pair:
    """Hold two scores, and thresholds chosen on validation data where there are some.

    Parameters
    ----------
    id : str
        Score against wrong predictions.
    ood : str
        Score against unknown inputs; the same as ``id`` for one score alone.
    tau_id, tau_ood : float, default=NaN
        Their thresholds.

    Examples
    --------
    >>> Pair("msp", "energy").name, Pair("msp", "msp").name
    ('msp + energy', 'msp')
    """

    id: str
    ood: str
    tau_id: float = math.nan
    tau_ood: float = math.nan

    @property
    def name(self) -> str:
        """The names of both scores; one name where they are the same."""
        return self.id if self.id == self.ood else f"{self.id} + {self.ood}"


@dataclass(frozen=True, eq=False)
class Material:
    """Hold what a report on one classifier is made from.

    Parameters
    ----------
    title : str
        Name of the classifier.
    source : str
        Folder of the run, or path of the file.
    sets : tuple of Scored
        The scored data sets.
    pairs : tuple of Pair
        The pairs of scores that are shown, the judged one first.
    scores : tuple of str
        All scores.
    chosen : str
        A sentence that says how the first pair was chosen.
    cautions : tuple of str
        Warnings for the reader.
    facts : mapping of str to str
        Provenance.
    class_names : tuple of str, optional
        Names of the known classes.
    superclasses : mapping of str to str, default={}
        Super-class of each class, where the run's provenance has them.
    skipped : mapping of str to str, default={}
        Scores that were left out, and why.
    validated : bool, default=False
        Whether the thresholds come from validation data.
    gate : str, default=""
        Why there is no command that makes the gate; empty where there is one.
    gate_share : float, optional
        Share of unknown inputs that a gate is fitted for; None for that of its data.
    chosen_by_gate : bool, default=False
        Whether the thresholds are those that ``Gate.fit`` chooses.
    unknown_to_choose_on : bool, default=False
        Whether the data that a gate is fitted on hold unknown inputs.
    judges : mapping of str to str, default={}
        Which prediction each score judges.
    pooled : tuple of str, default=()
        Data sets of the run that the headline is on.
    has_test : bool, default=False
        Whether the run has sets with the role test.
    """

    title: str
    source: str
    sets: tuple[Scored, ...]
    pairs: tuple[Pair, ...]
    scores: tuple[str, ...]
    chosen: str  # a sentence: how the first pair was chosen
    cautions: tuple[str, ...]
    facts: Mapping[str, str]  # provenance
    class_names: tuple[str, ...] | None = None
    superclasses: Mapping[str, str] = field(default_factory=dict)  # by class, where the run's provenance has them
    skipped: Mapping[str, str] = field(default_factory=dict)
    validated: bool = False  # thresholds come from validation data
    gate: str = ""  # why there is no gate command, where there is none
    gate_share: float | None = None  # share of unknown inputs that a gate is fitted for; None for that of its data
    chosen_by_gate: bool = False  # the thresholds are those that Gate.fit chooses
    unknown_to_choose_on: bool = False  # the data that a gate is fitted on hold unknown inputs
    judges: Mapping[str, str] = field(default_factory=dict)  # which prediction each score judges
    pooled: tuple[str, ...] = ()  # data sets of the run that the headline is on
    has_test: bool = False  # the run has sets with the role test

    @property
    def is_run(self) -> bool:
        """Whether the source is a run, not a file."""
        return Path(self.source).is_dir()

    @property
    def test(self) -> tuple[Scored, ...]:
        """Test sets of known classes, without shifts."""
        return tuple(one for one in self.sets if one.role == "test")

    @property
    def roles(self) -> tuple[str, ...]:
        """Kinds of unknown inputs in the data."""
        return tuple(role for role in UNKNOWN if any(one.role == role for one in self.sets))

    def of(self, *roles: str) -> tuple[Scored, ...]:
        """List the sets of some roles.

        Parameters
        ----------
        *roles : str
            The roles.

        Returns
        -------
        tuple of Scored
            The sets, role by role.
        """
        return tuple(one for role in roles for one in self.sets if one.role == role)

    def pool(self, *roles: str) -> Pool:
        """Stack the test sets and all sets of some roles.

        Parameters
        ----------
        *roles : str
            The roles.

        Returns
        -------
        Pool
            All rows.
        """
        return Pool.of(self.of("test", *roles), self.scores)


@dataclass(frozen=True, eq=False)
class Pool:
    """Hold the rows of several sets, one after the other.

    Parameters
    ----------
    correct : ndarray of bool, shape (n_samples,)
        Whether the prediction is correct.
    is_id : ndarray of bool, shape (n_samples,)
        Whether the row is of a known class.
    role : ndarray of str, shape (n_samples,)
        Role of each row.
    conf : mapping of str to ndarray of shape (n_samples,)
        Confidences by score.
    """

    correct: Mask
    is_id: Mask
    role: Any  # role of each row
    conf: Mapping[str, Array]

    @classmethod
    def of(cls, sets: Sequence[Scored], scores: Sequence[str]) -> Pool:
        """Stack sets; scores that one of them lacks are left out.

        Parameters
        ----------
        sets : sequence of Scored
            The sets.
        scores : sequence of str
            The scores to keep.

        Returns
        -------
        Pool
            All rows.
        """
        shared = [name for name in scores if all(name in one.conf for one in sets)]
        role = np.concatenate([np.full(len(one), one.role) for one in sets])
        return cls(
            np.concatenate([one.correct for one in sets]),
            ~np.isin(role, UNKNOWN),
            role,
            {name: np.concatenate([one.conf[name] for one in sets]) for name in shared},
        )

    @property
    def inside(self) -> Mask | None:
        """The mask ``is_id`` as metrics take it: None where nothing is unknown."""
        return None if self.is_id.all() else self.is_id

    @property
    def kinds(self) -> dict[str, Mask]:
        """Disjoint masks: right, wrong, and each kind of unknown inputs."""
        found = {"right": self.correct, "wrong": self.is_id & ~self.correct}
        return found | {role: self.role == role for role in UNKNOWN if (self.role == role).any()}


def gather(
    source: Run | str | Path,
    *,
    id: str | None = None,  # noqa: A002 - the name of the design
    ood: str | None = None,
    scores: Sequence[str] | None = None,
    ood_classes: Mapping[str, ArrayLike] | None = None,
    resamples: int = 200,
    seed: int = 0,
    done: Done = lambda _: None,
) -> Material:
    """Score the sets of a run or of an npz file, and choose the pairs of scores to show.

    Parameters
    ----------
    source : Run, str or Path
        A run or its folder, or an npz file of outputs or confidences.
    id, ood : str, optional
        The pair of scores to judge; by default the best pair on validation data.
    scores : sequence of str, optional
        Scores to compare.
    ood_classes : mapping of str to array-like, optional
        For sets of unknown inputs of a run, the class of each row.
    resamples : int, default=200
        Upper limit on the number of bootstrap resamples.
    seed : int, default=0
        Seed of the resampling.
    done : callable, optional
        Called with the name of each finished step.

    Returns
    -------
    Material
        Scored sets, pairs and provenance.

    Raises
    ------
    InvalidInput
        If labels are missing, no input is of a known class, a score that was asked for cannot be used, or an option
        does not fit the source.
    """
    if isinstance(source, Run):
        return _of_run(source, id, ood, scores, ood_classes or {}, resamples, seed, done)
    path = Path(source)
    if path.is_dir():
        return _of_run(Run.open(path), id, ood, scores, ood_classes or {}, resamples, seed, done)
    if ood_classes is not None:
        raise InvalidInput(
            f"ood_classes names data sets of a run, and {path} is a file; make a run of it, or leave it out"
        )
    arrays = load_npz(path)
    if "logits" in arrays or "probs" in arrays:
        return _of_outputs(path, Outputs.from_npz(path), id, ood, scores, done)
    return _of_confidences(path, arrays, id, ood)


# --- a run ----------------------------------------------------------------------------------------------------------


def _of_run(
    run: Run,
    id: str | None,  # noqa: A002
    ood: str | None,
    scores: Sequence[str] | None,
    ood_classes: Mapping[str, ArrayLike],
    resamples: int,
    seed: int,
    done: Done,
) -> Material:
    tests = run.names("test") or run.names("val")
    if not tests:
        raise InvalidInput(
            f"{run.path} has no data set with the role test; add one with run.add(..., role='test'); "
            f"it holds {', '.join(f'{n} ({r})' for n, r in run.roles.items()) or 'nothing'}"
        )
    unlabelled = [name for name in (*tests, *run.names("shift")) if run[name].labels is None]
    if unlabelled:
        raise InvalidInput(f"{unlabelled[0]} has no labels, so nobody can say what is right; add it with labels")
    for name in ood_classes:
        if name not in run:
            raise InvalidInput(f"ood_classes: the run has no data set {name!r}; it holds {', '.join(run.names())}")
    cautions = [] if run.names("test") else ["The run has no test set: its validation set is judged instead."]
    outside = [name for role in OOD_TEST for name in run.names(role)]
    train = joined(run, run.names("train")) if run.names("train") else None
    validation = joined(run, [*run.names("val"), *run.names("ood_val")]) if run.names("val") else None
    asked = [spec for spec in (id, ood) if spec is not None and spec != "none"]
    wanted = list(dict.fromkeys(scorer(spec).spec for spec in (*asked, *PLAIN, *(scores or USUAL))))
    chains, skipped = _fitted(wanted, [*asked, *(scores or ())], train, validation, judged_sets(run), done)
    plain = _plain_pair(chains)
    lost = any(run[name].is_scale_lost for name in tests)
    cautions += [LOST_SCALE] if lost else []
    if id is not None or ood is not None:
        pairs = [_asked(id, ood, plain)]
        chosen = "The pair of scores was asked for; none was tried beside it."
    else:
        pairs, chosen, more = _recommended(run, list(chains), resamples, seed, done)
        cautions += more
    pairs = list(dict.fromkeys([*pairs, plain, Pair("msp", "msp")]))
    averaged = chains[pairs[0].id].judges == "passes"
    if averaged:
        cautions.append("Right and wrong are those of the mean of several passes, which the first score judges.")
    share = _unknown_share(run, tests, outside)
    validated = validation is not None and bool(run.names("test")) and (bool(run.names("ood_val")) or not share)
    gate_share = None
    if validated and validation is not None:
        gate_share = share if run.names("ood_val") else None
        pairs = _thresholds(validation, pairs, chains, gate_share)
    shown = list(dict.fromkeys(["msp", *(spec for pair in pairs for spec in (pair.id, pair.ood))]))
    sets = []
    for name in (*tests, *run.names("shift"), *outside):
        role = "test" if name in tests else run.roles[name]
        use = {s: chains[s] for s in (shown if role == "shift" else chains)}
        left_out = int((~run[name].is_id).sum()) if role == "shift" else 0
        if left_out:
            cautions.append(f"{left_out} rows of no known class in the shifted set {name} are left out.")
        for part, kind, rows in _parts(name, role, run[name]):
            use = chains if kind in UNKNOWN else use
            sets.append(_scored(part, kind, rows, use, ood_classes.get(name), averaged))
        done(f"scoring {name}")
    about = run.provenance
    above = about.get("superclasses")
    own = ("versions", "superclasses")
    told = {key: str(value) for key, value in about.items() if value is not None and key not in own}
    told |= {f"{name} version": str(v) for name, v in dict(about.get("versions") or {}).items()}
    return Material(
        title=str(about.get("model") or run.path.name),
        source=str(run.path),
        sets=tuple(sets),
        pairs=tuple(pairs),
        scores=tuple(chains),
        chosen=chosen,
        cautions=tuple(cautions),
        facts=told | {f"SHA-256 of {name}": digest for name, digest in run.digests().items()},
        class_names=run.class_names,
        superclasses={str(k): str(v) for k, v in above.items()} if isinstance(above, Mapping) else {},
        skipped=skipped,
        validated=validated,
        gate="" if run.names("val") else "the run has no validation set to fit a gate on; add one with the role val",
        gate_share=gate_share,
        chosen_by_gate=validated,
        unknown_to_choose_on=bool(run.names("ood_val")),
        judges={spec: chain.judges for spec, chain in chains.items()},
        pooled=(*tests, *outside),
        has_test=bool(run.names("test")),
    )


def _unknown_share(run: Run, tests: Sequence[str], outside: Sequence[str]) -> float:
    """Compute the share of unknown inputs in the data shown: sets of unknown inputs, and test rows labelled -1."""
    known = sum(int(run[name].is_id.sum()) for name in tests)
    every = sum(len(run[name]) for name in (*tests, *outside))
    return (every - known) / every


def _plain_pair(chains: Collection[str]) -> Pair:
    """Choose the pair that everybody tries first; msp alone where its second score cannot be used."""
    return Pair(*PLAIN) if PLAIN[1] in chains else Pair("msp", "msp")


def _asked(id: str | None, ood: str | None, plain: Pair) -> Pair:  # noqa: A002
    """Build the pair of scores that was asked for; without a second score ("none") the first does both."""
    first = plain.id if id is None else scorer(id).spec
    if ood == "none" or (ood is None and plain.ood == plain.id):
        return Pair(first, first)
    return Pair(first, plain.ood if ood is None else scorer(ood).spec)


def _fitted(
    wanted: Sequence[str],
    asked: Sequence[str],
    train: Outputs | None,
    validation: Outputs | None,
    sets: Sequence[Outputs],
    done: Done,
) -> tuple[dict[str, Chain], dict[str, str]]:
    """Fit scores as :meth:`~twofold.Gate.fit` does, and say why others are left out; requested ones must work."""
    chains, skipped = {}, {}
    must = {scorer(spec).spec for spec in asked}
    have = computable(sets)
    for spec in wanted:
        chain = scorer(spec)
        try:
            if spec in must and not set(chain.needs) <= held(sets):
                raise InvalidInput(f"needs {' and '.join(chain.needs)}, which not all sets have")
            if spec not in must and chain.steps[-1].info.name not in have:
                if chain.needs == ("logits",):  # which all sets have
                    raise InvalidInput("reads the scale of the logits, which probabilities have lost")
                raise InvalidInput(f"needs {' and '.join(chain.needs)}, which not all sets have")
            if not chain.ready:
                if train is None:
                    raise InvalidInput("learns from a training set, and there is none")
                chain = chain.fit(train) if validation is None else fitted(chain, train, validation)
        except TwofoldError as error:
            if spec in must:
                raise InvalidInput(f"{spec} cannot be used here: {error}") from error
            skipped[spec] = str(error)
            continue
        chains[spec] = chain
        done(f"fitting {spec}")
    return chains, skipped


def _recommended(
    run: Run, scores: list[str], resamples: int, seed: int, done: Done
) -> tuple[list[Pair], str, list[str]]:
    """Choose the best pairs on validation data; the plain one where there is nothing to choose on."""
    lacking = [role for role in FITTING if not run.names(role)]
    if lacking:
        kind = {"train": "training", "val": "validation", "ood_val": "unknown validation"}
        missing = " and ".join(f"{kind[role]} data (role {role})" for role in lacking)
        told = f"The pair is the plain one, and none was tried beside it: the run has no {missing} to choose on."
        return [_plain_pair(scores)], told, []
    found = choose_pairs(run, scores, show=BEST, n=min(resamples, 1000) or 10, seed=seed, done=done)
    pairs = [Pair(pair.id_score, pair.ood_score) for pair in found.pairs]
    told = (
        f"The pair is the best of {count(found.tried, 'pair')} by DS-F1 on validation data, never on the test data "
        f"shown here: every pair of {listed(scores, len(scores))} was tried, without those that rank alike."
    )
    return pairs, told, [_sentence(text) for text in found.cautions]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _thresholds(
    validation: Outputs, pairs: Sequence[Pair], chains: Mapping[str, Chain], share: float | None
) -> list[Pair]:
    """Add to pairs the thresholds of a gate with the best DS-F1 on these data, for this share of unknown inputs."""
    found = []
    for pair in pairs:
        second = None if pair.id == pair.ood else chains[pair.ood]
        gate = Gate.fit(validation, chains[pair.id], second, ood_share=share)
        found.append(Pair(pair.id, pair.ood, gate.tau_id, gate.tau_ood))
    return found


def _parts(name: str, role: str, outputs: Outputs) -> list[tuple[str, str, Outputs]]:
    """Split a test set that holds rows of no known class (label -1) in two; drop such rows from a shifted one."""
    if role in UNKNOWN or outputs.is_id.all():
        return [(name, role, outputs)]
    inside = outputs.is_id
    known = [(name, role, outputs[np.flatnonzero(inside)])] if inside.any() else []
    if role == "shift":
        return known
    return [*known, (f"{name}, unknown rows", "unknown", outputs[np.flatnonzero(~inside)])]


def _scored(
    name: str,
    role: str,
    outputs: Outputs,
    chains: Mapping[str, Chain],
    classes: ArrayLike | None = None,
    averaged: bool = False,
) -> Scored:
    conf = dict(zip(chains, score_all(list(chains.values()), outputs), strict=True))
    outputs = outputs.averaged() if averaged else outputs
    known = role in ID_TEST
    correct = outputs.correct if known else np.zeros(len(outputs), bool)
    means, names = _mean_softmax(name, outputs, classes) if not known else (None, ())
    return Scored(
        name,
        role,
        correct,
        conf,
        probability(outputs),
        outputs.predictions,
        outputs.labels,
        outputs.ids,
        means,
        names,
    )


def _mean_softmax(name: str, outputs: Outputs, classes: ArrayLike | None) -> tuple[Array, tuple[str, ...]]:
    """Compute mean probabilities of each class of unknown inputs; of the whole set where the classes are not known.

    Classes are given, or read from ids such as CLASS/FILE and SUPERCLASS/CLASS/FILE.
    """
    given: list[str] | None = None if classes is None else [str(one) for one in classes]
    if given is None and outputs.ids is not None and outputs.ids.dtype.kind == "U":
        parts = [str(one).rpartition("/")[0] for one in outputs.ids]
        given = parts if all(parts) else None
    if given is not None and len(given) != len(outputs):
        raise InvalidInput(f"ood_classes: {name} has {len(outputs)} rows but {len(given)} class names")
    names, place = np.unique(given or [""] * len(outputs), return_inverse=True)
    if len(names) > 300 or len(names) == len(outputs) > 1:
        names, place = np.array([""]), np.zeros(len(outputs), int)
    sums, first = np.zeros((len(names), outputs.classes)), 0
    for block in outputs.blocks():
        z = np.asarray(block.logits, dtype=np.float64)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        np.add.at(sums, place[first : first + len(z)], p / p.sum(axis=1, keepdims=True))
        first += len(z)
    return sums / np.bincount(place)[:, None], tuple(str(one) for one in names)


# --- files ----------------------------------------------------------------------------------------------------------


def _of_outputs(
    path: Path,
    outputs: Outputs,
    id: str | None,  # noqa: A002
    ood: str | None,
    scores: Sequence[str] | None,
    done: Done,
) -> Material:
    """Read an npz file with logits and labels, -1 for unknown inputs."""
    if outputs.labels is None:
        raise InvalidInput(f"{path} has no labels, so nobody can say what is right; add labels (-1: unknown input)")
    asked = [spec for spec in (id, ood) if spec is not None and spec != "none"]
    wanted = list(dict.fromkeys(scorer(spec).spec for spec in (*asked, *PLAIN, *(scores or USUAL))))
    chains, skipped = _fitted(wanted, [*asked, *(scores or ())], None, None, [outputs], done)
    plain = _plain_pair(chains)
    inside = outputs.is_id
    if not inside.any():
        raise InvalidInput(f"{path} has the label -1 everywhere; a report needs inputs of known classes")
    pairs = list(dict.fromkeys([_asked(id, ood, plain), plain, Pair("msp", "msp")]))
    averaged = chains[pairs[0].id].judges == "passes"
    parts = {"test": np.flatnonzero(inside), "unknown": np.flatnonzero(~inside)}
    sets = [
        _scored(path.stem if role == "test" else "unknown inputs", role, outputs[rows], chains, averaged=averaged)
        for role, rows in parts.items()
        if len(rows)
    ]
    by_default = "The pair is the plain one, and none was tried beside it: a file has no other data to choose on."
    asked_for = "The pair of scores was asked for; none was tried beside it."
    return Material(
        title=path.name,
        source=str(path),
        sets=tuple(sets),
        pairs=tuple(_thresholds(outputs, pairs, chains, None)),
        scores=tuple(chains),
        chosen=asked_for if asked else by_default,
        cautions=(LOST_SCALE,) if outputs.is_scale_lost else (),
        facts={"file": path.name},
        class_names=outputs.class_names,
        skipped=skipped,
        chosen_by_gate=True,
        unknown_to_choose_on=not bool(inside.all()),
        judges={spec: chain.judges for spec, chain in chains.items()},
    )


def _of_confidences(path: Path, arrays: Mapping[str, Any], id: str | None, ood: str | None) -> Material:  # noqa: A002
    """Read an npz file with correct and conf, and optionally is_id and conf_ood."""
    if not {"correct", "conf"} <= set(arrays) or set(arrays) - {"correct", "conf", "is_id", "conf_ood"}:
        raise InvalidInput(
            f"{path} must hold logits and labels, or correct and conf, optionally with is_id and conf_ood; "
            f"it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    if id is not None or ood is not None:
        raise InvalidInput(f"{path} holds confidences, so scores cannot be chosen; leave out id and ood")
    conf = {name: confidence(arrays[name], name) for name in ("conf", "conf_ood") if name in arrays}
    correct, inside = joint(arrays["correct"], arrays.get("is_id"), **conf)
    known = np.ones(len(correct), bool) if inside is None else inside
    if not known.any():
        raise InvalidInput(f"{path}: is_id is False everywhere; a report needs inputs of known classes")
    first = conf["conf"]
    likely = first if first.min() >= 0.0 and first.max() <= 1.0 else None
    sets = []
    for role, rows in (("test", known), ("unknown", ~known)):
        if rows.any():
            name = path.stem if role == "test" else "unknown inputs"
            part = {key: np.ascontiguousarray(value[rows]) for key, value in conf.items()}
            sets.append(Scored(name, role, correct[rows], part, None if likely is None else likely[rows]))
    pair = Pair("conf", "conf_ood" if "conf_ood" in conf else "conf")
    return Material(
        title=path.name,
        source=str(path),
        sets=tuple(sets),
        pairs=tuple(dict.fromkeys([pair, Pair("conf", "conf")])),
        scores=tuple(conf),
        chosen="The confidences are those of the file.",
        cautions=(),
        facts={"file": path.name},
        gate="the file holds confidences without the outputs they come from, so no gate can be fitted on it",
    )
