"""The verdict in words: what the numbers say, and what they do not guarantee."""

from __future__ import annotations

import math

from twofold.report.document import Part, ReportTable, Section, Tile, format_count, join_words
from twofold.report.measure import KIND_NAMES, UNKNOWN_NAMES, Measurements, count_share, replicated_number
from twofold.report.scored import Pool, ScorePair

FEW_KNOWN, FEW_WRONG, FEW_UNKNOWN = 1000, 50, 200  # below these counts the page warns that the data are few

DEFINITION = (
    "Known inputs are in-distribution: they belong to one of the classifier's classes. Unknown inputs are "
    "out-of-distribution (OOD): they belong to none of them, so every prediction on them is wrong."
)


def headline_tiles(measurements: Measurements) -> tuple[Tile, ...]:
    """Choose the few numbers at the top of the page.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    tuple of Tile
        Accuracy, and what the gate accepts.
    """
    pool = measurements.pool
    accepted = measurements.accepts(pool)
    numbers = {
        "of known inputs are classified correctly": count_share(pool.correct, pool.is_id),
        "of known inputs are accepted by the gate": count_share(accepted, pool.is_id),
        "of accepted inputs are misclassified or unknown": count_share(~pool.correct, accepted),
    }
    for role in measurements.source.unknown_roles:
        numbers[f"of {UNKNOWN_NAMES[role]} inputs are accepted"] = count_share(accepted, pool.role == role)
    return tuple(Tile(f"{number} %", meaning, f"95 %: {number.span}") for meaning, number in numbers.items())


def verdict_section(measurements: Measurements) -> Section:
    """Say in words what the numbers mean.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        Sentences, and a table of cautions where there are some.
    """
    pair, single = measurements.pair, measurements.single
    has_unknown = not measurements.pool.is_id.all()
    single_words = _describe_gate(measurements, single, f"With {single.name} alone")
    parts: list[Part] = [_describe_accuracy(measurements.pool), DEFINITION]
    if has_unknown:
        parts.append(single_words)
    if pair != single:
        start = "With both scores"
        if has_unknown:
            start = f"With two thresholds, {pair.id} against mistakes and {pair.ood} against unknown inputs"
        parts.append(_describe_gate(measurements, pair, start))
    if not has_unknown:
        parts.append(single_words)
    parts += _compare_with_single(measurements)
    parts += _describe_worst_shift(measurements)
    parts.append(f"{measurements.source.how_chosen} {_describe_thresholds(measurements)}")
    cautions = tuple((text,) for text in _list_cautions(measurements))
    if cautions:
        parts.append(ReportTable("cautions", "What these numbers do not guarantee", ("caution",), cautions))
    return Section("verdict", "The verdict", tuple(parts))


def _describe_accuracy(pool: Pool) -> str:
    known = int(pool.is_id.sum())
    wrong = known - int(pool.correct.sum())
    odds = ""
    if 0 < wrong <= known / 2:
        odds = f", so about 1 prediction in {known / wrong:.0f} is wrong"
    accuracy = count_share(pool.correct, pool.is_id)
    return f"Of {format_count(known, 'known test input')}, {accuracy} % are classified correctly{odds}."


def _describe_gate(measurements: Measurements, pair: ScorePair, start: str) -> str:
    """Say how much the gate of a pair accepts, and how much of that is wrong."""
    pool = measurements.pool
    accepted = measurements.accepts(pool, pair)
    if not accepted.any():
        return f"{start}, the gate accepts nothing."
    coverage = count_share(accepted, pool.is_id)
    risk = count_share(~pool.correct, accepted)
    lost = count_share(~accepted, pool.correct)
    split = leak = ""
    roles = measurements.source.unknown_roles
    if roles:
        through = [f"{count_share(accepted, pool.role == role)} % of {UNKNOWN_NAMES[role]} inputs" for role in roles]
        leak = f" It accepts {join_words(through)}."
        mistakes = int((accepted & pool.is_id & ~pool.correct).sum())
        unknown = int((accepted & ~pool.is_id).sum())
        split = f" ({format_count(mistakes, 'mistake')} and {format_count(unknown, 'unknown input')})"
    return (
        f"{start}, the gate accepts {coverage} % of known inputs; {risk} % of what it accepts is wrong{split}, and it "
        f"rejects {lost} % of the correct predictions.{leak}"
    )


