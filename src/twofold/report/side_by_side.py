"""Several classifiers on one page: the same tables side by side, and paired differences where inputs are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold import metrics
from twofold.errors import InvalidInput
from twofold.plot.display import thin
from twofold.report.commands import Command
from twofold.report.document import Document, Figure, Number, Part, ReportTable, Section, TableCell, Tile, join_words
from twofold.report.glossary import glossary_section
from twofold.report.measure import UNKNOWN_NAMES, Measurements, Replicates, Roles, count_share, replicated_number
from twofold.report.options import ReportOptions
from twofold.report.scored import Pool, ReportSet, ReportSource
from twofold.report.svg import Plot, round_values
from twofold.report.tables import JOINT
from twofold.typing import Array

MOST_MODELS = 6  # as many as have a colour of their own


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """Hold a classifier of the page.

    Parameters
    ----------
    name : str
        Its name, different from those of the others.
    measurements : Measurements
        What the sections share.
    """

    name: str
    measurements: Measurements

    @property
    def source(self) -> ReportSource:
        """What the classifier's numbers come from."""
        return self.measurements.source

    def metrics(self, roles: Roles) -> Replicates:
        """Compute the columns of the joint table for the pair that the classifier is reported on.

        Parameters
        ----------
        roles : tuple of str
            Roles of unknown inputs.

        Returns
        -------
        dict of str to ndarray
            For each metric the value, then its replicates.
        """
        return self.measurements.joint_metrics(roles, self.measurements.pair)


def comparison_document(sources: Sequence[ReportSource], command: Command, options: ReportOptions) -> Document:
    """Build the page on several classifiers; differences are from the first.

    Parameters
    ----------
    sources : sequence of ReportSource
        Two to six classifiers.
    command : Command
        The command that makes the page again.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    Document
        The page.

    Raises
    ------
    InvalidInput
        If there are fewer than two or more than six, or some have kinds of unknown inputs that others lack.
    """
    if not 2 <= len(sources) <= MOST_MODELS:
        raise InvalidInput(f"a comparison takes 2 to {MOST_MODELS} runs or files, got {len(sources)}")
    _check_same_kinds(sources)
    models = []
    for name, source in zip(_distinct_names(sources), sources, strict=True):
        measurements = Measurements(source, options.resamples, options.seed, options.done)
        models.append(ComparedModel(name, measurements))
    has_unknown = bool(sources[0].unknown_roles)
    sections = (
        _verdict_section(models),
        _metrics_section(models),
        _curves_section(models),
        _sets_section(models),
        glossary_section(_named_scores(models), has_unknown=has_unknown),
        _provenance_section(models, command),
    )
    names = [model.name for model in models]
    return Document(
        title="Which classifier can be trusted further?",
        subtitle=f"{join_words(names, MOST_MODELS)}, side by side.",
        tiles=_tiles(models),
        sections=sections,
    )


def _named_scores(models: Sequence[ComparedModel]) -> list[str]:
    """List the scores that the page names: those of each classifier's pair, then all that were tried."""
    named: dict[str, None] = {}
    for model in models:
        named |= dict.fromkeys(model.measurements.pair.scores)
    for model in models:
        named |= dict.fromkeys(model.source.scores)
    return list(named)


def _check_same_kinds(sources: Sequence[ReportSource]) -> None:
    """Check that all classifiers have the same kinds of unknown inputs."""
    kinds = {source.unknown_roles for source in sources}
    if len(kinds) == 1:
        return
    described = []
    for roles in sorted(kinds):
        described.append(str(list(roles) or "none"))
    words = " and ".join(described)
    raise InvalidInput(f"the classifiers have different kinds of unknown inputs ({words}); extract the same sets")


def _distinct_names(sources: Sequence[ReportSource]) -> list[str]:
    """Name classifiers by their model, and by their path too where models have the same name."""
    titles = [source.title for source in sources]
    if len(set(titles)) == len(titles):
        return titles
    names = [f"{source.title} ({source.path})" for source in sources]
    if len(set(names)) == len(names):
        return names
    numbered = []
    for number, name in enumerate(names, start=1):
        numbered.append(f"{name}, {number}")
    return numbered


