"""``twofold verify``: check that a run is undamaged."""

from __future__ import annotations

import json
from pathlib import Path

import click

from twofold.cli.shared import JSON


@click.command("verify")
@click.argument("run", type=click.Path(path_type=Path))
@JSON
def verify_command(run: Path, as_json: bool) -> None:
    """Read every byte of a run and check it against the digests written with it.

    RUN is the folder of a run. Its data sets are listed; damage is an error that names the files, with exit code 1.

    \b
      twofold verify twofold-demo
    """
    from twofold.run import Run

    opened = Run(run)  # verify() lists all that is damaged, and open would raise at the first
    opened.verify()
    if as_json:
        click.echo(json.dumps({"run": str(run), "intact": True, "data": opened.roles}, indent=2))
        return
    for name, role in opened.roles.items():
        click.echo(f"{name}  ({role})  {len(opened[name])} rows")
    click.echo(f"{run} is intact.", err=True)
