"""Test the claims of the stratified study on five real classifiers: strata, projections, families of scores, cliques.

    TWOFOLD_DATA=... python benchmarks/stratified.py [--work FOLDER] [--save]    (10 minutes on 2 cores, resumable)
    python benchmarks/stratified.py --page                                       (20 seconds, from the committed cells)

The runs are those of benchmarks/real_runs.py, extracted where they are missing; confidences are kept in the folder of
--work (by default real-bench). With --save the cells go to results/stratified.csv, and from them, as with --page, the
page and the figure to results/ and the claims to results/claims/stratified.csv. Groups are those of results/strata.csv.

Material: ResNet-20 and -56 on CIFAR-10, ResNet-32, -20 and -8 on CIFAR-100, seven or eight unknown sets each, near, mid or
far by the features of an ImageNet network. Scores are the 20 rows of Table 3 in their printed forms, with each
projection the table has; a plain score has the form of its projected ones, so that they differ by the projection alone.
As in the study, one temperature is fitted on validation images and stands before every score that reads logits,
projected or not; open settings (the share of variance among them) are chosen by AUGRC on 1,000 validation images; correct
predictions stand against one unknown set, and on ID against wrong ones.

Unit: points of AUROC. The study has AUGRC, which within one block is (1 - AUROC) a e + e^2 / 2, with share a of correct
predictions and e of failures: the same order and the same sign, without the size of the set in it. Cells have both.

Rules, written before the numbers. A gain is a mean over the sets of a network, then over the five networks; its interval is
Student's over the five (four degrees of freedom). It speaks for networks of this kind on these sets, not for other sets.
The verdict follows from the interval: above zero holds, below zero does not hold, else inconclusive.

1. Strata order difficulty: mean AUROC of the unprojected scores, mid less near, and far less mid.
2. Projections: AUROC of the projected less that of the plain score, over unknown sets. For each of the four projections the
   mean over all scores that have it. "Several detectors improve": of the gains of all pairs of score and projection, each
   with a Bonferroni interval over all pairs, the third best score decides, each score taken with its best projection.
   NNGuide with the global projection is named by the study and has its own line.
3. Families, by the scores that the study names: MSR and GEN on ID; Energy, MLS and MSR on near sets; NNGuide, fDBD and CTM on
   mid and on far sets. Each against the named scores of the other side. That the lead passes from the softmax to geometry:
   the lead of geometry on far sets less that on ID.
4. Dropout: these networks have none, so several passes are not testable here; benchmarks/text_claims.py has a network that does.
5. Cliques by source and distance, as printed (AURC and AUGRC as separate blocks, normal test) and ours (AUGRC, Conover's test).
   That two metrics as blocks make cliques smaller: their size in ours less that in print, interval over the groups of source
   and distance. That no score leads everywhere: the least, over scores, of the largest distance to the best score at any of
   the four distances, less a margin of one point.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from script import announce, data_folder, work_folder

import numpy as np

from claims import Claim, judge, untestable, write_claims
from intervals import Gain, Placements, delong, place, show_gain, student
from strata import IMAGENET, OTHERS, natural_sets, read_distances
from tables import markdown
from timing import RESULTS
from twofold import metrics
from twofold.bench.catalogue import load
from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.pools import TABLE_3
from twofold.bench.results import Results
from twofold.papers.material import Material
from twofold.papers.stratified_figures import draw_top_cliques
from twofold.stats import holm

WORK = "real-bench"
COMMAND = "python benchmarks/stratified.py --save"
PAGE_COMMAND = "python benchmarks/stratified.py --page"
CELLS = RESULTS / "stratified.csv"
PLAIN = "none"
PROJECTED = ("global", "class", "class_pred", "class_avg")
ID_SET = "test"
GROUPS = ("id", "near", "mid", "far")
SOFTMAX_ID = ("MSR", "GEN")
SOFTMAX_NEAR = ("Energy", "MLS", "MSR")
SOFTMAX = ("MSR", "GEN", "Energy", "MLS")
GEOMETRY = ("NNGuide", "fDBD", "CTM")
MARGIN = 0.01  # of AUROC, within which a score counts as good as the best
SEVERAL = 3  # detectors
FDBD = "fdbd(center=True, absolute=True)"  # of its projected cells, so that they differ by the projection alone
SCALE = "5 CIFAR ResNets (2 of CIFAR-10, 3 of CIFAR-100), 9,000 test images, 7 or 8 unknown sets"


@dataclass(frozen=True)
class Cell:
    """Hold one score on one set of one network; the gain is that over its unprojected form.

    Parameters
    ----------
    network, set : str
        The block; the set ``test`` is ID.
    score : str
        Row of Table 3.
    projection : str
        Column of Table 3.
    auroc, augrc, aurc : float
        Values of the block.
    gain, low, high, p : float or None
        Gain in AUROC with its 95 % interval over images; None for what it is compared with.
    """

    network: str
    set: str
    score: str
    projection: str
    auroc: float
    augrc: float
    aurc: float
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def benchmark(self) -> str:
        """The benchmark of the network."""
        return self.network.partition("-")[0] + "-real"


def main() -> None:
    if "--page" not in sys.argv:
        cells = compute(work_folder(WORK))
        if "--save" not in sys.argv:
            print(f"{len(cells):,} cells; --save writes them to {CELLS}")
            return
        write_cells(cells, CELLS)
    study = Study(read_cells(CELLS), group_sets(IMAGENET))
    found = decide_claims(study)
    write_claims("stratified", found)
    (RESULTS / "stratified.md").write_text(write_page(study, found), encoding="utf-8")
    draw_top_cliques(Material(rows=study.result_rows())).figure.savefig(RESULTS / "stratified_cliques.png", dpi=120)
    print(RESULTS / "stratified.md")


# --- cells ----------------------------------------------------------------------------------------------------------


def compute(work: Path) -> list[Cell]:
    """Score every network, and judge every score on every set."""
    from real_runs import NETWORKS, extract
    from twofold.bench import runner

    data_folder("image_labels.npz")
    runs = extract(NETWORKS, work)
    specs = {}
    for row in TABLE_3:
        for column in row.columns:
            specs[row.title, column] = row.spec(column, "printed")
    specs["fDBD", PLAIN] = FDBD
    cells = []
    for network in NETWORKS:
        announce(f"{len(specs)} scores of {network.name}")
        run = runs[network.name]
        benchmark = natural_sets(load(network.benchmark))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = work / "stratified" / network.name
            found = runner.confidences(benchmark, run, out, "stratified", list(specs.values()))
        conf = {cell: found[spec].conf for cell, spec in specs.items() if not found[spec].reason}
        sets = [one.name for one in benchmark.sets if one.role in ("test", "near", "mid", "far")]
        for name in sets:
            cells += judge_block(network.name, name, np.asarray(run[ID_SET].correct), conf)
    return cells


def judge_block(
    network: str, name: str, correct: np.ndarray, conf: dict[tuple[str, str], dict[str, np.ndarray]]
) -> Iterable[Cell]:
    """Yield every score on one set: wrong predictions on ID, else an unknown set, against correct predictions."""
    plain: dict[str, Placements] = {}
    for (title, projection), by_set in conf.items():
        trusted = by_set[ID_SET][correct]
        failures = by_set[ID_SET][~correct] if name == ID_SET else by_set[name]
        placed = place(trusted, failures)
        is_correct = np.arange(len(trusted) + len(failures)) < len(trusted)
        both = np.concatenate([trusted, failures])
        values = placed.auroc, metrics.augrc(is_correct, both), metrics.aurc(is_correct, both)
        base = plain.setdefault(title, placed)  # the first column of a row is its plain form, or its first projection
        compared: tuple[float | None, ...] = ()
        if base is not placed:
            gain = delong(placed, base)
            compared = gain.value, gain.low, gain.high, gain.p
        yield Cell(network, name, title, projection, *values, *compared)


NUMBERS = ("auroc", "augrc", "aurc", "gain", "low", "high", "p")


def write_cells(cells: Sequence[Cell], path: Path) -> None:
    """Write a line for each cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["network", "set", "score", "projection", *NUMBERS])
        for cell in cells:
            numbers = []
            for name in NUMBERS:
                value = getattr(cell, name)
                numbers.append("" if value is None else f"{value:.5g}")
            table.writerow([cell.network, cell.set, cell.score, cell.projection, *numbers])


