"""Tables of the FD-Shifts paper on real classifiers, for benchmarks/real_bench.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from real_bench_results import NetworkResults, scores_of, value, values_of
from real_tables import markdown, number, numbers
from records import Records
from twofold import metrics
from twofold.bench.results import Results

KNOWN_SETS = ("test", *(f"corruption/{level}" for level in range(1, 6)))
PRECISIONS = ("float16", "float32", "float64")


# --- Tables 1, 8 and 9: shifts --------------------------------------------------------------------------------------


def shifts(networks: Sequence[NetworkResults]) -> str:
    """Write the section on failure detection under shifts."""
    parts = ["## Failure detection under shifts (FD-Shifts paper, Tables 1, 8 and 9)"]
    for network in networks:
        rows = network.rows.filter(protocol="fd_shifts")
        columns = (*KNOWN_SETS, "corruption", *network.unknown)
        names = scores_of(rows, metric="aurc", shift="test")
        names.sort(key=lambda score: value(rows, score=score, shift="test", metric="aurc"))
        area_lines = metric_lines(rows, names, columns, "aurc", factor=1000)
        area_lines.append(["accuracy, %", *metric_cells(rows, "msp", columns, "accuracy", factor=100)])
        parts += [
            f"### {network.name}: AURC",
            markdown(["score", *columns], area_lines),
            f"### {network.name}: AUROC of correct predictions against failures",
            markdown(["score", *columns], metric_lines(rows, names, columns, "auroc", factor=100)),
            shift_sentences(rows, names, columns),
        ]
    return "\n\n".join(parts)


def metric_lines(
    rows: Results, names: Sequence[str], columns: Sequence[str], metric: str, factor: float
) -> list[list[str]]:
    """Write a line for each score, and a column for each set."""
    return [[score, *metric_cells(rows, score, columns, metric, factor)] for score in names]


def metric_cells(rows: Results, score: str, columns: Sequence[str], metric: str, factor: float) -> list[str]:
    """Write a metric of one score on every set."""
    values = [value(rows, score=score, shift=shift, metric=metric) for shift in columns]
    return numbers(values, factor, 1)


def shift_sentences(rows: Results, names: Sequence[str], columns: Sequence[str]) -> str:
    """Say which score is best in how many columns, and the places of msp."""
    wins: Counter[str] = Counter()
    places = []
    for shift in columns:
        areas = values_of(rows, names, shift, "aurc")
        msp_area = areas[names.index("msp")]
        wins[names[int(areas.argmin())]] += 1
        places.append(1 + (areas < msp_area).sum())
    on_test = places[0]
    under_corruption = places[columns.index("corruption")]
    on_unknown = places[columns.index("corruption") + 1 :]
    leader, most = wins.most_common(1)[0]
    no_winner = "does not hold"
    if len(wins) > 1:
        no_winner = "holds"
    baseline = "does not hold"
    if max(places) <= 3:
        baseline = "holds"
    return (
        f"{len(wins)} scores are best in some column; {leader} is best in most ({most} of {len(columns)}). msp has "
        f"place {on_test} of {len(names)} on the test set, {under_corruption} under corruption (mean over levels), and {min(on_unknown)} "
        f"to {max(on_unknown)} on unknown sets. The paper's claim that no score wins everywhere "
        f"{no_winner}. The claim that no score beats the softmax baseline across shifts {baseline} for this network."
    )


# --- Tables 11 and 12: ranks ----------------------------------------------------------------------------------------


def ranks(networks: Sequence[NetworkResults]) -> str:
    """Write the section on ranks by AURC against ranks by AUROC of failures."""
    lines = []
    least = []
    for network in networks:
        rows = network.rows.filter(protocol="fd_shifts")
        names = scores_of(rows, metric="aurc", shift="test")
        unknown = [rank_correlation(rows, names, shift) for shift in network.unknown]
        correlations = (
            rank_correlation(rows, names, "test"),
            rank_correlation(rows, names, "corruption"),
            min(unknown),
            max(unknown),
        )
        least.append(min(unknown))
        lines.append([network.name, *numbers(correlations, 1, 3)])
    close = "not close"
    claim = "shows"
    if round(min(least), 3) > 0.8:
        close = "close"
        claim = "does not show"
    return "\n\n".join(
        [
            "## Ranks by AURC against ranks by AUROC of failures (FD-Shifts paper, Tables 11 and 12)",
            "Spearman's correlation between the two rankings of the scores, column by column; 1 means the same order. All "
            "scores here judge one classifier, so AUROC and AURC differ by ties and weighting alone. The paper's scores come "
            "with classifiers of different accuracy, where the two rankings can differ more.",
            markdown(["network", "test", "corruption", "unknown sets, least", "unknown sets, most"], lines),
            f"The least correlation is {round(min(least), 3):.2f}. With one classifier for all scores, the two rankings are "
            f"{close}. The paper's claim that they differ substantially {claim} here. It needs scores that judge different classifiers.",
        ]
    )


def rank_correlation(rows: Results, names: Sequence[str], shift: str) -> float:
    """Compute Spearman's correlation of AURC and AUROC over the scores, on one set."""
    areas = values_of(rows, names, shift, "aurc")
    aurocs = values_of(rows, names, shift, "auroc")
    return float(spearmanr(areas, -aurocs).statistic)


# --- Table 13: wrong predictions on known inputs --------------------------------------------------------------------


