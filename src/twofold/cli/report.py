"""``twofold report``: one page on how far a classifier can be trusted."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy.typing as npt

from twofold.cli.logs import BY, CORRECT, IS_ID, WHERE
from twofold.cli.options import FILE, PLUGIN, SCORE, SCORE_OR_NONE
from twofold.cli.shared import JSON, REPLACE, check_target, progress

if TYPE_CHECKING:
    from twofold.nn.data import Images
    from twofold.report.document import Document
    from twofold.report.options import Format

FORMATS = ("html", "md", "latex", "json")


class SourcePath(click.Path):
    """An existing path, or a pattern of files."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; the report says which pattern matches nothing."""
        if not os.path.lexists(value) and glob.has_magic(str(value)):
            return Path(value)
        return super().convert(value, param, ctx)


@click.command("report")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=SourcePath(exists=True, path_type=Path))
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
    help="NAME=DATA of a data set, such as test=sheet:test.webp, found by row ids; or an npz of arrays by row.",
)
@click.option("--ood-classes", type=FILE, help="npz with the class of each unknown input, by data set.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the file; by default that of its suffix, or html.",
)
@click.option(
    "--resamples",
    type=click.IntRange(min=10),
    default=200,
    show_default=True,
    help="Bootstrap resamples per interval, at most.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@CORRECT
@click.option("--conf", help="Confidence of logged predictions.  [default: conf, or conf_id]")
@click.option("--conf-ood", help="A second confidence of logged predictions: adds DS-F1 and DS-AURC.")
@IS_ID
@BY
@WHERE
@REPLACE
@PLUGIN
@JSON
def report_command(
    sources: tuple[Path, ...],
    out: Path | None,
    id_score: str | None,
    ood_score: str | None,
    scores: tuple[str, ...],
    images: tuple[str, ...],
    ood_classes: Path | None,
    form: Format | None,
    resamples: int,
    seed: int,
    replace: bool,
    as_json: bool,
    **columns: str | None,
) -> None:
    """Write one page that says how far a classifier can be trusted.

    SOURCE is a run, an npz file (logits or probs and labels, -1 for unknown inputs; or correct and conf, optionally
    with is_id and conf_ood), a folder of benchmark results, or the folder of a study. The page opens from disk, loads
    nothing from the network, and has a threshold explorer. The other formats hold its sentences and tables. An existing
    file is overwritten only with --replace.

    Several runs or npz files are compared on one page: metrics side by side, with paired differences from the first
    where they saw the same inputs.

    Logged predictions (Parquet, CSV or JSON lines, or a quoted pattern; see `twofold logs`) make a page from counts
    alone, which stays small however many rows there are. --correct, --conf, --conf-ood, --is-id, --by and --where name
    columns or expressions of such a table.

    Without --id and --ood, the page shows the pair of scores with the best DS-F1 on the run's validation data, of all
    pairs of the scores that are compared; it says how many were tried.

    \b
      twofold report twofold-demo -o report.html --replace
      twofold report run-a run-b -o comparison.html
      twofold report outputs.npz --id msp --ood energy --format md -o report.md
      twofold report 'predictions/*.parquet' --conf conf_id --by model -o log.html
    """
    from twofold.outputs import load_npz
    from twofold.report import commands, report
    from twofold.report.options import SUFFIXES

    kind = form or _format_of(out)
    target = Path("report" + SUFFIXES[kind]) if out is None else out
    check_target(target, replace=replace)
    named = {name: text for name, text in columns.items() if text is not None}
    command = commands.report_command(
        sources,
        id=id_score,
        ood=ood_score,
        scores=scores,
        images=images,
        ood_classes=ood_classes,
        resamples=resamples,
        seed=seed,
        columns=named,
        format=kind,
    )
    with progress() as bar:
        task = bar.add_task("reading", total=None)
        report(
            [_read_study(source) or source for source in sources],
            target,
            id=id_score,
            ood=ood_score,
            scores=scores or None,
            images=_read_images(images) or None,
            ood_classes=None if ood_classes is None else load_npz(ood_classes),
            format=kind,
            resamples=resamples,
            seed=seed,
            columns=named or None,
            command=command,
            done=lambda what: bar.update(task, advance=1, description=what),
        )
    size = target.stat().st_size
    if as_json:
        click.echo(json.dumps({"report": str(target), "format": kind, "bytes": size}, indent=2))
    else:
        click.echo(f"{target}  {size / 1e6:.1f} MB")


def _format_of(out: Path | None) -> Format:
    """Return the format that the suffix of a file names; html without a suffix or a file."""
    from twofold.report.options import SUFFIXES

    if out is None or not out.suffix:
        return "html"
    for form, suffix in SUFFIXES.items():
        if out.suffix.lower() == suffix:
            return form
    known = ", ".join(SUFFIXES.values())
    raise click.UsageError(f"a report is written to a file that ends in {known}, got {out}; or give --format")


def _read_study(source: Path) -> Document | None:
    """Read the page of a study, or None if the folder is not one of a study."""
    if not source.is_dir():
        return None
    from twofold.study import document, opened
    from twofold.study.folder import STATE

    if not (source / STATE).is_file():
        return None
    return document(opened(source), source)


def _read_images(words: tuple[str, ...]) -> dict[str, npt.ArrayLike | Images]:
    """Read images by data set: NAME=DATA is opened where it is, an npz file has an array for each."""
    from twofold.outputs import load_npz

    found: dict[str, npt.ArrayLike | Images] = {}
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