def read_cells(path: Path) -> list[Cell]:
    """Read the committed cells."""
    cells = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = [float(row[name]) if row[name] else None for name in NUMBERS]
            cells.append(Cell(row["network"], row["set"], row["score"], row["projection"], *numbers))
    return cells


def group_sets(embedding: str | None) -> dict[tuple[str, str], str]:
    """Read the group of each set by benchmark and name; None takes the embedding by a CIFAR network."""
    groups = {}
    for row in read_distances():
        wanted = embedding or OTHERS[row.benchmark].title
        if row.embedding == wanted:
            groups[row.benchmark, row.set] = row.group
    return groups


# --- statistics -----------------------------------------------------------------------------------------------------


def nth_best(by_score: dict[str, list[Gain]], n: int) -> tuple[str, Gain]:
    """Find the n-th best score, each taken with its best projection; the ends of the interval are ordered on their own."""
    best = {score: max(gains, key=lambda gain: gain.value) for score, gains in by_score.items()}
    order = sorted(best, key=lambda score: -best[score].value)
    low = sorted((max(gain.low for gain in gains) for gains in by_score.values()), reverse=True)[n - 1]
    high = sorted((max(gain.high for gain in gains) for gains in by_score.values()), reverse=True)[n - 1]
    nth = best[order[n - 1]]
    return order[n - 1], Gain(nth.value, low, high, nth.p)


