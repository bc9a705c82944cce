"""Decide the papers' claims on scores, thresholds and estimators from committed tables, each with an interval and a p.

    python benchmarks/score_claims.py        (seconds; reads results/, writes results/claims/scores.csv)

Rules. Some are those of earlier pages, whose numbers were known. The interval of a signed gain decides, as in ``claims.py``.
Intervals are those of ``score_choice.py`` over networks and unknown sets (tables of ``which_score.py``), or Student's t
over networks, or over networks and promises. They say how far a claim carries over to other networks and sets.

- Two scores against one: DS-F1 of msp with each other score, less the better of the two alone.
- Far against near: the mean gain over msp on far sets, less that on near sets.
- A strong single score: F1 of msp, less that of the score at the upper quarter of all scores.
- Poor ID scores: how much DS-F1 changes when two scores change places, less one point.
- Thresholds that stay ahead: F1 of msp + react|energy at thresholds of another set, less the better of its scores.
- No score wins: the least mean excess of one score's AURC over the best score of each shift.
- No score beats the softmax: AURC of the best other score, less that of msp; the interval holds for all scores together.
- Removing mistakes: the largest change of a rank of AUROC in each cell, less three places.
- AURC and AUROC of failures rank differently: 0.8 less their rank correlation.
- Half precision hurts: AUROC lost by float16. Single precision hardly does: 0.1 points less the AUROC lost by float32.
- Calibration: one point of ECE, less what another scaled score has more than scaled msp.
- A guarantee holds on fresh data (promised less found risk), and fails under corruption (found less promised).
- Estimators: differences of absolute bias or RMSE, in percent of the AURC, averaged over both losses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean

from script import FOLDER

import numpy as np
from scipy.stats import rankdata, spearmanr, t

from claims import Claim, judge, write_claims
from score_choice import BASE, DRAWS, SEED, Gain, Table, read_csv
from twofold.bench.published import anchors
from twofold.typing import Array

RESULTS = FOLDER.parent / "results"
COMMAND = "python benchmarks/score_claims.py"
NEAR = ("cifar10", "cifar100", "tinyimagenet")
PAIR, SECOND = "msp + react|energy", "react|energy"
UPPER = 0.75  # of the scores: where a strong score begins
PLACES = 3  # that a rank moves where a choice matters
CLOSE = 0.8  # rank correlation of two orders that hardly differ
POINT, TENTH = 1.0, 0.1


def main() -> None:
    """Write the claims."""
    print(write())


def write() -> str:
    """Decide every claim and write the file."""
    return str(write_claims("scores", decide_all()))


def decide_all() -> list[Claim]:
    """Decide every claim."""
    return [*joint_claims(), *shift_claims(), *precision_claims(), *guarantee_claims(), *estimator_claims()]


def show(gain: Gain, factor: float = 100) -> str:
    """Write a gain with its interval."""
    value, low, high = (factor * number for number in (gain.value, gain.low, gain.high))
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def minus(gain: Gain, other: float | Gain) -> Gain:
    """Subtract a margin, or another gain draw by draw."""
    if isinstance(other, Gain):
        return Gain.of(gain.value - other.value, gain.draws - other.draws)
    return Gain.of(gain.value - other, gain.draws - other)


def negated(gain: Gain) -> Gain:
    """Turn a gain around."""
    return Gain.of(-gain.value, -gain.draws)


def over_units(values: Sequence[float]) -> Gain:
    """Average values of independent units, with Student's t as the distribution of the mean."""
    own = np.array(values)
    error = own.std(ddof=1) / np.sqrt(len(own))
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    return Gain.of(float(own.mean()), own.mean() + error * t.ppf(levels, len(own) - 1))


def decided(paper: str, text: str, gain: Gain, factor: float = 100, **about: str) -> Claim:
    """Make a claim from a gain."""
    bounds = {"low": factor * gain.low, "high": factor * gain.high, "p": gain.p}
    return judge(paper, text, command=COMMAND, **bounds, **about)


def printed(table: str, metric: str, shift: str, score: str, pair: str = "") -> float:
    """Find a number of the SURE+ paper."""
    found = anchors(paper="sure_plus", table=table, benchmark="openood-cifar100")
    return next(a.value for a in found if (a.metric, a.shift, a.score, a.pair) == (metric, shift, score, pair))


# --- SURE+ ----------------------------------------------------------------------------------------------------------


def small_images(row: Mapping[str, str]) -> bool:
    """Tell whether a cell is of a CIFAR network."""
    return row["modality"] == "small images"


