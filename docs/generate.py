"""Write the pages on metrics, scores, benchmarks, papers, recipes, commands, data: python docs/generate.py"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import sys
import typing
from pathlib import Path

from twofold import metrics
from twofold.bench.agreement import DIFFERENCES
from twofold.bench.catalogue import Benchmark, load, names
from twofold.bench.protocols import PROTOCOLS
from twofold.scores.registry import info, step_names

if typing.TYPE_CHECKING:
    from twofold.nn.training import Preset, Settings, Variation

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # tests load this file by its path

from markup import markdown  # noqa: E402

NOTE = "\n<!-- Written by python docs/generate.py; a test notices when it is stale. -->\n"
TASKS = {
    "selective": "Selective classification: correct against wrong predictions",
    "detection": "Detection: safe against unsafe samples",
    "ood": "Detection: ID against OOD samples",
    "joint": "Joint: mistakes and unknown inputs together",
    "calibration": "Calibration and plain accuracy",
}
MODULES = {
    "twofold.scores.logits": "From logits",
    "twofold.scores.distance": "From features and head: angles and distances",
    "twofold.scores.neighbours": "From the nearest training rows",
    "twofold.scores.nearest": "From the rank among the training rows",
    "twofold.scores.subspace": "From the subspace of the training features",
    "twofold.scores.activations": "From the single entries of a feature",
    "twofold.scores.gradients": "From gradients in closed form",
    "twofold.scores.regret": "From the regret of learning one more sample",
    "twofold.scores.density": "From densities and trees",
    "twofold.scores.layers": "From several layers",
    "twofold.scores.passes": "From several passes or members",
    "twofold.scores.learned": "From outputs that a model learnt for the purpose",
    "twofold.scores.combine": "Combinations",
    "twofold.scores.zero_shot": "Of zero-shot classifiers",
    "twofold.scores.transforms": "Transforms",
    "twofold.scores.shaping": "Transforms learnt from the entries of features",
}


SECTION = re.compile(
    r"^(Parameters|Attributes|Returns|Yields|Raises|Warns|See Also|Notes|References|Examples)\n-+\n", flags=re.MULTILINE
)


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring; the text before the first section has the title ''."""
    lead, *rest = SECTION.split(docstring)
    return {"": lead, **dict(zip(rest[::2], rest[1::2], strict=True))}


def explanation(docstring: str) -> str:
    """Return what a docstring explains: the text before its first section, its notes and its parameters."""
    found = sections(docstring)
    parts = [found[""].split(">>>")[0].strip(), found.get("Notes", "").strip(), parameters(found.get("Parameters", ""))]
    return "\n\n".join(part for part in parts if part)


def parameters(section: str) -> str:
    """Return the parameters of a docstring as a list."""
    lines: list[str] = []
    for line in section.strip().splitlines():
        if not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            lines.append(f"- `{name}` ({kind}):" if kind else f"- `{name}`:")
        elif line.strip():
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)


def prose(thing: object) -> str:
    """Return the explanation of a docstring as Markdown."""
    return markdown(explanation(inspect.getdoc(thing) or ""))


def metric(name: str) -> str:
    """Describe one metric: facts, then its docstring."""
    record = metrics.info(name)
    low, high = record.bounds
    arrays = ", ".join(f"`{a}`" for a in record.arrays)
    facts = f"{record.better} is better, in [{low:g}, {high:g}]; takes {arrays}. {record.reference}."
    return f"### `{name}`\n\n{facts}\n\n{prose(record.function)}\n"


def step(name: str) -> str:
    """Describe one score or transform: its call with defaults, its docstring, then the facts."""
    record = info(name)
    settings = ", ".join(f"{k}={v!r}" for k, v in record.settings.items())
    facts = {
        "Needs": ", ".join(record.needs) or "what the chains inside need",
        "Fitted on": ", ".join(record.fit_needs) if record.learns else "nothing",
        "Also called": ", ".join(record.aliases),
        "Cost of a row": record.cost,
        "Judges": "the averaged prediction" if record.judges == "passes" else "",
        "Tuned over": "; ".join(f"{k} in {', '.join(map(repr, v))}" for k, v in record.grid.items()),
        "Behind `project`": "" if record.kind == "transform" else ", ".join(record.projections) or "never",
        "Reference": record.paper,
    }
    lines = "\n".join(f"- {title}: {text}" for title, text in facts.items() if text)
    return f"### `{name}({settings})`\n\n{prose(record.maker)}\n\n{lines}\n"