class Study:
    """Hold the cells with the groups of sets, and the means that claims are about."""

    def __init__(self, cells: Sequence[Cell], groups: dict[tuple[str, str], str]) -> None:
        self.cells = list(cells)
        self.groups = groups
        self.networks = list(dict.fromkeys(cell.network for cell in cells))
        self._by_network: dict[str, list[Cell]] = {}
        for cell in cells:
            self._by_network.setdefault(cell.network, []).append(cell)

    def group(self, cell: Cell) -> str:
        """Look up the group of the set of a cell."""
        return self.groups[cell.benchmark, cell.set]

    def mean(self, network: str, keep: Callable[[Cell], bool], value: Callable[[Cell], float]) -> float:
        """Average cells of a network: over scores of each set first, then over sets."""
        by_set: dict[str, list[float]] = {}
        for cell in self._by_network[network]:
            if keep(cell):
                by_set.setdefault(cell.set, []).append(value(cell))
        return float(np.mean([np.mean(values) for values in by_set.values()]))

    def auroc(self, network: str, group: str, scores: Sequence[str] | None = None) -> float:
        """Average the AUROC of unprojected scores over the sets of a group."""
        return self.mean(
            network,
            lambda cell: (
                cell.projection == PLAIN and self.group(cell) == group and (scores is None or cell.score in scores)
            ),
            lambda cell: cell.auroc,
        )

    def step(self, nearer: str, farther: str) -> Gain:
        """Compute how much easier the farther group is."""
        return student([self.auroc(one, farther) - self.auroc(one, nearer) for one in self.networks])

    def lead(self, group: str, ahead: Sequence[str], behind: Sequence[str]) -> list[float]:
        """Compute the lead of some scores over others in a group, for each network."""
        return [self.auroc(one, group, ahead) - self.auroc(one, group, behind) for one in self.networks]

    def gains(self, keep: Callable[[Cell], bool], on_id: bool = False) -> list[float]:
        """Average the gains of projections for each network, on unknown sets or on ID."""

        def is_wanted(cell: Cell) -> bool:
            return cell.gain is not None and (cell.set == ID_SET) == on_id and keep(cell)

        return [self.mean(one, is_wanted, lambda cell: float(cell.gain or 0.0)) for one in self.networks]

    def pairs(self) -> list[tuple[str, str]]:
        """List the pairs of score and projection that have a plain form, in the order of the table."""
        return [(row.title, column) for row in TABLE_3 if not row.by_kind for column in row.projections]

    def regrets(self) -> list[float]:
        """Compute for each network how far from the best the most even score is at its worst distance."""
        found = []
        for network in self.networks:
            by_score: dict[tuple[str, str], dict[str, list[float]]] = {}
            for cell in self._by_network[network]:
                by_group = by_score.setdefault((cell.score, cell.projection), {})
                by_group.setdefault(self.group(cell), []).append(cell.auroc)
            table = np.array([[np.mean(groups[name]) for name in GROUPS] for groups in by_score.values()])
            found.append(float((table.max(axis=0) - table).max(axis=1).min()))
        return found

    def result_rows(self) -> tuple[dict[str, object], ...]:
        """Write the cells as rows of results, for maps of cliques."""
        specs = {(row.title, column): row.spec(column, "printed") for row in TABLE_3 for column in row.columns}
        rows = []
        for cell in self.cells:
            group = self.group(cell)
            same = {
                "benchmark": cell.benchmark,
                "model": cell.network,
                "run": cell.network,
                "score": specs[cell.score, cell.projection],
                "shift": cell.set,
                "role": "iid" if group == "id" else group,
                "protocol": "stratified",
                "better": "lower",
            }
            rows.append({**same, "metric": "augrc", "value": cell.augrc})
            rows.append({**same, "metric": "aurc", "value": cell.aurc})
        return tuple(Results.of(rows).rows)

    def cliques(self) -> tuple[CliqueMap, CliqueMap]:
        """Map the top cliques as printed, and ours."""
        results = Results.of(self.result_rows())
        by = ("benchmark", "role")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            printed = clique_map(results, ("aurc", "augrc"), protocol="stratified", test="rank_z", by=by)
            ours = clique_map(results, "augrc", protocol="stratified", test="conover_t", by=by)
        return printed, ours


