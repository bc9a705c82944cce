"""The verdict in words: what the numbers say, and what they do not promise."""

from __future__ import annotations

import math

from twofold.report.document import Number, Part, Section, Table, count, listed
from twofold.report.judge import KIND, WORDS, Judge, exact, number
from twofold.report.material import Pair


def tiles(judge: Judge) -> tuple[tuple[str, str, str], ...]:
    """Choose the few numbers at the top of the page.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    tuple of (str, str, str)
        Value, what it is, and its interval.
    """
    p = judge.pool
    taken = judge.taken(p)
    ids, right = int(p.is_id.sum()), int(p.correct.sum())
    found = [
        (exact(right, ids), "of known inputs get the right answer"),
        (exact(int((taken & p.is_id).sum()), ids), "of known inputs are accepted by the gate"),
        (exact(int((taken & ~p.correct).sum()), int(taken.sum())), "of what it accepts is wrong or unknown"),
    ]
    for role in judge.material.roles:
        rows = p.role == role
        found.append((exact(int((taken & rows).sum()), int(rows.sum())), f"of {KIND[role]} inputs get through"))
    return tuple((f"{value} %", told, f"95 %: {value.span}") for value, told in found)


def verdict(judge: Judge) -> Section:
    """Say in words what the numbers mean.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        Sentences, and a table of cautions where there are some.
    """
    m, p = judge.material, judge.pool
    ids, right = int(p.is_id.sum()), int(p.correct.sum())
    wrong, outside = ids - right, int((~p.is_id).sum())
    odds = f", so about 1 answer in {ids / wrong:.0f} is wrong" if 0 < wrong <= ids / 2 else ""
    parts: list[Part] = [
        f"On {count(ids, 'test input')} of the classes it knows, the classifier is right in {exact(right, ids)} % of "
        f"cases{odds}. On inputs of no known class every answer is wrong, whatever the classifier says."
    ]
    if outside:
        parts.append(_gate_words(judge, judge.single, f"By {judge.single.name} alone"))
    if judge.pair != judge.single:
        asked = f"{judge.pair.id} for doubtful answers and {judge.pair.ood} for unknown inputs"
        start = f"With two thresholds, on {asked}" if outside else "With both scores"
        parts.append(_gate_words(judge, judge.pair, start))
    if not outside:
        parts.append(_gate_words(judge, judge.single, f"By {judge.single.name} alone"))
    parts += _comparison(judge)
    parts += _shift_words(judge)
    parts += [f"{m.chosen} {_threshold_words(judge)}"]
    warned = _cautions(judge)
    if warned:
        rows = tuple((text,) for text in warned)
        parts.append(Table("cautions", "What these numbers do not promise", ("caution",), rows))
    return Section("verdict", "The verdict", tuple(parts))


def _gate_words(judge: Judge, pair: Pair, start: str) -> str:
    p = judge.pool
    taken = judge.taken(p, pair)
    kept, ids = int((taken & p.is_id).sum()), int(p.is_id.sum())
    if not taken.any():
        return f"{start}, the gate accepts nothing."
    bad, inner = int((taken & ~p.correct).sum()), int((taken & p.is_id & ~p.correct).sum())
    right = int(p.correct.sum())
    lost = exact(int((p.correct & ~taken).sum()), right) if right else Number(math.nan)
    through = [
        f"{exact(int((taken & (p.role == role)).sum()), int((p.role == role).sum()))} % of {KIND[role]} inputs"
        for role in judge.material.roles
    ]
    leak = f" {listed(through)} get through." if through else ""
    split = f" ({count(inner, 'mistake')} and {count(bad - inner, 'unknown input')})" if through else ""
    return (
        f"{start}, the gate accepts {exact(kept, ids)} % of known inputs; {exact(bad, int(taken.sum()))} % of what it "
        f"accepts is wrong{split}, and it turns away {lost} % of the right answers.{leak}"
    )


def _shift_words(judge: Judge) -> list[Part]:
    """Name the shifted set of known classes on which the gate is wrong most often."""
    found = []
    for one in judge.material.of("shift"):
        taken = judge.taken(one)
        if taken.any():
            found.append((float((taken & ~one.correct).sum() / taken.sum()), one, taken))
    if not found:
        return []
    _, worst, taken = max(found, key=lambda case: case[0])
    right = exact(int(worst.correct.sum()), len(worst))
    bad = exact(int((taken & ~worst.correct).sum()), int(taken.sum()))
    return [
        f"Where known inputs are shifted, {worst.name} is worst of {count(len(found), 'set')}: the classifier is right "
        f"in {right} % of cases, and {bad} % of what the gate accepts there is wrong."
    ]


def _comparison(judge: Judge) -> list[Part]:
    """Say whether the second score is worth it, by the paired difference in DS-F1."""
    roles = judge.material.roles
    if not roles or judge.pair == judge.single:
        return []
    judge.measure_all([(roles, pair) for pair in (judge.pair, judge.single)])
    two, one = (judge.measured(roles, pair)["ds_f1"] for pair in (judge.pair, judge.single))
    gap = number(two - one)
    told = f"{gap.factor * gap.value:+.1f} points of DS-F1"
    if math.isnan(gap.low):
        return [f"Against {judge.single.name} alone the pair makes {told}, at the best thresholds of each."]
    apart = "better, beyond chance" if gap.low > 0 else "worse, beyond chance" if gap.high < 0 else "that may be chance"
    return [
        f"Against {judge.single.name} alone the pair makes {told} {gap.span} at the best thresholds of each: {apart}."
    ]


def _threshold_words(judge: Judge) -> str:
    if judge.material.validated:
        return (
            "Thresholds were chosen on validation data too, for the share of unknown inputs shown here: a gate in use "
            "does the same on such data."
        )
    return "Thresholds are the best on the very data shown here, so the numbers above are somewhat optimistic."


def _cautions(judge: Judge) -> list[str]:
    """List in plain words what the numbers do not promise."""
    m, p = judge.material, judge.pool
    ids, wrong, outside = int(p.is_id.sum()), int((p.is_id & ~p.correct).sum()), int((~p.is_id).sum())
    found = []
    if not outside:
        found.append(
            "No unknown inputs are here: nothing is said about inputs of no known class, which every deployment meets. "
            "Add some (role near or far, or label -1) and make the report again."
        )
    else:
        found.append(
            f"Unknown inputs are {outside / len(p.is_id):.0%} of the data shown. Risk and F1 change with that share; "
            "the explorer below takes the share you expect."
        )
    if ids < 1000 or wrong < 50:
        found.append(
            f"There are {count(ids, 'known test input')} with {count(wrong, 'mistake')}: few, so look at the "
            "intervals, not at the digits."
        )
    taken = judge.taken(p)
    for role in m.roles:
        rows = int((p.role == role).sum())
        through = int((taken & (p.role == role)).sum())
        if 2 * through > rows:
            found.append(
                f"{exact(through, rows)} % of {WORDS[role]} get through: these scores hardly tell them from known "
                "inputs, and thresholds cannot mend that."
            )
        if rows < 200:
            found.append(f"There are only {count(rows, WORDS[role].rstrip('s'), WORDS[role])}.")
    return [*found, *m.cautions]
