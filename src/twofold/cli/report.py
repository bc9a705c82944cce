"""``twofold report``: one page on how far a classifier can be trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from twofold.cli.options import PLUGIN, SCORE, SCORE_OR_NONE
from twofold.cli.shared import JSON, REPLACE, check_target, progress

SUFFIXES = {"html": ".html", "md": ".md", "latex": ".tex", "json": ".json"}


@click.command("report")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write.  [default: report.*]"
)
@click.option(
    "--id",
    "id_score",
    type=SCORE,
    help="Score of correct against wrong labels; by default the best pair on validation data.",
)
@click.option("--ood", "ood_score", type=SCORE_OR_NONE, help="Score of known against unknown inputs, or none.")
@click.option(
    "--score", "scores", multiple=True, type=SCORE, help="Score to compare, instead of the usual ones; may be repeated."
)
@click.option(
    "--images",
    multiple=True,
    help="NAME=DATA of a data set, as test=sheet:test.webp, found by the ids of its rows; or an npz of arrays by row.",
)
@click.option(
    "--ood-classes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="npz with the class of each unknown input, by data set.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*SUFFIXES]),
    help="Of the file; by default by its suffix, and html without one.",
)
@click.option(
    "--resamples",
    type=click.IntRange(min=10),
    default=200,
    show_default=True,
    help="Bootstrap resamples per interval, at most.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@REPLACE
@PLUGIN
@JSON
def report_command(
    source: Path,
    out: Path | None,
    id_score: str | None,
    ood_score: str | None,
    scores: tuple[str, ...],
    images: tuple[str, ...],
    ood_classes: Path | None,
    form: str | None,
    resamples: int,
    seed: int,
    replace: bool,
    as_json: bool,
) -> None:
    """Write one page that tells how far a classifier can be trusted.

    SOURCE is a run, an npz file (logits or probs and labels, -1 for unknown inputs; or correct and conf, optionally
    with is_id and conf_ood), a folder of benchmark results, or the folder of a study. The page opens from
    disk, needs no network, and has an explorer of thresholds. The other formats hold its sentences and tables. A file
    that is there already stays, unless --replace is given. Without --id and --ood, the pair of scores is the one with
    the best DS-F1 on the run's validation data, of all pairs of the scores that are compared; the page says how many
    were tried.

    \b
      twofold report twofold-demo -o report.html --replace
      twofold report outputs.npz --id msp --ood energy --format md -o report.md
    """
    from twofold.outputs import load_npz
    from twofold.report import commands
    from twofold.report.page import report

    kind: Any = form or _format_of(out)
    target = Path("report" + SUFFIXES[kind]) if out is None else out
    check_target(target, replace=replace)
    command = commands.report_command(
        source,
        id=id_score,
        ood=ood_score,
        scores=scores,
        images=images,
        ood_classes=ood_classes,
        resamples=resamples,
        seed=seed,
        format=kind,
    )
    with progress() as bar:
        task = bar.add_task("reading", total=None)
        report(
            _study(source) or source,
            target,
            id=id_score,
            ood=ood_score,
            scores=scores or None,
            images=_images(images) or None,
            ood_classes=None if ood_classes is None else load_npz(ood_classes),
            format=kind,
            resamples=resamples,
            seed=seed,
            command=command,
            done=lambda what: bar.update(task, advance=1, description=what),
        )
    size = target.stat().st_size
    if as_json:
        click.echo(json.dumps({"report": str(target), "format": kind, "bytes": size}, indent=2))
    else:
        click.echo(f"{target}  {size / 1e6:.1f} MB")


def _format_of(out: Path | None) -> str:
    """The format that the suffix of a file names; html without a suffix or a file."""
    if out is None or not out.suffix:
        return "html"
    for form, suffix in SUFFIXES.items():
        if out.suffix.lower() == suffix:
            return form
    known = ", ".join(SUFFIXES.values())
    raise click.UsageError(f"a report is written to a file that ends in {known}, got {out}; or give --format")


def _study(source: Path) -> Any:
    """The page of a study, where the folder is that of one."""
    if not source.is_dir():
        return None
    from twofold.study import document, opened
    from twofold.study.folder import STATE

    return document(opened(source), source) if (source / STATE).is_file() else None


def _images(words: tuple[str, ...]) -> dict[str, Any]:
    """Images by data set: opened where they are, or arrays of an npz file."""
    from twofold.outputs import load_npz

    found: dict[str, Any] = {}
    for word in words:
        name, equals, spec = word.partition("=")
        if equals and not Path(word).is_file():
            from twofold.nn import data

            found[name] = data.open(spec)
        elif Path(word).is_file():
            found |= load_npz(Path(word))
        else:
            raise click.UsageError(f"--images must be NAME=DATA or an npz file, got {word!r}")
    return found
