"""Top cliques of scores over real classifiers, for benchmarks/real_bench.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.plot import CliqueDisplay, RankDisplay

PROTOCOL = "fd_shifts"
METRIC = "augrc"
ALPHA = 0.05
CLAIM = "The stratified-OOD paper's claim that the best scores differ between sources and distances"


def cliques(every: Results, folder: Path) -> str:
    """Write the section on top cliques, and draw them."""
    singles = Results.of([row for row in every.rows if row["pair"] is None])
    table = clique_map(singles, METRIC, protocol=PROTOCOL, test="rank_z", by=("benchmark", "role"))
    CliqueDisplay.from_map(table).save(folder / "real_bench_cliques.png")
    by_sets = compare(singles, METRIC, protocol=PROTOCOL, test="conover_t")
    RankDisplay.from_comparison(by_sets).save(folder / "real_bench_ranks.png")
    by_networks = compare(singles, METRIC, protocol=PROTOCOL, blocks=("benchmark", "model", "recipe", "seed", "run"))
    rejects = "does not reject"
    if by_networks.omnibus:
        rejects = "rejects"
    return "\n\n".join(
        [
            "## Top cliques (stratified-OOD paper)",
            "These scores are statistically tied with the best by AUGRC, over all networks, by source and distance (rank-z test "
            "with Holm's correction, the paper's procedure with one metric):",
            clique_list(table),
            "![Top cliques](real_bench_cliques.png)",
            "![Average ranks over all sets and networks](real_bench_ranks.png)",
            f"Over all {len(by_sets.blocks)} sets and networks the top clique has {len(by_sets.top)} of "
            f"{len(by_sets.methods)} scores, led by {by_sets.methods[0]}. These blocks share networks and test sets, but "
            f"rank tests assume independent blocks. With one block for each of the {by_networks.models} networks, Friedman's test "
            f"{rejects}, and the top clique has {len(by_networks.top)} scores.",
            clique_words(table),
            "\n".join(f"- {warning}" for warning in by_sets.warnings),
        ]
    )


def clique_list(table: CliqueMap) -> str:
    """List the top clique of each group, and the groups that are left out, one line each."""
    rows = np.array(table.rows)
    lines = []
    for j, name in enumerate(table.columns):
        top = rows[table.member[:, j]]
        line = f"- {name} ({table.blocks[j]} blocks): {len(top)} of {int(table.judged[:, j].sum())}"
        if table.omnibus[j]:
            line += f": {', '.join(top)}"
        else:
            line += "; Friedman's test does not reject"
        lines.append(line)
    for dropped in table.dropped_groups:
        lines.append(f"- left out: {dropped}")
    return "\n".join(lines)


def clique_words(table: CliqueMap) -> str:
    """Say what the map means for the claim that the best scores differ between sources and distances."""
    decided = np.flatnonzero(table.omnibus)
    if len(decided) < 2:
        return f"{CLAIM} is inconclusive at this scale: Friedman's test rejects in fewer than two groups."
    leads_everywhere = table.member[:, decided].all(axis=1)
    everywhere = np.array(table.rows)[leads_everywhere]
    if len(everywhere):
        return (
            f"{CLAIM} is inconclusive at this scale: {len(everywhere)} of {len(table.rows)} scores are in the top clique of each of "
            f"the {len(decided)} groups ({', '.join(everywhere)}), so they may be the best everywhere."
        )
    return f"{CLAIM} holds: no score is in the top clique of each of the {len(decided)} groups."