def singles(row: Mapping[str, str]) -> dict[str, float]:
    """Return the values of single scores in a cell."""
    keys = ("network", "modality", "quantity", "chosen_on", "judged_on", "command")
    return {name: float(cell) for name, cell in row.items() if name not in keys and " + " not in name and cell}


def joint_claims() -> Iterator[Claim]:
    """Decide the claims on two scores."""
    table = Table.read(RESULTS)
    networks = sum(modality == "small images" for modality in table.networks.values())
    scale = f"{networks} CIFAR networks, {len(table.sets)} unknown sets"
    about = {"unit": "F1, points", "scale": scale}

    def excess(row: Mapping[str, str]) -> float | None:
        if not small_images(row):
            return None
        alone = singles(row)
        found = []
        for name, value in alone.items():
            if name != BASE:
                found.append(float(row[f"msp + {name}"]) - max(value, alone[BASE]))
        return mean(found)

    gain = table.gain("ds_f1", excess)
    yield decided(
        "sure_plus",
        "Two scores are never worse than the better of them alone",
        gain,
        printed_at="Eq. 3, Table 1",
        printed="proven",
        ours=f"mean gain over the better score {show(gain)} points; it cannot be negative with exact metrics",
        **about,
    )
    far, near = (table.gain("ds_f1", gain_over_msp(near)) for near in (False, True))
    difference = minus(far, near)
    base = {shift: printed("1", "f1", shift, "msp") for shift in ("near", "far")}
    best = {}
    for shift in base:
        found = anchors(paper="sure_plus", table="1", benchmark="openood-cifar100")
        best[shift] = max(a.value for a in found if (a.metric, a.shift, a.score) == ("ds_f1", shift, "msp"))
    yield decided(
        "sure_plus",
        "Far unknown sets gain more from double scoring than near ones",
        difference,
        printed_at="Table 1",
        printed=f"best gain {best['near'] - base['near']:+.2f} near, {best['far'] - base['far']:+.2f} far",
        ours=f"mean gain {show(near)} near, {show(far)} far",
        **about,
    )
    for where, is_near in (("near", True), ("far", False)):
        lead = table.gain("ds_f1", lead_of_msp(is_near))
        yield decided(
            "sure_plus",
            f"The plain softmax is a strong single score on {where} sets",
            lead,
            printed_at="Table 1",
            printed=f"F1 {base[where]:.2f}",
            ours=f"F1 less that of the upper quarter of scores: {show(lead)}",
            **about,
        )
    yield judge(
        "sure_plus",
        "VIM and ReAct are poor ID scores: DS-F1 falls when two scores change places",
        printed_at="Table 6",
        printed=f"msp + vim {printed('6', 'ds_f1', 'near', 'msp', 'vim'):.2f}, "
        f"vim + msp {printed('6', 'ds_f1', 'near', 'vim', 'msp'):.2f}",
        ours="no change: exact metrics treat the scores alike; the grid of the released code makes the difference",
        low=-POINT,
        high=-POINT,
        unit="F1, points less one",
        scale=scale,
        command=COMMAND,
    )
    for other, text in ((BASE, "msp alone"), (SECOND, "react|energy alone")):
        stay = table.gain("f1", ahead_of(other))
        yield decided(
            "sure_plus",
            f"Thresholds of msp + react|energy stay ahead of {text} on another unknown set",
            stay,
            printed_at="Table 2",
            printed=f"F1 {printed('2', 'ds_f1_transferred', 'mnist', 'msp', SECOND):.1f} against "
            f"{printed('2', 'f1_transferred', 'mnist', other):.1f}",
            ours=f"F1 of the pair less that of the single score: {show(stay)}",
            **about,
        )


def gain_over_msp(near: bool) -> Callable[[Mapping[str, str]], float | None]:
    """Return the mean gain of all second scores over msp in a cell, on near or far sets."""

    def found(row: Mapping[str, str]) -> float | None:
        if not small_images(row) or (row["judged_on"] in NEAR) != near:
            return None
        gains = [float(row[f"msp + {name}"]) - float(row[BASE]) for name in singles(row) if name != BASE]
        return mean(gains)

    return found


def lead_of_msp(near: bool) -> Callable[[Mapping[str, str]], float | None]:
    """Return the lead of msp over the upper quarter of single scores in a cell, on near or far sets."""

    def found(row: Mapping[str, str]) -> float | None:
        if not small_images(row) or (row["judged_on"] in NEAR) != near:
            return None
        return float(row[BASE]) - float(np.quantile(list(singles(row).values()), UPPER))

    return found


def ahead_of(other: str) -> Callable[[Mapping[str, str]], float | None]:
    """Return the lead of the paper's pair over one of its scores in a cell."""

    def found(row: Mapping[str, str]) -> float | None:
        return float(row[PAIR]) - float(row[other]) if small_images(row) else None

    return found


