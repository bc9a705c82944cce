"""Tables of what became of promises, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from real_gate_cards import (
    ALL_LEVELS,
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
    Promises,
    Watch,
    by_level,
)
from real_gate_classifier import LEVELS, Classifier, Row, gate_name
from real_gate_promises import KNOWN_SPLITS, MIXED_SPLITS, TYPES
from real_tables import markdown, number
from records import Records

HEADER = ("judged on", "cards", "kept", "inconclusive", "broken", "risk / promised, mean", "largest", "ID coverage")
VERDICTS = {"kept": "yes", "inconclusive": "inconclusive", "broken": "no"}


def promise_section(classifiers: Sequence[Classifier], measured: dict[str, Promises]) -> str:
    """Write the section on what happens to guaranteed risks."""
    parts = [
        "## What happens to guaranteed risks",
        f"Each gate promises a risk of at most r with confidence {1 - DELTA:g}. 1,000 validation images are few for that. Here, "
        "one half of the test set (4,500 images, and one half of the unknown set) chooses the thresholds, and the other half "
        "judges them. A promise counts as kept or broken if the exact 95 % interval of the risk lies on one side of r; else it is "
        "inconclusive. Images that were corrupted never choose thresholds. Splits of one test set overlap, so the report "
        "cards are not independent.",
        f"### Known inputs alone, corruption of levels 1 to 5 (FD-Shifts paper, Figure 7), {KNOWN_SPLITS} splits",
        "The gates are msp alone and msp + energy. Each of the 15 types of corruption has a card, because the types share their "
        "600 images and one interval over all would be too narrow. *Alarms* are those of the gate's monitor (false alarms at "
        "most 1 %) within 4,500 inputs.",
        "![Risk promised and found](real_gate_shift.png)",
        "Lines are medians over splits (below: and over unknown sets), bands are the middle half, and dashed lines are what was promised.",
    ]
    for classifier in classifiers:
        promises = measured[classifier.name].known
        parts += [
            f"#### {classifier.name}, r = {', '.join(map(str, ALONE[classifier.classes]))}",
            known_table(promises),
            f"{count_refused(promises)} {name_types(promises.cards)}",
        ]
    parts += [
        f"### A quarter of the inputs unknown (`ood_share={SHARE}`), {MIXED_SPLITS} splits and every unknown set",
        f"The gates are {', '.join(map(gate_name, CARRIED))}. *Other set*: the unknown inputs come from a set that the gate never saw. "
        "*Share*: the share of unknown inputs is not the promised quarter; the sets are the same. *Level*: known inputs are "
        "corrupted, all types together, so these intervals are somewhat too narrow.",
    ]
    for classifier in classifiers:
        promises = measured[classifier.name].mixed
        risk = MIXED[classifier.classes][1]
        parts += [
            f"#### {classifier.name}, r = {', '.join(map(str, MIXED[classifier.classes]))}",
            mixed_table(classifier, promises),
            count_infeasible(promises),
            f"The risk found where {100 * risk:g} % was promised, with {gate_name(WITH_ENERGY)}. Thresholds are chosen on the set of the row and "
            "judged on the set of the column.",
            risk_table(classifier, promises),
        ]
    return "\n\n".join(parts)


def promise_rows(classifiers: Sequence[Classifier], measured: dict[str, Promises]) -> Iterator[Row]:
    """Yield shares of verdicts and mean risks."""
    for classifier in classifiers:
        yield from known_rows(classifier, measured[classifier.name].known)
    for classifier in classifiers:
        yield from mixed_rows(classifier, measured[classifier.name].mixed)


def tally(cards: Records[Card]) -> list[object]:
    """Count cards by verdict, and sum up the risk over the promised one and the coverage."""
    ratios = cards.values("ratio")
    return [
        len(cards),
        *count_verdicts(cards).values(),
        f"{ratios.mean():.2f}",
        f"{ratios.max():.2f}",
        number(cards.mean("coverage"), digits=1),
    ]


def count_verdicts(cards: Records[Card]) -> dict[str, int]:
    """Count the promises that are kept, inconclusive and broken."""
    return {name: len(cards.where(kept=verdict)) for name, verdict in VERDICTS.items()}


def tally_rows(
    table: str, classifier: Classifier, gates: str, chosen: str, judged: str, cards: Records[Card]
) -> Iterator[Row]:
    """Yield the share of each verdict, and the mean risk over the promised one."""
    about = (table, classifier.name, gates, chosen, judged, "all")
    for quantity, count in count_verdicts(cards).items():
        yield Row(*about, f"{quantity}, share of cards", count / len(cards))
    yield Row(*about, "risk / promised, mean", cards.mean("ratio"))


# --- known inputs alone ---------------------------------------------------------------------------------------------


def known_groups(promises: KnownPromises) -> Iterator[tuple[str, Records[Card], Records[Watch]]]:
    """Yield the cards and monitors of each level: fresh ones, and those of each type of corruption."""
    for level in ALL_LEVELS:
        watches = promises.watches.where(level=level)
        if level == 0:
            yield "fresh", promises.cards.where(kind="fresh"), watches
        else:
            types = [f"{level} {name}" for name in TYPES]
            cards = promises.cards.where(kind="type").within("target", types)
            yield f"level {level}", cards, watches


def known_table(promises: KnownPromises) -> str:
    """Write a line for each level of corruption."""
    lines = []
    for label, cards, watches in known_groups(promises):
        alarmed = watches.where(alarm=True)
        wait = "–"
        if alarmed:
            wait = f"{np.median(alarmed.values('inputs')):.0f}"
        lines.append([label, *tally(cards), f"{len(alarmed)} of {len(watches)}", wait])
    return markdown([*HEADER, "alarms", "inputs to alarm, median"], lines)


def known_rows(classifier: Classifier, promises: KnownPromises) -> Iterator[Row]:
    table = "known inputs alone"
    for label, cards, watches in known_groups(promises):
        yield from tally_rows(table, classifier, "both gates", "test", label, cards)
        yield Row(table, classifier.name, "both gates", "test", label, "all", "alarms, share", watches.mean("alarm"))
    for scores in KNOWN_GATES:
        for risk in ALONE[classifier.classes]:
            for level in ALL_LEVELS:
                cards = by_level(promises.cards, scores, risk, level)
                if cards:
                    about = (table, classifier.name, gate_name(scores), "test", f"level {level}", risk)
                    yield Row(*about, "risk, mean", cards.mean("risk"))


def count_refused(promises: KnownPromises) -> str:
    requested = promises.made + promises.refused
    return f"Of {requested} requested promises, {promises.refused} could not be made."


def name_types(cards: Records[Card]) -> str:
    """Name the corruptions that break most and fewest promises."""
    broken = {}
    for name in TYPES:
        targets = [f"{level} {name}" for level in LEVELS]
        broken[name] = cards.where(kind="type").within("target", targets).mean("is_broken")
    order = sorted(TYPES, key=lambda name: -broken[name])
    shares = [f"{name} ({100 * broken[name]:.0f} %)" for name in order]
    return f"Over all levels, {', '.join(shares[:4])} break most promises; {', '.join(shares[-3:])} break fewest."


# --- a quarter unknown ----------------------------------------------------------------------------------------------


def mixed_groups(classifier: Classifier, promises: MixedPromises) -> Iterator[tuple[str, Records[Card]]]:
    """Yield cards grouped by what they are judged on."""
    cards = promises.carried
    yield "fresh", cards.where(kind="fresh")
    for level in LEVELS:
        yield f"level {level}", cards.where(kind="level", target=str(level))
    distances = {"near": classifier.near, "far": classifier.far}
    for source, sources in distances.items():
        from_source = cards.where(kind="set").within("source", sources)
        for target, targets in distances.items():
            yield f"other set, {source} to {target}", from_source.within("target", targets)
    for share in SHARES:
        yield f"share {share:g}", cards.where(kind="share", target=f"{share:g}")


def mixed_table(classifier: Classifier, promises: MixedPromises) -> str:
    """Write a line for each group of cards."""
    lines = []
    for label, cards in mixed_groups(classifier, promises):
        if cards:
            lines.append([label, *tally(cards)])
    return markdown(HEADER, lines)


def count_infeasible(promises: MixedPromises) -> str:
    tried = sum(scores in CARRIED for scores, *_ in promises.tried)
    missing = tried - len(promises.carried.where(kind="fresh"))
    return f"Of {tried} requested promises, {missing} could not be made; `Gate.fit` then raises `Infeasible`."


def risk_matrix(classifier: Classifier, promises: MixedPromises) -> dict[tuple[str, str], float]:
    """Compute the mean risk found with msp + energy, by the set that chose and the set that judged."""
    risk = MIXED[classifier.classes][1]
    cards = promises.cards.where(scores=WITH_ENERGY, asked=risk).within("kind", ("fresh", "set"))
    found = {}
    for source in classifier.unknown:
        for target in classifier.unknown:
            of_pair = cards.where(source=source, target=target)
            if of_pair:
                found[source, target] = of_pair.mean("risk")
    return found


def risk_table(classifier: Classifier, promises: MixedPromises) -> str:
    """Write the matrix of risks."""
    matrix = risk_matrix(classifier, promises)
    lines = []
    for source in classifier.unknown:
        line = [source]
        for target in classifier.unknown:
            line.append(number(matrix.get((source, target), np.nan), digits=1))
        lines.append(line)
    return markdown(["chosen on", *classifier.unknown], lines)


def mixed_rows(classifier: Classifier, promises: MixedPromises) -> Iterator[Row]:
    table = "a quarter unknown"
    for label, cards in mixed_groups(classifier, promises):
        if cards:
            yield from tally_rows(table, classifier, "three gates", "every set", label, cards)
    risk = MIXED[classifier.classes][1]
    for (source, target), found in risk_matrix(classifier, promises).items():
        yield Row(table, classifier.name, gate_name(WITH_ENERGY), source, target, risk, "risk, mean", found)