def _tiles(models: Sequence[ComparedModel]) -> tuple[Tile, ...]:
    """State the risk and the coverage of each classifier's gate."""
    tiles = []
    for model in models:
        measurements = model.measurements
        pool = measurements.pool
        accepted = measurements.accepts(pool)
        risk = count_share(~pool.correct, accepted)
        covered = count_share(accepted, pool.is_id)
        meaning = f"{model.name}: failures among the inputs that its gate accepts"
        tiles.append(Tile(f"{risk} %", meaning, f"at {covered} % of known inputs accepted"))
    return tuple(tiles)


# --- differences ----------------------------------------------------------------------------------------------------


def pairing_problem(one: ReportSource, other: ReportSource, roles: Roles) -> str:
    """Say why two classifiers cannot be compared input by input.

    Parameters
    ----------
    one, other : ReportSource
        The classifiers.
    roles : tuple of str
        Roles of unknown inputs that are compared on, beside the test sets.

    Returns
    -------
    str
        The reason; empty where they saw the same inputs, as far as names, sizes, ids and labels tell.
    """
    ours = _sets_by_name(one, roles)
    theirs = _sets_by_name(other, roles)
    different = sorted(ours.keys() ^ theirs.keys())
    if different:
        return f"only one of them has {join_words(different, 4)}"
    for name, rows in ours.items():
        if len(rows) != len(theirs[name]):
            return f"{name} has {len(rows):,} and {len(theirs[name]):,} rows"
        if _differ(rows, theirs[name]):
            return f"the rows of {name} differ in their ids or labels"
    return ""


def _sets_by_name(source: ReportSource, roles: Roles) -> dict[str, ReportSet]:
    return {rows.name: rows for rows in source.sets_of("test", *roles)}


def _differ(one: ReportSet, other: ReportSet) -> bool:
    """Check whether the ids or labels of two sets differ, where both have them."""
    for name in ("ids", "labels"):
        ours = getattr(one, name)
        theirs = getattr(other, name)
        both_have_it = ours is not None and theirs is not None
        if both_have_it and not np.array_equal(ours, theirs):
            return True
    return False


def paired_difference(ours: Array, theirs: Array, factor: float) -> Number:
    """Subtract one classifier's metric from another's, resample by resample; bold where the interval leaves out zero.

    Parameters
    ----------
    ours, theirs : ndarray of shape (n + 1,)
        The value, then its replicates on the same resamples.
    factor : float
        Factor of the printed number.

    Returns
    -------
    Number
        The difference with its 95 % interval.

    Examples
    --------
    >>> number = paired_difference(np.array([0.3, 0.3, 0.4]), np.array([0.2, 0.1, 0.2]), 100)
    >>> str(number), number.span, number.strong
    ('10.0', '[20.0, 20.0]', True)
    """
    number = replicated_number(ours - theirs, factor)
    leaves_out_zero = not math.isnan(number.low) and (number.low > 0 or number.high < 0)
    return Number(number.value, number.low, number.high, factor, strong=leaves_out_zero)


def _metrics_section(models: Sequence[ComparedModel]) -> Section:
    """Tabulate each metric of each classifier, and differences from the first."""
    parts: list[Part] = []
    for roles in models[0].measurements.unknown_groups:
        parts.append(_metrics_table(models, roles))
    return Section("metrics", "Metrics side by side", tuple(parts))


def _metrics_table(models: Sequence[ComparedModel], roles: Roles) -> ReportTable:
    """Tabulate the metrics on one kind of unknown inputs: a row for each metric."""
    first, *others = models
    problems = {}
    for other in others:
        problems[other.name] = pairing_problem(first.source, other.source, roles)

    columns = ["metric"]
    for model in models:
        columns.append(model.name)
    for other in others:
        columns.append(f"{other.name} minus {first.name}")

    rows = []
    for name in first.metrics(roles):
        rows.append(_metric_row(models, roles, name, problems))

    notes = ["Differences are of the same resamples of the same inputs; bold where the 95 % interval leaves out zero."]
    for name, problem in problems.items():
        if problem:
            notes.append(f"{name} and {first.name} are not paired, so their difference has no interval: {problem}.")

    key = "metrics-known"
    kind = "known inputs only"
    if roles:
        key = f"metrics-{roles[0]}"
        kind = UNKNOWN_NAMES[roles[0]]
    return ReportTable(key, f"Both kinds of failure, {kind}", tuple(columns), tuple(rows), notes=tuple(notes))