# --- FD-Shifts ------------------------------------------------------------------------------------------------------


def shift_claims() -> Iterator[Claim]:
    """Decide the claims on scores across shifts."""
    table = Table.read(RESULTS)
    areas = areas_by_cell(table)
    names = sorted(set.intersection(*(set(own) for own in areas.values())))
    about = {"scale": f"{len(names)} scores, 5 CIFAR networks, test data, corruption and unknown sets"}
    matrix = np.array([[own[name] for name in names] for own in areas.values()])
    draws = cell_draws(list(areas))
    excess = matrix - matrix.min(axis=1, keepdims=True)
    networks = len(cifar_networks(table))
    least = Gain.of_few(float(excess.mean(axis=0).min()), (draws @ excess).min(axis=1), networks)
    winners = {names[i] for i in matrix.argmin(axis=1)}
    yield decided(
        "fd_shifts",
        "No score wins under all shifts",
        least,
        factor=1000,
        printed_at="Table 1",
        printed="no score does",
        ours=f"{len(winners)} different scores are best somewhere; the best on average has {show(least, 1000)} more AURC than "
        "the best of each shift",
        unit="AURC, x1000",
        **about,
    )
    msp = names.index(BASE)
    others = [i for i in range(len(names)) if i != msp]
    apart = [matrix[:, i] - matrix[:, msp] for i in others]
    gaps = [Gain.of_few(float(own.mean()), draws @ own, networks) for own in apart]
    best = min(range(len(gaps)), key=lambda i: gaps[i].value)
    gap = together(gaps, best)
    yield decided(
        "fd_shifts",
        "No score beats the softmax across shifts",
        gap,
        factor=1000,
        printed_at="Table 1",
        printed="no score does",
        ours=f"AURC of {names[others[best]]}, the best other score, less that of msp: {show(gap, 1000)}",
        unit="AURC, x1000",
        **about,
    )
    moved = table.gain("auroc_ood", change_of_ranks(table))
    yield decided(
        "fd_shifts",
        f"Removing wrong answers on known inputs moves ranks of scores by more than {PLACES} places",
        minus(moved, PLACES),
        factor=1,
        printed_at="Table 13",
        printed="it changes ranks",
        ours=f"largest change in a cell {show(moved, 1)} places",
        unit="places",
        scale=f"5 CIFAR networks, {len(table.sets)} unknown sets",
    )
    correlations: list[float] = []
    for network in cifar_networks(table):
        rows = [row for row in read_csv(RESULTS / "real_bench.csv") if row["run"] == network]
        for shift in ("test", "corruption"):
            own = {m: by_score(rows, m, shift) for m in ("aurc", "auroc")}
            shared = sorted(own["aurc"])
            correlations.append(
                float(spearmanr([own["aurc"][s] for s in shared], [-own["auroc"][s] for s in shared]).statistic)
            )
    agreement = over_units(correlations)
    yield decided(
        "fd_shifts",
        "AURC and the AUROC of failures rank the scores of one classifier differently",
        minus(negated(agreement), -CLOSE),
        factor=1,
        printed_at="Table 12",
        printed="they differ",
        ours=f"rank correlation {show(agreement, 1)}; different classifiers would be needed",
        unit="0.8 less the correlation",
        scale="5 CIFAR networks, test data and corruption",
    )


def areas_by_cell(table: Table) -> dict[tuple[str, str], dict[str, float]]:
    """Collect the AURC of every score by network and shift; corruption is from the table of the benchmark."""
    found = {}
    for row in table.rows:
        if row["quantity"] == "aurc" and small_images(row):
            found[row["network"], row["judged_on"]] = singles(row)
    corrupted = [row for row in read_csv(RESULTS / "real_bench.csv") if row["protocol"] == "fd_shifts"]
    for network in cifar_networks(table):
        rows = [row for row in corrupted if row["run"] == network]
        found[network, "corruption"] = by_score(rows, "aurc", "corruption")
    return found


def cifar_networks(table: Table) -> list[str]:
    """List the CIFAR networks."""
    return [name for name, modality in table.networks.items() if modality == "small images"]


def by_score(rows: Sequence[Mapping[str, str]], metric: str, shift: str) -> dict[str, float]:
    """Return the values of a metric by score."""
    chosen = [
        r for r in rows if (r["metric"], r["shift"], r["pair"], r["protocol"]) == (metric, shift, "", "fd_shifts")
    ]
    return {row["score"]: float(row["value"]) for row in chosen}


