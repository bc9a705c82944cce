"""The sections of a report on one classifier: tables, the explorer, cases and provenance, and all in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twofold import metrics
from twofold._math import sigmoid
from twofold.report import charts, curves
from twofold.report.commands import (
    gate_commands,
    gate_folders,
    gate_scores,
    place,
    pooled_sets,
    report_command,
    threshold_value,
    why_no_gate,
)
from twofold.report.curves import rounded
from twofold.report.document import Cell, Document, Figure, Markup, Number, Section, Table, count, listed, static
from twofold.report.judge import EXACT, KIND, WORDS, Judge, exact, number
from twofold.report.material import UNKNOWN, Material, Scored
from twofold.report.pictures import gallery
from twofold.report.tables import JOINT
from twofold.report.verdict import tiles, verdict

CASES = 3  # most and least confident cases of each set
CLASSES = 60  # rows of the class table
ALL_KNOWN = (
    "AURC (aurc) and AUGRC (augrc): areas under the risk of the first score alone, over the coverage of all inputs, "
    "which are all known; wrong answers are failures; lower is better.",
)
MEANING = (
    "AURC-ID (aurc_id): the area under the risk of the first score alone, over the coverage of known inputs. AUGRC "
    "(augrc): its generalised risk, over the coverage of all inputs. Wrong answers and unknown inputs are failures; "
    "lower is better.",
    "AUROC (auroc_ood) and FPR@95 (fpr95_ood): the second score alone, known against unknown: the chance that a known "
    "input scores above an unknown one, and the share of unknown inputs that pass where 95 % of known ones do.",
    "F1 (f1): the first score alone; DS-F1 (ds_f1): both. How well right answers, and nothing else, are accepted at "
    "the best thresholds; higher is better.",
    "DS-AURC (ds_aurc): the area under the least risk that two thresholds reach, over the coverage of known inputs; "
    "lower is better.",
)


def document(
    material: Material,
    images: Mapping[str, Any],
    page_command: tuple[str, str],
    *,
    resamples: int,
    seed: int,
    done: Any,
) -> Document:
    """Build the whole report on one classifier.

    Parameters
    ----------
    material : Material
        What the report is made from.
    images : mapping of str to Any
        Images by data set.
    page_command : tuple of (str, str)
        The command that makes the page again, and what it makes.
    resamples : int
        Upper limit on the number of bootstrap resamples.
    seed : int
        Seed of the resampling.
    done : callable
        Called with the name of each finished step.

    Returns
    -------
    Document
        The report.
    """
    judge = Judge(material, resamples, seed, done)
    commands = listed_commands(judge, page_command)
    sections = [
        verdict(judge),
        joint(judge),
        explorer(judge),
        curves.risk_coverage(judge),
        curves.densities(judge),
        curves.roc(judge),
        curves.calibration(judge),
        sets(judge),
        classes(judge),
        cases(judge, images),
        softmax(judge),
        curves.improvement(judge),
        provenance(judge, commands),
    ]
    kinds = [count(int(mask.sum()), WORDS[name].rstrip("s"), WORDS[name]) for name, mask in judge.pool.kinds.items()]
    return Document(
        title="How far can this classifier be trusted?",
        subtitle=f"{material.title}, judged on {listed(kinds, 8)}.",
        tiles=tiles(judge),
        sections=tuple(sections),
        data=explorer_data(judge),
        summary=summary(judge, commands),
    )


# --- the joint table ------------------------------------------------------------------------------------------------


def joint(judge: Judge) -> Section:
    """Tabulate each pair on each kind of unknown inputs, with intervals.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        The joint table, and the scores that were left out.
    """
    m = judge.material
    groups = judge.groups
    judge.measure_all([(roles, pair) for roles in groups for pair in m.pairs])
    measured = judge.measured(groups[0], judge.pair)
    heads = {name: JOINT.get(name, (f"{name.upper()} x1000", 1000, "")) for name in measured}
    rows: list[tuple[Cell, ...]] = []
    for roles in groups:
        found = {pair: judge.measured(roles, pair) for pair in m.pairs}
        for pair, drawn in found.items():
            cells: list[Cell] = [KIND[roles[0]], pair.name] if roles else [pair.name]
            for name, (_, factor, _) in heads.items():
                every = [float(one[name][0]) for one in found.values()]
                lead = max(every) if metrics_better(name) == "higher" else min(every)
                strong = name != "accuracy" and len(found) > 1 and float(drawn[name][0]) == lead
                cells.append(number(drawn[name], factor, strong=strong))
            rows.append(tuple(cells))
    first = ("unknown inputs", "scores") if groups[0] else ("scores",)
    size = sum(len(one) for one in m.of("test", *groups[0]))
    drawn_n = judge.draws(size)
    told = (
        f"95 % bootstrap intervals of {count(drawn_n, 'resample')}"
        if drawn_n
        else "no intervals: at this size they are narrower than the digits"
    )
    notes = list(MEANING if groups[0] else ALL_KNOWN)
    if sum(len(one) for one in m.test) > EXACT:
        notes.append("DS-AURC is that of a grid of 1000 quantile thresholds on each axis.")
    table = Table(
        "joint",
        f"Both kinds of failure, {told}; bold is best of its group",
        (*first, *(head for head, _, _ in heads.values())),
        tuple(rows),
        len(first),
        tuple(notes),
    )
    skipped = [f"{spec}: {why}" for spec, why in m.skipped.items()]
    left_out = [f"Scores that were left out: {'; '.join(skipped)}."] if skipped else []
    return Section("joint", "Mistakes and unknown inputs, jointly", (table, *left_out))


def metrics_better(name: str) -> str:
    """Look up whether higher or lower values of a metric are better.

    Parameters
    ----------
    name : str
        Name of the metric, with or without the suffix ``_ood``.

    Returns
    -------
    str
        ``"higher"`` or ``"lower"``.

    Examples
    --------
    >>> metrics_better("auroc_ood"), metrics_better("aurc")
    ('higher', 'lower')
    """
    return metrics.info(name).better


# --- the explorer ---------------------------------------------------------------------------------------------------


def explorer(judge: Judge) -> Section:
    """Show two sliders on the page; other formats have a line that says where they are.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        The threshold explorer.
    """
    text = (
        "Move the two thresholds, or click on the map, and see what the gate does. An input is accepted where both "
        "scores reach their thresholds."
    )
    plain = f"The threshold explorer is on the HTML page: {report_command(judge.material.source)}"
    return Section("explorer", "Try thresholds", (text, Markup(static("explorer.html"), plain)))


def explorer_data(judge: Judge) -> dict[str, Any]:
    """Collect what the page's script reads.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    dict
        Grids of counts, starting points and commands of each pair.
    """
    m, found = judge.material, []
    folders = gate_folders(m.pairs)
    for pair, grid in judge.grids.items():
        found.append(
            {
                "id": pair.id,
                "ood": pair.ood,
                "odds": [spec.split("|")[-1] == "msp" for spec in (pair.id, pair.ood)],
                "start": grid.place(*judge.points[pair]),
                "best": grid.place(*judge.best_shown[pair]),
                "command": gate_scores(m, pair),
                "gate": why_no_gate(m, pair),
                "folder": folders[pair],
                "card": pooled_sets(m, pair),
                **grid.packed(),
            }
        )
    return {"pairs": found, "share": m.unknown_to_choose_on, "note": _gate_note(m), "words": WORDS}


def _gate_note(material: Material) -> str:
    """Say what the command does with the chosen point."""
    if material.gate:
        return ""
    if not material.is_run:
        return (
            "Thresholds that were chosen by these numbers are not tested by them: keep other data for that. The other "
            "goals let the command choose, on this same file. With --objective risk, --delta 0.1 guarantees the risk "
            "with confidence 0.9."
        )
    lacking = "" if material.unknown_to_choose_on else " The validation data hold no unknown inputs to choose on."
    return (
        "Thresholds that were chosen by these numbers promise nothing: it was test data that chose them. The other "
        "goals let the command choose on validation data, so its thresholds differ a little from those above. With "
        f"--objective risk, --delta 0.1 guarantees the risk with confidence 0.9.{lacking}"
    )


# --- tables of sets and classes -------------------------------------------------------------------------------------


def sets(judge: Judge) -> Section:
    """Tabulate every data set by itself.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A table with exact intervals.
    """
    m, rows = judge.material, []
    test = m.pool()
    for one in (*m.test, *m.of("shift"), *m.of(*m.roles)):
        taken = judge.taken(one)
        known = one.role not in UNKNOWN
        accepted = int(taken.sum())
        conf = one.conf[judge.pair.ood]
        area = math.nan
        if one.role != "test":
            truth = np.concatenate([np.ones(len(test.correct), bool), np.zeros(len(one), bool)])
            area = metrics.auroc(truth, np.concatenate([test.conf[judge.pair.ood], conf]))
        rows.append(
            (
                one.name,
                {"test": "known", "shift": "known, shifted"}.get(one.role) or KIND[one.role],
                len(one),
                exact(int(one.correct.sum()), len(one)) if known else Number(math.nan),
                Number(float(np.mean(one.prob)) if one.prob is not None else math.nan, factor=100.0),
                exact(accepted, len(one)),
                exact(accepted - int((taken & one.correct).sum()), accepted) if known else Number(math.nan),
                Number(area, factor=100.0),
            )
        )
    columns = ("data set", "kind", "inputs", "accuracy %", "mean probability %", "accepted %")
    notes = (
        "Whatever is accepted of an unknown set is wrong.",
        "The last column says how well the second score tells the set from the test set; 50 is not at all. For shifted "
        "inputs of known classes a low number is good.",
    )
    caption = f"Each data set under the gate of {judge.pair.name}, exact 95 % intervals"
    more = ("wrong among accepted %", "told from test, AUROC %")
    table = Table("sets", caption, (*columns, *more), tuple(rows), 2, notes)
    return Section("sets", "Data set by data set", (table,))


def classes(judge: Judge) -> Section:
    """Tabulate every known class: accuracy, what the gate accepts, and what unknown inputs are taken for.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A table; one sentence where the source has no labels.
    """
    m = judge.material
    tests = [one for one in m.test if one.labels is not None and one.predictions is not None]
    if not tests:
        return Section("classes", "Class by class", ("The file does not say which class an input has.",))
    labels, said = (np.concatenate([getattr(one, name) for one in tests]) for name in ("labels", "predictions"))
    right, taken = (
        np.concatenate(part) for part in zip(*((one.correct, judge.taken(one)) for one in tests), strict=True)
    )
    prob = np.concatenate([one.prob for one in tests if one.prob is not None])
    alien = [(one.predictions, judge.taken(one)) for one in m.of(*m.roles) if one.predictions is not None]
    size = int(max(labels.max(), said.max(), *(int(a.max()) for a, _ in alien), 0)) + 1
    stray = sum((np.bincount(a[t], minlength=size) for a, t in alien), np.zeros(size, int))
    names = m.class_names or tuple(f"class {k}" for k in range(size))
    rows = []
    for k in range(min(size, len(names))):
        own = labels == k
        as_k = (said == k) & taken
        if not own.any() and not stray[k]:
            continue
        n = int(own.sum())
        wrong = int((as_k & ~right).sum())
        rows.append(
            (
                names[k],
                n,
                exact(int((own & right).sum()), n),
                Number(float(prob[own].mean()) if n else math.nan, factor=100.0),
                exact(int((own & taken).sum()), n),
                wrong,
                *((int(stray[k]),) if alien else ()),
            )
        )
    total = len(rows)
    rows.sort(key=lambda row: (math.isnan(row[2].value), row[2].value, row[0]))
    cut = f"; the {CLASSES} of {total} with the lowest accuracy" if total > CLASSES else ", lowest accuracy first"
    head = ("class", "inputs", "accuracy %", "mean probability %", "accepted %", "mistakes accepted as it")
    table = Table(
        "classes",
        f"Each known class under the gate of {judge.pair.name}{cut}",
        (*head, *(("unknown accepted as it",) if alien else ())),
        tuple(rows[:CLASSES]),
    )
    return Section("classes", "Class by class", (table,))


# --- cases ----------------------------------------------------------------------------------------------------------


def cases(judge: Judge, images: Mapping[str, Any]) -> Section:
    """List, for each data set, the failures the classifier is surest of and the correct predictions it doubts most.

    Parameters
    ----------
    judge : Judge
        What several sections share.
    images : mapping of str to Any
        Images by data set, to be shown beside the cases.

    Returns
    -------
    Section
        Two tables, and pictures where there are images.
    """
    m = judge.material
    spec = judge.single.id
    text = (
        f"By {spec}: the failures it is surest of, and the right answers it doubts most. Inputs of new classes have no "
        "underconfident cases, since no answer is right for them."
    )
    over: list[tuple[Cell, ...]] = []
    under: list[tuple[Cell, ...]] = []
    pictures = []
    for one in (*m.test, *m.of("shift"), *m.of(*m.roles)):
        order = np.argsort(one.conf[spec], kind="stable")
        worst = order[::-1][~one.correct[order[::-1]]][:CASES].tolist()
        doubted = order[one.correct[order]][:CASES].tolist()
        for found, chosen in ((over, worst), (under, doubted)):
            found += [_case(m, one, i, spec) for i in chosen]
        if one.name in images:
            pictures.append((one.name, "overconfident", worst, [_case(m, one, i, spec) for i in worst]))
            pictures.append((one.name, "underconfident", doubted, [_case(m, one, i, spec) for i in doubted]))
    head = ("data set", "input", "truth", "answer", "probability %", spec)
    tables = [
        Table("overconfident", "Most overconfident: wrong, and sure of it", head, tuple(over), 2),
        Table("underconfident", "Most underconfident: right, and in doubt", head, tuple(under), 2),
    ]
    shown = [Markup(gallery(images, pictures))] if pictures else []
    note = [] if pictures else ["Images can be shown beside the cases: give them with images= or --images."]
    return Section("cases", "The worst cases", (text, *shown, *(t for t in tables if t.rows), *note))


def _case(m: Material, one: Scored, i: int, spec: str) -> tuple[Cell, ...]:
    def named(k: Any) -> str:
        return "–" if k is None else "no known class" if k < 0 else m.class_names[k] if m.class_names else f"class {k}"

    truth = None if one.labels is None else int(one.labels[i]) if one.role not in UNKNOWN else -1
    said = None if one.predictions is None else int(one.predictions[i])
    key = str(i) if one.ids is None else str(one.ids[i])
    prob = math.nan if one.prob is None else float(one.prob[i])
    return (
        one.name,
        key,
        named(truth),
        named(said),
        Number(prob, factor=100.0, digits=2),
        Number(float(one.conf[spec][i]), digits=3),
    )


def softmax(judge: Judge) -> Section:
    """Draw what unknown classes are taken for, as mean probabilities.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A heat map; one sentence where no unknown input has logits.
    """
    m, title = judge.material, "What unknown inputs are taken for"
    rows = []
    for one in m.of(*m.roles):
        for name, mean in zip(one.classes, one.softmax if one.softmax is not None else (), strict=True):
            above, _, own = name.rpartition("/")
            group = (above.split("/")[0] or m.superclasses.get(own) or one.name) if own else ""
            rows.append((group, own or one.name, mean))
    if not rows:
        return Section("softmax", title, ("There are no unknown inputs with logits here.",))
    known = any(group for group, _, _ in rows)
    rows = sorted(rows, key=lambda row: row[:2]) if known else rows
    groups, labels = [group or ("whole sets" if known else "") for group, _, _ in rows], [row[1] for row in rows]
    table = np.stack([mean for _, _, mean in rows])
    names = m.class_names or tuple(f"class {k}" for k in range(table.shape[1]))
    most = max(10, min(60, 7000 // len(rows)))
    drawn = np.sort(np.argsort(-table.max(axis=0))[:most])  # all, or those that draw most
    keep = np.array(sorted(drawn, key=lambda k: m.superclasses.get(names[k], "")))  # own order within a super-class
    heads = [names[k] for k in keep]
    about = "Mean probability of each known class on unknown inputs"
    svg = charts.heat_map(table[:, keep], labels, heads, about, groups)
    caption = (
        "Mean softmax probability: a row is a kind of unknown input, a column a known class; the stronger the colour, "
        "the likelier. The scale is below."
    )
    if len(keep) < table.shape[1]:
        caption += f" Columns are the {len(keep)} of {table.shape[1]} classes that draw most."
    text = (
        "The classes of the unknown inputs are not known, so a row is a whole data set. Row ids such as CLASS/FILE or "
        "SUPERCLASS/CLASS/FILE, or ood_classes, tell them."
    )
    data = tuple((labels[i], *rounded(table[i, keep])) for i in range(len(labels)))
    figure = Figure("softmax", "Mean probabilities", caption, svg, ("unknown", *heads), data, True)
    return Section("softmax", title, (figure,) if known else (text, figure))


def provenance(judge: Judge, commands: Sequence[tuple[str, str]]) -> Section:
    """List where the numbers come from and the commands that repeat them.

    Parameters
    ----------
    judge : Judge
        What several sections share.
    commands : sequence of (str, str)
        Each command and what it makes.

    Returns
    -------
    Section
        Two tables.
    """
    import platform

    from twofold import __version__

    m = judge.material
    facts = {
        "source": m.source,
        **m.facts,
        "report made with": f"twofold {__version__}, Python {platform.python_version()}, numpy {np.__version__}",
        "seed of the resamples": str(judge.seed),
        "thresholds of the judged pair": _threshold_text(judge),
    }
    notes = []
    if m.gate_share is not None:
        notes.append(
            "Thresholds are chosen, and the risk is told, for the share of unknown inputs in the data shown, "
            f"{m.gate_share:.6g}. The interval that gate card prints beside that risk is wider than the one here: it "
            "does not take the share for a part of the sample."
        )
    return Section(
        "provenance",
        "Where this comes from",
        (
            Table("facts", "Provenance", ("what", "value"), tuple(facts.items())),
            Table("commands", "Commands", ("command", "gives"), tuple(commands), notes=tuple(notes)),
        ),
    )


def _threshold_text(judge: Judge) -> str:
    """Format the thresholds of the judged pair; that of msp, a log-odds, also as a probability."""
    told = []
    for spec, threshold in _gate_thresholds(judge).items():
        also = f" (probability {float(sigmoid(np.array(threshold))):.6g})" if spec == "msp" else ""
        told.append(f"{spec} >= {threshold:.6g}{also}")
    return ", ".join(told)


def _gate_thresholds(judge: Judge) -> dict[str, float]:
    """List thresholds of the judged pair by score; one where one score does both."""
    pair = judge.pair
    tau_id, tau_ood = judge.points[pair]
    return {pair.id: max(tau_id, tau_ood)} if pair.id == pair.ood else {pair.id: tau_id, pair.ood: tau_ood}


def listed_commands(judge: Judge, page_command: tuple[str, str]) -> list[tuple[str, str]]:
    """List every command of the page: the page, the gates of the verdict, and the check that the run is intact.

    Parameters
    ----------
    judge : Judge
        What several sections share.
    page_command : tuple of (str, str)
        The command that makes the page again, and what it makes.

    Returns
    -------
    list of (str, str)
        Each command and what it makes.
    """
    m = judge.material
    folders = gate_folders(m.pairs)
    commands = [page_command]
    for pair in dict.fromkeys((judge.pair, judge.single)):
        commands += gate_commands(m, pair, judge.points[pair], folders[pair])
    if m.is_run:
        commands.append((f"twofold verify {place(m.source)}", "whether the run is as it was written"))
    return commands


def summary(judge: Judge, commands: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Summarise the headline as data: the judged pair, its thresholds, and what they do on all data shown.

    Parameters
    ----------
    judge : Judge
        What several sections share.
    commands : sequence of (str, str)
        Each command and what it makes.

    Returns
    -------
    dict
        Plain values; infinite thresholds are text.
    """
    p = judge.pool
    taken = judge.taken(p)
    thresholds = [threshold_value(tau) for tau in _gate_thresholds(judge).values()]
    accepted = int(taken.sum())
    one_score = judge.pair.id == judge.pair.ood
    return {
        "id": judge.pair.id,
        "ood": None if one_score else judge.pair.ood,
        "tau_id": thresholds[0],
        "tau_ood": None if one_score else thresholds[1],
        "coverage": int((taken & p.is_id).sum()) / int(p.is_id.sum()),
        "risk": int((taken & ~p.correct).sum()) / accepted if accepted else 0.0,
        "ood_share": int((~p.is_id).sum()) / len(p.is_id),
        "commands": [command for command, _ in commands],
    }
