"""For readers new to the field: what each score does, in a sentence with its source, and the words of the page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from html import escape

from twofold.errors import TwofoldError
from twofold.report.document import Markup, Part, Section
from twofold.scores.chain import scorer
from twofold.scores.registry import info

TERMS = {
    "known, unknown": "An input is known (in-distribution, ID) if it belongs to one of the classifier's classes, and "
    "unknown (out-of-distribution, OOD) if it belongs to none.",
    "near, mid, far": "How close unknown inputs are to the known classes, as the makers of the data judge it.",
    "score, confidence": "A number for each input; a higher one is safer to accept.",
    "threshold": "The least score at which an input is accepted.",
    "gate": "Two scores with a threshold each. An input is accepted if both scores reach their thresholds.",
    "coverage": "The share of inputs that is accepted; of known inputs where there are unknown ones.",
    "risk": "The share of failures among accepted inputs. Wrong predictions and unknown inputs are failures.",
    "AURC (aurc)": "The area under the risk over coverage: the mean risk over all thresholds of one score. "
    "Lower is better.",
    "AUGRC (augrc)": "The same with failures as a share of all inputs: the mean share of inputs that fail unnoticed. "
    "Lower is better.",
    "DS-AURC (ds_aurc)": "The area under the least risk that any pair of thresholds reaches at each coverage.",
    "F1, DS-F1 (f1, ds_f1)": "How well correct predictions, and nothing else, are accepted at the best threshold, or "
    "the best pair of thresholds. Higher is better.",
    "AUROC (auroc_ood)": "The chance that a known input scores above an unknown one; 50 % is guessing.",
    "FPR@95 (fpr95_ood)": "The share of unknown inputs that pass where 95 % of the known ones do. Lower is better.",
    "calibration error (ECE)": "How far stated probabilities are from the share of correct predictions, on average.",
    "bootstrap interval": "The range of a number over random redraws of the data, without its most extreme 5 %.",
    "statistically tied": "The data do not show a difference; it may still exist.",
}
AREAS_WITH_UNKNOWN = {"AURC (aurc)": "AURC-ID (aurc_id)"}  # over the coverage of known inputs
# how a source names its paper, and where that paper is
PAPER_PAGES = (
    (re.compile(r"arXiv:(\d{4}\.\d{4,5})"), "https://arxiv.org/abs/"),
    (re.compile(r"doi:(10\.\d{4,9}/[\w.()/-]+)"), "https://doi.org/"),
    (re.compile(r"openreview:([\w-]+)"), "https://openreview.net/forum?id="),
)


def glossary_section(scores: Sequence[str], *, has_unknown: bool) -> Section:
    """Explain each score in a sentence with a link to its paper, and the words of the page.

    Parameters
    ----------
    scores : sequence of str
        The scores and chains that the page shows; names that are not registered are left out.
    has_unknown : bool
        Whether the page has unknown inputs, so that areas are over the coverage of known inputs.

    Returns
    -------
    Section
        Two lists.
    """
    parts: list[Part] = []
    steps = _list_steps(scores)
    if steps:
        parts += ["What the scores and transforms of this page do:", _definitions(steps)]
    words: dict[str, tuple[str, str]] = {}
    for term, text in TERMS.items():
        if has_unknown:
            term = AREAS_WITH_UNKNOWN.get(term, term)
        words[term] = text, ""
    parts += ["Words of this page:", _definitions(words)]
    return Section("glossary", "Scores and words", tuple(parts))


def _list_steps(scores: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Find the sentence and the source of every step of some chains, in order of appearance."""
    found: dict[str, tuple[str, str]] = {}
    for spec in scores:
        try:
            steps = scorer(spec).steps
        except TwofoldError:
            continue  # a name of the reader's own file
        for step in steps:
            record = info(step.info.name)
            found[record.name] = _first_sentence(record.maker), record.paper or ""
    return found


def _first_sentence(thing: object) -> str:
    """Take the summary of a docstring as plain text."""
    summary = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(summary.replace("``", "").split())


def _definitions(entries: dict[str, tuple[str, str]]) -> Markup:
    """Format terms with their explanation and source."""
    items, lines = [], []
    for term, (text, source) in entries.items():
        items.append(f"<dt>{escape(term)}</dt><dd>{escape(text)} {_link(source)}</dd>")
        lines.append(f"- {term}: {text} {source}".rstrip())
    return Markup(f'<dl class="glossary">{"".join(items)}</dl>', "\n".join(lines))


def _link(source: str) -> str:
    """Format a source, with a link where it names a paper of arXiv or OpenReview, or a DOI."""
    if not source:
        return ""
    text = escape(source)
    for pattern, page in PAPER_PAGES:
        found = pattern.search(source)
        if found is not None:
            text = f'<a href="{page}{found[1]}" rel="noreferrer">{text}</a>'
            break
    return f"<small>{text}</small>"