def cell_draws(cells: Sequence[tuple[str, str]]) -> Array:
    """Draw networks and shifts independently; return the weight of each cell in each draw."""
    rng = np.random.default_rng(SEED)
    weights = np.ones((DRAWS, len(cells)))
    for part in (0, 1):
        names = sorted({cell[part] for cell in cells})
        drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
        weights *= drawn[:, [names.index(cell[part]) for cell in cells]]
    total = weights.sum(axis=1, keepdims=True)
    return np.where(total > 0, weights, 1.0) / np.where(total > 0, total, len(cells))


def together(gains: Sequence[Gain], which: int) -> Gain:
    """Widen the interval of one gain so that it holds for all of them together: the largest deviation of all decides."""
    draws = np.array([gain.draws for gain in gains])
    values = np.array([gain.value for gain in gains])
    spread = draws.std(axis=1)
    largest = np.abs((draws - values[:, None]) / spread[:, None]).max(axis=0)
    reach = largest * spread[which]
    value = gains[which].value
    return Gain.of(value, np.concatenate([value - reach, value + reach]))


def change_of_ranks(table: Table) -> Callable[[Mapping[str, str]], float | None]:
    """Return the largest change of a score's rank in a cell if wrong answers on known inputs are removed."""
    kept = {(row["network"], row["judged_on"]): singles(row) for row in table.cells("auroc_ood of right answers")}

    def found(row: Mapping[str, str]) -> float | None:
        if not small_images(row):
            return None
        before, after = singles(row), kept[row["network"], row["judged_on"]]
        ranks = [rankdata([-own[name] for name in before]) for own in (before, after)]
        return float(np.abs(ranks[0] - ranks[1]).max())

    return found


def precision_claims() -> Iterator[Claim]:
    """Decide the claims on floating-point types and on calibration, from the tables of the page on real classifiers."""
    page = (RESULTS / "real_bench.md").read_text(encoding="utf-8")
    areas: dict[str, dict[str, float]] = {}
    for network, kind, area in re.findall(r"^\| (\S+) \| (float\d\d) \| \S+ \| \S+ \| (\S+) \|$", page, re.MULTILINE):
        areas.setdefault(network, {})[kind] = float(area)
    lost = {kind: over_units([own["float64"] - own[kind] for own in areas.values()]) for kind in ("float16", "float32")}
    about = {"printed_at": "Table 2", "scale": f"{len(areas)} CIFAR networks"}
    yield decided(
        "fd_shifts",
        "Half precision hurts the softmax",
        lost["float16"],
        factor=1,
        printed="marginal for CNNs in single precision, large in half",
        ours=f"AUROC lost {show(lost['float16'], 1)}",
        unit="AUROC, points",
        **about,
    )
    yield decided(
        "fd_shifts",
        "Single precision hardly hurts the softmax of a CNN",
        minus(negated(lost["float32"]), -TENTH),
        factor=1,
        printed="marginal",
        ours=f"AUROC lost {show(lost['float32'], 1)}",
        unit="AUROC, 0.1 points less what is lost",
        **about,
    )
    more, hardest = calibration_errors(page)
    gain = over_units([POINT - value for value in more])
    yield decided(
        "fd_shifts",
        "Scores other than the softmax can be calibrated",
        gain,
        factor=1,
        printed_at="Table 10",
        printed="they can",
        ours=f"after the same scaling ECE is higher than that of msp by {show(over_units(more), 1)} points; under the "
        f"hardest corruption no score is below {hardest:.1f} %",
        unit="ECE, one point less the excess",
        scale=f"{len(more)} scores of two CIFAR networks; the interval is over scores",
    )


def calibration_errors(page: str) -> tuple[list[float], float]:
    """Collect by how much each scaled score exceeds scaled msp, and the least error under the hardest corruption."""
    part = page.split("## Calibration of every score")[1].split("\n## ")[0]
    more, hardest = [], []
    for section in part.split("\n### ")[1:]:
        errors = {}
        for line in re.findall(r"^\| (.+?) \| (\d\S*) \|(?:.*\|)? (\d\S*) \|$", section, re.MULTILINE):
            errors[line[0].replace("\\", "")] = (float(line[1]), float(line[2]))
        scaled = {name: own for name, own in errors.items() if not name.startswith(("a constant", "msp, no"))}
        constant = next(own for name, own in errors.items() if name.startswith("a constant"))
        msp = scaled.pop("msp")
        kept = [own for own in scaled.values() if abs(own[1] - constant[1]) > max(0.02 * constant[1], 0.1)]
        more += [own[0] - msp[0] for own in kept]
        hardest.append(min(own[1] for own in (*kept, msp)))
    return more, min(hardest)