def metrics_page() -> str:
    """List every metric by task."""
    parts = [(HERE / "metrics_intro.md").read_text(encoding="utf-8").strip() + "\n"]
    for task, title in TASKS.items():
        parts.append(f"## {title}\n")
        parts += [metric(name) for name in metrics.names(task)]
    return "\n".join(parts)


def scores_page() -> str:
    """List every score and transform by what it reads."""
    parts = [(HERE / "scores_intro.md").read_text(encoding="utf-8").strip() + "\n"]
    for module, title in MODULES.items():
        parts.append(f"## {title}\n")
        parts += [step(name) for name in step_names() if info(name).maker.__module__ == module]
    return "\n".join(parts)


def benchmarks_page() -> str:
    """List every protocol, then every benchmark."""
    parts = [(HERE / "benchmarks_intro.md").read_text(encoding="utf-8").strip() + "\n", "## Protocols\n"]
    for one in PROTOCOLS.values():
        rule = f"Settings are tuned by {one.tuning.metric} on {' and '.join(one.tuning.sets)}."
        parts.append(f"### `{one.name}`\n\n{one.summary}\n\n{rule} {one.source}.\n")
    parts.append("## Catalogue\n")
    return "\n".join([*parts, *(benchmark(load(name)) for name in names())])


def benchmark(found: Benchmark) -> str:
    """Describe one benchmark: what it is, its data sets, and what differs from the published one."""
    lines = [
        f"### `{found.name}`\n",
        f"{found.title}. {found.source}.\n",
        "| set | role | rows | note |",
        "|---|---|---:|---|",
    ]
    for one in found.sets:
        lines.append(f"| {one.name} | {one.role} | {one.rows or '?'} | {one.note} |")
    lines += ["", f"{found.classes} classes; protocols {', '.join(found.protocols)}.", ""]
    lines += [f"- {text}" for text in DIFFERENCES.get(found.name, ())] + [""]
    return "\n".join(lines)