def wrong_predictions(networks: Sequence[NetworkResults]) -> str:
    """Write the section on keeping or removing wrong predictions on known inputs."""
    lines = []
    largest = 0
    for network in networks:
        names = scores_of(network.rows, protocol="fd_shifts", metric="auroc", shift="test")
        for shift in network.unknown:
            original = values_of(network.rows, names, shift, "auroc", protocol="fd_shifts_original")
            proposed = values_of(network.rows, names, shift, "auroc", protocol="fd_shifts")
            moved = int(np.abs(ranking(original) - ranking(proposed)).max())
            largest = max(largest, moved)
            correlation = f"{spearmanr(original, proposed).statistic:.3f}"
            gain = float((proposed - original).mean())
            lines.append([network.name, shift, correlation, moved, number(gain)])
    claim = "does not hold"
    if largest >= 3:
        claim = "holds"
    header = ["network", "set", "rank correlation", "largest change of rank", "mean gain in AUROC, points"]
    return "\n\n".join(
        [
            "## Wrong predictions on known inputs: kept or removed (FD-Shifts paper, Table 13)",
            "AUROC against each unknown set, if every known input counts as correct (original) and if wrong predictions are removed "
            "(proposed). The table shows the rank correlation of the scores between the two, and the largest change of rank.",
            markdown(header, lines),
            f"The rank of a score changes by up to {largest} places. The claim that the choice changes rankings {claim}.",
        ]
    )


def ranking(values: np.ndarray) -> np.ndarray:
    """Rank values from the highest, 0 first."""
    return np.argsort(np.argsort(-values))


# --- Figure 8: classifiers side by side -----------------------------------------------------------------------------


def classifiers(networks: Sequence[NetworkResults]) -> str:
    """Write the section on AURC over all scores."""
    lines = []
    for network in networks:
        rows = network.rows.filter(protocol="fd_shifts", metric="aurc")
        line = [network.name]
        for sets in (("test",), ("corruption",), network.near, network.far):
            line.append(show_quartiles(rows, sets))
        lines.append(line)
    return "\n\n".join(
        [
            "## Classifiers side by side (FD-Shifts paper, Figure 8)",
            "AURC over all scores: median [quartiles]. The paper compares a CNN with a ViT; the table compares five CNNs.",
            markdown(["network", "test", "corruption", "near", "far"], lines),
        ]
    )


def show_quartiles(rows: Results, sets: Sequence[str]) -> str:
    """Write median and quartiles over scores and sets."""
    values = []
    for row in rows.rows:
        if row["shift"] in sets and not np.isnan(row["value"]):
            values.append(1000 * row["value"])
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"


# --- Table 2: floating-point precision ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Precision:
    """Hold what msp loses on the test set if it is computed with a floating-point type."""

    kind: str
    rounded: float  # share of the maxima rounded to 1
    lost_auroc: float  # against float64, as the next one
    added_aurc: float


def precision(networks: Sequence[NetworkResults]) -> str:
    """Write the section on the floating-point precision of msp."""
    lines = []
    losses = Records()
    for network in networks:
        test = network.run["test"]
        exact = softmax_maximum(test.logits, "float64")
        for kind in PRECISIONS:
            conf = softmax_maximum(test.logits, kind)
            area = metrics.aurc(test.correct, conf)
            auroc = metrics.auroc(test.correct, conf)
            rounded = metrics.round_to_one(test.logits, dtype=kind).rate
            lines.append([network.name, kind, number(rounded), number(area, 1000), number(auroc)])
            losses.append(
                Precision(
                    kind,
                    rounded,
                    lost_auroc=metrics.auroc(test.correct, exact) - auroc,
                    added_aurc=area - metrics.aurc(test.correct, exact),
                )
            )
    half = most_lost(losses.where(kind="float16"))
    single = most_lost(losses.where(kind="float32"))
    marginal = "does not hold"
    if single.lost_auroc < 0.001:
        marginal = "holds"
    hurts = "does not show here"
    if half.lost_auroc > 0.002:
        hurts = "holds"
    return "\n\n".join(
        [
            "## Floating-point precision of msp (FD-Shifts paper, Table 2)",
            markdown(["network", "type", "rounded to 1, %", "AURC", "AUROC of failures"], lines),
            f"float16 rounds up to {100 * half.rounded:.1f} % of the maxima to 1. Against float64 it costs up to {100 * half.lost_auroc:.2f} "
            f"points of AUROC and {1000 * half.added_aurc:.2f} of AURC (x1000). float32 rounds up to {100 * single.rounded:.1f} % to 1, which "
            f"costs at most {100 * single.lost_auroc:.4f} points of AUROC and {1000 * single.added_aurc:.2f} of AURC. The paper's claim that the "
            f"effect of float32 is marginal for CNNs {marginal}. The claim that half precision hurts {hurts}.",
        ]
    )


def softmax_maximum(logits: np.ndarray, kind: str) -> np.ndarray:
    """Compute the maximum softmax probability with a floating-point type."""
    logits = np.asarray(logits).astype(kind)
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, dtype=kind)
    return (1 / total).astype(kind).astype(np.float64)


def most_lost(losses: Records[Precision]) -> Precision:
    """Return the largest loss of each kind over the networks."""
    return Precision(
        losses[0].kind,
        max(losses.values("rounded")),
        max(losses.values("lost_auroc")),
        max(losses.values("added_aurc")),
    )
