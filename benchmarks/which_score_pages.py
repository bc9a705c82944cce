"""Pages on which score to use: a guide of one page, and every pair with its gain and regret."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from drawn_gains import DRAWS
from intervals import show_gain
from network_cells import CellValue, Row
from score_choice import (
    ALL_RULE,
    BASE,
    DEFAULT,
    ELSEWHERE,
    ORACLE,
    SLACK,
    USUAL_RULE,
    WITH_FEATURES,
    Candidate,
    Table,
)
from tables import markdown
from twofold.plot.themes import COLOURS

CELLS_COMMAND = "python benchmarks/which_score.py --save"
COMMAND = "python benchmarks/findings.py"
SHOWN = 8  # pairs of the guide, of each kind
KINDS = {True: "logits alone", False: "features and training rows too"}
HEAD = (
    "scores",
    "F1 on other sets, gain",
    "worse than msp, % of cells",
    "mean regret",
    "worst",
    "DS-F1, gain",
    "DS-AURC, gain (x1000)",
    "networks",
)


def extent(folder: Path) -> str:
    """Say how many classifiers and unknown sets there are."""
    table = Table.read(folder)
    kinds = Counter(table.networks.values())
    listed = ", ".join(f"{count} of {name}" for name, count in kinds.items())
    sets = sum(table.set_counts.values())
    return f"{len(table.networks)} real classifiers ({listed}) and {sets} pairs of a classifier and an unknown set"


def pair_row(table: Table, name: str) -> list[str]:
    """Write what a choice of scores gains over msp, and where it loses."""
    regret = table.regret(name)
    if regret is None:
        raise ValueError(f"{name} has no cell")
    return [
        f"`{name}`",
        show_gain(table.over("f1", name, BASE)),
        f"{100 * regret.share:.0f}",
        f"{100 * regret.mean:.2f}",
        f"{100 * regret.worst:.1f}",
        show_gain(table.over("ds_f1", name, BASE)),
        show_gain(table.over("ds_aurc", name, BASE), factor=1000),
        str(regret.networks),
    ]


def ranked(table: Table, *, logits: bool) -> list[str]:
    """List the choices of a kind of score by their mean F1 on other sets, best first."""
    found = {}
    for name in table.columns:
        parts = name.split(" + ")
        needs_logits = all(part in table.logits_alone for part in parts)
        if name != BASE and needs_logits == logits:
            found[name] = table.over("f1", name, BASE).value
    return sorted(found, key=lambda name: -found[name])


def guide(folder: Path) -> str:
    """Write the page for an engineer."""
    table = Table.read(folder)
    parts = [
        "# Which score should one use",
        f"This page answers the question from {extent(folder)}. A gate was fitted with each choice of scores on one half of the test inputs and "
        "one unknown set, and judged on the other half and the *other* unknown sets (where a classifier has one unknown set only, on its other "
        "half). That is what happens after deployment: unknown inputs are not those that chose the thresholds.",
        "## In short",
        *answers(table),
        "![Gain and regret of every pair](which_score.png)",
        "Each dot is msp with one second score: to the right it gains over msp on average, upwards it is worse than msp more often.",
    ]
    for logits, title in KINDS.items():
        names = ranked(table, logits=logits)[:SHOWN]
        if logits and DEFAULT not in names:
            names.append(DEFAULT)
        parts += [f"## With {title}", markdown(HEAD, [pair_row(table, name) for name in names])]
    parts += [
        "F1 in points, over msp alone: mean over networks [95 % interval over networks and unknown sets]. *Worse* counts cells, *mean regret* is "
        "what is lost to msp on average over all cells, *worst* in one cell. DS-F1 and DS-AURC take the best thresholds of the judged set itself, "
        "so that a pair with msp cannot lose; single scores can. *Networks* have what the scores need. "
        "[Every choice](../results/which_score.md) is in the results.",
        "## By kind of input",
        modality_table(table),
        "Gain in F1 over msp alone on other unknown sets, and the mean regret in brackets; a dash where the scores need what a network lacks. Large "
        "images and text are one network and one unknown set each.",
        "## Choosing on your own unknown inputs",
        markdown(
            ("rule", "F1 over msp alone", "worse than msp, % of cells", "behind the best pair with hindsight"),
            rule_rows(table),
        ),
        f"{rule_words(table)} All rules choose with as many unknown inputs as known ones.",
        "## The default",
        *default_words(table),
        f"Cells: `{CELLS_COMMAND}`; this page: `{COMMAND}`.",
    ]
    return "\n\n".join(parts) + "\n"


def modality_table(table: Table) -> str:
    """Write what the best-known and the best pairs gain on each kind of input."""
    names = [DEFAULT, WITH_FEATURES]
    for logits in KINDS:
        pairs = [name for name in ranked(table, logits=logits) if name.startswith("msp + ") and name not in names]
        names += pairs[:3]
    modalities = list(dict.fromkeys(table.networks.values()))
    rows = []
    for name in names:
        cells = []
        for modality in modalities:
            regret = table.regret(name, modality)
            if regret is None:
                cells.append("–")
                continue
            networks = [one for one, kind in table.networks.items() if kind == modality]
            gains = [table.mean_f1[one][name] - table.mean_f1[one][BASE] for one in networks]
            cells.append(f"{100 * sum(gains) / len(gains):+.2f} ({100 * regret.mean:.2f})")
        rows.append([f"`{name}`", *cells])
    return markdown(("pair", *modalities), rows)


def answers(table: Table) -> list[str]:
    """Answer in a few lines."""
    lines = []
    for logits, title in KINDS.items():
        names = ranked(table, logits=logits)
        best = names[0]
        gain = table.over("f1", best, BASE)
        pair = next(name for name in names if name.startswith("msp + "))
        words = f"- **With {title}:** `{best}` is best on average, {show_gain(gain)} points of F1 over msp alone"
        if pair != best:
            gain = table.over("f1", pair, BASE)
            words += f"; of the pairs with msp, `{pair}` ({show_gain(gain)})"
        advice = "No pair is sure to gain: compare a few on validation data of your own."
        if gain.low > 0:
            advice = f"Try `{pair}` first on validation data of your own."
        lines.append(f"{words}. {advice}")
    usual = table.gain("f1", table.rule(USUAL_RULE))
    lines.append(
        f"- **With unknown inputs of your own:** `twofold.recommend` among the usual scores reaches {show_gain(usual)} on other "
        "unknown sets."
    )
    lost = table.regret(DEFAULT)
    assert lost is not None
    lines.append(
        f"- **The usual default,** `{DEFAULT}`: {show_gain(table.over('f1', DEFAULT, BASE))}, and worse than msp alone in "
        f"{100 * lost.share:.0f} % of the cells."
    )
    return ["\n".join(lines)]


def rule_rows(table: Table) -> list[list[str]]:
    """Write what each rule of choice reaches."""
    best = best_fixed(table)
    rules = {
        DEFAULT: f"`{DEFAULT}`, always",
        best: f"`{best}`, always: the best fixed choice with hindsight",
        ELSEWHERE: "the best fixed choice of the other networks",
        USUAL_RULE: "`recommend`, usual scores, on one unknown set",
        ALL_RULE: "`recommend`, all scores, on one unknown set",
        ORACLE: "the best pair of each cell with hindsight (not attainable)",
    }
    oracle = table.rule(ORACLE)
    rows = []
    for rule, title in rules.items():
        reached = table.rule(rule)
        worse = share_worse(table, reached)
        behind = table.gain("f1", less(oracle, reached))
        rows.append([title, show_gain(table.gain("f1", reached)), f"{100 * worse:.0f}", show_gain(behind)])
    return rows


def share_worse(table: Table, gain_over_msp: CellValue) -> float:
    """Compute the share of cells in which a rule is worse than msp, averaged over networks."""
    by_network: dict[str, list[bool]] = {}
    for row in table.cells("f1"):
        gain = gain_over_msp(row)
        if gain is not None:
            by_network.setdefault(row["network"], []).append(gain < 0)
    shares = [sum(worse) / len(worse) for worse in by_network.values()]
    return sum(shares) / len(shares)


def less(value: CellValue, other: CellValue) -> CellValue:
    """Return the function that subtracts one value of a cell from another, where a cell has both."""

    def difference(row: Row) -> float | None:
        first, second = value(row), other(row)
        if first is None or second is None:
            return None
        return first - second

    return difference


def best_fixed(table: Table) -> str:
    """Return the choice that every network with training rows has, with the best mean F1 over all of them."""
    return ranked(table, logits=False)[0]


def rule_words(table: Table) -> str:
    """Compare recommend with fixed choices."""
    gain = table.gain("f1", less(table.rule(USUAL_RULE), table.rule(ELSEWHERE)))
    verdict = "is not distinguishable from"
    if gain.low > 0:
        verdict = "is ahead of"
    elif gain.high < 0:
        verdict = "is behind"
    return (
        f"`recommend` among the usual scores {verdict} the best fixed choice of the other networks: {show_gain(gain)} points. It sees one "
        "unknown set and is judged on the others."
    )


def default_words(table: Table) -> list[str]:
    """Say whether the default pair changes, by the rule that stands in ``which_score.py``."""
    parts = [
        f"`{DEFAULT}` is the default of gates and reports. The rule for a change was written before the numbers (in `benchmarks/which_score.py`): a "
        "pair of msp replaces it if its gain over it on other unknown sets is above zero (95 %, simultaneously over all candidates), its gain over "
        f"msp alone as well, and in no modality its mean regret is larger by more than {100 * SLACK:.1f} points."
    ]
    for logits, default, where in (
        (True, DEFAULT, "With logits alone"),
        (False, DEFAULT, "With features and training rows too"),
        (False, WITH_FEATURES, "The same without unknown inputs"),
    ):
        candidates = table.candidates(logits=logits, default=default)
        passing = [one for one in candidates if one.passes]
        words = decision(candidates, passing, default)
        if default == WITH_FEATURES:
            words = f"`twofold.wrap` may take `{WITH_FEATURES}` there. By the same rule {words}"
        parts.append(f"**{where}.** {words}")
        head = ("pair", f"over {default}", "simultaneous lower limit", "over msp", "larger regret in", "passes")
        parts.append(markdown(head, [candidate_row(one) for one in candidates[:4]]))
    return parts


def decision(candidates: list[Candidate], passing: list[Candidate], default: str) -> str:
    """Say which pair is the default and why."""
    if passing:
        return f"`{passing[0].name}` meets all conditions and is the best of {len(passing)} that do."
    best = candidates[0]
    reasons = []
    if best.low <= 0:
        reasons.append(f"its gain may be the luck of the best of {len(candidates)}")
    if best.over_msp.low <= 0:
        reasons.append("its gain over msp alone may be chance")
    if best.larger_regret:
        reasons.append(f"its regret is larger on {' and '.join(best.larger_regret)}")
    words = f"`{default}` stays: no pair meets all conditions. The best on average, `{best.name}`, does not because "
    words += f"{' and '.join(reasons)}."
    if best.gain.low > 0 and best.over_msp.low > 0 and not best.larger_regret:
        words += " By itself it would meet them, which makes it the first pair to try on validation data of your own."
    return words


def candidate_row(one: Candidate) -> list[str]:
    """Write a candidate of the default."""
    return [
        f"`{one.name}`",
        show_gain(one.gain),
        f"{100 * one.low:+.2f}",
        show_gain(one.over_msp),
        ", ".join(one.larger_regret) or "none",
        "yes" if one.passes else "no",
    ]


def results_page(folder: Path) -> str:
    """Write every choice of scores, and what each network says of the default."""
    table = Table.read(folder)
    parts = [
        "# Every choice of scores on real classifiers",
        f"From {extent(folder)}. `{CELLS_COMMAND}` writes the cells (`which_score.csv` and "
        f"`which_score_choices.csv`), `{COMMAND}` this page; [the guide](../docs/which_score.md) explains the columns. Intervals are "
        f"percentiles of {DRAWS:,} draws of networks and unknown sets, spread because the networks are few.",
    ]
    for logits, title in KINDS.items():
        names = ranked(table, logits=logits)
        parts += [f"## With {title}", markdown(HEAD, [pair_row(table, name) for name in names])]
    parts += ["## By network", network_table(table), "## What recommend takes", taken_table(table)]
    return "\n\n".join(parts) + "\n"


def network_table(table: Table) -> str:
    """Write the best pair with msp of each network, and what the default gains there."""
    rows = []
    for network, own in table.mean_f1.items():
        pairs = [name for name in own if name.startswith("msp + ")]
        best = max(pairs, key=own.__getitem__)
        rows.append(
            [
                network,
                f"{100 * own[BASE]:.2f}",
                f"{100 * (own[DEFAULT] - own[BASE]):+.2f}",
                f"`{best}`",
                f"{100 * (own[best] - own[BASE]):+.2f}",
                f"`{table.best_elsewhere[network]}`",
            ]
        )
    head = ("network", "F1 of msp", f"{DEFAULT}, gain", "best pair with msp", "its gain", "best choice on the others")
    return markdown(head, rows)


def taken_table(table: Table) -> str:
    """Write which pairs recommend takes most often."""
    rows = []
    for rule in (USUAL_RULE, ALL_RULE):
        seen = Counter(row["pair"] for row in table.choices if row["rule"] == rule)
        total = sum(seen.values())
        often = ", ".join(f"`{pair}` {100 * count / total:.0f} %" for pair, count in seen.most_common(6))
        rows.append([rule, len(seen), often])
    return markdown(("rule", "different pairs", "most often"), rows)


def figure(folder: Path, path: Path) -> Path:
    """Draw how much each pair with msp gains on average, and how often it is worse than msp."""
    from matplotlib import pyplot as plt

    table = Table.read(folder)
    drawn, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    named = {DEFAULT, "msp + knn"}
    for logits, count in ((True, 2), (False, 4)):
        named |= set([name for name in ranked(table, logits=logits) if name.startswith("msp + ")][:count])
    for name in table.columns:
        if not name.startswith("msp + "):
            continue
        regret = table.regret(name)
        if regret is None:
            continue
        second = name.removeprefix("msp + ")
        colour = COLOURS[0] if second in table.logits_alone else COLOURS[1]
        place = 100 * table.over("f1", name, BASE).value, 100 * regret.share
        axes.plot(*place, "o", color=colour, markersize=5)
        if name in named:
            axes.annotate(second, place, xytext=(4, 3), textcoords="offset points", fontsize=7)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.plot([], [], "o", color=COLOURS[0], label="needs logits alone")
    axes.plot([], [], "o", color=COLOURS[1], label="needs features and training rows")
    axes.set(
        xlabel="mean gain in F1 over msp alone, on other unknown sets (points)",
        ylabel="worse than msp alone (% of cells)",
    )
    axes.legend(fontsize=8)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)
    return path