def clique_sizes(table: CliqueMap) -> dict[str, int]:
    """Count the members of the top clique of each group."""
    return {name: int(table.member[:, j].sum()) for j, name in enumerate(table.columns)}


# --- claims ---------------------------------------------------------------------------------------------------------


def decide_claims(study: Study) -> list[Claim]:
    """Decide every claim by the rules above."""
    return [
        *claims_on_strata(study),
        *claims_on_projections(study),
        *claims_on_families(study),
        *claims_on_passes(),
        *claims_on_cliques(study),
    ]


def of_gain(
    claim: str, gain: Gain, *, ours: str, printed_at: str, printed: str, paper: str = "stratified_ood"
) -> Claim:
    """Make a claim in points of AUROC."""
    return judge(
        paper,
        claim,
        printed_at=printed_at,
        printed=printed,
        ours=ours,
        low=100 * gain.low,
        high=100 * gain.high,
        p=gain.p,
        unit="AUROC, points",
        scale=SCALE,
        command=PAGE_COMMAND,
    )


def claims_on_strata(study: Study) -> Iterable[Claim]:
    second = Study(study.cells, group_sets(None))
    for nearer, farther in (("near", "mid"), ("mid", "far")):
        gain = study.step(nearer, farther)
        means = [100 * float(np.mean([study.auroc(one, name) for one in study.networks])) for name in (nearer, farther)]
        yield of_gain(
            f"Unknown sets that the embedding calls {farther} are easier to detect than {nearer} ones",
            gain,
            ours=f"{show_gain(gain)}: {farther} {means[1]:.1f}, {nearer} {means[0]:.1f}. Grouped by a CIFAR network: "
            f"{show_gain(second.step(nearer, farther))}",
            printed_at="Table 1, Section 3.3",
            printed="near, mid and far by CLIP distances; no numbers on difficulty",
        )


