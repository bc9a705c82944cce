"""``twofold list``: what there is to choose from."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import click

from twofold.cli.options import FIELDS, PLUGIN
from twofold.cli.shared import JSON, from_torch

if TYPE_CHECKING:
    from twofold.metrics import MetricInfo
    from twofold.scores import StepInfo

Entry = tuple[dict[str, object], str]
"""The facts about one thing for JSON, and those that the table shows between its name and its summary."""


@click.command("list")
@click.argument("what", type=click.Choice(["metrics", "scores", "transforms", "models", "recipes", "presets"]))
@click.option("--needs", type=FIELDS, help="Only what these fields of outputs allow, separated by commas.")
@PLUGIN
@JSON
def list_command(what: str, needs: str | None, as_json: bool) -> None:
    """List metrics, scores, transforms, networks, recipes or presets, and say what each does.

    Metrics show whether higher or lower is better; scores and transforms what they read of a model's outputs; recipes
    how many passes a training step takes; presets their source: a table of a paper, or released code. --json adds
    settings, defaults, formulas and references.

    \b
      twofold list metrics
      twofold list scores --needs logits
      twofold list presets
    """
    if needs is not None and what not in ("scores", "transforms"):
        raise click.UsageError(f"--needs is for scores and transforms, not for {what}")
    if what == "models":
        entries = _models()
    elif what == "recipes":
        entries = _recipes()
    elif what == "presets":
        entries = _presets()
    elif what == "metrics":
        entries = _metrics()
    else:
        entries = _steps(what, needs)
    if as_json:
        click.echo(json.dumps([facts for facts, _ in entries], indent=2))
        return
    width = max((len(str(facts["name"])) for facts, _ in entries), default=0)
    for facts, shown in entries:
        click.echo(f"{facts['name']:<{width}} {shown} {facts['summary']}")


def _models() -> list[Entry]:
    models = from_torch("models")
    return [({"name": name, "summary": models.summarise(name)}, "") for name in (*models.names(), *models.TRANSFORMERS)]


def _recipes() -> list[Entry]:
    entries: list[Entry] = []
    for name, recipe in from_torch("recipes").RECIPES.items():
        facts = {"name": name, "summary": str(recipe), "passes": recipe.passes}
        entries.append((facts, f"{recipe.passes}x"))
    return entries


def _presets() -> list[Entry]:
    """List the presets by name, with their source and what they are meant for."""
    entries: list[Entry] = []
    for name, preset in from_torch("training").PRESETS.items():
        variations = {}
        for recipe, variation in preset.variations.items():
            variations[recipe] = {"settings": dict(variation.settings), "parts": dict(variation.parts)}
        facts = {
            "name": name,
            "summary": preset.source,
            "network": preset.network,
            "crop": preset.crop,
            "dropout": preset.dropout,
            "recipes": preset.recipes,
            "settings": asdict(preset.settings),
            "variations": variations,
        }
        entries.append((facts, f"{preset.network:<19}"))
    return entries


def _metrics() -> list[Entry]:
    from twofold import metrics

    entries: list[Entry] = []
    for name in metrics.names():
        record = metrics.info(name)
        arrow = "↑" if record.better == "higher" else "↓"
        entries.append((_metric_facts(record), f"{arrow} {record.task:<11}"))
    return entries


def _steps(what: str, needs: str | None) -> list[Entry]:
    """List scores or transforms, or those that outputs with the named fields allow."""
    from twofold.scores.registry import info, step_names

    fields = None
    if needs is not None:
        fields = [name.strip() for name in needs.split(",")]
    kind: Literal["score", "transform"] = "score" if what == "scores" else "transform"
    entries: list[Entry] = []
    for name in step_names(kind, fields):
        record = info(name)
        entries.append((_step_facts(record), f"{', '.join(record.needs):<22}"))
    return entries


def _metric_facts(record: MetricInfo) -> dict[str, object]:
    return {
        "name": record.name,
        "task": record.task,
        "better": record.better,
        "bounds": [bound if math.isfinite(bound) else None for bound in record.bounds],
        "arrays": record.arrays,
        "summary": _without_markup(record.summary),
        "formula": record.formula,
        "reference": record.reference,
    }


def _step_facts(record: StepInfo) -> dict[str, object]:
    return {
        "name": record.name,
        "kind": record.kind,
        "aliases": record.aliases,
        "needs": record.needs,
        "fit_needs": record.fit_needs,
        "settings": record.settings,
        "judges": record.judges,
        "cost": record.cost,
        "summary": _without_markup(record.summary),
        "reference": record.paper,
    }


def _without_markup(text: str) -> str:
    """Write the first line of a docstring for a terminal: no roles, no double backquotes, no commands of TeX."""
    plain = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    plain = re.sub(r"\\mathrm\{([^}]*)\}", r"\1", plain)
    return re.sub(r"\\(\w+)", r"\1", plain)
