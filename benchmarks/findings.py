"""Write the pages of findings from committed files: a summary, a page for each paper, and which score to use.

    python benchmarks/findings.py        (some seconds; reads results/ only, writes docs/ and results/)

Every script that decides claims writes a file of ``results/claims``, by the rule in its docstring. This script decides those
on scores (``score_claims.py``) and of studies that are being filled (``studies.py``) again, and writes ``docs/findings.md``, ``docs/findings/``, ``docs/which_score.md``,
``results/which_score.md`` and ``results/claims_*.md``, with their figures. No number of ours is typed by hand.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from script import FOLDER

import numpy as np

import score_claims
import which_score_pages
from claims import BEYOND, FAILS, HOLDS, INCONCLUSIVE, NOT_TESTABLE, VERDICTS, Claim, read_all
from studies import full_scale, write_later
from sure_plus_pages import sure_plus_sections, sweep_figure
from tables import markdown
from twofold.papers import catalogue
from twofold.plot import themes
from twofold.stats import holm

ROOT = FOLDER.parent
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
COMMAND = "python benchmarks/findings.py"
ALPHA = 0.05
UNCORRECTED = "no p-value"
ORDER = ("sure_plus", "fd_shifts", "aurc_estimators", "stratified_ood", "unknown_detection", BEYOND)
NAMES = {
    "sure_plus": "SURE+",
    "fd_shifts": "FD-Shifts",
    "aurc_estimators": "AURC estimators",
    "stratified_ood": "Stratified OOD",
    "unknown_detection": "Unknown detection",
    BEYOND: "Text, and beyond the papers",
}
HEADLINES = {  # by paper: what it is known for, as its claims begin
    "sure_plus": (
        "Two scores are never worse",
        "Far unknown sets gain more",
        "Thresholds of msp + react|energy stay ahead of msp alone",
        "SURE+, its radius chosen on validation images, is better than plain training",
    ),
    "fd_shifts": (
        "No score wins under all shifts",
        "No score beats the softmax across shifts",
        "Devries does not beat the softmax",
        "A guarantee on clean data fails under corruption of level 1",
    ),
    "aurc_estimators": (
        "The harmonic plug-in is less biased than SELE",
        "The harmonic plug-in has a smaller error than SELE",
        "AURC (empirical) as the loss beats cross-entropy, from a converged network",
    ),
    "unknown_detection": (
        "The ensemble is the best at unknown detection",
        "OE is better than MCP at unknown detection",
    ),
}


def main() -> None:
    """Decide the claims on scores and of unfinished studies again, then write every page and figure."""
    score_claims.write()
    write_later()
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    for path in figures():
        print(path.relative_to(ROOT))


def pages() -> dict[Path, str]:
    """Write the text of every page, by its path."""
    papers = read_papers()
    found = {DOCS / "findings.md": summary_page(papers)}
    for paper in papers:
        found[DOCS / "findings" / f"{paper.name}.md"] = paper_page(paper)
        found[RESULTS / f"claims_{paper.name}.md"] = full_page(paper)
    found[DOCS / "which_score.md"] = which_score_pages.guide(RESULTS)
    found[RESULTS / "which_score.md"] = which_score_pages.results_page(RESULTS)
    return found


# --- claims and their correction ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Hold a claim, the file that it is from, and its verdict after Holm's correction over its paper."""

    claim: Claim
    file: str
    corrected: str

    @property
    def stem(self) -> str:
        """The claim without the column that measures it, where a study measures one claim by several."""
        if not self.file.startswith("study_"):
            return self.claim.claim
        return self.claim.claim.rpartition(": ")[0]


@dataclass(frozen=True)
class Paper:
    """Hold the claims of a paper."""

    name: str
    lines: list[Line]

    @property
    def title(self) -> str:
        """The short name of the paper."""
        return NAMES[self.name]

    def groups(self) -> dict[str, list[Line]]:
        """Join the lines of one claim that is measured by several columns."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.stem, []).append(line)
        return found


def read_papers() -> list[Paper]:
    """Read every claim, by paper, and correct the verdicts of each paper for the number of its claims."""
    own: dict[str, list[tuple[Claim, str]]] = {name: [] for name in ORDER}
    for file, claims in read_all().items():
        for claim in claims:
            own[claim.paper].append((claim, file))
    papers = []
    for name, found in own.items():
        if found:
            corrected = correct([claim for claim, _ in found])
            lines = [Line(claim, file, verdict) for (claim, file), verdict in zip(found, corrected, strict=True)]
            papers.append(Paper(name, lines))
    return papers


def correct(claims: Sequence[Claim]) -> list[str]:
    """Return the verdicts after Holm's correction: what is no longer significant becomes inconclusive."""
    p_values = [claim.p for claim in claims if claim.p is not None]
    adjusted = iter(holm(np.array(p_values)) if p_values else [])
    verdicts = []
    for claim in claims:
        if claim.p is None:
            verdicts.append(claim.verdict if claim.verdict == NOT_TESTABLE else UNCORRECTED)
            continue
        is_significant = next(adjusted) < ALPHA
        verdicts.append(claim.verdict if is_significant or claim.verdict == INCONCLUSIVE else INCONCLUSIVE)
    return verdicts


