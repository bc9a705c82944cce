r"""Gate, the verdicts it gives, what it promises, and how it is kept on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import platform
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Labels, Mask
from twofold._files import locked, read_regular, replacing
from twofold._json import decode_json, encode_json
from twofold._math import sigmoid
from twofold.errors import DependentRows, InvalidInput, RunError, TwofoldError, UnfitData
from twofold.gate import choice, guarantee
from twofold.gate.choice import Costs, Pair, Scored
from twofold.gate.entry import (
    confidences,
    count_copies,
    fingerprint,
    fitted,
    group_rows,
    head_print,
    judged,
    validation_and_train,
    widths,
)
from twofold.gate.grouped import group_codes, group_sums, ratio_interval
from twofold.gate.monitor import Monitor
from twofold.gate.schema import VERDICTS, check_gate
from twofold.metrics._samples import operating_point
from twofold.metrics._sweep import check_share, ood_weight
from twofold.outputs import Outputs
from twofold.steps import Chain, scorer
from twofold.store import Run

Objective = Literal["f1", "risk", "coverage", "cost", "given"]
Kept = Literal["yes", "no", "cannot tell", "no promise"]
FORMAT, VERSION = "twofold-gate", 2
LOCK = "gate.lock"
PATIENCE = 5.0  # seconds for which a gate that is being replaced is read again
LEVEL = 0.95  # of the intervals of a report card


@dataclass(frozen=True)
class Promise:
    """What a gate was asked for, what it did on its validation data, and what it cannot promise.

    ``guaranteed``: the risk is at most ``risk`` with confidence 1 - ``delta``; otherwise the numbers are point
    estimates of the data that chose the thresholds. ``ood_share`` is None for the share of the validation data.
    ``known`` and ``outside`` count accept, unsure and unknown among ID and OOD validation samples. ``groups`` is how
    many groups of dependent samples there were, None where samples were taken for independent.
    """

    objective: Objective
    risk: float | None
    delta: float | None
    coverage: float | None
    costs: Costs | None
    ood_share: float | None
    seen_risk: float
    seen_coverage: float
    seen_f1: float
    seen_cost: float | None
    known: tuple[int, int, int]
    outside: tuple[int, int, int]
    cautions: tuple[str, ...]
    groups: int | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether the risk is guaranteed, not only estimated."""
        return self.delta is not None

    def __str__(self) -> str:
        sure = " (estimated)"
        if self.delta is not None:
            units = "samples" if self.groups is None else f"groups of samples ({self.groups} independent groups)"
            sure = f", guaranteed with confidence {1.0 - self.delta:g} for independent {units}"
        asked = {
            "f1": "best DS-F1",
            "risk": f"most coverage at a risk of at most {self.risk}{sure}",
            "coverage": f"least risk at an ID coverage of at least {self.coverage}",
            "cost": f"least cost with {self.costs}",
            "given": "the thresholds that were given",
        }[self.objective]
        share = "as in validation" if self.ood_share is None else f"{self.ood_share:g}"
        seen = f"risk {self.seen_risk:.4g}, ID coverage {self.seen_coverage:.4g}, DS-F1 {self.seen_f1:.4g}"
        return "\n".join([f"{asked}; OOD share {share}", f"on validation: {seen}", *(f"- {c}" for c in self.cautions)])