def _metric_row(
    models: Sequence[ComparedModel], roles: Roles, name: str, problems: Mapping[str, str]
) -> tuple[TableCell, ...]:
    """Format a metric of every classifier, then the differences of the others from the first."""
    first, *others = models
    heading, factor = _heading_and_factor(name)
    direction = "lower is better"
    if metrics.info(name).better == "higher":
        direction = "higher is better"
    cells: list[TableCell] = [f"{heading}, {direction}"]
    for model in models:
        cells.append(replicated_number(model.metrics(roles)[name], factor))
    ours = first.metrics(roles)[name]
    for other in others:
        theirs = other.metrics(roles)[name]
        if problems[other.name] or len(theirs) != len(ours):
            cells.append(Number(float(theirs[0] - ours[0]), factor=factor))
        else:
            cells.append(paired_difference(theirs, ours, factor))
    return tuple(cells)


def _heading_and_factor(name: str) -> tuple[str, float]:
    """Find the heading of a metric and the factor of its printed numbers."""
    if name in JOINT:
        heading, factor, _ = JOINT[name]
        return heading, factor
    return f"{name.upper()} x1000", 1000


def _verdict_section(models: Sequence[ComparedModel]) -> Section:
    """Say in words which classifier is better where."""
    first, *others = models
    sentences: list[Part] = []
    for roles in first.measurements.unknown_groups:
        for other in others:
            sentences.append(_compare_in_words(first, other, roles))
    for model in models:
        sentences.append(f"{model.name} is judged by {model.measurements.pair.name}. {model.source.how_chosen}")
    return Section("verdict", "The verdict", tuple(sentences))


def _compare_in_words(first: ComparedModel, other: ComparedModel, roles: Roles) -> str:
    """Compare two classifiers by DS-F1, or by AURC where there are no unknown inputs."""
    name = "aurc"
    kind = "known"
    if roles:
        name = "ds_f1"
        kind = UNKNOWN_NAMES[roles[0]]
    heading, factor = _heading_and_factor(name)
    ours = first.metrics(roles)[name]
    theirs = other.metrics(roles)[name]
    values = f"{factor * theirs[0]:.1f} against {factor * ours[0]:.1f}"
    start = f"On {kind} inputs, {heading} of {other.name} is {values} of {first.name}"

    has_resamples = len(theirs) == len(ours) and len(ours) >= 2
    if not has_resamples or pairing_problem(first.source, other.source, roles):
        return f"{start}; the difference has no interval."
    number = paired_difference(theirs, ours, factor)
    if not number.strong:
        return f"{start}: statistically tied, the difference is in {number.span}."
    is_higher = number.value > 0
    is_higher_better = metrics.info(name).better == "higher"
    better = first.name
    if is_higher == is_higher_better:
        better = other.name
    return f"{start}: {better} is significantly better, the difference is in {number.span}."


# --- drawings -------------------------------------------------------------------------------------------------------


def _curves_section(models: Sequence[ComparedModel]) -> Section:
    """Draw the risk of each classifier's first score over coverage, and its ROC of known against unknown inputs."""
    figures: list[Part] = [_risk_figure(models)]
    if models[0].source.unknown_roles:
        figures.append(_roc_figure(models))
    return Section("curves", "Curves", tuple(figures))


def _risk_figure(models: Sequence[ComparedModel]) -> Figure:
    """Draw the risk of each classifier's first score over the coverage of known inputs."""
    curves = {}
    highest = 0.02
    for model in models:
        score = model.measurements.pair.id
        coverage, risk = _risk_curve(model.measurements.pool, score)
        highest_here = float(risk[coverage > 0.05].max(initial=0.0))
        highest = max(highest, highest_here)
        curves[f"{model.name}, {score}"] = coverage, risk
    labels = "share of known inputs accepted", "risk: failures among accepted"
    top = min(1.0, 1.05 * highest)
    plot = Plot((0, 1), (0, top), *labels, f"Risk over coverage of {len(models)} classifiers")
    return _finish_figure("risk-coverage", "Risk over coverage", "Lower is better.", plot, curves, labels)