def claims_on_projections(study: Study) -> Iterable[Claim]:
    pairs = study.pairs()
    by_score: dict[str, list[Gain]] = {}
    for score, projection in pairs:
        values = study.gains(lambda cell: (cell.score, cell.projection) == (score, projection))  # noqa: B023
        by_score.setdefault(score, []).append(student(values, tests=len(pairs)))
    title, gain = nth_best(by_score, SEVERAL)
    helped = sum(max(one.value for one in gains) > 0 for gains in by_score.values())
    yield of_gain(
        "A PCA projection improves several detectors",
        gain,
        ours=f"third best of {len(by_score)} scores with their best projection: {title}, {show_gain(gain)} (Bonferroni over "
        f"{len(pairs)} pairs); {helped} scores have a projection with a gain above zero",
        printed_at="Abstract, Section 4.6 (4)",
        printed="a simple PCA projection improves several detectors",
    )
    for projection in PROJECTED:
        named = [score for score, column in pairs if column == projection]
        gain = student(study.gains(lambda cell: cell.projection == projection and cell.score in named))  # noqa: B023
        on_id = student(study.gains(lambda cell: cell.projection == projection and cell.score in named, on_id=True))  # noqa: B023
        yield of_gain(
            f"The projection {projection} helps the scores that have it on unknown sets",
            gain,
            ours=f"{show_gain(gain)} over {len(named)} scores; on ID {show_gain(on_id)}",
            printed_at="Section 3.2, Table 3",
            printed="one of four projections; no numbers by projection",
        )
    gain = student(study.gains(lambda cell: (cell.score, cell.projection) == ("NNGuide", "global")))
    yield of_gain(
        "NNGuide is better with the global projection",
        gain,
        ours=show_gain(gain),
        printed_at="Section 4.3, Figure 1",
        printed="NNGuide, especially the global variant, is among the most frequently retained",
    )
    gain = student(study.gains(lambda cell: (cell.score, cell.projection) == ("GradNorm", "class_pred")))
    yield untestable(
        "stratified_ood",
        "On a ViT the projection class_pred boosts GradNorm",
        printed_at="Section 4.3, Figure 2",
        printed="boosts KPCA RecError, but specially GradNorm",
        why=f"a ViT fine-tuned on CIFAR would test it; on these CNNs the gain is {show_gain(gain)} points",
        scale=SCALE,
        command=PAGE_COMMAND,
    )


def claims_on_families(study: Study) -> Iterable[Claim]:
    printed = "GEN and MSR on ID, Energy, MLS and MSR near, NNGuide, fDBD and CTM mid and far"
    where = "Section 4.6 (1), Figure 1"
    lines = (
        ("id", SOFTMAX_ID, GEOMETRY, "On ID mistakes the softmax scores MSR and GEN lead NNGuide, fDBD and CTM"),
        ("near", SOFTMAX_NEAR, GEOMETRY, "On near sets Energy, MLS and MSR lead NNGuide, fDBD and CTM"),
        ("mid", GEOMETRY, SOFTMAX, "On mid sets NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS"),
        ("far", GEOMETRY, SOFTMAX, "On far sets NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS"),
    )
    second = Study(study.cells, group_sets(None))
    for group, ahead, behind, claim in lines:
        gain = student(study.lead(group, ahead, behind))
        ours = show_gain(gain)
        if group != "id":
            ours += f". Grouped by a CIFAR network: {show_gain(student(second.lead(group, ahead, behind)))}"
        yield of_gain(claim, gain, ours=ours, printed_at=where, printed=printed)
    far = np.array(study.lead("far", GEOMETRY, SOFTMAX))
    inside = np.array(study.lead("id", GEOMETRY, SOFTMAX))
    gain = student(list(far - inside))
    yield of_gain(
        "From ID to far sets the lead passes from the softmax to geometry",
        gain,
        ours=f"{show_gain(gain)}; lead of geometry on ID {100 * inside.mean():+.2f}, on far sets {100 * far.mean():+.2f}",
        printed_at=where,
        printed=printed,
    )


