"""Thresholds that one unknown set chose, judged on every other, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from real_gate_classifier import EVEN, MSP, Classifier, GateScores, Row, gate_name
from real_tables import markdown, number, numbers
from records import Records
from twofold import metrics

SHOWN = ("react|energy", "knn")  # second scores whose whole matrices are on the page; react is the paper's
STORED = (*SHOWN, "energy", "vim", "mds")  # and in the table of results
PAPER = "react|energy"
ROUNDING = 1e-12
HEADER = (
    "second score",
    "pair: own, share",
    "other, share",
    "other, least",
    "other, F1",
    "score alone, F1",
    "msp alone, F1",
    "pair ahead of both, % of cells",
)


@dataclass(frozen=True, eq=False)
class Transfer:
    """Hold F1 on every set (column) with the thresholds of every set (row), and the best F1 of each column."""

    reached: np.ndarray
    best: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Return what is reached, as a share of the best."""
        return self.reached / self.best


Transfers = dict[GateScores, Transfer]


def measure_transfer(classifier: Classifier) -> Transfers:
    """Carry the thresholds of every score, alone and as a second score with msp."""
    transfers = {MSP: carry(classifier, MSP)}
    for spec in classifier.specs:
        if spec != "msp":
            transfers[spec, None] = carry(classifier, (spec, None))
            transfers["msp", spec] = carry(classifier, ("msp", spec))
    return transfers


def carry(classifier: Classifier, scores: GateScores) -> Transfer:
    """Choose thresholds on the first half of every unknown set, and judge them on the second half of all."""
    targets = []
    best = []
    for name in classifier.unknown:
        _, judging = classifier.halves(name, 0)
        outputs = classifier.outputs(scores, [classifier.whole("test"), judging])
        columns = list(outputs.learned.values())  # one score, or two
        point = metrics.ds_f1(outputs.correct, columns[0], columns[-1], outputs.is_id, ood_share=EVEN)
        targets.append(outputs)
        best.append(point.value)
    reached = np.empty((len(targets), len(targets)))
    for i, name in enumerate(classifier.unknown):
        choosing, _ = classifier.halves(name, 0)
        gate = classifier.fit(scores, [classifier.whole("val"), choosing], ood_share=EVEN)
        reached[i] = [gate.report_card(outputs).f1 for outputs in targets]
    assert (reached <= np.array(best) + ROUNDING).all()
    return Transfer(reached, np.array(best))


@dataclass(frozen=True, eq=False)
class Summary:
    """Sum up the pair of msp with one second score over sets; *own* is the set that chose, *other* are all others."""

    spec: str
    own_share: float
    other_share: float
    least_share: float
    pair_f1: float  # on other sets, like the next two
    single_f1: float
    msp_f1: float
    is_ahead: np.ndarray  # of both scores, sets x sets
    is_ahead_of_msp: np.ndarray

    @property
    def other(self) -> np.ndarray:
        return is_other(len(self.is_ahead))

    @property
    def is_ahead_on_average(self) -> bool:
        return self.pair_f1 >= max(self.msp_f1, self.single_f1)


def is_other(count: int) -> np.ndarray:
    """Return the mask of the cells that are judged on another set than chose."""
    return ~np.eye(count, dtype=bool)


def summarise(classifier: Classifier, transfers: Transfers) -> Records[Summary]:
    """Sum up every second score."""
    other = is_other(len(classifier.unknown))
    msp = transfers[MSP].reached
    summaries = Records()
    for spec in classifier.specs:
        if spec == "msp":
            continue
        pair = transfers["msp", spec]
        single = transfers[spec, None].reached
        summaries.append(
            Summary(
                spec,
                own_share=float(pair.share[~other].mean()),
                other_share=float(pair.share[other].mean()),
                least_share=float(pair.share[other].min()),
                pair_f1=float(pair.reached[other].mean()),
                single_f1=float(single[other].mean()),
                msp_f1=float(msp[other].mean()),
                is_ahead=pair.reached >= np.maximum(single, msp) - ROUNDING,
                is_ahead_of_msp=pair.reached >= msp - ROUNDING,
            )
        )
    return summaries


# --- rows -----------------------------------------------------------------------------------------------------------


def transfer_rows(classifier: Classifier, transfers: Transfers) -> Iterator[Row]:
    """Yield the matrices of the stored second scores, and the means of all."""
    for second in STORED:
        transfer = transfers["msp", second]
        gate = gate_name(("msp", second))
        for i, chosen in enumerate(classifier.unknown):
            for j, judged in enumerate(classifier.unknown):
                about = ("transfer", classifier.name, gate, chosen, judged, "f1")
                yield Row(*about, "F1", transfer.reached[i, j])
                yield Row(*about, "share of the best F1", transfer.share[i, j])
    summaries = summarise(classifier, transfers)
    for summary in summaries:
        pair = gate_name(("msp", summary.spec))
        yield summary_row(classifier, pair, "share of the best F1, own, mean", summary.own_share)
        yield summary_row(classifier, pair, "share of the best F1, other, mean", summary.other_share)
        yield summary_row(classifier, pair, "share of the best F1, other, least", summary.least_share)
        yield summary_row(classifier, pair, "F1, other, mean", summary.pair_f1)
        yield summary_row(classifier, summary.spec, "F1, other, mean", summary.single_f1)
    yield summary_row(classifier, "msp", "F1, other, mean", summaries[0].msp_f1)


def summary_row(classifier: Classifier, gate: str, quantity: str, value: float) -> Row:
    return Row("transfer summary", classifier.name, gate, "every set", "mean", "f1", quantity, value)


# --- page -----------------------------------------------------------------------------------------------------------