@dataclass(frozen=True, eq=False)
class Decision:
    """A verdict for every input, with the label, both confidences and their distances from the thresholds.

    ``unknown``: conf_ood is below its threshold (not of this world); else ``unsure``: conf_id is (known world, doubtful
    label); else ``accept``. A gate of one score has no ``conf_ood`` and never says unknown.
    """

    labels: Labels
    verdict: npt.NDArray[np.str_]
    conf_id: Array
    conf_ood: Array | None
    margin_id: Array
    margin_ood: Array | None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ReportCard:
    """What a gate does on labelled data, against its promise.

    ``risk`` and ``coverage`` come with exact (Clopper-Pearson) 95 % intervals. With an ``ood_share`` in the promise,
    and OOD samples here, risk and DS-F1 are those at that share, and the interval of the risk joins three such
    intervals (Bonferroni). ``true_accept`` to ``false_reject`` count samples; a false reject is a right label rejected.
    ``kept`` is "yes" or "no" where the interval lies on one side of what was promised, "cannot tell" where it holds the
    promised value, and "no promise" for a gate that promises nothing (the objectives f1, cost and given). All this is
    for independent samples. Where the outputs have ``groups`` of several samples, ``groups`` tells how many, and the
    intervals are for independent groups of the sizes seen (:func:`twofold.gate.grouped.ratio_interval`).
    """

    samples: int
    coverage: float
    coverage_interval: tuple[float, float]
    risk: float
    risk_interval: tuple[float, float]
    true_accept: int
    false_accept_ood: int
    false_accept_mistakes: int
    false_reject: int
    f1: float
    kept: Kept
    groups: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        (a, b), (c, d) = self.coverage_interval, self.risk_interval
        units = "samples" if self.groups is None else f"groups ({self.groups} independent groups of samples)"
        return "\n".join(
            [
                f"samples                  {self.samples}",
                f"ID coverage              {self.coverage:.4f}  [{a:.4f}, {b:.4f}]",
                f"risk                     {self.risk:.4f}  [{c:.4f}, {d:.4f}]",
                f"true accepts             {self.true_accept}",
                f"false accepts, OOD       {self.false_accept_ood}",
                f"false accepts, mistakes  {self.false_accept_mistakes}",
                f"false rejects            {self.false_reject}",
                f"DS-F1                    {self.f1:.4f}",
                f"promise kept             {self.kept}",
                f"[...]: 95 % intervals for independent {units}",
            ]
        )


