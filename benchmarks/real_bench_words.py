"""The sentences on calibration and cliques of a saved page, for benchmarks/real_bench.py --words."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from real_bench_calibration import CONSTANT, calibration_words
from real_bench_cliques import ALPHA, CLAIM, METRIC, PROTOCOL, clique_list, clique_words
from twofold.bench.blocks import Dropped
from twofold.bench.clique_maps import CliqueMap
from twofold.bench.compare import check_blocks
from twofold.errors import TooFewBlocks

CALIBRATION = r"(?P<table>\| score \| test \| corruption/1 [^\n]*\n\|---[^\n]*\n(?:\|[^\n]*\n)+)\nAfter[^\n]*\n"
CLIQUES = r"the paper's procedure with one metric\):\n\n(?P<list>- .*?)\n+!"
GROUP = r"- (?P<name>.+?) \((?P<blocks>\d+) blocks\): \d+ of (?P<judged>\d+)(?:: (?P<top>.+))?.*"
LEFT_OUT = r"- left out: (?P<kind>\w+) (?P<name>.+?): (?P<reason>.+)"


def rewrite_words(page: str) -> tuple[str, CliqueMap]:
    """Rewrite the sentences on calibration and cliques of a saved page from its own tables and lists."""
    page = re.sub(CALIBRATION, rewrite_calibration, page)
    listed = re.search(CLIQUES, page, re.DOTALL)
    table = read_cliques(listed["list"])
    before = page[: listed.start("list")]
    after = page[listed.end() :]
    page = f"{before}{clique_list(table)}\n\n!{after}"
    words = clique_words(table)
    return re.sub(rf"\n{CLAIM}[^\n]*\n", lambda _: f"\n{words}\n", page), table


def rewrite_calibration(found: re.Match[str]) -> str:
    """Write a table of calibration errors and the sentences on it; several rows share the errors of a constant."""
    head, rule, *rows = found["table"].strip().splitlines()
    lines = [row.strip("| ").split(" | ") for row in rows]
    if all(line[0] != CONSTANT for line in lines):
        shared, count = Counter(tuple(line[1:]) for line in lines).most_common(1)[0]
        if count < 2:
            raise SystemExit("no two scores have the errors of a constant; run the benchmark again")
        lines.insert(len(lines) - 1, [CONSTANT, *shared])
    written = [head, rule]
    unescaped = []
    for name, *errors in lines:
        written.append("| " + " | ".join([name, *errors]) + " |")
        unescaped.append([name.replace("\\", ""), *errors])
    return "\n".join(written) + f"\n\n{calibration_words(unescaped)}\n"


def read_cliques(text: str) -> CliqueMap:
    """Read the map of cliques from its list in a saved page, without groups that are too small."""
    top_of: dict[str, list[str]] = {}
    blocks_of: dict[str, int] = {}
    every_top = []
    left_out = []
    too_small = []
    for line in text.strip().splitlines():
        group = re.fullmatch(GROUP, line)
        if group is None:
            left_out.append(Dropped(**re.fullmatch(LEFT_OUT, line).groupdict()))
            continue
        name = group["name"]
        top = group["top"].split(", ")
        every_top.append(top)
        try:
            check_blocks(int(group["blocks"]), int(group["judged"]), "rank_z", ALPHA)
        except TooFewBlocks as error:
            too_small.append(Dropped("group", name, str(error)))
            continue
        top_of[name] = top
        blocks_of[name] = int(group["blocks"])
    rows = order_of_map(every_top)
    member = np.array([np.isin(rows, top) for top in top_of.values()]).T
    return CliqueMap(
        metric=METRIC,
        protocol=PROTOCOL,
        test="rank_z",
        alpha=ALPHA,
        rows=rows,
        columns=tuple(top_of),
        member=member,
        judged=np.ones_like(member),
        blocks=tuple(blocks_of.values()),
        omnibus=(True,) * len(top_of),
        dropped=(*left_out, *too_small),
    )


def order_of_map(tops: list[list[str]]) -> tuple[str, ...]:
    """List the scores in the order of the map, which every top clique has; the largest ones know most of it."""
    rows: dict[str, None] = {}
    for top in sorted(tops, key=len, reverse=True):
        rows.update(dict.fromkeys(top))
    return tuple(rows)