def transfer_section(classifiers: Sequence[Classifier], measured: dict[str, Transfers]) -> str:
    """Write the section on thresholds from one unknown set on another."""
    parts = [
        "## Thresholds from one unknown set on another (SURE+ paper, Table 2, all scores)",
        "Each gate takes the thresholds with the best F1 on the 1,000 validation images and the first half of one unknown "
        "set. It is judged on the 9,000 test images and the second half of every set. Both count as many unknown as known "
        f"inputs (`ood_share={EVEN}`). A cell is the F1 reached, as a share of the best F1 that the same scores can reach there "
        "with hindsight. *Own* is the set that gave the thresholds, *other* are all other sets.",
    ]
    for classifier in classifiers:
        transfers = measured[classifier.name]
        for second in SHOWN:
            parts.append(f"### {classifier.name}: msp + {second}")
            parts.append(transfer_table(classifier, transfers["msp", second]))
        summaries = summarise(classifier, transfers)
        parts += [
            f"### {classifier.name}: every second score with msp, mean over sets",
            summary_table(summaries),
            best_second_scores(summaries),
            paper_pair(summaries),
            all_pairs(summaries),
            near_and_far(classifier, transfers),
        ]
    return "\n\n".join(parts)


def transfer_table(classifier: Classifier, transfer: Transfer) -> str:
    """Write the share of the best F1 for every set that chose and every set that judged."""
    lines = []
    for name, shares in zip(classifier.unknown, transfer.share, strict=True):
        lines.append([name, *numbers(shares, digits=1)])
    lines.append(["*best F1 there*", *numbers(transfer.best, digits=1)])
    return markdown(["chosen on", *classifier.unknown], lines)


def summary_table(summaries: Records[Summary]) -> str:
    """Write a line for each second score, by the F1 of the pair on other sets."""
    lines = []
    for summary in summaries:
        values = (
            summary.own_share,
            summary.other_share,
            summary.least_share,
            summary.pair_f1,
            summary.single_f1,
            summary.msp_f1,
            summary.is_ahead[summary.other].mean(),
        )
        lines.append([summary.spec, *numbers(values, digits=1)])
    place = HEADER.index("other, F1")
    lines.sort(key=lambda line: -float(line[place]))
    return markdown(HEADER, lines)


def best_second_scores(summaries: Records[Summary]) -> str:
    """Say which second score is best on other sets, and which keep most and least."""
    best = summaries.highest("pair_f1")
    keeps_most = summaries.highest("other_share")
    keeps_least = summaries.lowest("other_share")
    text = (
        f"On other sets, {best.spec} is the best second score: F1 {number(best.pair_f1)}, against {number(best.msp_f1)} of msp alone. "
        f"Of what is possible, {keeps_most.spec} keeps most ({number(keeps_most.other_share, digits=1)} %) and {keeps_least.spec} least "
        f"({number(keeps_least.other_share, digits=1)} %)."
    )
    below = (summaries.values("pair_f1") < summaries.values("msp_f1")).sum()
    if below:
        text += f" With {below} second scores the pair is on average worse there than msp alone."
    return text


def paper_pair(summaries: Records[Summary]) -> str:
    """Say whether the paper's pair stays ahead of both its scores."""
    (paper,) = summaries.where(spec=PAPER)
    verdict = "does not hold on average"
    if paper.is_ahead_on_average:
        verdict = "holds on average"
    return (
        f"The paper's pair, msp + {PAPER}, reaches {number(paper.pair_f1)} on other sets, against {number(paper.single_f1)} of {PAPER} "
        f"and {number(paper.msp_f1)} of msp alone. The claim that it stays ahead {verdict}; it is ahead in "
        f"{100 * paper.is_ahead[paper.other].mean():.0f} % of the cells."
    )


def all_pairs(summaries: Records[Summary]) -> str:
    """Say how often pairs are ahead, over all second scores."""
    other = summaries[0].other
    is_ahead = summaries.values("is_ahead")
    is_ahead_of_msp = summaries.values("is_ahead_of_msp")
    on_average = summaries.count("is_ahead_on_average")
    return (
        f"Over all second scores, the mean of the pair is at least that of both its scores for {on_average} of "
        f"{len(summaries)}. Cell by cell, the pair is ahead of both in {100 * is_ahead[:, other].mean():.0f} % on other sets "
        f"and in {100 * is_ahead[:, ~other].mean():.0f} % on the set that gave the thresholds. It is ahead of msp in "
        f"{100 * is_ahead_of_msp[:, other].mean():.0f} %."
    )


def near_and_far(classifier: Classifier, transfers: Transfers) -> str:
    """Say which share is reached, over the pairs, from and to near and far sets."""
    is_near = np.array([name in classifier.near for name in classifier.unknown])
    other = is_other(len(is_near))
    is_kind = {"near": is_near, "far": ~is_near}
    mean = {}
    for chosen in is_kind:
        for judged in is_kind:
            cells = other & is_kind[chosen][:, None] & is_kind[judged][None, :]
            shares = []
            for (_, second), transfer in transfers.items():
                if second is not None:
                    shares.append(transfer.share[cells].mean())
            mean[chosen, judged] = float(np.mean(shares))
    best_from, best_to = max(mean, key=mean.get)
    worst_from, worst_to = min(mean, key=mean.get)
    return (
        f"On average over the pairs, thresholds reach {number(mean['near', 'far'], digits=1)} % of what is possible from near to "
        f"far sets, {number(mean['far', 'near'], digits=1)} % from far to near, {number(mean['near', 'near'], digits=1)} % between near "
        f"sets and {number(mean['far', 'far'], digits=1)} % between far sets. They carry over best from {best_from} to "
        f"{best_to}, and worst from {worst_from} to {worst_to}."
    )