# --- pages ----------------------------------------------------------------------------------------------------------


def summary_page(papers: Sequence[Paper]) -> str:
    """Write the summary: the meaning of verdicts, the counts of each paper, and its best-known claims."""
    counts, heads = [], []
    for paper in papers:
        plain = Counter(line.claim.verdict for line in paper.lines)
        corrected = Counter(line.corrected for line in paper.lines)
        link = f"[{paper.title}](findings/{paper.name}.md)"
        numbers = [plain[verdict] for verdict in VERDICTS]
        counts.append([link, len(paper.lines), *numbers, corrected[HOLDS], corrected[FAILS]])
        for wanted in HEADLINES.get(paper.name, ()):
            heads.append(headline(paper, wanted))
    return f"""# What we found when we re-ran the papers

We tested the papers' claims on the networks, images and texts that were at hand. They are far smaller than those of the papers, so that a
verdict says whether a claim shows at this scale. Numbers, intervals and commands are on a short page for each paper.

{markdown(["paper", "claims", *VERDICTS, "holds, corrected", "does not hold, corrected"], counts)}

| verdict | meaning |
|---|---|
| {HOLDS}, {FAILS} | The 95 % interval of the gain that the paper claims lies above, or below, zero. |
| {INCONCLUSIVE} | The interval contains zero. |
| {NOT_TESTABLE} | The training or the data here lack what the claim is about, or its cells are not finished. |

*Corrected* is what remains after Holm's correction over all p-values of a paper: the chance that any of its verdicts is wrong by luck
is then at most {100 * ALPHA:.0f} %. A claim that is measured by several columns counts once for each.

## Best-known claims

{markdown(["claim", "paper", "verdict", "corrected"], heads)}

## What to do with it

- [Which score should one use](which_score.md): what pairs of scores gain and lose over the plain softmax, from {which_score_pages.extent(RESULTS)}.
- The recipes of SURE+ are compared with loops written from the paper; the [page of SURE+](findings/sure_plus.md) names the tests.
- {full_scale()}

`{COMMAND}` writes these pages from the committed files of `results/`.
"""


def headline(paper: Paper, wanted: str) -> list[str]:
    """Sum up the claims that begin with some words: the verdicts of all of them."""
    own = [line for line in paper.lines if line.claim.claim.startswith(wanted)]
    if not own:
        sys.exit(f"{paper.name} has no claim that begins with {wanted!r}")
    link = f"[{own[0].stem}](findings/{paper.name}.md)"
    return [link, paper.title, tally(line.claim.verdict for line in own), tally(line.corrected for line in own)]


def tally(verdicts: Iterable[str]) -> str:
    """Write one verdict, or how many of each."""
    counts = Counter(verdicts)
    if len(counts) == 1:
        ((verdict, count),) = counts.items()
        return verdict if count == 1 else f"{verdict} ({count})"
    order = (*VERDICTS, UNCORRECTED)
    return ", ".join(f"{verdict} ({counts[verdict]})" for verdict in order if counts[verdict])


def paper_page(paper: Paper) -> str:
    """Write the page of a paper: what it says in short, the intervals, the claims, and what is particular to it."""
    parts = [f"# {paper.title}: what holds here", *about(paper), in_short(paper)]
    if any(line.claim.low is not None for line in paper.lines):
        parts += [
            f"![Intervals of the gains of {paper.title}]({paper.name}.png)",
            "Each line is the 95 % interval of one claim, divided by its largest end: right of zero is as claimed.",
        ]
    if paper.name == "sure_plus":
        parts += sure_plus_sections(ROOT)
    parts += ["## Claims", claim_table(paper), *untestable_list(paper)]
    parts += [f"[Every line, with scale and command](../../results/claims_{paper.name}.md)", f"Written by `{COMMAND}`."]
    return "\n\n".join(parts) + "\n"


def about(paper: Paper) -> list[str]:
    """Name the paper."""
    if paper.name == BEYOND:
        return ["Claims that no paper makes, or that the papers make on images and that are tested here on other data."]
    given = catalogue.load(paper.name)
    return [f"*{given.title}*, {given.source}. [Its tables and figures](../papers.md) can be run one by one."]


