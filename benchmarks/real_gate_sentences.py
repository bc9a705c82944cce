"""Sentences on when a promise fails, and why, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from real_gate_cards import (
    ALONE,
    DELTA,
    SHARE,
    SHARES,
    WITH_ENERGY,
    Card,
    KnownPromises,
    MixedPromises,
    Promise,
    Promises,
    by_level,
)
from real_gate_classifier import LEVELS, MSP, Classifier, gate_name
from real_tables import number
from records import Records
from twofold import metrics


def plain_words(classifiers: Sequence[Classifier], measured: dict[str, Promises]) -> str:
    """Write the section on when a promise fails, and why."""
    parts = ["## When a promise fails, and why"]
    for classifier in classifiers:
        known = measured[classifier.name].known
        mixed = measured[classifier.name].mixed
        texts = [
            same_data(known, mixed),
            corruption(classifier, known),
            other_set(classifier, mixed),
            other_share(mixed),
            alarms(known, mixed),
        ]
        parts.append(f"### {classifier.name}")
        parts.append("\n".join(f"- {text}" for text in texts))
    return "\n\n".join(parts)


def same_data(known: KnownPromises, mixed: MixedPromises) -> str:
    """Say whether promises hold on fresh data of the same kind."""
    fresh = Records([*known.cards, *mixed.cards]).where(kind="fresh")
    broken = fresh.count("is_broken")
    over = fresh.count("is_exceeded")
    if over <= DELTA * len(fresh):
        verdict = "holds"
    elif broken <= DELTA * len(fresh):
        verdict = "holds within measurement error"
    else:
        verdict = "does not hold"
    return (
        f"**Same kind of data.** {broken} of {len(fresh)} cards are broken. The risk found exceeds the promised one on {over} "
        f"({100 * over / len(fresh):.0f} %); on average it is {fresh.mean('ratio'):.2f} of it. The promise {verdict} on fresh data of the same kind."
    )


def corruption(classifier: Classifier, known: KnownPromises) -> str:
    """Say from which level of corruption on a promise is exceeded, and why no threshold could foresee it."""
    risk = ALONE[classifier.classes][1]
    clean = by_level(known.cards, MSP, risk, 0)
    worst = by_level(known.cards, MSP, risk, 5)
    if not clean:
        return f"**Corruption.** A risk of {100 * risk:g} % could not be promised."
    starts = "at no level"
    for level in LEVELS:
        if by_level(known.cards, MSP, risk, level).mean("risk") > risk:
            starts = f"from level {level} on"
            break
    correct = classifier.correct["corruption/5"]
    possible = metrics.coverage_at_risk(correct, classifier.conf["msp"]["corruption/5"], risk)
    before = clean.mean("coverage")
    after = worst.mean("coverage")
    text = (
        f"**Corruption.** A risk of {100 * risk:g} % promised for known inputs (msp) is exceeded {starts}. It is {number(clean.mean('risk'))} % on clean "
        f"images and {number(worst.mean('risk'))} % at level 5, while accuracy falls from {number(classifier.correct['test'].mean(), digits=1)} % to "
        f"{number(correct.mean(), digits=1)} %. "
    )
    if after < before and possible < after:
        return text + (
            f"The gate does reject more (coverage from {number(before, digits=1)} % to {number(after, digits=1)} %), but not "
            f"enough: the network is wrong with high confidence. At level 5, a risk of {100 * risk:g} % would leave a coverage of "
            f"{number(possible, digits=1)} %. No threshold chosen on clean images can foresee that."
        )
    return text + (
        f"Coverage goes from {number(before, digits=1)} % to {number(after, digits=1)} %; with hindsight {number(possible, digits=1)} % "
        "would be possible at the promised risk."
    )


def other_set(classifier: Classifier, mixed: MixedPromises) -> str:
    """Say how often promises break on another unknown set, and why."""
    fresh = {card.promise: card for card in mixed.cards.where(kind="fresh")}
    moved = mixed.cards.where(kind="set")
    broken = moved.where(is_broken=True)
    others = moved.where(is_broken=False)
    assert all(card.wrong == fresh[card.promise].wrong for card in moved)
    more = count_more_accepted(broken, fresh)
    near_to_far = moved.within("source", classifier.near).within("target", classifier.far).mean("is_broken")
    far_to_near = moved.within("source", classifier.far).within("target", classifier.near).mean("is_broken")
    reason = "and others may look more like known ones."
    if broken and more > 0.9 * len(broken):
        reason = "and fails where others look more like known ones."
    text = (
        f"**Another unknown set.** {len(broken)} of {len(moved)} promises are broken on another set. In {more} of "
        f"those {len(broken)}, the gate accepts a larger share of the new set than of the old one; it does so in {count_more_accepted(others, fresh)} of the "
        f"other {len(others)}. Accepted labels of known inputs are as good as before. The guarantee covers the unknown inputs it "
        f"saw, {reason} From near to far sets {100 * near_to_far:.0f} % are broken, from far to near {100 * far_to_near:.0f} %."
    )
    if near_to_far < far_to_near:
        text += " Validate with the nearest unknown inputs that you expect."
    return text


def count_more_accepted(cards: Records[Card], fresh: dict[Promise, Card]) -> int:
    """Count the cards on which a larger share of unknown inputs is accepted than on fresh data."""
    return sum(card.accepted_unknown > fresh[card.promise].accepted_unknown for card in cards)


def other_share(mixed: MixedPromises) -> str:
    """Say what another share of unknown inputs does."""
    ratios = []
    broken_within = []
    broken_above = []
    for share in SHARES:
        cards = mixed.cards.where(kind="share", target=f"{share:g}")
        ratios.append(cards.mean("ratio"))
        if share <= SHARE:
            broken_within.append(cards.mean("is_broken"))
        else:
            broken_above.append(cards.mean("is_broken"))
    grows = "does not always grow with the share"
    if (np.diff(ratios) > 0).all():
        grows = "grows with the share, because every accepted unknown input is a failure"
    means = ", ".join(f"{ratio:.2f} at {share:g}" for ratio, share in zip(ratios, SHARES, strict=True))
    most_within = max(broken_within)
    least_above = min(broken_above)
    text = (
        f"**Another share of unknown inputs.** The mean ratio of risk to promised risk is {means}. It {grows}. "
        f"At or below the promised share, at most {100 * most_within:.0f} % of the cards are broken; above it, at least {100 * least_above:.0f} %."
    )
    if least_above > most_within:
        text += " Promise for the largest share that you expect."
    return text


def alarms(known: KnownPromises, mixed: MixedPromises) -> str:
    """Say how often the monitor alarms, and whether that shows broken promises."""
    clean = known.watches.where(level=0)
    rates = []
    silent = []
    for level in LEVELS:
        rate = known.watches.where(level=level).mean("alarm")
        rates.append(f"{100 * rate:.0f} % at level {level}")
        if rate < 0.9:
            silent.append(level)
    watched = mixed.cards.within("alarm", (True, False))
    fresh = watched.where(kind="fresh")
    broken = watched.where(kind="set", is_broken=True)
    others = watched.where(kind="set", is_broken=False)
    text = (
        f"**Would anyone notice?** The monitor sees no labels. It alarms in {clean.count('alarm')} of {len(clean)} streams of clean "
        f"images and in {', '.join(rates)}. "
    )
    if silent:
        text += f"Up to level {max(silent)}, a broken promise can go unnoticed. "
    text += (
        f"With a quarter unknown ({gate_name(WITH_ENERGY)}), it alarms in {fresh.count('alarm')} of {len(fresh)} streams of the same kind, in "
        f"{broken.count('alarm')} of {len(broken)} where another unknown set broke the promise, and in {others.count('alarm')} of {len(others)} where "
        "another set did not. "
    )
    if broken.count("alarm") <= 0.5 * len(broken):
        return text + "Most broken promises go unnoticed."
    if others.mean("alarm") > 0.25:
        return text + "It shows that the data changed, not whether the promise broke."
    return text + "Most broken promises are noticed."
