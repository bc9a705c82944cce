"""``twofold compare``: ranks, tests and cliques over results."""

from __future__ import annotations

import json
from pathlib import Path

import click

from twofold.cli.options import METRIC, PROTOCOL
from twofold.cli.shared import JSON, REPLACE, check_target


@click.command("compare")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--metric", required=True, type=METRIC, help="Such as aurc, ds_f1 or auroc_ood.")
@click.option("--protocol", type=PROTOCOL, help="Protocol of the rows; needed if several have the metric.")
@click.option(
    "--test",
    type=click.Choice(["conover_t", "rank_z", "wilcoxon"]),
    default="conover_t",
    show_default=True,
    help="Post-hoc test of pairs, with Holm's correction.",
)
@click.option("--alpha", default=0.05, show_default=True, help="Level of the test.")
@click.option(
    "--block",
    "blocks",
    multiple=True,
    help="Column that distinguishes blocks, such as run; other columns are averaged over. May be repeated.",
)
@click.option("--figure", type=click.Path(path_type=Path), help="Write a critical-difference diagram here.")
@click.option("--map", "clique_map", type=click.Path(path_type=Path), help="Write the map of leading cliques here.")
@click.option(
    "--map-metric",
    "further",
    multiple=True,
    type=METRIC,
    help="Metric that the map counts as further blocks, as the stratified study does with augrc. May be repeated.",
)
@REPLACE
@JSON
def compare_command(
    results: Path,
    metric: str,
    protocol: str | None,
    test: str,
    alpha: float,
    blocks: tuple[str, ...],
    figure: Path | None,
    clique_map: Path | None,
    further: tuple[str, ...],
    replace: bool,
    as_json: bool,
) -> None:
    """Rank scores over data sets and models, with tests, cliques and differences.

    RESULTS is a folder that `bench run` wrote. A block is one data set under one model. Two methods need at least 6
    blocks, three need 4 and more need 3 (wilcoxon needs more): with fewer, no outcome is significant at 0.05, and the
    command ends with exit code 1. Groups of the map with too few blocks are left out and named.

    \b
      twofold compare results --metric augrc --protocol fd_shifts --figure ranks.svg
    """
    from twofold.bench import clique_maps
    from twofold.bench.compare import compare
    from twofold.bench.results import Results
    from twofold.plot import CliqueDisplay, RankDisplay

    for target in (figure, clique_map):
        if target is not None:
            check_target(target, replace=replace)
    opened = Results.open(results)
    found = compare(opened, metric=metric, protocol=protocol, test=test, alpha=alpha, blocks=blocks or None)
    cliques = None
    if clique_map is not None:
        cliques = clique_maps.clique_map(opened, (metric, *further), protocol=protocol, test=test, alpha=alpha)
    if figure is not None:
        RankDisplay.from_comparison(found).save(figure)
    if cliques is not None and clique_map is not None:
        CliqueDisplay.from_map(cliques).save(clique_map)
    if as_json:
        report = found.to_dict()
        if cliques is not None:
            report["map"] = cliques.to_dict()
        click.echo(json.dumps(report, indent=2))
        return
    click.echo(str(found))
    if cliques is not None:
        for group in cliques.dropped_groups:
            click.echo(f"left out of the map: {group}")
