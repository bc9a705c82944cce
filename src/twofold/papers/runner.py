"""Run plans: do the steps that are missing, then write the table or figure.

A run that was killed at any step is finished by the same call, with the same bytes; one that is finished computes
nothing. Every file is written whole, and a record of what was written comes last.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypedDict

import twofold
from twofold._files import replacing
from twofold.bench.cache import digest
from twofold.errors import InvalidInput
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.derived import derive
from twofold.papers.drawings import DRAWINGS, format_csv, write_figure
from twofold.papers.material import Material
from twofold.papers.plan import STATES, PaperPlan, Scale, ScaleName
from twofold.papers.settings_tables import SETTINGS, SettingsRow
from twofold.papers.steps import Step
from twofold.papers.tables import PaperTable
from twofold.papers.workspace import Workspace
from twofold.plot.themes import drawing_style
from twofold.report.document import Document, Part, ReportTable, Section
from twofold.report.html import format_html

_SHOWN_OUT = Path("DIR")  # in pages, so that they do not depend on where they were written


@dataclass(frozen=True)
class PlanOutcome:
    """Say what a run of a plan did.

    Parameters
    ----------
    id : str
        ``PAPER/ITEM``.
    scale : str
        Scale of the run.
    is_finished : bool
        Whether the table or figure is written.
    computed : tuple of str
        Keys of the steps that were computed, and ``"page"`` if files were written.
    left : tuple of str
        Commands of the steps that are left.
    files : tuple of str
        Paths of the table or figure.
    summary : str
        How the numbers agree with print; empty where nothing is compared.
    minutes : float
        How long it took.
    """

    id: str
    scale: str
    is_finished: bool
    computed: tuple[str, ...]
    left: tuple[str, ...]
    files: tuple[str, ...]
    summary: str
    minutes: float


def run(
    plan: PaperPlan,
    work: Workspace,
    *,
    scale: ScaleName = "here",
    runs: Sequence[str] = (),
    method: EvaluationMethod = "exact",
) -> PlanOutcome:
    """Do the steps of a plan that are missing, and write its table or figure.

    Parameters
    ----------
    plan : PaperPlan
        The plan.
    work : Workspace
        Where files are; its deadline is respected before each step.
    scale : {"paper", "here"}, default="here"
        At which scale.
    runs : sequence of str, default=()
        The user's own runs, in place of the plan's: folders, or npz files as
        :func:`twofold.bench.saved.read_saved` takes them.
    method : {"exact", "published"}, default="exact"
        Whether the table shows F1, AURC-ID, DS-F1 and DS-AURC as they are, or as the released code of SURE+ computes
        them.

    Returns
    -------
    PlanOutcome
        What was done, and what is left.

    Raises
    ------
    InvalidInput
        If the plan is not one that runs, needs runs that were not given, or its data are not here.
    """
    started = time.monotonic()
    chosen = choose_scale(plan, scale, runs, method)
    steps = all_steps(chosen)
    _check_needs(plan, steps, work, runs)
    computed: list[str] = []
    for place, step in enumerate(steps):
        if step.is_done(work):
            continue
        if work.is_late:
            left = tuple(one.command(work) for one in steps[place:] if not one.is_done(work))
            return PlanOutcome(plan.id, scale, False, tuple(computed), left, (), "", _minutes_since(started))
        step.run(work)
        if not step.is_done(work):  # a step with a limit of its own stopped early
            left = tuple(one.command(work) for one in steps[place:] if not one.is_done(work))
            return PlanOutcome(plan.id, scale, False, (*computed, step.key), left, (), "", _minutes_since(started))
        computed.append(step.key)
    folder = work.item(plan.paper, plan.item)
    way = scale if method == "exact" else f"{scale} --method {method}"
    record = _read_record(folder, _fingerprint(plan, chosen, way, steps, work))
    if record is None:
        record = _write_item(plan, chosen, way, method, steps, work)
        computed.append("page")
    files = tuple(str(folder / name) for name in record["files"])
    return PlanOutcome(plan.id, scale, True, tuple(computed), (), files, record["summary"], _minutes_since(started))


def choose_scale(
    plan: PaperPlan, scale: ScaleName, runs: Sequence[str] = (), method: EvaluationMethod = "exact"
) -> Scale:
    """Look up how a plan runs at a scale, with the user's own runs in place of the plan's.

    Parameters
    ----------
    plan : PaperPlan
        The plan.
    scale : {"paper", "here"}
        At which scale.
    runs : sequence of str, default=()
        The user's own runs.
    method : {"exact", "published"}, default="exact"
        How joint metrics are measured.

    Returns
    -------
    Scale
        Steps, data and note.

    Raises
    ------
    InvalidInput
        If the plan does not run, or not at this scale, or takes no runs.
    """
    if plan.kind == "illustration" or plan.state == "impossible":
        raise InvalidInput(f"{plan.id} is not run: {plan.reason}")
    if plan.state == "planned":
        raise InvalidInput(f"{plan.id} is not built yet; `twofold papers list` shows what is")
    if plan.kind == "settings":
        if runs:
            raise InvalidInput(f"{plan.id} is a table of settings and reads no runs; leave --run out")
        return Scale((), 0.1, "", ())
    if scale not in plan.scales:
        raise InvalidInput(f"{plan.id} has no scale {scale!r}; it has {' and '.join(plan.scales)}")
    chosen = plan.scales[scale]
    if method == "published":
        chosen = replace(chosen, steps=tuple(step.use_method(method) for step in chosen.steps))
    if not runs:
        return chosen
    if not chosen.steps:
        raise InvalidInput(f"{plan.id} follows from definitions and reads no runs; leave --run out")
    steps = _give_runs(plan, chosen.steps, runs)
    return replace(chosen, steps=steps, note=f"Runs of the user: {', '.join(runs)}.")


def _give_runs(plan: PaperPlan, steps: Sequence[Step], runs: Sequence[str]) -> tuple[Step, ...]:
    """Give each step the runs that it can read; the only step gets all, so that it can say what is wrong with them."""
    if len(steps) == 1:
        return (steps[0].use_runs(runs),)
    given: dict[Step, None] = {}
    for step in steps:
        fitting = [run for run in runs if step.fits(run)]
        if fitting:
            given[step.use_runs(fitting)] = None
    if not given:
        raise InvalidInput(f"no run is one that {plan.id} reads; `twofold papers show {plan.id}` lists what it needs")
    return tuple(given)


def all_steps(scale: Scale) -> tuple[Step, ...]:
    """List the steps of a scale, each once, and before it those that it needs.

    Parameters
    ----------
    scale : Scale
        The scale.

    Returns
    -------
    tuple of Step
        In the order in which they run.
    """
    ordered: dict[Step, None] = {}

    def add(step: Step) -> None:
        for earlier in step.prerequisites():
            add(earlier)
        ordered[step] = None

    for step in scale.steps:
        add(step)
    return tuple(ordered)


def _check_needs(plan: PaperPlan, steps: Sequence[Step], work: Workspace, runs: Sequence[str]) -> None:
    """Raise before any work if data are missing."""
    missing = []
    for step in steps:
        if step.is_done(work):
            continue
        missing += [need.name for need in step.needs(work) if not need.is_here]
    if not missing:
        return
    where = "" if work.root is None else f" in {work.root}"
    if any("--run" in name for name in missing) and not runs:
        raise InvalidInput(f"{plan.id} at this scale needs {missing[0]}; see `twofold papers show {plan.id}`")
    listed = ", ".join(dict.fromkeys(missing))
    raise InvalidInput(f"{plan.id} needs data that are not here{where}: {listed}; set $TWOFOLD_DATA, or pass --run")


def _minutes_since(started: float) -> float:
    return (time.monotonic() - started) / 60


# --- what is written ------------------------------------------------------------------------------------------------


def _fingerprint(plan: PaperPlan, scale: Scale, name: str, steps: Sequence[Step], work: Workspace) -> str:
    """Compute a digest of all that a table or figure depends on."""
    shown = replace(work, out=_SHOWN_OUT)
    described = [plan.id, plan.title, plan.says, plan.state, plan.printed, plan.settings, scale.note, scale.data, name]
    described += plan.derive
    drawing = None if plan.drawing is None else asdict(plan.drawing)
    return digest(described, drawing, [step.command(shown) for step in steps], twofold.__version__)


class _Record(TypedDict):
    """What was written for a table or figure, and from what."""

    id: str
    scale: str
    summary: str
    fingerprint: str
    files: dict[str, str]  # digest by name


def _read_record(folder: Path, fingerprint: str) -> _Record | None:
    """Read what was written before; None if anything of it is missing, changed or made otherwise."""
    path = folder / "record.json"
    if not path.exists():
        return None
    try:
        record: _Record = json.loads(path.read_text(encoding="utf-8"))
        if record["fingerprint"] != fingerprint:
            return None
        for name, expected in record["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
                return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged, so it is written again
        return None
    return record


def _write_item(
    plan: PaperPlan, scale: Scale, name: str, method: EvaluationMethod, steps: Sequence[Step], work: Workspace
) -> _Record:
    """Write the table or figure, its page, and last the record of both."""
    folder = work.item(plan.paper, plan.item)
    folder.mkdir(parents=True, exist_ok=True)
    material = Material.join(step.read(work) for step in steps)
    material = replace(material, rows=(*material.rows, *derive(plan.derive, material)))
    files: list[Path] = []
    parts: list[Part] = []
    summary = ""
    if plan.drawing is not None:
        with drawing_style():
            drawn = DRAWINGS[plan.drawing.name](material, **plan.drawing.options)
            files += write_figure(drawn, folder, plan.item)
        parts += drawn.notes
    if plan.printed is not None:
        table = PaperTable.of(plan.printed, material.rows, method=method)
        summary = table.summary()
        parts += [summary, *table.to_report()]
        files.append(_write_text(folder / f"{plan.item}.csv", table.to_csv()))
    if plan.settings is not None:
        rows = SETTINGS[plan.settings]()
        summary = _settings_summary(rows)
        parts += [summary, _settings_report(rows)]
        files.append(_write_text(folder / f"{plan.item}.csv", _settings_csv(rows)))
    document = _page(plan, scale, name, steps, work, parts)
    files.append(_write_text(folder / f"{plan.item}.md", _markdown(plan, document)))
    if document.tables():
        files.append(_write_text(folder / f"{plan.item}.tex", document.to_latex()))
        files.append(_write_text(folder / f"{plan.item}.html", format_html(document)))
    record: _Record = {
        "id": plan.id,
        "scale": name,
        "summary": summary,
        "fingerprint": _fingerprint(plan, scale, name, steps, work),
        "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
    }
    _write_text(folder / "record.json", json.dumps(record, indent=2) + "\n")
    return record


def _write_text(path: Path, text: str) -> Path:
    with replacing(path) as file:
        file.write(text.encode())
    return path


def _page(
    plan: PaperPlan, scale: Scale, name: str, steps: Sequence[Step], work: Workspace, parts: Sequence[Part]
) -> Document:
    """Build the page of a table or figure."""
    shown = replace(work, out=_SHOWN_OUT)
    about = [f"What the paper says: {plan.says}", f"State: {STATES[plan.state]}."]
    made = [f"Command: twofold papers run {plan.id} --scale {name} --out DIR"]
    if scale.data:
        made.append(f"Data: {'; '.join(scale.data)}.")
    if scale.note:
        made.append(scale.note)
    if scale.minutes is not None:
        made.append(f"Time: about {scale.minutes:g} minutes on two cores.")
    for step in steps:
        made.append(f"Step: {step.command(shown)}")
    sections = (
        Section("about", "About", tuple(about)),
        Section("result", "Result", tuple(parts)),
        Section("how", "How it was made", tuple(made)),
    )
    return Document(f"{plan.paper}, {plan.item}: {plan.title}", f"twofold {twofold.__version__}", (), sections)


def _markdown(plan: PaperPlan, document: Document) -> str:
    """Format the page; a figure is shown below its title."""
    text = document.to_markdown()
    if plan.drawing is None:
        return text
    before, heading, after = text.partition("## Result\n")
    picture = f"\n![{plan.title}]({plan.item}.png)\n"
    return f"{before}{heading}{picture}{after}"


def _settings_summary(rows: Sequence[SettingsRow]) -> str:
    same = sum(row.agrees for row in rows)
    return f"{same} of {len(rows)} printed settings are the same here."


def _settings_report(rows: Sequence[SettingsRow]) -> ReportTable:
    cells = []
    for row in rows:
        cells.append((row.name, row.printed, row.ours, "yes" if row.agrees else "no", row.note))
    columns = ("setting", "printed", "ours", "same", "remark")
    return ReportTable("settings", "Settings as printed, and as they are here.", columns, tuple(cells))


def _settings_csv(rows: Sequence[SettingsRow]) -> str:
    return format_csv(
        ("setting", "printed", "ours", "same", "remark"),
        [(row.name, row.printed, row.ours, row.agrees, row.note) for row in rows],
    )
