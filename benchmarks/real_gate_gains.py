"""Coverage that a second score gains at the same guarantee, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from real_gate_cards import DELTA, SHARE, MixedPromises, Promise, Promises
from real_gate_classifier import MSP, SECOND, Classifier, GateScores, Row, gate_name
from real_tables import markdown, number, numbers
from records import Records

FEW = 1000  # unknown images, below which a set counts as small
HEADER = (
    "sets, second score",
    "msp alone",
    "second alone",
    "both",
    "both - msp",
    "both - better alone",
    "share of hindsight",
    "refused: msp/second/both",
)


@dataclass(frozen=True, eq=False)
class Coverages:
    """Hold the ID coverage of a pair and of its scores, by unknown set, risk and split; 0 where nothing was promised."""

    second: str
    distance: str  # of the unknown sets, near or far
    msp: np.ndarray
    single: np.ndarray  # the second score alone
    both: np.ndarray
    hindsight: np.ndarray  # of the best pair

    @property
    def better(self) -> np.ndarray:
        """Return the coverage of the better of the two single gates in every cell."""
        return np.maximum(self.msp, self.single)

    @property
    def over_msp(self) -> float:
        return float((self.both - self.msp).mean())

    @property
    def over_single(self) -> float:
        return float((self.both - self.single).mean())

    @property
    def over_better(self) -> float:
        return float((self.both - self.better).mean())


def coverage_of_promises(promises: MixedPromises) -> dict[Promise, float]:
    """Return the coverage of every promise on fresh data, 0 where it could not be made."""
    covered = dict.fromkeys(promises.tried, 0.0)
    for card in promises.cards.where(kind="fresh"):
        covered[card.promise] = card.coverage
    return covered


def compare_coverages(classifier: Classifier, promises: MixedPromises) -> Records[Coverages]:
    """Collect the coverages of every pair on near and on far sets."""
    covered = coverage_of_promises(promises)
    lines = Records()
    for distance, sets in (("near", classifier.near), ("far", classifier.far)):
        for second in SECOND:
            pair = ("msp", second)
            coverages = Coverages(
                second,
                distance,
                msp=select_coverages(covered, MSP, sets),
                single=select_coverages(covered, (second, None), sets),
                both=select_coverages(covered, pair, sets),
                hindsight=select_coverages(promises.best, pair, sets),
            )
            lines.append(coverages)
    return lines


def select_coverages(covered: dict[Promise, float], scores: GateScores, sets: Sequence[str]) -> np.ndarray:
    """Collect the coverages of one gate, by split, unknown set and risk."""
    found = []
    for (gate, _, source, _), coverage in covered.items():
        if gate == scores and source in sets:
            found.append(coverage)
    return np.array(found)


def gain_rows(classifier: Classifier, promises: MixedPromises) -> Iterator[Row]:
    """Yield the mean coverage of every pair, of its scores, and of the best pair with hindsight."""
    for line in compare_coverages(classifier, promises):
        coverages = {
            "msp alone": line.msp,
            "second score alone": line.single,
            "both": line.both,
            "better alone": line.better,
            "best pair with hindsight": line.hindsight,
        }
        gate = gate_name(("msp", line.second))
        for name, coverage in coverages.items():
            about = ("two against one", classifier.name, gate, line.distance, line.distance, "all")
            yield Row(*about, f"ID coverage, {name}", coverage.mean())


def gain_section(classifiers: Sequence[Classifier], measured: dict[str, Promises]) -> str:
    """Write the section on two scores against one."""
    parts = [
        "## Coverage gained by a second score at the same guarantee",
        f"ID coverage, on the halves that judge, of gates that promise the same risk with confidence {1 - DELTA:g} at an OOD share "
        f"of {SHARE}. Numbers are means over unknown sets, risks and splits, with 0 where nothing could be promised. One score "
        "is tested on the same kind of path as two (it covers more than SGR; see `gate.csv`). *Better alone* is the better of "
        "the two single gates in every cell, with hindsight.",
    ]
    for classifier in classifiers:
        promises = measured[classifier.name].mixed
        lines = compare_coverages(classifier, promises)
        parts += [
            f"### {classifier.name}",
            gain_table(lines),
            f"{gain_sentences(lines)} {cost_of_few(classifier, promises)}",
        ]
    return "\n\n".join(parts)


def gain_table(lines: Records[Coverages]) -> str:
    """Write a line for each kind of set and second score."""
    written = []
    for line in lines:
        columns = np.array([line.msp, line.single, line.both])
        refused = "/".join(map(str, (columns == 0).sum(axis=1)))
        written.append(
            [
                f"{line.distance}, {line.second}",
                *numbers(columns.mean(axis=1), digits=1),
                f"{100 * line.over_msp:+.1f}",
                f"{100 * line.over_better:+.1f}",
                number(line.both.sum() / line.hindsight.sum(), digits=1),
                f"{refused} of {len(line.both)}",
            ]
        )
    return markdown(HEADER, written)


def gain_sentences(lines: Records[Coverages]) -> str:
    """Say how often a pair covers more than its scores."""
    is_over_msp = lines.values("over_msp") > 0
    is_over_single = lines.values("over_single") > 0
    is_over_better = lines.values("over_better") >= 0
    largest = lines.highest("over_msp")
    worst = lines.lowest("over_better")
    text = (
        f"The pair covers more than msp alone in {is_over_msp.sum()} of {len(lines)} lines, and more than each of its scores in {(is_over_msp & is_over_single).sum()}. "
        f"The largest gain over msp is that of {largest.second} on {largest.distance} sets ({100 * largest.over_msp:+.1f} points). "
        f"Against the better single score of each cell, the pair is on average ahead in {is_over_better.sum()} of {len(lines)} lines"
    )
    if worst.over_better < 0:
        text += f" and loses up to {-100 * worst.over_better:.1f} points ({worst.second}, {worst.distance})"
    return f"{text}."


def cost_of_few(classifier: Classifier, promises: MixedPromises) -> str:
    """Say what few unknown validation images cost."""
    small = []
    others = []
    for name in classifier.unknown:
        (_, rows), _ = classifier.halves(name, 0)
        if len(rows) < FEW:
            small.append(name)
        else:
            others.append(name)
    with_few = share_of_hindsight(promises, small)
    with_many = share_of_hindsight(promises, others)
    text = (
        f"Pairs chosen with fewer than {FEW:,} unknown images ({', '.join(small)}) reach {number(with_few, digits=0)} % of the "
        f"coverage of the best pair with hindsight; the others reach {number(with_many, digits=0)} %."
    )
    if with_few < with_many:
        text += " A guarantee over a mixture needs unknown validation images."
    return text


def share_of_hindsight(promises: MixedPromises, sources: Sequence[str]) -> float:
    """Compute the coverage of pairs as a share of the best with hindsight, over some unknown sets."""
    covered = coverage_of_promises(promises)
    reached = 0.0
    possible = 0.0
    for promise, best in promises.best.items():
        _, _, source, _ = promise
        if source in sources:
            reached += covered[promise]
            possible += best
    return reached / possible