def claims_on_passes() -> Iterable[Claim]:
    why = {"scale": SCALE, "command": PAGE_COMMAND}
    yield untestable(
        "stratified_ood",
        "With ten classes one pass is better than several passes of dropout",
        printed_at="Table 2, Section 4.4",
        printed="best AUGRC on CIFAR-10 test 3.91 with one pass, 4.54 with 50",
        why="these networks were trained without dropout; a CIFAR-10 network trained with dropout to full accuracy would test it",
        **why,
    )
    yield untestable(
        "stratified_ood",
        "Deep Gamblers is the best training for one pass, ConfidNet for several",
        printed_at="Table 2",
        printed="Deep Gamblers in 22 of 36 rows with one pass, ConfidNet in 23 of 36 with several",
        why="these networks were trained by cross-entropy alone; networks of each paradigm at full accuracy would test it",
        **why,
    )
    yield untestable(
        "stratified_ood",
        "On a ViT GradNorm and KPCA reconstruction error stay competitive at every distance",
        printed_at="Figure 2, Section 4.6 (2)",
        printed="persistent top groups centred on GradNorm and KPCA RecError",
        why="no vision transformer is at hand; a ViT fine-tuned on the four sources would test it",
        **why,
    )


def claims_on_cliques(study: Study) -> Iterable[Claim]:
    printed, ours = study.cliques()
    sizes, own = clique_sizes(printed), clique_sizes(ours)
    shared = [name for name in sizes if name in own]
    gain = student([float(own[name] - sizes[name]) for name in shared])
    yield judge(
        "beyond",
        "Counting AURC and AUGRC as separate blocks makes top cliques smaller",
        printed_at="Appendix C",
        printed="blocks are set, paradigm, source and metric",
        ours=f"{gain.value:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}] scores of {len(printed.rows)}; mean size "
        f"{np.mean([sizes[name] for name in shared]):.1f} as printed, {np.mean([own[name] for name in shared]):.1f} ours",
        low=gain.low,
        high=gain.high,
        p=gain.p,
        unit="scores in the top clique",
        scale=f"{SCALE}; {len(shared)} groups of source and distance",
        command=PAGE_COMMAND,
    )
    regrets = study.regrets()
    gain = student([value - MARGIN for value in regrets])
    yield of_gain(
        "No score is within one point of the best at every distance",
        gain,
        ours=f"{show_gain(gain)} beyond the margin; the most even score is {100 * np.mean(regrets):.2f} points behind at its worst",
        printed_at="Figure 1",
        printed="leaders differ between ID, near, mid and far",
    )
    listed = ", ".join(f"{name.replace('-real', '')} {size}" for name, size in sizes.items())
    yield untestable(
        "stratified_ood",
        "Top cliques shrink from ID to far sets and with the number of classes",
        printed_at="Section 4.3",
        printed="clique sizes tend to contract as class count rises and from test to far",
        why=f"groups have different numbers of blocks, which alone change the size; as many blocks in each would test it. Sizes: {listed}",
        scale=SCALE,
        command=PAGE_COMMAND,
    )


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(study: Study, found: Sequence[Claim]) -> str:
    """Write claims first, then groups, projections, families and cliques."""
    parts = [
        "# The stratified study on real classifiers",
        f"`{COMMAND}` computes the cells of `stratified.csv` and writes this page; `{PAGE_COMMAND}` writes it from "
        "the committed cells. The docstring of the script has the rules, which were written before the numbers. Numbers are "
        "points of AUROC with 95 % intervals of Student's t over the five networks, unless another unit is named.",
        "## Claims",
        claim_table(found),
        "## Which sets are near, mid and far",
        strata_section(),
        "## What the projections do to each score",
        projection_section(study),
        "## Families of scores by distance",
        family_section(study),
        "## Top cliques",
        clique_section(study),
    ]
    return "\n\n".join(parts) + "\n"


def claim_table(found: Sequence[Claim]) -> str:
    lines = [[one.claim, one.printed_at, one.ours, one.verdict] for one in found]
    return markdown(["claim", "printed", "here", "verdict"], lines)