def recipes_page() -> str:
    """List every recipe as its composition, and every preset."""
    from twofold.nn.recipes import RECIPES
    from twofold.nn.training import PRESETS

    parts = [(HERE / "recipes_intro.md").read_text(encoding="utf-8").strip() + "\n", "## Recipes\n"]
    for name, one in RECIPES.items():
        composed = " | ".join(repr(part) for part in one.parts)
        parts.append(f"### `{name}`\n\n`{composed}`\n\nPasses per step: {one.passes}.\n")
    seen: dict[str, str] = {}
    for one in RECIPES.values():
        for part in one.parts:
            seen.setdefault(type(part).__name__, prose(type(part)))
    parts += ["## Parts\n", *(f"### `{name}`\n\n{text}\n" for name, text in sorted(seen.items()))]
    parts += ["## Presets\n", (HERE / "presets_intro.md").read_text(encoding="utf-8").strip() + "\n"]
    parts += ["| preset | network | settings | for one recipe | source |", "|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        changes = [f"{recipe}: {_variation(variation)}" for recipe, variation in preset.variations.items()]
        cells = [f"`{name}`", _meant_for(preset), _differences(preset.settings), "; ".join(changes), preset.source]
        parts.append(f"| {' | '.join(cells)} |")
    return "\n".join([*parts, ""])


def _meant_for(preset: Preset) -> str:
    """Say which network a preset is for, with its crop and dropout."""
    words = [preset.network]
    if preset.crop is not None:
        words.append(f"{preset.crop} px")
    if preset.dropout is not None:
        words.append(f"dropout {preset.dropout:g}")
    return ", ".join(words)


def _differences(settings: Settings) -> str:
    """List the settings that differ from their defaults."""
    shown = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value != field.default:
            shown.append(_pair(field.name, value))
    return ", ".join(shown) or "the defaults"


def _variation(variation: Variation) -> str:
    """List what a preset changes for a recipe, the settings of its parts in brackets."""
    shown = [_pair(name, value) for name, value in variation.settings.items()]
    shown += [f"({_pair(name, value)})" for name, value in variation.parts.items()]
    return " ".join(shown)


def _pair(name: str, value: object) -> str:
    """Write a setting with its value; shares such as 1/3 with four digits."""
    if isinstance(value, float):
        return f"{name} {value:.4g}"
    if isinstance(value, tuple) and all(isinstance(one, float) for one in value):
        value = tuple(round(one, 4) for one in value)
    return f"{name} {value}"


def data_page() -> str:
    """List every kind of data set with its options."""
    from twofold.nn.data import READERS

    parts = [(HERE / "data_intro.md").read_text(encoding="utf-8").strip() + "\n", "## Kinds\n"]
    for kind in sorted(READERS):
        parts.append(f"### `{kind}:PATH`\n\n{prose(READERS[kind].read)}\n")
        options = inspect.signature(READERS[kind].read, eval_str=True).parameters.values()
        own = [option for option in options if option.kind is option.KEYWORD_ONLY]
        if own:
            rows = [f"| `{option.name}` | {_values(option)} | {_default(option)} |" for option in own]
            parts.append("\n".join(["| key | value | by default |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _values(option: inspect.Parameter) -> str:
    """Say what an option may be."""
    kinds = [kind for kind in (typing.get_args(option.annotation) or (option.annotation,)) if kind is not type(None)]
    if typing.get_origin(kinds[0]) is typing.Literal:
        kinds = list(typing.get_args(kinds[0]))
    words = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return ", ".join(f"`{kind}`" if isinstance(kind, str) else words[kind] for kind in kinds)


def _default(option: inspect.Parameter) -> str:
    """Say what an option is when it is not given."""
    if option.default is option.empty:
        return "must be given"
    return "none" if option.default is None else f"`{option.default}`"


def commands_page() -> str:
    """Show the help of every command."""
    import click

    from twofold.cli import main

    def shown(command: click.Command, words: tuple[str, ...]) -> list[str]:
        options = {"info_name": " ".join(words), "max_content_width": 100, "terminal_width": 100}
        vars(command)["_help_option"] = None  # click keeps that of the first call, which may have had other names
        context = click.Context(command, help_option_names=["-h", "--help"], **options)
        text = [f"## `{' '.join(words)}`\n", f"```text\n{command.get_help(context)}\n```\n"]
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                text += shown(command.commands[name], (*words, name))
        return text

    start = "# Commands\n\nThe help of every command, as `twofold COMMAND --help` prints it.\n"
    return "\n".join([start, *shown(main, ("twofold",))])


def papers_page() -> str:
    """Every table and figure of the papers: command and state."""
    from twofold import papers
    from twofold.papers.plan import RUNNABLE, STATES

    parts = [(HERE / "papers_intro.md").read_text(encoding="utf-8").strip() + "\n"]
    for name in papers.names():
        paper = papers.load(name)
        parts.append(f"## `{paper.name}`\n\n{paper.title}. {paper.source}.\n")
        lines = ["| item | what it shows | command | state |", "|---|---|---|---|"]
        for plan in paper.plans.values():
            command = f"`twofold papers run {plan.id} --out DIR`" if plan.state in RUNNABLE else ""
            state = STATES[plan.state]
            if plan.reason:
                state += f": {plan.reason}"
            lines.append(f"| {plan.item} | {plan.title} | {command} | {state} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


PAGES = {"metrics.md": metrics_page, "scores.md": scores_page, "benchmarks.md": benchmarks_page}
PAGES |= {"recipes.md": recipes_page, "commands.md": commands_page, "data.md": data_page}
PAGES |= {"papers.md": papers_page}

NEEDS_TORCH = ("recipes.md", "data.md")


def main() -> None:
    """Write every page; those that describe networks are left as they are where torch is not installed."""
    has_torch = importlib.util.find_spec("torch") is not None
    for file, page in PAGES.items():
        if file in NEEDS_TORCH and not has_torch:
            sys.stderr.write(f"{file} is left as it is: it needs torch\n")
        else:
            (HERE / file).write_text(page() + NOTE, encoding="utf-8")


if __name__ == "__main__":
    main()
