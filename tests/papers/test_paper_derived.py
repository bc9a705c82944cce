"""What tables print and no benchmark measures, and the choice among trainings, against plain counting."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.bench.rows import VALIDATION
from twofold.outputs import Outputs
from twofold.papers.derived import derive_best_run, derive_precision, derive_ranks
from twofold.papers.fd_shifts_figures import box_values, guaranteed_risks
from twofold.papers.material import Material
from twofold.papers.model_selection import choose_trainings
from twofold.papers.plan import PrintedTable
from twofold.papers.tables import PaperTable
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.stats import clopper_pearson, sgr


def row(score, value, **changes):
    plain = {
        "benchmark": "fd-cifar10-real",
        "model": "resnet8_cifar",
        "recipe": "basic",
        "seed": 0,
        "run": "ce-s0",
        "score": score,
        "pair": None,
        "protocol": "fd_shifts",
        "shift": "cifar100",
        "role": "near",
        "metric": "auroc",
        "value": value,
        "low": None,
        "high": None,
        "better": None,
    }
    return {**plain, **changes}


def test_ranks_share_the_better_place_and_know_both_protocols():
    original = {"protocol": "fd_shifts_original"}
    rows = [row("msp", 0.7), row("mls", 0.9), row("entropy", 0.7), row("energy", 0.99)]  # energy is not printed
    rows += [row("msp", 0.8, **original), row("mls", 0.6, **original)]
    ranks = {(one["metric"], one["score"]): one["value"] for one in derive_ranks(Material(rows=tuple(rows)))}
    assert ranks == {
        ("auroc_rank", "mls"): 1,
        ("auroc_rank", "msp"): 2,
        ("auroc_rank", "entropy"): 2,
        ("auroc_rank_original", "msp"): 1,
        ("auroc_rank_original", "mls"): 2,
    }


def test_lower_aurc_ranks_first_and_kinds_of_networks_are_ranked_apart():
    rows = [row("msp", 0.2, metric="aurc"), row("mls", 0.1, metric="aurc"), row("msp", 0.3, metric="aurc", seed=1)]
    rows += [row("msp", 0.5, metric="aurc", model="tiny_vit_32")]
    ranks = {(one["model"], one["score"]): one["value"] for one in derive_ranks(Material(rows=tuple(rows)))}
    assert ranks == {("resnet8_cifar", "mls"): 1, ("resnet8_cifar", "msp"): 2, ("tiny_vit_32", "msp"): 1}


def test_cells_of_a_table_take_results_of_their_kind_of_network():
    rows = [row("msp", 0.25, metric="aurc"), row("msp", 0.5, metric="aurc", model="tiny_vit_32")]
    table = PaperTable.of(PrintedTable("fd_shifts", "1"), rows)
    found = {cell.line: cell.ours for cell in table.cells if cell.ours is not None}
    assert found == {("CNN", "msp", "basic"): 250.0, ("ViT", "msp", "basic"): 500.0}


def test_the_best_training_on_validation_data_counts_score_by_score():
    recipes = {"plain": "basic", "dropout": "basic", "other": "devries"}
    rows = []
    for recipe, msp, mls in (("plain", 0.1, 0.4), ("dropout", 0.2, 0.3)):
        for score, loss in (("msp", msp), ("mls", mls)):
            val = {"shift": VALIDATION, "role": "val", "metric": "augrc", "recipe": recipe}
            rows += [row(score, loss, **val), row(score, 10 * loss, recipe=recipe, metric="aurc")]
    rows.append(row("devries", 0.5, recipe="other", metric="aurc"))
    chosen = {
        (one["recipe"], one["score"]): one["value"] for one in choose_trainings(rows, recipes) if one["role"] == "near"
    }
    assert chosen == {("basic", "msp"): 1.0, ("basic", "mls"): 3.0, ("devries", "devries"): 0.5}


def test_the_most_accurate_run_is_the_best():
    rows = []
    for seed, accuracy, auroc in ((0, 0.8, 0.9), (1, 0.9, 0.6)):
        own = {"seed": seed, "run": f"ce-s{seed}"}
        rows += [row("msp", accuracy, metric="accuracy", role="iid", shift="test", **own), row("msp", auroc, **own)]
    best = [one for one in derive_best_run(Material(rows=tuple(rows))) if one["metric"] == "auroc"]
    assert [(one["recipe"], one["value"]) for one in best] == [("basic_best", 0.6)]


@pytest.fixture
def run(tmp_path):
    """A network that is right on 90 % of val and test, and less so as corruptions grow."""
    rng = np.random.default_rng(0)
    run = Run.create(tmp_path / "ce-s0", model="net")
    sets = {"train": ("train", 0.95), "val": ("val", 0.9), "test": ("test", 0.9), "far": ("far", 0.0)}
    sets |= {f"corruption/{level}": ("shift", 0.9 - 0.1 * level) for level in range(1, 6)}
    for name, (role, accuracy) in sets.items():
        labels = rng.integers(10, size=600)
        guess = np.where(rng.random(600) < accuracy, labels, (labels + 1) % 10)
        height = np.where(guess == labels, rng.uniform(4, 30, size=600), rng.uniform(4, 12, size=600))
        logits = rng.normal(size=(600, 10)) + height[:, None] * np.eye(10)[guess]
        run.add(name, Outputs(logits.astype(np.float32), np.full(600, -1) if role == "far" else labels), role=role)
    return run


def test_rounding_is_counted_in_every_precision(run):
    rows = (row("msp", 0.9, metric="accuracy", role="iid", shift="test"),)
    found = {one["metric"]: one["value"] for one in derive_precision(Material(rows=rows, runs=(run.path,)))}
    margins = []
    for name in run.names():
        if name not in ("train", "val"):
            logits = np.sort(np.asarray(run[name].logits, dtype=np.float64), axis=1)
            margins.append(logits[:, -1] - np.log(np.exp(logits[:, :-1]).sum(axis=1)))
    pooled = np.concatenate(margins)
    # the largest probability rounds to one where the margin exceeds p ln 2 for a significand of p bits
    for bits, significand in (("32bit", 24), ("64bit", 53)):
        expected = (pooled > significand * np.log(2)).mean()
        assert found[f"round_to_one_{bits}"] == pytest.approx(expected, abs=0.03)  # small powers are lost one by one
    assert found["round_to_one_16bit"] > found["round_to_one_32bit"] > 0.1
    assert found["aurc_16bit"] != found["aurc_64bit"]


def test_thresholds_of_guaranteed_risk_are_measured_on_every_set(run):
    rows = guaranteed_risks(run, "msp", risk=0.15, deltas=(0.05,))
    by_place = {(one.method, one.shift): one for one in rows}
    assert by_place["binary", "test"].risk < 0.15
    assert by_place["binary", "corruption/5"].risk > 0.4
    accepted = by_place["published", "val"]
    conf = scorer("msp").score(run["val"])
    taken = conf >= accepted.threshold
    assert accepted.coverage == pytest.approx(taken.mean())
    assert accepted.risk == pytest.approx(1 - np.asarray(run["val"].correct)[taken].mean())


def test_the_published_search_is_that_of_the_paper():
    """A literal loop over the sorted sample, the bound by a library."""
    from scipy.stats import beta

    rng = np.random.default_rng(3)
    for errors in (0.02, 0.1, 0.4):
        conf = rng.random(300).round(2)
        correct = rng.random(300) > errors * (1.5 - conf)
        ordered = sorted(conf)
        low, high, looks = 1, 300, 9
        for _ in range(looks):
            place = -(-(low + high) // 2)
            kept = [right for right, one in zip(correct, conf, strict=True) if one >= ordered[place - 1]]
            wrong = len(kept) - sum(kept)
            bound = 1.0 if wrong == len(kept) else beta.ppf(1 - 0.05 / looks, wrong + 1, len(kept) - wrong)
            low, high = (low, place) if bound < 0.15 else (place, high)
        found = sgr(correct, conf, risk=0.15, delta=0.05, method="published")
        assert (found.threshold, found.errors, found.accepted) == (ordered[place - 1], wrong, len(kept))
        assert found.bound == pytest.approx(bound)
        assert found.bound == pytest.approx(clopper_pearson(wrong, len(kept), delta=0.05 / looks))
        assert found.feasible == (bound < 0.15)


def test_boxes_hold_every_printed_study_and_ours_beside_it():
    values = box_values([row("msp", 0.25, metric="aurc"), row("energy", 0.25, metric="aurc")])
    printed = [value for value in values if value.source == "printed"]
    assert len(printed) == 3 * 483
    [ours] = [value for value in values if value.source == "ours"]
    assert (ours.data, ours.classifier, ours.shift, ours.value) == ("fd-cifar10", "CNN", "cifar100", 0.25)