@dataclass(frozen=True, eq=False, repr=False)
class Gate:
    """Two scores and two thresholds: accept where ``conf_id >= tau_id`` and ``conf_ood >= tau_ood``.

    Made by :meth:`fit` or :meth:`load`. ``decide`` needs numpy alone.
    """

    id: Chain
    ood: Chain | None
    tau_id: float
    tau_ood: float
    promise: Promise
    classes: int
    class_names: tuple[str, ...] | None
    widths: Mapping[str, int]  # columns of the arrays that the scores read
    head: str | None  # SHA-256 of the last layer, where a score reads features or head
    data: Mapping[str, str]  # SHA-256 of the data it was fitted on
    versions: Mapping[str, str]

    @classmethod
    def fit(
        cls,
        validation: Outputs | Run,
        id: str | Chain = "msp",  # noqa: A002 - the name of the design
        ood: str | Chain | None = "energy",
        *,
        train: Outputs | None = None,
        objective: Objective = "f1",
        risk: float | None = None,
        delta: float | None = None,
        coverage: float | None = None,
        costs: Mapping[str, float] | tuple[float, float, float] | None = None,
        thresholds: Sequence[float] | float | None = None,
        ood_share: float | None = None,
        groups: ArrayLike | None = None,
    ) -> Gate:
        """Choose both thresholds on labelled validation data.

        Parameters
        ----------
        validation : Outputs or Run
            Labelled outputs (label -1: OOD), or a run, whose roles val and ood_val are taken.
        id, ood : str or Chain, default="msp", "energy"
            The scores of correct against wrong labels, and of ID against OOD inputs. ``ood=None``: one score alone.
        train : Outputs, optional
            What scores that learn are fitted on, by default a run's role train. What they take from validation data
            comes, with ``delta``, from the part that learns, so that the promise holds.
        objective : {"f1", "risk", "coverage", "cost", "given"}, default="f1"
            ``f1``: the best DS-F1. ``risk``: the largest ID coverage with a selective risk of at most ``risk``.
            ``coverage``: the least risk at an ID coverage of at least ``coverage``. ``cost``: the least expected cost.
            ``given``: just these ``thresholds``, which are measured and promise nothing. Every other one looks at all
            pairs of thresholds, except with ``delta``, where a path of pairs is tested.
        risk, coverage : float, optional
            For the objectives of these names.
        delta : float, optional
            Guarantee the risk with confidence 1 - ``delta`` for independent validation samples, or groups of samples;
            :mod:`twofold.gate.guarantee` says what is proven. Without it the risk is estimated.
        costs : mapping or tuple of three numbers, optional
            Of a wrong label accepted, an OOD input accepted, any input rejected (keys wrong, ood, reject).
        thresholds : float or pair of floats, optional
            Of the one score or of both, for the objective given.
        ood_share : float, optional
            The OOD prevalence expected in use, by default that of the validation data.
        groups : array-like of shape (n_samples,), optional
            Integers or strings, the same for samples that depend on each other (scene, patient, user); by default the
            ``groups`` of the outputs. With ``delta`` whole groups learn or test, and the risk is guaranteed for the
            samples of new groups (:mod:`twofold.gate.grouped` says what is proven).

        Returns
        -------
        Gate
            Two fitted scores, two thresholds and a promise.

        Raises
        ------
        Infeasible
            If what was asked cannot be kept; its ``best`` says what can be.
        InvalidInput
            If arguments or data do not fit.

        Warns
        -----
        DependentRows
            If the risk is guaranteed and validation rows are exact copies of others.
        """
        asked = _asked(objective, risk, delta, coverage, costs, thresholds)
        own = _thresholds(asked.pop("thresholds"), ood is not None)
        rows, train = validation_and_train(validation, train)
        codes = group_rows(rows, groups)
        asked["groups"] = None if codes is None else int(codes.max()) + 1
        share = check_share(ood_share, rows.is_id)
        copies = count_copies(rows, codes)
        if asked["groups"] == len(rows):
            codes = None  # a group of one row is a row
        learn = test = None
        if asked["delta"] is not None:
            if asked["groups"] == 1:
                raise InvalidInput("a guarantee needs at least 2 groups that are independent of each other, got 1")
            learn, test = guarantee.split(rows.is_id, share, codes)
        part = rows if learn is None else rows[learn]
        first = fitted(scorer(id), train, part)
        second = None if ood is None else fitted(scorer(ood), train, part)
        chains = [first, second]
        seen = judged(first, rows)
        conf_id, conf_ood = confidences(first, second, seen)
        if second is None:
            conf_ood = np.zeros(len(seen))
        data = Scored(seen.correct, seen.is_id, conf_id, conf_ood, share, codes)
        if learn is not None and test is not None:
            pair = guarantee.guaranteed(data[learn], data[test], risk=asked["risk"], delta=asked["delta"])
        elif own is not None:
            pair = own
        elif objective == "risk":
            pair = choice.most_coverage(data, asked["risk"])
        elif objective == "coverage":
            pair = choice.least_risk(data, asked["coverage"])
        elif objective == "cost":
            pair = choice.least_cost(data, asked["costs"])
        else:
            pair = choice.best_f1(data)
        if learn is None and own is None:
            pair = choice.clear_of_samples(pair, data)
        if second is None:
            pair = Pair(pair.tau_id, -math.inf)
        cautions = _cautions(data, asked, (id, ood), chains)
        if copies:
            told = _copies_text(copies, len(rows), asked["groups"] is not None)
            cautions = (*cautions, told)
            if asked["delta"] is not None:
                warnings.warn(told, DependentRows, stacklevel=2)
        promise = _promise(asked, data, pair, cautions)
        return cls(
            first,
            second,
            *pair,
            promise,
            seen.classes,
            seen.class_names,
            widths(chains, seen),
            head_print(chains, seen.head),
            {"validation": fingerprint(rows)} | ({} if train is None else {"train": fingerprint(train)}),
            _versions(),
        )

    def decide(self, outputs: Outputs) -> Decision:
        """A verdict for every row; outputs of another model are refused where that can be told."""
        seen = self._admitted(outputs)
        conf_id, conf_ood = confidences(self.id, self.ood, seen)
        inside = np.ones(len(seen), bool) if conf_ood is None else conf_ood >= self.tau_ood
        return Decision(
            seen.predictions,
            _verdicts(inside, conf_id >= self.tau_id),
            conf_id,
            conf_ood,
            _margin(conf_id, self.tau_id),
            None if conf_ood is None else _margin(conf_ood, self.tau_ood),
        )

    def report_card(self, outputs: Outputs) -> ReportCard:
        """What this gate does on labelled outputs, against its promise."""
        decision = self.decide(outputs)
        seen = judged(self.id, outputs)
        taken, is_id, right = decision.verdict == "accept", seen.is_id, seen.correct
        if not is_id.any():
            raise UnfitData("labels are -1 everywhere; a report card needs at least one ID sample")
        known, outside = int((taken & is_id).sum()), int((taken & ~is_id).sum())
        true, ids, oods = int((taken & right).sum()), int(is_id.sum()), int((~is_id).sum())
        share = self.promise.ood_share if oods else None
        point = operating_point(true, known, ood_weight(share, ids, oods) * outside, ids)
        codes = None if outputs.groups is None else group_codes(outputs.groups)
        groups = None if codes is None else int(codes.max()) + 1
        if codes is None or groups == len(seen):
            covered = _interval(known, ids, 1.0 - LEVEL)
            risky = _risk_interval(known - true, known, outside, ids, oods, share)
        else:
            weight = np.where(is_id, 1.0, ood_weight(share, ids, oods))
            inside = group_sums(codes, is_id)
            covered = ratio_interval(group_sums(codes, taken & is_id), inside, inside, 1.0 - LEVEL)
            failed, accepted = group_sums(codes, weight * (taken & ~right)), group_sums(codes, weight * taken)
            risky = ratio_interval(failed, accepted, group_sums(codes, weight), 1.0 - LEVEL)
        return ReportCard(
            samples=len(seen),
            coverage=point["coverage"],
            coverage_interval=covered,
            risk=point["risk"],
            risk_interval=risky,
            true_accept=true,
            false_accept_ood=outside,
            false_accept_mistakes=known - true,
            false_reject=int((right & ~taken).sum()),
            f1=point["value"],
            kept=self._kept(covered, risky, known + outside),
            groups=groups,
        )

    def _kept(self, covered: tuple[float, float], risky: tuple[float, float], accepted: int) -> Kept:
        p = self.promise
        if p.objective == "risk" and p.risk is not None:
            if not accepted:
                return "cannot tell"
            return "yes" if risky[1] <= p.risk else "no" if risky[0] > p.risk else "cannot tell"
        if p.objective == "coverage" and p.coverage is not None:
            return "yes" if covered[0] >= p.coverage else "no" if covered[1] < p.coverage else "cannot tell"
        return "no promise"

    def to_onnx(self, model: Any, path: str | Path, **options: Any) -> None:
        """Write this gate and its classifier to one ONNX file; options are those of :func:`twofold.nn.onnx.to_onnx`."""
        from twofold.nn import to_onnx

        to_onnx(self, model, path, **options)

    def monitor(self, *, false_alarms: float = 0.01, ood_share: float | None = None) -> Monitor:
        """A counter of live verdicts that raises an alarm when their rates leave those of validation.

        ``false_alarms``: the share of deployments, of whatever length, in which an alarm is raised though nothing
        changed. ``ood_share``: the expected OOD prevalence, by default the gate's.
        """
        level = _checks.number(false_alarms, "false_alarms", 0, 1, open_low=True, open_high=True) / 2.0
        p = self.promise
        share = p.ood_share if ood_share is None else _checks.number(ood_share, "ood_share", 0, 1, open_high=True)
        if share is not None and share > 0.0 and not sum(p.outside):
            raise InvalidInput("ood_share needs OOD samples in validation, and this gate saw none; fit it with some")
        kinds = [(1.0, np.add(p.known, p.outside))]
        if share is not None:
            kinds = [(w, np.array(c)) for w, c in ((1.0 - share, p.known), (share, p.outside)) if w > 0.0]
        low, high = np.zeros(3), np.zeros(3)
        possible = np.array([True, self.tau_id > -math.inf, self.ood is not None])
        for weight, counts in kinds:
            for i in np.flatnonzero(possible):
                a, b = _interval(int(counts[i]), int(counts.sum()), level / (3 * len(kinds)))
                low[i] += weight * a
                high[i] += weight * b
        return Monitor(tuple(low.tolist()), tuple(high.tolist()), 2.0 * level)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the gate into one folder: gate.json, a safetensors file, and an empty lock file.

        A gate already there is replaced whole. Several processes may save to one folder; the last one stays. What
        killed writers left is removed.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or one that holds a gate.

        Raises
        ------
        RunError
            If ``folder`` is a file, or holds something else and no gate.
        InvalidInput
            If a score holds an object of yours, which is not saved.
        """
        from safetensors.numpy import save

        target = Path(folder)
        for _, chain in self._sides():
            _check_text(chain)
        tensors = {f"{side}.{name}": array for side, chain in self._sides() for name, array in chain.tensors().items()}
        raw = save(tensors)
        digest = hashlib.sha256(raw).hexdigest()
        name = f"scores-{digest[:16]}.safetensors"
        content = {**self.to_dict(), "tensors": {"file": name, "sha256": digest}}
        _check_folder(target)
        target.mkdir(parents=True, exist_ok=True)
        with locked(target / LOCK):
            _check_folder(target)
            with replacing(target / name) as file:
                file.write(raw)
            with replacing(target / "gate.json") as file:  # from here on the folder holds this gate
                file.write(encode_json(content))
            for other in list(target.iterdir()):  # of this gate's predecessor, or of a writer that was killed
                if _is_own(other.name) and other.name not in (name, "gate.json", LOCK):
                    with suppress(OSError):
                        other.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Gate:
        """Read a gate that :meth:`save` wrote; its decisions are equal to the last bit.

        While another process replaces the gate, it is read again, for at most 5 s, until it is whole.

        Parameters
        ----------
        folder : path-like
            The folder.

        Returns
        -------
        Gate
            The gate that was saved.

        Raises
        ------
        RunError
            If the gate is missing, damaged, of another version, or holds anything that Gate.save does not write.
        """
        path = Path(folder) / "gate.json"
        give_up = time.monotonic() + PATIENCE
        while True:
            raw = _read(path)
            try:
                return cls._of(raw, path)
            except RunError:
                if _read(path) == raw or time.monotonic() > give_up:
                    raise

    def __repr__(self) -> str:
        sides = [
            f"{side}={chain.spec!r} >= {tau:.6g}"
            for (side, chain), tau in zip(self._sides(), self.taus(), strict=False)
        ]
        return f"Gate({', '.join(sides)}; objective {self.promise.objective})"

    def __str__(self) -> str:
        pairs = zip(self._sides(), self.taus(), strict=False)  # a gate of one score shows one threshold
        lines = [f"{side} {chain.spec}: {_shown(chain, tau)}" for (side, chain), tau in pairs]
        return "\n".join([*lines, str(self.promise)])

    def taus(self) -> Pair:
        """Both thresholds."""
        return Pair(self.tau_id, self.tau_ood)

    def _sides(self) -> list[tuple[str, Chain]]:
        return [("id", self.id)] + ([] if self.ood is None else [("ood", self.ood)])

    def _admitted(self, outputs: Outputs) -> Outputs:
        if not isinstance(outputs, Outputs):
            raise InvalidInput(f"a gate decides on Outputs(logits, ...), got {type(outputs).__name__}")
        if outputs.classes != self.classes:
            raise InvalidInput(f"this gate is for {self.classes} classes, these outputs have {outputs.classes}")
        if self.class_names and outputs.class_names and self.class_names != outputs.class_names:
            raise InvalidInput("these outputs have other class_names than the gate; they are of another model")
        for name, width in widths([self.id, self.ood], outputs).items():
            if self.widths.get(name, width) != width:
                raise InvalidInput(f"{name} has {width} columns, this gate was fitted with {self.widths[name]}")
        mine = head_print([self.id, self.ood], outputs.head)
        if self.head and mine and self.head != mine:
            raise InvalidInput(
                "these outputs have another head than the gate was fitted with; they are of another model"
            )
        return judged(self.id, outputs)

    def to_dict(self) -> dict[str, Any]:
        """Scores, thresholds, promise, classes, fingerprints and versions as plain values; infinities as text."""

        def side(chain: Chain | None) -> dict[str, str] | None:
            return None if chain is None else {"spec": chain.spec, "tuned": chain.tuned, "searched": chain.searched}

        return {
            "format": FORMAT,
            "version": VERSION,
            "id": side(self.id),
            "ood": side(self.ood),
            "thresholds": [_number_out(t) for t in self.taus()],
            "promise": dataclasses.asdict(self.promise),
            "classes": self.classes,
            "class_names": self.class_names,
            "widths": dict(self.widths),
            "head": self.head,
            "data": dict(self.data),
            "versions": dict(self.versions),
        }

    @classmethod
    def _of(cls, raw: bytes, path: Path) -> Gate:
        """The gate in the bytes of gate.json and in the file beside it."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        again = "fit the gate again and save it with Gate.save"
        content = decode_json(raw, path, kind="a saved gate", form=FORMAT, version=VERSION, again=again)
        try:
            check_gate(content)
            stored = path.parent / content["tensors"]["file"]
            tensors = _read(stored)
            if hashlib.sha256(tensors).hexdigest() != content["tensors"]["sha256"]:
                raise RunError(f"{stored} is damaged; restore it, or {again}")
            sides = _chains(content, load(tensors))
        except RunError:
            raise
        except (SafetensorError, TwofoldError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise RunError(f"{path} was not written by Gate.save ({error!s:.200}); {again}") from error
        except (RecursionError, MemoryError, ArithmeticError) as error:
            raise RunError(f"{path} was not written by Gate.save; {again}") from error
        said = content["promise"]
        costs = None if said["costs"] is None else Costs(*said["costs"])
        lists = {name: tuple(said[name]) for name in ("known", "outside", "cautions")}
        names = content["class_names"]
        tau_id, tau_ood = (float(t) for t in content["thresholds"])
        return cls(
            sides["id"],
            sides.get("ood"),
            tau_id,
            tau_ood,
            Promise(**{**said, "costs": costs, **lists}),
            content["classes"],
            None if names is None else tuple(names),
            content["widths"],
            content["head"],
            content["data"],
            content["versions"],
        )


# What was asked


def _asked(objective: str, risk: Any, delta: Any, coverage: Any, costs: Any, thresholds: Any) -> dict[str, Any]:
    """The settings of the objective, checked; those of another objective are errors."""
    _checks.choice(objective, "objective", ("f1", "risk", "coverage", "cost", "given"))
    takes: dict[str, tuple[str, ...]] = {
        "f1": (),
        "risk": ("risk", "delta"),
        "coverage": ("coverage",),
        "cost": ("costs",),
        "given": ("thresholds",),
    }
    given: dict[str, Any] = {"risk": risk, "delta": delta, "coverage": coverage, "costs": costs}
    given["thresholds"] = thresholds
    for name, value in given.items():
        if value is not None and name not in takes[objective]:
            owner = next(o for o, names in takes.items() if name in names)
            raise InvalidInput(f"{name} belongs to objective={owner!r}, and objective is {objective!r}")
    needed = {"risk": "risk", "coverage": "coverage", "cost": "costs", "given": "thresholds"}.get(objective)
    if needed and given[needed] is None:
        raise InvalidInput(f"objective={objective!r} needs {needed}=")
    if risk is not None:
        low = delta is not None
        given["risk"] = _checks.number(risk, "risk", 0, 1, open_low=low, open_high=True)
    if delta is not None:
        given["delta"] = _checks.number(delta, "delta", 0, 1, open_low=True, open_high=True)
    if coverage is not None:
        given["coverage"] = _checks.number(coverage, "coverage", 0, 1, open_low=True)
    if costs is not None:
        given["costs"] = _costs(costs)
    return {"objective": objective, **given}


def _thresholds(given: Any, both: bool) -> Pair | None:
    """Thresholds of one's own; that of a score that is not there lets all pass."""
    if given is None:
        return None
    values = np.asarray(given, dtype=object).ravel().tolist()
    if len(values) != 1 + both:
        raise InvalidInput(f"thresholds must be {'one for each score' if both else 'one number'}, got {given!r}")
    checked = [_checks.number(value, "thresholds", -math.inf, math.inf) for value in values]
    return Pair(checked[0], checked[1] if both else -math.inf)


def _costs(costs: Any) -> Costs:
    hint = "costs must be (wrong accept, OOD accept, reject), or a mapping with the keys wrong, ood, reject"
    if isinstance(costs, Mapping):
        if set(costs) != set(Costs._fields):
            raise InvalidInput(f"{hint}; got the keys {', '.join(map(str, costs)) or 'none'}")
        costs = [costs[name] for name in Costs._fields]
    if isinstance(costs, str) or not hasattr(costs, "__len__") or len(costs) != 3:
        raise InvalidInput(f"{hint}; got {costs!r}")
    checked = [
        _checks.number(value, f"costs.{name}", 0, math.inf, open_high=True)
        for name, value in zip(Costs._fields, costs, strict=True)
    ]
    return Costs(*checked)


# What it does


def _verdicts(inside: Mask, sure: Mask) -> npt.NDArray[np.str_]:
    names = np.array(VERDICTS)
    return names[np.where(inside, np.where(sure, 0, 1), 2)]


def _margin(conf: Array, tau: float) -> Array:
    """How far above the threshold; equal infinities are at it."""
    with np.errstate(invalid="ignore"):
        return np.where(conf == tau, 0.0, conf - tau)


def _promise(asked: dict[str, Any], data: Scored, pair: Pair, cautions: tuple[str, ...]) -> Promise:
    inside, sure = data.conf_ood >= pair.tau_ood, data.conf_id >= pair.tau_id
    verdict = np.where(inside, np.where(sure, 0, 1), 2)
    known, outside = (np.bincount(verdict[kind], minlength=3) for kind in (data.is_id, ~data.is_id))
    ids, oods = int(known.sum()), int(outside.sum())
    weight = data.weight if oods else 1.0
    right = int((data.correct & (verdict == 0)).sum())
    point = operating_point(right, int(known[0]), weight * int(outside[0]), ids)
    cost = None
    if asked["costs"] is not None:
        wrong, ood, reject = asked["costs"]
        paid = wrong * (known[0] - right) + ood * weight * outside[0] + reject * (ids - known[0])
        paid += reject * weight * (oods - outside[0])
        cost = float(paid / (ids + weight * oods))
    return Promise(
        **asked,
        ood_share=data.share,
        seen_risk=point["risk"],
        seen_coverage=point["coverage"],
        seen_f1=point["value"],
        seen_cost=cost,
        known=(int(known[0]), int(known[1]), int(known[2])),
        outside=(int(outside[0]), int(outside[1]), int(outside[2])),
        cautions=cautions,
    )


def _cautions(
    data: Scored, asked: dict[str, Any], given: tuple[Any, ...], chains: list[Chain | None]
) -> tuple[str, ...]:
    found = []
    if asked["delta"] is not None and asked["groups"] is None:
        found.append(
            "holds if the validation samples are independent draws of what the gate will meet; samples of one scene, "
            "patient or user are not: pass groups= for those"
        )
    elif asked["delta"] is not None:
        found.append(
            f"holds for the samples of new groups like the {asked['groups']} of validation: independent of each other, "
            "and of the same sizes"
        )
    oods = int((~data.is_id).sum())
    if not oods:
        found.append(
            "no OOD samples in validation: nothing is promised about inputs of no known class, "
            "and the numbers hold where there are none"
        )
    else:
        share = oods / len(data.is_id) if data.share is None else data.share
        found.append(f"holds for OOD inputs of the same kind as in validation, at a share of {share:.4g}")
    if asked["objective"] == "risk" and asked["delta"] is None:
        found.append(
            "the risk is an estimate from the data that chose the thresholds, not a bound; pass delta= for one"
        )
    if asked["objective"] == "given":
        found.append("the thresholds were given: the numbers are what they do on validation data, and no promise")
    for spec, chain in zip(given, chains, strict=True):
        used = set() if chain is None else set(chain.saw) & {"val", "ood_val"}
        if isinstance(spec, Chain) and spec.ready and used:
            found.append(
                f"{chain} came fitted on {' and '.join(sorted(used))}; "
                "if those are these validation data, the promise does not hold"
            )
    return tuple(found)


def _copies_text(copies: int, rows: int, grouped: bool) -> str:
    of = "rows of another group" if grouped else "other rows"
    unit = "groups" if grouped else "rows, or groups"
    return (
        f"{copies} of {rows} validation rows are exact copies of {of}, and a guarantee needs independent {unit}: "
        "remove copies of the same input, or pass groups= (different inputs with equal outputs are no harm)"
    )


def _interval(count: int, n: int, level: float) -> tuple[float, float]:
    """Clopper-Pearson, two-sided, that misses with at most ``level``."""
    from twofold.stats.bounds import clopper_pearson

    return clopper_pearson(count, n, delta=level, side="two") if n else (0.0, 1.0)


def _risk_interval(
    wrong: int, known: int, outside: int, ids: int, oods: int, share: float | None
) -> tuple[float, float]:
    level = 1.0 - LEVEL
    if share is None:
        return _interval(wrong + outside, known + outside, level)
    mistakes = _interval(wrong, known, level / 3)
    covered, let_in = _interval(known, ids, level / 3), _interval(outside, oods, level / 3)

    def mixed(rho: float, alpha: float, q: float, empty: float) -> float:
        total = (1.0 - share) * alpha + share * q
        return ((1.0 - share) * alpha * rho + share * q) / total if total > 0.0 else empty

    # the risk grows with mistakes and with accepted OOD inputs, and falls with accepted ID inputs
    return mixed(mistakes[0], covered[1], let_in[0], 0.0), mixed(mistakes[1], covered[0], let_in[1], 1.0)


# On disk


def _check_text(chain: Chain) -> None:
    try:
        scorer(chain.spec)
    except InvalidInput as error:
        raise InvalidInput(
            f"{chain.spec} holds an object of yours, which is not saved; save your own object"
        ) from error


def _number_out(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _shown(chain: Chain, tau: float) -> str:
    """A threshold; that of msp, a log-odds, also as a probability."""
    also = f" (probability {float(sigmoid(np.array(tau))):.6g})" if chain.steps[-1].info.name == "msp" else ""
    return f"accept from {tau:.6g}{also}"


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _chains(content: dict[str, Any], tensors: Mapping[str, Array]) -> dict[str, Chain]:
    """The chains of a gate by side, with their learnt arrays; an error unless all arrays are theirs and fit."""
    sides = [name for name in ("id", "ood") if content[name] is not None]
    for key in tensors:
        if key.partition(".")[0] not in sides:
            raise ValueError(f"an array {key!r:.80} belongs to no score")
    found = {}
    for name in sides:
        start, said = f"{name}.", content[name]
        own = {key.removeprefix(start): array for key, array in tensors.items() if key.startswith(start)}
        chain = scorer(said["spec"]).restored(own)
        found[name] = dataclasses.replace(chain, tuned=said["tuned"], searched=said["searched"])
    return found


def _is_own(name: str) -> bool:
    """Whether a file of a folder is one that Gate.save writes, or leaves when it is killed."""
    own = r"gate\.json|scores-[0-9a-f]{16}\.safetensors"
    return name == LOCK or re.fullmatch(rf"(?:{own})|\.(?:{own})\.[0-9]+(?:\.[0-9a-f]{{16}})?\.tmp", name) is not None


def _check_folder(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file; choose a folder for the gate")
    if not target.is_dir() or (target / "gate.json").exists():
        return
    if not all(_is_own(entry.name) for entry in target.iterdir()):
        raise RunError(f"{target} is not empty and holds no gate; choose an empty or new folder")


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} does not exist; {path.parent} is no saved gate, or a part was lost") from error
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from error