def _risk_curve(pool: Pool, score: str) -> tuple[Array, Array]:
    """Compute coverage and risk of a score, thinned to the points that a drawing shows."""
    conf = pool.conf[score]
    curve = metrics.risk_coverage_curve(pool.correct, conf, is_id=pool.is_id_or_none, coverage=pool.covered)
    covered = np.flatnonzero(curve.coverage > 0)
    shown = covered[thin(len(covered))]
    return curve.coverage[shown], curve.risk[shown]


def _roc_figure(models: Sequence[ComparedModel]) -> Figure:
    """Draw the ROC of each classifier's second score, known against unknown inputs."""
    curves = {}
    for model in models:
        pool = model.measurements.pool
        score = model.measurements.pair.ood
        conf = pool.conf[score]
        curve = metrics.roc_curve(pool.is_id, conf)
        area = metrics.auroc(pool.is_id, conf)
        shown = thin(len(curve.fpr), 200)
        curves[f"{area:.3f}  {model.name}, {score}"] = curve.fpr[shown], curve.tpr[shown]
    labels = "share of unknown inputs accepted", "share of known inputs accepted"
    plot = Plot((0, 1), (0, 1), *labels, f"ROC of {len(models)} classifiers", height=330)
    caption = "The number before each name is its AUROC over all unknown inputs."
    return _finish_figure("roc", "Known against unknown inputs", caption, plot, curves, labels)


def _finish_figure(
    key: str,
    title: str,
    caption: str,
    plot: Plot,
    curves: dict[str, tuple[Array, Array]],
    labels: tuple[str, str],
) -> Figure:
    """Draw the curves, and keep their points as data."""
    rows: list[tuple[str | float, ...]] = []
    for place, (name, (x, y)) in enumerate(curves.items()):
        plot.line(x, np.minimum(y, plot.y[1]), f"k{place}", name)
        for point in zip(round_values(x), round_values(y), strict=True):
            rows.append((name, *point))
    return Figure(key, title, caption, plot.svg(), ("classifier", *labels), tuple(rows))


# --- other tables ---------------------------------------------------------------------------------------------------


def _sets_section(models: Sequence[ComparedModel]) -> Section:
    """Tabulate accuracy and acceptance of each data set under each classifier."""
    names: dict[str, None] = {}
    columns = ["data set"]
    for model in models:
        names |= dict.fromkeys(rows.name for rows in model.source.sets_in_order)
        columns += [f"{model.name}: accuracy %", f"{model.name}: accepted %"]
    rows = []
    for name in names:
        cells: list[TableCell] = [name]
        for model in models:
            cells += _set_cells(model, name)
        rows.append(tuple(cells))
    caption = "Each data set under the gate of each classifier, exact 95 % intervals"
    table = ReportTable("sets", caption, tuple(columns), tuple(rows))
    return Section("sets", "Data set by data set", (table,))


def _set_cells(model: ComparedModel, name: str) -> list[Number]:
    """Count correct and accepted inputs of a data set; dashes where the classifier did not see it."""
    accuracy = Number(math.nan)
    accepted = Number(math.nan)
    for rows in model.source.sets_in_order:
        if rows.name == name:
            accepted = count_share(model.measurements.accepts(rows))
            if rows.is_known:
                accuracy = count_share(rows.correct)
            break
    return [accuracy, accepted]


def _provenance_section(models: Sequence[ComparedModel], command: Command) -> Section:
    """List where the numbers of each classifier come from, and the command that makes the page again."""
    commands = ReportTable("commands", "Command", ("command", "gives"), ((command.line, command.gives),))
    return Section("provenance", "Where these numbers come from", (_facts_table(models), commands))


def _facts_table(models: Sequence[ComparedModel]) -> ReportTable:
    """Tabulate what is known of each classifier's source, a row for each fact."""
    facts: dict[str, None] = {}
    columns = [""]
    for model in models:
        facts |= dict.fromkeys(model.source.facts)
        columns.append(model.name)
    rows = []
    for fact in facts:
        cells = [fact]
        for model in models:
            cells.append(model.source.facts.get(fact, "–"))
        rows.append(tuple(cells))
    return ReportTable("facts", "Provenance", tuple(columns), tuple(rows))
