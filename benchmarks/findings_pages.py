"""The pages of benchmarks/findings.py: the summary, the short page of each paper, and the page with every line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import which_score_pages
from claims import BEYOND, FAILS, HOLDS, INCONCLUSIVE, NOT_TESTABLE, NOWHERE, VERDICTS, Claim
from findings_claims import ALPHA, Line, Paper, tally, verdict_words
from study_testability import full_scale
from sure_plus_pages import sure_plus_sections
from tables import markdown
from timing import RESULTS
from twofold.papers import catalogue

COMMAND = "python benchmarks/findings.py"
HEADLINES = {  # by paper: what it is known for, as its claims begin
    "sure_plus": (
        "Two scores are never worse",
        "Far unknown sets gain more",
        "Thresholds of msp + react|energy stay ahead of msp alone",
        "SURE+, its radius chosen on validation images, is better than plain training",
        "SURE+ fine-tuned to CIFAR-100, its radius relative to the weights, is better than plain training",
        "SURE+ fine-tuned to CIFAR-10 again, its radius relative to the weights, is better than plain training",
    ),
    "fd_shifts": (
        "No score wins under all shifts",
        "No score beats the softmax across shifts",
        "DeVries does not beat the softmax",
        "A guarantee on clean data fails under corruption of level 1",
        "On text no score beats the softmax on near queries",
    ),
    "aurc_estimators": (
        "The harmonic plug-in is less biased than SELE",
        "The harmonic plug-in has a smaller error than SELE",
        "AURC (empirical) as the loss beats cross-entropy, from a converged network",
    ),
    "stratified_ood": (
        "Unknown sets that the embedding calls mid are easier to detect than near ones",
        "A PCA projection improves several detectors",
        "The projection global helps the scores that have it on unknown sets",
        "On ID mistakes the softmax scores MSR and GEN lead",
        "From ID to far sets the lead passes from the softmax to geometry",
        "The best score with fifty passes beats the best with one",
    ),
    "unknown_detection": (
        "The ensemble is the best at unknown detection",
        "OE is better than MCP at unknown detection",
    ),
    BEYOND: (
        "A threshold whose observed risk is within the limit keeps it on fresh data",
        "On text the guarantee of a gate of two scores holds on fresh queries",
    ),
}
SOURCES = {  # title of the claims of a file of results/claims
    "scores": "Scores on networks for small images",
    "imagenet": "ImageNet classifiers",
    "text": "Text",
    "stratified": "Unknown sets grouped by distance",
    "study_sure_plus": "Training, every setting as printed",
    "study_sure_plus_tuned": "Training, settings chosen on validation images",
    "study_sure_plus_converged": "Training for 100 epochs",
    "study_sure_plus_finetune": "Fine-tuning a real network",
    "study_aurc_finetune": "Fine-tuning with AURC as the loss",
    "study_paradigms": "Training with learned confidences",
    "study_unknown": "Training",
}


def summary_page(papers: Sequence[Paper]) -> str:
    """Write the summary: the meaning of verdicts, the counts of each paper, and its best-known claims."""
    counts, heads = [], []
    for paper in papers:
        plain = Counter(line.claim.verdict for line in paper.lines)
        corrected = Counter(line.corrected for line in paper.lines)
        link = f"[{paper.title}](findings/{paper.name}.md)"
        numbers = [plain[verdict] for verdict in VERDICTS]
        counts.append([link, len(paper.lines), *numbers, corrected[HOLDS], corrected[FAILS]])
        for wanted in HEADLINES[paper.name]:
            heads.append(headline(paper, wanted))
    return f"""# What we found when we re-ran the papers

We tested the papers' claims on the networks, images and texts that we have. They are much smaller than those of the papers, so a verdict
only says whether a claim shows at this scale. Each paper has a short page with numbers, intervals and commands.

{markdown(["paper", "claims", *VERDICTS, "holds, corrected", "does not hold, corrected"], counts)}

| verdict | meaning |
|---|---|
| {HOLDS}, {FAILS} | The 95 % interval of the gain that the paper claims lies above, or below, zero. |
| {INCONCLUSIVE} | The interval contains zero. |
| {NOT_TESTABLE} | Our training or data lack what the claim is about, or its trainings are not finished. |

*Corrected* is the verdict after Holm's correction over all p-values of a paper: the probability that chance alone produces even one of
its verdicts *holds* or *does not hold* is then at most {100 * ALPHA:.0f} %. A claim counts once for each metric and set that measures it.