def strata_section() -> str:
    lines = []
    for row in read_distances():
        numbers = [f"{row.frechet:.3f}", f"{row.mmd:.5f}", f"{row.centroid:.3f}"]
        lines.append([row.benchmark.removesuffix("-real"), row.embedding, row.set, row.group, *numbers])
    table = markdown(["source", "embedding", "set", "group", "Fréchet", "MMD", "centroid"], lines)
    return f"`strata.csv`, by `python benchmarks/strata.py --save`. Claims use the ImageNet network.\n\n{table}"


def projection_section(study: Study) -> str:
    lines = []
    pairs = study.pairs()
    raw = [student(study.gains(lambda cell: (cell.score, cell.projection) == pair)) for pair in pairs]  # noqa: B023
    adjusted = dict(zip(pairs, holm([gain.p for gain in raw]), strict=True))
    gains = dict(zip(pairs, raw, strict=True))
    for title in dict.fromkeys(score for score, _ in pairs):
        line = [title]
        for projection in PROJECTED:
            if (title, projection) not in gains:
                line.append("–")
                continue
            mark = " *" if adjusted[title, projection] < 0.05 else ""
            line.append(f"{show_gain(gains[title, projection])}{mark}")
        lines.append(line)
    table = markdown(["score", *PROJECTED], lines)
    counted = count_cells(study)
    return (
        "Gain over the same score without projection, after the same temperature, on unknown sets. A star marks p below 0.05 "
        f"after Holm's correction over all {len(pairs)} cells.\n\n{table}\n\n{counted}"
    )


def count_cells(study: Study) -> str:
    """Count the blocks in which a projection helps or harms, by their intervals over images."""
    lines = []
    named = set(study.pairs())
    for projection in PROJECTED:
        own = [
            cell
            for cell in study.cells
            if cell.projection == projection and cell.gain is not None and (cell.score, cell.projection) in named
        ]
        line = [projection]
        for group in GROUPS:
            here = [cell for cell in own if study.group(cell) == group]
            better = sum(float(cell.low or 0.0) > 0 for cell in here)
            worse = sum(float(cell.high or 0.0) < 0 for cell in here)
            line.append(f"{better} better, {worse} worse of {len(here)}")
        lines.append(line)
    table = markdown(["projection", *GROUPS], lines)
    return (
        f"Blocks of score, network and set whose own interval over images (DeLong) lies on one side of zero:\n\n{table}"
    )


def family_section(study: Study) -> str:
    titles = [row.title for row in TABLE_3 if not row.by_kind]
    lines = []
    for title in titles:
        means = [np.mean([study.auroc(one, group, [title]) for one in study.networks]) for group in GROUPS]
        lines.append([title, *(f"{100 * value:.2f}" for value in means)])
    return "Mean AUROC of the plain scores over networks:\n\n" + markdown(["score", *GROUPS], lines)


def clique_section(study: Study) -> str:
    printed, ours = study.cliques()
    titles = {row.spec(column, "printed"): f"{row.title} {column}" for row in TABLE_3 for column in row.columns}
    titles = {spec: title.removesuffix(" none") for spec, title in titles.items()}
    lines = []
    for name, table in (("as printed", printed), ("ours", ours)):
        for j, group in enumerate(table.columns):
            top = [titles[table.rows[i]] for i in np.flatnonzero(table.member[:, j])]
            shown = ", ".join(top[:8]) + (f" and {len(top) - 8} more" if len(top) > 8 else "")
            if not table.omnibus[j]:
                shown = "Friedman's test does not reject"
            lines.append([name, group.replace("-real", ""), str(table.blocks[j]), str(len(top)), shown])
    text = (
        "As printed, AURC and AUGRC of one set count as two blocks and the test is normal; ours takes AUGRC once and Conover's "
        "own variance. Blocks share networks and test images, which rank tests do not allow for.\n\n"
    )
    table = markdown(["form", "group", "blocks", "size", "top clique"], lines)
    return f"{text}{table}\n\n![Top cliques as printed and ours](stratified_cliques.png)"


if __name__ == "__main__":
    main()