def in_short(paper: Paper) -> str:
    """Say how many claims there are, and what became of them."""
    plain = Counter(line.claim.verdict for line in paper.lines)
    tested = sum(line.claim.p is not None for line in paper.lines)
    kept = Counter(line.corrected for line in paper.lines)
    return (
        f"**In short.** Of {len(paper.lines)} lines: {plain[HOLDS]} {HOLDS}, {plain[FAILS]} {FAILS}, {plain[INCONCLUSIVE]} inconclusive, "
        f"{plain[NOT_TESTABLE]} not testable at this scale. After Holm's correction over the {tested} p-values of this paper: "
        f"{kept[HOLDS]} {HOLDS}, {kept[FAILS]} {FAILS}."
    )


def claim_table(paper: Paper) -> str:
    """Write one row for each claim that can be tested; where several columns measure it, the first is shown."""
    rows = []
    for stem, lines in paper.groups().items():
        testable = [line for line in lines if line.claim.low is not None]
        if not testable:
            continue
        shown = testable[0].claim
        column = "" if shown.claim == stem else f"{shown.claim.rpartition(': ')[2]}: "
        verdict = tally(line.claim.verdict for line in lines)
        corrected = tally(line.corrected for line in lines)
        printed = f"{shown.printed} ({shown.printed_at})"
        here = f"{column}{with_interval(shown)}"
        rows.append([stem, printed, here, shown.scale, verdict, corrected, f"`{shown.command}`"])
    return markdown(["claim", "printed", "here", "scale", "verdict", "corrected", "command"], rows)


def untestable_list(paper: Paper) -> list[str]:
    """List the claims that cannot be tested here, by the reason."""
    reasons: dict[str, list[str]] = {}
    for stem, lines in paper.groups().items():
        if all(line.claim.low is None for line in lines):
            first = lines[0].claim
            _, mark, reason = first.ours.rpartition("Not testable")
            why = f"{mark}{reason}" if mark else first.ours
            reasons.setdefault(why, []).append(f"- {stem} ({first.printed_at})")
    if not reasons:
        return []
    parts = ["## Not testable at this scale"]
    for why, claims in reasons.items():
        parts += [f"{why}:", "\n".join(claims)]
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

The interval is that of the gain in the claimed direction (95 %), p its two-sided p-value. *Corrected* is the verdict after Holm's correction
over the p-values of this paper. [The short page](../docs/findings/{paper.name}.md) joins the lines of one claim. Written by `{COMMAND}`.

{markdown(head, rows)}
"""


# --- figures --------------------------------------------------------------------------------------------------------


def figures() -> list[Path]:
    """Draw the intervals of each paper, the sweep of the radius, and the gains of pairs of scores."""
    found = [
        interval_figure(paper) for paper in read_papers() if any(line.claim.low is not None for line in paper.lines)
    ]
    found += sweep_figure(ROOT)
    return [*found, which_score_pages.figure(RESULTS, DOCS / "which_score.png")]


COLOURS = {HOLDS: themes.COLOURS[2], FAILS: themes.COLOURS[1], INCONCLUSIVE: themes.LIGHT.soft}


def interval_figure(paper: Paper) -> Path:
    """Draw the interval of every testable line, in the colour of its verdict."""
    from matplotlib import pyplot as plt

    lines = [line for line in paper.lines if line.claim.low is not None]
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.17 * len(lines)), layout="constrained")
    for place, line in enumerate(reversed(lines)):
        low, high = float(line.claim.low or 0), float(line.claim.high or 0)
        width = max(abs(low), abs(high)) or 1.0
        is_kept = line.corrected == line.claim.verdict
        axes.plot([low / width, high / width], [place, place], color=COLOURS[line.claim.verdict], linewidth=3)
        colour = COLOURS[line.claim.verdict]
        inside = colour if is_kept else "white"
        axes.plot((low + high) / 2 / width, place, "o", color=colour, markersize=5, markerfacecolor=inside)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(lines)), [shortened(line.claim.claim) for line in reversed(lines)], fontsize=6)
    axes.set_ylim(-1, len(lines))
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("gain as claimed, as a share of its largest end (hollow: not after correction)", fontsize=7)
    for verdict, colour in COLOURS.items():
        axes.plot([], [], color=colour, linewidth=3, label=verdict)
    figure.legend(fontsize=6, loc="outside lower center", ncols=len(COLOURS))
    path = DOCS / "findings" / f"{paper.name}.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def shortened(text: str, most: int = 88) -> str:
    """Cut a text that is too long for a figure."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


if __name__ == "__main__":
    main()
