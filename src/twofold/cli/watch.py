"""``twofold watch``: a page on a gate in deployment, served on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from twofold.cli.shared import JSON, REPLACE, check_target


@click.command("watch")
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--gate", "gate_path", type=click.Path(exists=True, path_type=Path), help="Gate that makes the decisions."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port of the page; 0 takes a free one."
)
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page as one file instead of serving it.",
)
@REPLACE
@JSON
def watch_command(
    folder: Path, gate_path: Path | None, port: int, export: Path | None, replace: bool, as_json: bool
) -> None:
    """Show rates of verdicts, the alarm statistic and recent decisions as they come.

    FOLDER holds saved monitors (Monitor.save) and logs of decisions that may grow: CSV files with a header, such as
    those of `gate apply`, or files that end in .jsonl with an object on each line. Parquet files are read whole, and
    again where they are replaced. All logs have a column verdict. A single file works too. With --gate, logs are
    compared with the rates that the gate's validation promised.

    The page is served to this machine alone until you press Ctrl+C. With --json, print what is there now instead.

    \b
      twofold watch decisions --gate gate
      twofold watch decisions --export page.html
    """
    from twofold.gate import Gate
    from twofold.report.live_page import LiveServer, describe_streams, export_live_page
    from twofold.report.watched import WatchedFolder

    gate = None if gate_path is None else Gate.load(gate_path)
    watched = WatchedFolder(folder, gate=gate)
    if export is not None:
        check_target(export, replace=replace)
        export_live_page(watched, export)
    if as_json:
        click.echo(json.dumps(describe_streams(*watched.look()), indent=2))
        return
    if export is not None:
        click.echo(f"{export}  {export.stat().st_size / 1e6:.1f} MB")
        return
    with LiveServer(watched, port=port) as server:
        click.echo(server.url)
        click.echo("Press Ctrl+C to stop.", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
