"""Single cases: failures the classifier is sure of, correct predictions it doubts, and what unknowns are taken for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from twofold.report.charts import heat_map
from twofold.report.document import Figure, Markup, Number, Part, ReportTable, Section, TableCell
from twofold.report.measure import Measurements
from twofold.report.pictures import ImagesByRow, png_uri
from twofold.report.scored import ReportSet, ReportSource
from twofold.report.svg import round_values
from twofold.typing import Array

CASES = 3  # most and least confident cases of each set
MOST_COLUMNS, MOST_SQUARES = 60, 7000  # of the heat map


def cases_section(measurements: Measurements, images: Mapping[str, ImagesByRow]) -> Section:
    """List, for each data set, the failures the classifier is surest of and the correct predictions it doubts most.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.
    images : mapping of str to ImagesByRow
        Images by data set, to be shown beside the cases.

    Returns
    -------
    Section
        Two tables, and pictures where there are images.
    """
    source, spec = measurements.source, measurements.single.id
    overconfident: list[_Case] = []
    underconfident: list[_Case] = []
    pictures = ""
    for one in source.sets_in_order:
        by_confidence = np.argsort(one.conf[spec], kind="stable")
        surest_first = by_confidence[::-1]
        failures = surest_first[~one.correct[surest_first]][:CASES]
        doubted = by_confidence[one.correct[by_confidence]][:CASES]
        worst = _make_cases(source, one, failures, spec)
        doubts = _make_cases(source, one, doubted, spec)
        overconfident += worst
        underconfident += doubts
        if one.name in images:
            pictures += _format_strip("overconfident", worst, images[one.name])
            pictures += _format_strip("underconfident", doubts, images[one.name])
    text = (
        f"By {spec}: the failures with the highest confidence, and the correct predictions with the lowest. Unknown "
        "inputs have no underconfident cases, since no prediction on them is correct."
    )
    parts: list[Part] = [text]
    if images:
        parts.append(Markup(pictures))
    if overconfident:
        caption = "Most overconfident: wrong, with the highest confidence"
        parts.append(_cases_table("overconfident", caption, overconfident, spec))
    if underconfident:
        caption = "Most underconfident: correct, with the lowest confidence"
        parts.append(_cases_table("underconfident", caption, underconfident, spec))
    if not images:
        parts.append("Pass images= or --images to show images beside the cases.")
    return Section("cases", "The worst cases", tuple(parts))


@dataclass(frozen=True)
class _Case:
    """Hold one input whose prediction is listed."""

    set_name: str
    row: int
    key: str  # id of the input, or its row
    truth: str
    prediction: str
    probability: Number
    confidence: Number


def _make_cases(source: ReportSource, one: ReportSet, rows: npt.NDArray[np.int64], spec: str) -> list[_Case]:
    return [_make_case(source, one, row, spec) for row in rows.tolist()]


def _make_case(source: ReportSource, one: ReportSet, row: int, spec: str) -> _Case:
    truth = prediction = "–"
    if one.labels is not None:
        truth = "no known class"
        if one.is_known:
            truth = _class_name(source, int(one.labels[row]))
    if one.predictions is not None:
        prediction = _class_name(source, int(one.predictions[row]))
    key = str(row)
    if one.ids is not None:
        key = str(one.ids[row])
    probability = math.nan
    if one.prob is not None:
        probability = float(one.prob[row])
    return _Case(
        set_name=one.name,
        row=row,
        key=key,
        truth=truth,
        prediction=prediction,
        probability=Number(probability, factor=100.0, digits=2),
        confidence=Number(float(one.conf[spec][row]), digits=3),
    )


def _class_name(source: ReportSource, label: int) -> str:
    if source.class_names:
        return source.class_names[label]
    return f"class {label}"


def _cases_table(key: str, caption: str, cases: Sequence[_Case], spec: str) -> ReportTable:
    columns = ("data set", "input", "truth", "prediction", "probability %", spec)
    rows: list[tuple[TableCell, ...]] = []
    for case in cases:
        rows.append((case.set_name, case.key, case.truth, case.prediction, case.probability, case.confidence))
    return ReportTable(key, caption, columns, tuple(rows), heads=2)


def _format_strip(kind: str, cases: Sequence[_Case], images: ImagesByRow) -> str:
    """Format the pictures of some cases of one data set as HTML, each with its truth and the prediction."""
    if not cases:
        return ""
    items = []
    for case in cases:
        alt = f"{case.set_name} {case.key}: {case.truth}, taken for {case.prediction}"
        picture = f'<img src="{png_uri(images[case.row])}" alt="{escape(alt)}">'
        prediction = f"<b>{escape(case.prediction)}</b> {escape(str(case.probability))} %"
        items.append(f"<li>{picture}<span>{prediction}<br>truth: {escape(case.truth)}</span></li>")
    heading = f"{escape(cases[0].set_name)}: most {kind}"
    return f'<h3 class="strip">{heading}</h3><ul class="strip">{"".join(items)}</ul>'


# --- what unknown inputs are classified as ----------------------------------------------------------------------------


def softmax_section(measurements: Measurements) -> Section:
    """Draw what unknown inputs are classified as, by mean probabilities.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A heat map; one sentence where no unknown input has logits.
    """
    title = "What unknown inputs are classified as"
    unknown = _unknown_means(measurements.source)
    if not unknown:
        return Section("softmax", title, ("There are no unknown inputs with logits here.",))
    figure = _softmax_figure(measurements.source, unknown)
    if any(one.group for one in unknown):
        return Section("softmax", title, (figure,))
    text = (
        "The unknown inputs come without classes, so each row is a whole data set. Row ids such as CLASS/FILE or "
        "SUPERCLASS/CLASS/FILE, or ood_classes, provide classes."
    )
    return Section("softmax", title, (text, figure))


@dataclass(frozen=True, eq=False)
class _UnknownMean:
    """Hold the mean probabilities on one class of unknown inputs, or on a whole set of them."""

    group: str  # super-class or data set; empty for a whole set
    name: str
    softmax: Array


def _unknown_means(source: ReportSource) -> list[_UnknownMean]:
    """List the means of all unknown classes, by group and name where classes are known."""
    found = []
    for one in source.unknown_sets:
        if one.softmax is None:
            continue
        for path, softmax in zip(one.unknown_classes, one.softmax, strict=True):
            if not path:
                found.append(_UnknownMean("", one.name, softmax))
                continue
            above, _, name = path.rpartition("/")
            group = above.split("/")[0] or source.superclasses.get(name) or one.name
            found.append(_UnknownMean(group, name, softmax))
    if any(mean.group for mean in found):
        found.sort(key=lambda mean: (mean.group, mean.name))
    return found


def _softmax_figure(source: ReportSource, unknown: Sequence[_UnknownMean]) -> Figure:
    means = np.stack([one.softmax for one in unknown])
    names = [_class_name(source, k) for k in range(means.shape[1])]
    keep = _heat_columns(means, [source.superclasses.get(name, "") for name in names])
    columns = [names[k] for k in keep]
    labels = [one.name for one in unknown]
    groups = [one.group for one in unknown]
    if any(groups):
        groups = [group or "whole sets" for group in groups]
    about = "Mean probability of each known class on unknown inputs"
    svg = heat_map(means[:, keep], labels, columns, about, groups)
    caption = (
        "Mean softmax probability: each row is a kind of unknown input, each column a known class. Stronger colours "
        "are higher probabilities; the scale is below."
    )
    if len(keep) < means.shape[1]:
        caption += f" Columns are the {len(keep)} of {means.shape[1]} classes with the highest probabilities."
    rows: list[tuple[str | float, ...]] = []
    for label, mean in zip(labels, means, strict=True):
        rows.append((label, *round_values(mean[keep])))
    return Figure("softmax", "Mean probabilities", caption, svg, ("unknown", *columns), tuple(rows), wide=True)


def _heat_columns(means: Array, superclass: Sequence[str]) -> npt.NDArray[np.int64]:
    """Choose the classes to draw, those with the largest probabilities, and order them by super-class."""
    most = max(10, min(MOST_COLUMNS, MOST_SQUARES // len(means)))
    largest = np.argsort(-means.max(axis=0))[:most]
    return np.array(sorted(np.sort(largest), key=lambda k: superclass[k]))