## Best-known claims

{markdown(["claim", "paper", "verdict", "corrected"], heads)}

## What to do with it

- [Which score should one use](which_score.md) shows what pairs of scores gain and lose over the plain softmax, from {which_score_pages.extent(RESULTS)}.
- Tests compare our SURE+ with loops written from the paper. The [page of SURE+](findings/sure_plus.md) names them.
- {full_scale()}

`{COMMAND}` writes these pages from the committed files of `results/`.
"""


def headline(paper: Paper, wanted: str) -> list[str]:
    """Sum up the claims that begin with some words: the verdicts of all of them."""
    own = headline_lines(paper, wanted)
    link = f"[{own[0].stem}](findings/{paper.name}.md)"
    return [link, paper.title, tally(line.claim.verdict for line in own), tally(line.corrected for line in own)]


def headline_lines(paper: Paper, wanted: str) -> list[Line]:
    """Select the claims that begin with some words; none ends the script."""
    own = [line for line in paper.lines if line.claim.claim.startswith(wanted)]
    if not own:
        sys.exit(f"{paper.name} has no claim that begins with {wanted!r}")
    return own


def paper_page(paper: Paper) -> str:
    """Write the page of a paper: what it says in short, the intervals, what is particular to it, and the claims."""
    parts = [f"# {paper.title}: what holds here", *about(paper), "## In short", answers(paper), in_short(paper)]
    if paper.testable:
        parts += [
            f"![Intervals of the gains of {paper.title}]({paper.name}.png)",
            "Each bar is the 95 % interval of a gain in the direction of the claim, scaled so that its longer side has length 1. Bars to the right "
            "of zero support the claim. A claim that several metrics or sets measure has one bar for each, in the order of the tables of claims. A "
            "hollow dot marks a verdict that becomes inconclusive after the correction.",
        ]
    if paper.name == "sure_plus":
        parts += sure_plus_sections(RESULTS.parent)
    parts += ["## Claims", *claim_tables(paper), *untestable_list(paper)]
    parts += [f"[Every line, with scale and command](../../results/claims_{paper.name}.md)", f"Written by `{COMMAND}`."]
    return "\n\n".join(parts) + "\n"


def about(paper: Paper) -> list[str]:
    """Name the paper."""
    if paper.name == BEYOND:
        return ["Claims that no paper makes, or that the papers make about images and that we test on other data."]
    given = catalogue.load(paper.name)
    return [f"*{given.title}*, {given.source}. [Its tables and figures](../papers.md) can be run one by one."]


def answers(paper: Paper) -> str:
    """List the best-known claims of a paper, each with its verdict and the numbers that decide it."""
    bullets = []
    for wanted in HEADLINES[paper.name]:
        own = headline_lines(paper, wanted)
        first = next((line.claim for line in own if line.is_testable), None)
        bullet = f"- **{own[0].stem}:** {verdict_words(own)}."
        if first is not None:
            numbers = f"{column_of(own[0].stem, first)}{with_interval(first)}"
            bullet += f" {numbers[0].upper()}{numbers[1:]}."
        bullets.append(bullet)
    return "\n".join(bullets)


def in_short(paper: Paper) -> str:
    """Say how many claims there are, and what became of them."""
    plain = Counter(line.claim.verdict for line in paper.lines)
    tested = sum(line.claim.p is not None for line in paper.lines)
    kept = Counter(line.corrected for line in paper.lines)
    return (
        f"All {len(paper.lines)} claims, counted once for each metric and set that measures them: hold {plain[HOLDS]}, do not hold {plain[FAILS]}, "
        f"inconclusive {plain[INCONCLUSIVE]}, not testable at this scale {plain[NOT_TESTABLE]}. After Holm's correction over the {tested} p-values: "
        f"hold {kept[HOLDS]}, do not hold {kept[FAILS]}."
    )


def claim_tables(paper: Paper) -> Iterable[str]:
    """Write the claims that can be tested, a table for each file of claims, with its command and common scale."""
    groups: dict[str, list[list[Line]]] = {}
    for lines in paper.groups().values():
        if any(line.is_testable for line in lines):
            groups.setdefault(lines[0].file, []).append(lines)
    for file, claims in groups.items():
        yield f"### {SOURCES[file]}"
        yield from claim_table(claims)


def claim_table(claims: Sequence[list[Line]]) -> list[str]:
    """Write a caption, and one row for each claim, given by its lines: the first with numbers, of the others the intervals.

    The caption has the scale that most claims share; a row whose scale is another names its own. A scale may have two
    parts: what claims share, and after a semicolon what is particular to one, which stands with its numbers.
    """
    shown = []
    for lines in claims:
        shown.append(next(line.claim for line in lines if line.is_testable))
    scales = Counter(shared_scale(claim) for claim in shown)
    ((common, _),) = scales.most_common(1)
    commands = dict.fromkeys(f"`{claim.command}`" for claim in shown)
    exception = ", unless a row names its own" if len(scales) > 1 else ""
    caption = f"Scale{exception}: {common}. Command: {', '.join(commands)}."
    rows = []
    for lines, claim in zip(claims, shown, strict=True):
        stem = lines[0].stem
        here = f"{column_of(stem, claim)}{with_interval(claim)}"
        _, _, particular = claim.scale.partition("; ")
        if particular:
            here += f" ({particular})"
        here += other_columns(lines, claim)
        if shared_scale(claim) != common:
            here += f". Scale: {shared_scale(claim)}"
        rows.append([stem, printed_words(claim), here, verdict_words(lines)])
    return [caption, markdown(["claim", "printed", "here", "verdict"], rows)]


def shared_scale(claim: Claim) -> str:
    """Return the part of the scale that a claim may share with others."""
    return claim.scale.partition("; ")[0]


def printed_words(claim: Claim) -> str:
    """Write what the paper prints and where, if it prints the claim at all."""
    if claim.printed_at == NOWHERE:
        return claim.printed
    return f"{claim.printed} ({claim.printed_at})"


def other_columns(lines: Sequence[Line], first: Claim) -> str:
    """Write the intervals of the gain by the other columns that measure a claim."""
    words = []
    for line in lines:
        claim = line.claim
        if claim is not first and claim.low is not None and claim.high is not None:
            words.append(f"{column_of(line.stem, claim)[:-2]} [{claim.low:+.3g}, {claim.high:+.3g}]")
    return f". Gain by {'; '.join(words)}" if words else ""


def column_of(stem: str, claim: Claim) -> str:
    """Name the column that measures a claim, where its sentence ends with it."""
    if claim.claim == stem:
        return ""
    return f"{claim.claim.rpartition(': ')[2]}: "


def untestable_list(paper: Paper) -> list[str]:
    """List the claims that cannot be tested here, by the reason."""
    reasons: dict[str, list[str]] = {}
    for stem, lines in paper.groups().items():
        if not any(line.is_testable for line in lines):
            first = lines[0].claim
            _, mark, reason = first.ours.rpartition("Not testable")
            why = f"{mark}{reason}" if mark else first.ours
            reasons.setdefault(why, []).append(f"- {stem} ({first.printed_at})")
    if not reasons:
        return []
    parts = ["## Not testable at this scale"]
    for why, claims in reasons.items():
        parts += [f"{why[0].upper()}{why[1:]}:", "\n".join(claims)]
    return parts


def with_interval(claim: Claim) -> str:
    """Write our numbers, with the interval where they do not show one."""
    if claim.low is None or "[" in claim.ours:
        return claim.ours
    return f"{claim.ours} [{claim.low:.3g}, {claim.high:.3g}] ({claim.unit})"


def full_page(paper: Paper) -> str:
    """Write every line of a paper with all its columns."""
    rows = []
    for line in paper.lines:
        claim = line.claim
        interval = "" if claim.low is None else f"[{claim.low:.4g}, {claim.high:.4g}]"
        p = "" if claim.p is None else f"{claim.p:.2g}"
        rows.append(
            [
                claim.claim,
                claim.printed_at,
                claim.printed,
                claim.ours,
                interval,
                p,
                claim.unit,
                claim.scale,
                claim.verdict,
                line.corrected,
                f"`{claim.command}`",
            ]
        )
    head = [
        "claim",
        "printed at",
        "printed",
        "here",
        "interval",
        "p",
        "unit",
        "scale",
        "verdict",
        "corrected",
        "command",
    ]
    return f"""# {paper.title}: every line

The interval is the 95 % interval of the gain in the claimed direction, and p is its two-sided p-value. *Corrected* is the verdict after
Holm's correction over the p-values of this paper. [The short page](../docs/findings/{paper.name}.md) joins the lines of one claim. Written by `{COMMAND}`.

{markdown(head, rows)}
"""
