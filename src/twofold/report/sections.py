"""The report on one classifier: its sections in order, and its tables of pairs, data sets and classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twofold import metrics
from twofold.report.cases import cases_section, softmax_section
from twofold.report.commands import Command
from twofold.report.curves import (
    calibration_section,
    density_section,
    improvement_section,
    risk_coverage_section,
    roc_section,
)
from twofold.report.document import Document, Number, Part, ReportTable, Section, TableCell, format_count, join_words
from twofold.report.explorer import explorer_data, explorer_section
from twofold.report.glossary import glossary_section
from twofold.report.measure import (
    EXACT,
    KIND_NAMES,
    UNKNOWN_NAMES,
    Measurements,
    Replicates,
    Roles,
    count_share,
    replicated_number,
)
from twofold.report.options import ReportOptions
from twofold.report.pictures import ImagesByRow
from twofold.report.provenance import headline_summary, list_commands, provenance_section
from twofold.report.scored import ReportSet, ReportSource, ScorePair
from twofold.report.tables import JOINT
from twofold.report.verdict import headline_tiles, verdict_section
from twofold.typing import Array

MOST_CLASSES = 60  # rows of the class table
ALL_KNOWN = (
    "AURC (aurc) and AUGRC (augrc): areas under the risk of the first score alone, over the coverage of all inputs, "
    "which are all known; wrong predictions are failures; lower is better.",
)
MEANING = (
    "AURC-ID (aurc_id): the area under the risk of the first score alone, over the coverage of known inputs. AUGRC "
    "(augrc): its generalised risk, over the coverage of all inputs. Wrong predictions and unknown inputs are "
    "failures; lower is better.",
    "AUROC (auroc_ood) and FPR@95 (fpr95_ood): the second score alone, known against unknown: the chance that a known "
    "input scores above an unknown one, and the share of unknown inputs that pass where 95 % of known ones do.",
    "F1 (f1): the first score alone; DS-F1 (ds_f1): both. How well correct predictions, and nothing else, are accepted "
    "at the best thresholds; higher is better.",
    "DS-AURC (ds_aurc): the area under the least risk that two thresholds reach, over the coverage of known inputs; "
    "lower is better.",
)


def classifier_document(
    source: ReportSource, images: Mapping[str, ImagesByRow], page_command: Command, options: ReportOptions
) -> Document:
    """Build the whole report on one classifier.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    images : mapping of str to sequence of ndarray
        Images by data set.
    page_command : Command
        The command that makes the page again.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    Document
        The report.
    """
    measurements = Measurements(source, options.resamples, options.seed, options.done)
    commands = list_commands(measurements, page_command)
    sections = (
        verdict_section(measurements),
        joint_section(measurements),
        explorer_section(measurements),
        risk_coverage_section(measurements),
        density_section(measurements),
        roc_section(measurements),
        calibration_section(measurements),
        sets_section(measurements),
        classes_section(measurements),
        cases_section(measurements, images),
        softmax_section(measurements),
        improvement_section(measurements),
        glossary_section(source.scores, has_unknown=bool(source.unknown_roles)),
        provenance_section(measurements, commands),
    )
    kinds = []
    for kind, mask in measurements.pool.kinds.items():
        kinds.append(format_count(int(mask.sum()), KIND_NAMES[kind].rstrip("s"), KIND_NAMES[kind]))
    return Document(
        title="How far can this classifier be trusted?",
        subtitle=f"{source.title}, evaluated on {join_words(kinds, 8)}.",
        tiles=headline_tiles(measurements),
        sections=sections,
        data=explorer_data(measurements),
        summary=headline_summary(measurements, commands),
    )


# --- the joint table ------------------------------------------------------------------------------------------------


def joint_section(measurements: Measurements) -> Section:
    """Tabulate each pair on each kind of unknown inputs, with intervals.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        The joint table, and the scores that were left out.
    """
    source, groups = measurements.source, measurements.unknown_groups
    measurements.compute_in_threads([(roles, pair) for roles in groups for pair in source.pairs])
    headings, factors = [], {}
    for name in measurements.joint_metrics(groups[0], measurements.pair):
        heading, factor, _ = JOINT.get(name, (f"{name.upper()} x1000", 1000, ""))
        headings.append(heading)
        factors[name] = factor
    rows: list[tuple[TableCell, ...]] = []
    for roles in groups:
        found = {pair: measurements.joint_metrics(roles, pair) for pair in source.pairs}
        rows += _joint_rows(roles, found, factors)
    first, notes = ["scores"], list(ALL_KNOWN)
    if source.unknown_roles:
        first, notes = ["unknown inputs", "scores"], list(MEANING)
    if sum(map(len, source.tests)) > EXACT:
        notes.append("DS-AURC is computed on a grid of 1000 quantile thresholds on each axis.")
    table = ReportTable(
        key="joint",
        caption=f"Both kinds of failure, {_describe_intervals(measurements)}; the best of each group is bold",
        columns=(*first, *headings),
        rows=tuple(rows),
        heads=len(first),
        notes=tuple(notes),
    )
    parts: list[Part] = [table]
    if source.skipped:
        skipped = "; ".join(f"{spec}: {reason}" for spec, reason in source.skipped.items())
        parts.append(f"Scores that were left out: {skipped}.")
    return Section("joint", "Mistakes and unknown inputs, jointly", tuple(parts))


def _joint_rows(
    roles: Roles, found: Mapping[ScorePair, Replicates], factors: Mapping[str, int]
) -> list[tuple[TableCell, ...]]:
    """Format the rows of one kind of unknown inputs; the best value of each metric is bold."""
    best = {}
    for name in factors:
        values = [float(drawn[name][0]) for drawn in found.values()]
        best[name] = min(values)
        if metrics.info(name).better == "higher":
            best[name] = max(values)
    rows = []
    for pair, drawn in found.items():
        cells: list[TableCell] = [pair.name]
        if roles:
            cells = [UNKNOWN_NAMES[roles[0]], pair.name]
        for name, factor in factors.items():
            is_best = name != "accuracy" and len(found) > 1 and float(drawn[name][0]) == best[name]
            cells.append(replicated_number(drawn[name], factor, strong=is_best))
        rows.append(tuple(cells))
    return rows


def _describe_intervals(measurements: Measurements) -> str:
    roles = measurements.unknown_groups[0]
    rows = sum(map(len, measurements.source.sets_of("test", *roles)))
    resamples = measurements.resamples_for(rows)
    if not resamples:
        return "no intervals: at this size they are narrower than the printed digits"
    return f"95 % bootstrap intervals of {format_count(resamples, 'resample')}"


# --- data sets ------------------------------------------------------------------------------------------------------


def sets_section(measurements: Measurements) -> Section:
    """Tabulate every data set by itself.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A table with exact intervals.
    """
    test_conf = measurements.source.pool().conf[measurements.pair.ood]
    rows = [_set_row(measurements, one, test_conf) for one in measurements.source.sets_in_order]
    columns = (
        "data set",
        "kind",
        "inputs",
        "accuracy %",
        "mean probability %",
        "accepted %",
        "wrong among accepted %",
        "AUROC % against test",
    )
    notes = (
        "Everything that is accepted from an unknown set is wrong.",
        "The last column says how well the second score separates the set from the test set; 50 means not at all. For "
        "shifted inputs of known classes, lower is better.",
    )
    caption = f"Each data set under the gate of {measurements.pair.name}, exact 95 % intervals"
    table = ReportTable("sets", caption, columns, tuple(rows), heads=2, notes=notes)
    return Section("sets", "Data set by data set", (table,))


def _set_row(measurements: Measurements, one: ReportSet, test_conf: Array) -> tuple[TableCell, ...]:
    accepted = measurements.accepts(one)
    accuracy = wrong = Number(math.nan)
    if one.is_known:
        accuracy = count_share(one.correct)
        wrong = count_share(~one.correct, accepted)
    probability = math.nan
    if one.prob is not None:
        probability = float(np.mean(one.prob))
    auroc = math.nan
    if one.role != "test":
        conf = one.conf[measurements.pair.ood]
        truth = np.concatenate([np.ones(len(test_conf), bool), np.zeros(len(conf), bool)])
        auroc = metrics.auroc(truth, np.concatenate([test_conf, conf]))
    return (
        one.name,
        {"test": "known", "shift": "known, shifted", **UNKNOWN_NAMES}[one.role],
        len(one),
        accuracy,
        Number(probability, factor=100.0),
        count_share(accepted),
        wrong,
        Number(auroc, factor=100.0),
    )


# --- classes --------------------------------------------------------------------------------------------------------


def classes_section(measurements: Measurements) -> Section:
    """Tabulate every known class: accuracy, what the gate accepts, and which classes unknown inputs are accepted as.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A table; one sentence where the source has no labels.
    """
    source = measurements.source
    classes = _summarise_classes(measurements)
    if not classes:
        return Section("classes", "Class by class", ("The file holds no labels, so there is no table of classes.",))
    classes.sort(key=lambda one: (math.isnan(one.accuracy.value), one.accuracy.value, one.name))
    order = ", lowest accuracy first"
    if len(classes) > MOST_CLASSES:
        order = f"; the {MOST_CLASSES} of {len(classes)} with the lowest accuracy"
    columns = ["class", "inputs", "accuracy %", "mean probability %", "accepted %", "mistakes accepted as this class"]
    if source.unknown_roles:
        columns.append("unknown inputs accepted as this class")
    rows = []
    for one in classes[:MOST_CLASSES]:
        row: list[TableCell] = [one.name, one.inputs, one.accuracy, one.probability, one.accepted, one.mistakes]
        if source.unknown_roles:
            row.append(one.unknown)
        rows.append(tuple(row))
    caption = f"Each known class under the gate of {measurements.pair.name}{order}"
    table = ReportTable("classes", caption, tuple(columns), tuple(rows))
    return Section("classes", "Class by class", (table,))


@dataclass(frozen=True)
class _ClassSummary:
    """Hold what the class table says of one known class."""

    name: str
    inputs: int
    accuracy: Number
    probability: Number
    accepted: Number
    mistakes: int  # inputs of other known classes that are accepted as this class
    unknown: int  # unknown inputs that are accepted as this class


def _summarise_classes(measurements: Measurements) -> list[_ClassSummary]:
    """Summarise the classes that occur: as a label, or as the accepted prediction of an unknown input.

    The list is empty where the source has no labels.
    """
    source, pool = measurements.source, measurements.pool
    tests = source.pool()
    if tests.labels is None or tests.predictions is None or tests.prob is None:
        return []
    accepted = measurements.accepts(tests)
    unknown = np.zeros(0, np.int64)
    if pool.predictions is not None:
        unknown = pool.predictions[measurements.accepts(pool) & ~pool.is_id]
    size = int(np.concatenate([tests.labels, tests.predictions, unknown]).max()) + 1
    unknown_counts = np.bincount(unknown, minlength=size)
    names = source.class_names or tuple(f"class {k}" for k in range(size))
    classes = []
    for k, name in enumerate(names[:size]):
        own = tests.labels == k
        if not own.any() and not unknown_counts[k]:
            continue
        probability = math.nan
        if own.any():
            probability = float(tests.prob[own].mean())
        mistakes = accepted & (tests.predictions == k) & ~tests.correct
        classes.append(
            _ClassSummary(
                name=name,
                inputs=int(own.sum()),
                accuracy=count_share(tests.correct, own),
                probability=Number(probability, factor=100.0),
                accepted=count_share(accepted, own),
                mistakes=int(mistakes.sum()),
                unknown=int(unknown_counts[k]),
            )
        )
    return classes