def guarantee_claims() -> Iterator[Claim]:
    """Decide whether promises of msp hold on fresh data and under corruption; units are networks and promised risks."""
    found: dict[str, list[float]] = {}
    for row in read_csv(RESULTS / "real_gate.csv"):
        if (row["table"], row["gate"], row["quantity"]) == ("known inputs alone", "msp", "risk, mean"):
            found.setdefault(row["judged_on"], []).append(float(row["value"]) - float(row["asked"]))
    about = {
        "printed_at": "Figure 7",
        "unit": "risk, points",
        "scale": f"2 CIFAR networks, {len(found['level 0'])} promises, 10 splits",
    }
    fresh = negated(over_units(found["level 0"]))
    yield decided(
        "fd_shifts",
        "A guarantee holds on fresh data",
        fresh,
        printed="it holds",
        ours=f"risk below what was promised by {show(fresh)} points",
        **about,
    )
    for level in ("level 1", "level 5"):
        above = over_units(found[level])
        yield decided(
            "fd_shifts",
            f"A guarantee on clean data fails under corruption of {level}",
            above,
            printed="it fails",
            ours=f"risk above what was promised by {show(above)} points",
            **about,
        )


# --- estimators of AURC ---------------------------------------------------------------------------------------------


def estimator_claims() -> Iterator[Claim]:
    """Decide the claims on estimators of AURC; units are models."""
    rows = [row for row in read_csv(RESULTS / "aurc_study.csv") if row["confidence"] == "msp"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["model"], row["loss"], int(row["n"]), row["estimator"]): row for row in rows}
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    sizes = sorted({key[2] for key in cells})
    about = {"unit": "% of AURC", "scale": f"{len(models)} CIFAR classifiers, both losses, msp, batches of 128"}

    def share(model: str, estimator: str, quantity: str, n: int = 128, loss: str | None = None) -> float:
        own = []
        for one in losses if loss is None else [loss]:
            row = cells[model, one, n, estimator]
            own.append(float(row[quantity]) / float(row["population"]))
        return mean(own)

    def size(model: str, estimator: str, n: int = 128) -> float:
        return abs(share(model, estimator, "bias", n))

    for name, estimator in (("harmonic", "empirical"), ("log", "log")):
        gain = over_units([size(model, "sele") - size(model, estimator) for model in models])
        yield estimator_claim(
            f"The {name} plug-in is less biased than SELE",
            gain,
            "Figure 6",
            "lower error",
            "absolute bias of SELE less its own:",
            about,
        )
        worse = over_units([share(model, "sele", "rmse") - share(model, estimator, "rmse") for model in models])
        yield estimator_claim(
            f"The {name} plug-in has a smaller error than SELE, variance included",
            worse,
            "Figure 6",
            "lower error, from squared bias",
            "RMSE of SELE less its own:",
            about,
        )
    lower = over_units([-share(model, "sele", "bias") for model in models])
    yield estimator_claim("SELE is too low", lower, "Figure 3", "a lower bound", "too low by", about)
    upper = over_units([share(model, "2sele", "bias") for model in models])
    yield estimator_claim("Twice SELE is too high", upper, "Figure 3", "an upper bound", "too high by", about)
    shrinks = over_units([size(model, "empirical", sizes[0]) - size(model, "empirical", sizes[-1]) for model in models])
    text = f"The bias of the harmonic plug-in vanishes with the batch: less at {sizes[-1]} than at {sizes[0]}"
    yield estimator_claim(text, shrinks, "Figure 3", "it converges", "bias falls by", about)
    error = over_units([share(model, "empirical", "rmse") - share(model, "log", "rmse") for model in models])
    text = "The log plug-in has a smaller error than the harmonic one"
    yield estimator_claim(text, error, "Figure 5", "smaller", "RMSE of the harmonic one less its own:", about)
    variance = []
    for model in models:
        variance.append(share(model, "empirical", "std", loss="CE") - share(model, "empirical", "std", loss="0/1"))
    text = "The 0/1 loss has a smaller relative variance than cross-entropy"
    yield estimator_claim(
        text, over_units(variance), "Figure 4", "smaller", "deviation of cross-entropy less its own:", about
    )


def estimator_claim(text: str, gain: Gain, printed_at: str, said: str, words: str, about: Mapping[str, str]) -> Claim:
    """Make a claim of the paper on estimators."""
    ours = f"{words} {show(gain)} % of AURC"
    return decided("aurc_estimators", text, gain, printed_at=printed_at, printed=said, ours=ours, **about)


if __name__ == "__main__":
    main()
