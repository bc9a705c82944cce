"""``twofold data``: look at data sets and resize them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from twofold.cli.needed_files import check_needed_files
from twofold.cli.options import BENCHMARK, ON_BAD, ROOT
from twofold.cli.shared import JSON, REPLACE, Verbs, check_target


@click.group("data", cls=Verbs)
def data_group() -> None:
    """Check and resize data sets.

    Every subcommand takes --json.

    \b
      twofold data check cifar10:cifar-10-batches-bin?split=test
    """


@data_group.command("check")
@click.argument("spec", required=False)
@click.option("--benchmark", type=BENCHMARK, help="Verify the files of a benchmark instead of a data set.")
@ROOT
@click.option("--against", help="ID data set to compare with.")
@click.option("--sheet", type=click.Path(dir_okay=False, path_type=Path), help="Write a contact sheet PNG here.")
@ON_BAD
@REPLACE
@JSON
def data_check_command(
    spec: str | None,
    benchmark: str | None,
    root: Path | None,
    against: str | None,
    sheet: Path | None,
    on_bad: Literal["stop", "skip"],
    replace: bool,
    as_json: bool,
) -> None:
    """Print counts, shapes and classes of a data set, and how smooth its images are, or verify a benchmark's files.

    SPEC is kind:PATH?key=value, such as folder:photos?size=32 or text:queries.jsonl.gz. A total variation well above
    that of the ID set given with --against means that images were resized without antialiasing. Of texts, the command
    prints classes, lengths and how many are repeated.

    With --benchmark in place of SPEC, every file of the benchmark's data sets is verified: whether it is there, how
    many images it holds, and its MD5 sum where one is published. Each problem is one line, and the exit code is then 1.

    \b
      twofold data check folder:images?size=32 --against cifar10:cifar-10-batches-bin --sheet images.png
      twofold data check --benchmark cifar10-real
    """
    from twofold.nn import data

    if (spec is None) == (benchmark is None):
        raise click.UsageError("name a data set (SPEC) or a benchmark (--benchmark), one of the two")
    if benchmark is not None:
        if against is not None or sheet is not None or on_bad != "stop":
            raise click.UsageError("--against, --sheet and --on-bad are for a data set, not for --benchmark")
        check_needed_files(benchmark, root, as_json=as_json)
        return
    assert spec is not None  # checked above
    if root is not None:
        raise click.UsageError("--root is for --benchmark; SPEC names its own folder")
    if data.holds_texts(spec):
        if against is not None or sheet is not None:
            raise click.UsageError("--against and --sheet are for images, and this data set holds texts")
        found = data.check_texts(data.open_texts(spec))
        click.echo(json.dumps(found.as_dict(), indent=2) if as_json else str(found))
        return
    if sheet is not None:
        check_target(sheet, replace=replace)
    images = data.open_unread(spec) if on_bad == "skip" else data.open(spec)
    known = None if against is None else data.open(against)
    report = data.check(images, known, on_bad=on_bad)
    if sheet is not None:
        data.contact_sheet(images, sheet)
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))


@data_group.command("resize")
@click.argument("spec")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="npz file to write.")
@click.option("--size", type=click.IntRange(min=1), default=32, show_default=True, help="Side of the new images.")
@click.option(
    "--rule",
    type=click.Choice(["fix", "shorter"]),
    default="fix",
    show_default=True,
    help="fix: by way of 256 x 256, as the FIX sets; shorter: shorter side, centre crop.",
)
@REPLACE
@JSON
def data_resize_command(
    spec: str, out: Path, size: int, rule: Literal["fix", "shorter"], replace: bool, as_json: bool
) -> None:
    """Resize a data set with antialiasing and write it to an npz file.

    SPEC is kind:PATH?key=value. Read the result as npz:FILE.

    \b
      twofold data resize folder:lsun --out lsun.npz
    """
    from twofold.nn import data

    check_target(out, replace=replace)
    images = data.open(spec)
    data.resize(images, out, size=size, rule=rule)
    if as_json:
        click.echo(json.dumps({"file": str(out), "images": len(images)}))
    else:
        click.echo(f"{out}  {len(images)} images")