def _compare_with_single(measurements: Measurements) -> list[Part]:
    """Say whether the second score is worth it, by the paired difference in DS-F1."""
    roles = measurements.source.unknown_roles
    pair, single = measurements.pair, measurements.single
    if not roles or pair == single:
        return []
    measurements.compute_in_threads([(roles, pair), (roles, single)])
    with_pair = measurements.joint_metrics(roles, pair)["ds_f1"]
    with_single = measurements.joint_metrics(roles, single)["ds_f1"]
    gap = replicated_number(with_pair - with_single)
    start = f"Compared with {single.name} alone, the pair changes DS-F1 by {gap.factor * gap.value:+.1f} points"
    if math.isnan(gap.low):
        return [f"{start}, each at its best thresholds."]
    if single.id in (pair.id, pair.ood):  # with the other threshold open, the pair is the single score
        conclusion = "it contains that score, so it cannot be worse here"
    elif gap.low > 0:
        conclusion = "significantly better"
    elif gap.high < 0:
        conclusion = "significantly worse"
    else:
        conclusion = "statistically tied"
    return [f"{start} {gap.span}, each at its best thresholds: {conclusion}."]


def _describe_worst_shift(measurements: Measurements) -> list[Part]:
    """Name the shifted set of known classes on which the gate is wrong most often."""
    risks = []
    for one in measurements.source.sets_of("shift"):
        accepted = measurements.accepts(one)
        if accepted.any():
            risks.append((count_share(~one.correct, accepted), one))
    if not risks:
        return []
    risk, worst = max(risks, key=lambda case: case[0].value)
    start = f"On the shifted set {worst.name}"
    if len(risks) > 1:
        start = f"On {worst.name}, the worst of {len(risks)} shifted sets"
    return [
        f"{start}, {count_share(worst.correct)} % of known inputs are classified correctly, and {risk} % of what the "
        "gate accepts there is wrong."
    ]


def _describe_thresholds(measurements: Measurements) -> str:
    if measurements.source.is_validated:
        return (
            "The thresholds were also chosen on validation data, for the share of unknown inputs shown here, so expect "
            "similar numbers from a deployed gate on such data."
        )
    return "The thresholds were chosen on the data shown here, so the numbers above are somewhat optimistic."


def _list_cautions(measurements: Measurements) -> list[str]:
    """List in plain words what the numbers do not guarantee."""
    pool = measurements.pool
    accepted = measurements.accepts(pool)
    cautions = [_caution_about_share(pool)]
    known, wrong = int(pool.is_id.sum()), int((pool.is_id & ~pool.correct).sum())
    if known < FEW_KNOWN or wrong < FEW_WRONG:
        cautions.append(
            f"There are only {format_count(known, 'known test input')} with {format_count(wrong, 'mistake')}: look at "
            "the intervals rather than the digits."
        )
    for role in measurements.source.unknown_roles:
        rows = pool.role == role
        count, through = int(rows.sum()), int((accepted & rows).sum())
        if 2 * through > count:
            cautions.append(
                f"{count_share(accepted, rows)} % of {KIND_NAMES[role]} are accepted: these scores hardly distinguish "
                "them from known inputs, and no threshold can fix that."
            )
        if count < FEW_UNKNOWN:
            cautions.append(f"There are only {format_count(count, KIND_NAMES[role].rstrip('s'), KIND_NAMES[role])}.")
    return [*cautions, *measurements.source.cautions]


def _caution_about_share(pool: Pool) -> str:
    unknown = int((~pool.is_id).sum())
    if unknown:
        return (
            f"Unknown inputs are {unknown / len(pool.is_id):.0%} of the data shown. Risk and F1 change with that "
            "share; enter the share you expect in the explorer below."
        )
    return (
        "There are no unknown inputs here, so this report says nothing about them, and every deployment meets some. "
        "Add some (role near or far, or label -1) and write the report again."
    )
