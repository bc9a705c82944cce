"""``twofold data``: look at data sets and resize them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from twofold.cli.options import ON_BAD
from twofold.cli.shared import JSON, REPLACE, Verbs, check_target


@click.group("data", cls=Verbs)
def data_group() -> None:
    """Check and resize data sets.

    Every subcommand takes --json.

    \b
      twofold data check cifar10:cifar-10-batches-bin?split=test
    """


@data_group.command("check")
@click.argument("spec")
@click.option("--against", help="ID data set to compare with.")
@click.option("--sheet", type=click.Path(dir_okay=False, path_type=Path), help="Write a contact sheet PNG here.")
@ON_BAD
@REPLACE
@JSON
def data_check_command(
    spec: str, against: str | None, sheet: Path | None, on_bad: Literal["stop", "skip"], replace: bool, as_json: bool
) -> None:
    """Print counts, shapes and classes of a data set, and how smooth its images are.

    SPEC is kind:PATH?key=value, such as folder:photos?size=32 or text:queries.jsonl.gz. A total variation well above
    that of the ID set given with --against means that images were resized without antialiasing. Of texts, the command
    prints classes, lengths and how many are repeated.

    \b
      twofold data check folder:images?size=32 --against cifar10:cifar-10-batches-bin --sheet images.png
    """
    from twofold.nn import data

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
