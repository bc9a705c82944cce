"""Promises of gates on real classifiers, and what became of them on other data, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from real_gate_cards import (
    ALONE,
    CARRIED,
    DELTA,
    KNOWN_GATES,
    MIXED,
    SHARE,
    SHARES,
    WITH_ENERGY,
    Card,
    KnownPromises,
    MixedPromises,
    Promise,
    Promises,
    Watch,
)
from real_gate_classifier import LEVELS, MSP, SECOND, Classifier, GateScores, Part
from twofold import metrics
from twofold.gate import Gate
from twofold.nn.corruptions import NAMES as TYPES
from twofold.outputs import Outputs

MIXED_SPLITS, KNOWN_SPLITS = 3, 10  # cuts into a half that chooses and one that judges, with and without an unknown set
LONGEST = 4500  # inputs that a monitor watches
BATCH = 50  # inputs between two looks at a monitor


def measure_promises(classifier: Classifier) -> Promises:
    """Make promises for known inputs alone and for a mixture, and judge them."""
    return Promises(measure_known(classifier), measure_mixed(classifier))


def judge(scores: GateScores, gate: Gate, outputs: Outputs, source: str, seed: int, kind: str, target: str) -> Card:
    """Judge a promise on outputs."""
    report = gate.report_card(outputs)
    unknown = int((~outputs.is_id).sum())
    accepted_known = report.false_accept_mistakes + report.true_accept
    return Card(
        scores,
        gate.promise.risk,
        source,
        seed,
        kind,
        target,
        risk=report.risk,
        coverage=report.coverage,
        kept=report.kept,
        accepted_unknown=report.false_accept_ood / max(unknown, 1),
        wrong=report.false_accept_mistakes / max(accepted_known, 1),
    )


def watch(gate: Gate, outputs: Outputs, seed: int, share: float = 0.0, level: int = 0) -> Watch:
    """Check whether the monitor alarms on a stream of inputs, and after how many.

    Parameters
    ----------
    gate : Gate
        The gate whose monitor watches.
    outputs : Outputs
        The inputs of the stream, which are drawn without replacement.
    seed : int
        Of the order of the inputs.
    share : float, default=0.0
        The share of unknown inputs in the stream. It is shorter where they run out.
    level : int, default=0
        What the result is filed under.
    """
    generator = np.random.default_rng(seed)
    verdict = gate.decide(outputs).verdict
    known = generator.permutation(verdict[outputs.is_id])
    unknown = generator.permutation(verdict[~outputs.is_id])
    if share:
        count = min(LONGEST, int(0.8 * len(unknown) / share))
    else:
        count = min(LONGEST, len(known))
    is_unknown = generator.random(count) < share
    stream = np.empty(count, verdict.dtype)
    stream[~is_unknown] = known[: (~is_unknown).sum()]
    stream[is_unknown] = unknown[: is_unknown.sum()]
    monitor = gate.monitor()
    for start in range(0, count, BATCH):
        if monitor.update(stream[start : start + BATCH]):
            return Watch(level, True, monitor.n)
    return Watch(level, False, monitor.n)


# --- known inputs alone ---------------------------------------------------------------------------------------------


def measure_known(classifier: Classifier) -> KnownPromises:
    """Make promises for known inputs alone, and judge them on fresh data and on every level and type of corruption."""
    found = KnownPromises()
    for seed in range(KNOWN_SPLITS):
        choosing, judging = classifier.halves("test", seed)
        for scores in KNOWN_GATES:
            for risk in ALONE[classifier.classes]:
                gate = classifier.fit(scores, [choosing], objective="risk", risk=risk, delta=DELTA)
                if gate is None:
                    found.refused += 1
                    continue
                found.made += 1
                outputs = classifier.outputs(scores, [judging])
                found.cards.append(judge(scores, gate, outputs, "none", seed, "fresh", "fresh"))
                found.watches.append(watch(gate, outputs, seed))
                for level in LEVELS:
                    corrupt(classifier, scores, gate, seed, level, found)
    return found


def corrupt(
    classifier: Classifier, scores: GateScores, gate: Gate, seed: int, level: int, found: KnownPromises
) -> None:
    """Judge a promise on one level of corruption, on all types together and on each."""
    part = classifier.whole(f"corruption/{level}")
    outputs = classifier.outputs(scores, [part])
    found.cards.append(judge(scores, gate, outputs, "none", seed, "level", str(level)))
    found.watches.append(watch(gate, outputs, seed, level=level))
    for kind, part_of_type in zip(TYPES, split_types(part), strict=True):
        outputs = classifier.outputs(scores, [part_of_type])
        found.cards.append(judge(scores, gate, outputs, "none", seed, "type", f"{level} {kind}"))


def split_types(part: Part) -> Iterator[Part]:
    """Yield the rows of each type of corruption, which has every image once, so that its interval is right."""
    name, rows = part
    size = len(rows) // len(TYPES)
    for first in range(0, size * len(TYPES), size):
        yield name, rows[first : first + size]


# --- a quarter unknown ----------------------------------------------------------------------------------------------


def measure_mixed(classifier: Classifier) -> MixedPromises:
    """Make promises for a quarter of unknown inputs from every unknown set, and judge them.

    All are judged on fresh data, and those of CARRIED on shifted data too.
    """
    gates = [MSP]
    gates += [(spec, None) for spec in SECOND]
    gates += [("msp", spec) for spec in SECOND]
    found = MixedPromises()
    for seed in range(MIXED_SPLITS):
        known_choosing, known_judging = classifier.halves("test", seed)
        choosing = {}
        judging = {}
        for name in classifier.unknown:
            choosing[name], judging[name] = classifier.halves(name, seed)
        for source in classifier.unknown:
            for scores in gates:
                is_pair = scores[1] is not None
                if is_pair:
                    curve = hindsight(classifier.outputs(scores, [known_judging, judging[source]]))
                for risk in MIXED[classifier.classes]:
                    promise = (scores, risk, source, seed)
                    found.tried.append(promise)
                    if is_pair:
                        found.best[promise] = curve.coverage[curve.risk <= risk].max(initial=0.0)
                    parts = [known_choosing, choosing[source]]
                    gate = classifier.fit(scores, parts, objective="risk", risk=risk, delta=DELTA, ood_share=SHARE)
                    if gate is not None:
                        found.cards += carry_promise(classifier, promise, gate, known_judging, judging)
    return found


def hindsight(outputs: Outputs) -> metrics.DoubleCurve:
    """Compute the coverage that the best pairs of thresholds have at every risk."""
    first, second = outputs.learned.values()
    return metrics.ds_risk_coverage_curve(outputs.correct, first, second, outputs.is_id, ood_share=SHARE)


def carry_promise(
    classifier: Classifier, promise: Promise, gate: Gate, known: Part, unknown: dict[str, Part]
) -> Iterator[Card]:
    """Yield the cards of one promise: fresh data, levels of corruption, other unknown sets, other shares of unknown inputs.

    Parameters
    ----------
    classifier : Classifier
    promise : tuple
        What was promised.
    gate : Gate
        The gate that promises.
    known : tuple
        The half of the test set that judges.
    unknown : dict
        The half of every unknown set that judges.
    """
    scores, _, source, seed = promise
    yield judge_watched(classifier, promise, gate, [known, unknown[source]], "fresh", source)
    if scores not in CARRIED:
        return
    for level in LEVELS:
        corrupted = classifier.whole(f"corruption/{level}")
        outputs = classifier.outputs(scores, [corrupted, unknown[source]])
        yield judge(scores, gate, outputs, source, seed, "level", str(level))
    for name in classifier.unknown:
        if name != source:
            yield judge_watched(classifier, promise, gate, [known, unknown[name]], "set", name)
    for share in SHARES:
        parts = [known]
        if share:
            parts.append(unknown[source])
        met = replace(gate, promise=replace(gate.promise, ood_share=share))
        yield judge(scores, met, classifier.outputs(scores, parts), source, seed, "share", f"{share:g}")


def judge_watched(
    classifier: Classifier, promise: Promise, gate: Gate, parts: Sequence[Part], kind: str, target: str
) -> Card:
    """Judge a promise; the monitor of msp + energy watches too."""
    scores, _, source, seed = promise
    outputs = classifier.outputs(scores, parts)
    card = judge(scores, gate, outputs, source, seed, kind, target)
    if scores != WITH_ENERGY:
        return card
    return replace(card, alarm=watch(gate, outputs, seed, SHARE).alarm)
