"""Write the pages of findings from committed files: a summary, a page for each paper, and which score to use.

    python benchmarks/findings.py        (a minute; reads results/ only, writes docs/ and results/)

Every number of the pages comes from committed cells, and none is typed by hand. This script decides all claims that have
cells again: those on scores (``score_claims.py``), of the training studies (``studies.py``) and of the stratified study
(``stratified.py``). Then it writes ``docs/findings.md``, ``docs/findings/``, ``docs/which_score.md``,
``results/which_score.md`` and ``results/claims_*.md``, with their figures. Claims on text and on ImageNet classifiers have
no cells. They are decided from the data, by ``text_claims.py`` and ``imagenet_claims.py``, and read from ``results/claims``.
"""

from __future__ import annotations

from pathlib import Path

from script import FOLDER

import score_claims
import stratified
import study_pages
import which_score_pages
from findings_claims import read_papers
from findings_figures import draw_intervals
from findings_pages import full_page, paper_page, summary_page
from sure_plus_figures import comparison_figures, sweep_figure

ROOT = FOLDER.parent
DOCS, RESULTS = ROOT / "docs", ROOT / "results"


def main() -> None:
    """Decide all claims that have cells again, then write every page and figure."""
    written = [score_claims.write(), *study_pages.write_pages(), *stratified.write_pages()]
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    written += figures()
    for path in written:
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


def figures() -> list[Path]:
    """Draw the intervals of each paper, the sweep of the radius, and the gains of pairs of scores."""
    drawn = []
    for paper in read_papers():
        if paper.testable:
            drawn.append(draw_intervals(paper, DOCS / "findings" / f"{paper.name}.png"))
    drawn += [*sweep_figure(ROOT), *comparison_figures(ROOT)]
    return [*drawn, which_score_pages.figure(RESULTS, DOCS / "which_score.png")]


if __name__ == "__main__":
    main()
