"""Drawings and tables of SURE+ and unknown detection: what they show is in the material, and what lacks is named."""

import numpy as np
import pytest

from twofold import Outputs, Run, metrics, scorer
from twofold.errors import InvalidInput
from twofold.outputs import Head, Passes
from twofold.papers.class_step import MEAN_PROBABILITY
from twofold.papers.drawings import DRAWINGS
from twofold.papers.joint_tables import ds_aurc_algorithm, ds_f1_algorithm
from twofold.papers.material import Material
from twofold.papers.plan import PrintedTable
from twofold.papers.tables import PaperTable

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from twofold.papers import parse  # noqa: F401 - it registers the drawings
from twofold.papers import unknown_figures as unknown

SETS = {"train": "train", "val": "val", "test": "test", "cifar10": "near", "mnist": "far"}


def make_run(folder, recipe, passes=False):
    made = Run.create(folder / recipe, model="toy", recipe=recipe, seed=0)
    head = Head(np.random.default_rng(0).normal(size=(3, 5)), np.zeros(3))
    for seed, (name, role) in enumerate(SETS.items()):
        rng = np.random.default_rng([seed, len(recipe)])
        known = role in ("train", "val", "test")
        labels = rng.integers(0, 3, 80)
        features = rng.normal(size=(80, 5)) + (head.weight[labels] if known else 0.5)
        logits = head.logits(features)
        means = Passes.from_logits(np.stack([logits, 0.5 * logits])) if passes else None
        truth = labels if known else np.full(80, -1)
        made.add(name, Outputs(logits, truth, features, head, passes=means), role=role)
    return made.path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return tuple(make_run(folder, recipe, recipe == "deep_ensemble") for recipe in ("basic", "cutmix", "deep_ensemble"))


def row(recipe, metric, shift, value, score="msp", pair=None, benchmark="toy"):
    whose = {"benchmark": benchmark, "model": "toy", "recipe": recipe, "seed": 0, "run": recipe, "protocol": "joint"}
    what = {"score": score, "pair": pair, "shift": shift, "role": shift, "metric": metric}
    return whose | what | {"value": value, "low": None, "high": None}


def test_the_dilemma_shows_values_and_best_pairs(runs):
    rows = []
    for place, recipe in enumerate(("basic", "cutmix")):
        rows += [row(recipe, "accuracy", "test", 0.7 + place / 10), row(recipe, "aurc", "test", 0.1)]
        rows.append(row(recipe, "auroc_ood", "mnist", 0.8, score="energy"))
        rows += [row(recipe, name, "mnist", 0.6, pair="energy") for name in ("ds_f1", "ds_aurc")]
    drawn = DRAWINGS["joint_dilemma"](Material(rows=tuple(rows), runs=runs), ood_score="energy")
    found = {(line[0], line[1]): line[4] for line in drawn.rows}
    assert found["cutmix", "accuracy"] == pytest.approx(0.8)
    run = Run.open(runs[0])
    pool = Outputs.concat([run["test"], run["mnist"]])
    exact = metrics.ds_f1(pool.correct, scorer("msp").score(pool), scorer("energy").score(pool), pool.is_id).value
    assert exact - 0.05 < found["basic", "best f1 of the surface"] <= exact + 1e-12
    with pytest.raises(InvalidInput, match="no result with recipe basic, metric accuracy"):
        DRAWINGS["joint_dilemma"](Material(runs=runs), ood_score="energy")


def test_the_best_pairs_are_below_each_score(runs):
    drawn = DRAWINGS["double_risk"](Material(runs=runs[:1]), ood_score="energy")
    run = Run.open(runs[0])
    pool = Outputs.concat([run["test"], run["cifar10"]])
    curve = metrics.ds_risk_coverage_curve(
        pool.correct, scorer("msp").score(pool), scorer("energy").score(pool), pool.is_id
    )
    last = [line for line in drawn.rows if line[0] == "msp + energy"][-1]
    assert last[1:] == pytest.approx((1.0, curve.risk[-1]))
    assert {line[0] for line in drawn.rows} == {"msp + energy", "msp", "energy"}
    with pytest.raises(InvalidInput, match="no run holds places"):
        DRAWINGS["double_risk"](Material(runs=runs), unknown="places")


def test_improvement_is_a_share_of_the_aurc_of_mcp(runs):
    rows = [row("basic", "aurc", "pooled", 0.5), row("deep_ensemble", "aurc", "pooled", 0.4, score="mc_msp")]
    drawn = DRAWINGS["improvement_over_mcp"](Material(rows=tuple(rows), runs=runs))
    ((_, method, value, improvement, printed),) = drawn.rows
    assert (method, value) == ("Deep Ensemble", 0.4)
    assert improvement == pytest.approx(20.0)
    assert printed == pytest.approx(100 * (773.15 - 731.71) / 773.15)
    with pytest.raises(InvalidInput, match="no AURC of a pool"):
        DRAWINGS["improvement_over_mcp"](Material(runs=runs))


def test_densities_are_of_every_kind_of_input(runs):
    drawn = DRAWINGS["mcp_density"](Material(runs=runs))
    kinds = {(line[0], line[1]) for line in drawn.rows}
    assert len(kinds) == 8
    for kind in kinds:
        values = [line[3] for line in drawn.rows if (line[0], line[1]) == kind]
        assert sum(values) / 40 == pytest.approx(1.0)


def test_heat_maps_show_one_class_of_each_superclass():
    rows = []
    for recipe in ("basic", "deep_ensemble", "oe"):
        for name in ("beaver", "dolphin", "trout"):
            for known, value in (("otter", 0.75), ("ray", 0.25)):
                rows.append(row(recipe, MEAN_PROBABILITY, "cifar60", value, score=name, pair=known))
    drawn = DRAWINGS["taken_for"](Material(rows=tuple(rows)), sets=("cifar60",))
    assert {line[2] for line in drawn.rows} == {"beaver", "trout"}
    assert {(line[3], line[4]) for line in drawn.rows} == {("otter", 0.75), ("ray", 0.25)}
    with pytest.raises(InvalidInput, match="no mean probabilities of basic on svhn"):
        DRAWINGS["taken_for"](Material(rows=tuple(rows)), sets=("svhn",))


def test_every_method_of_the_tables_is_drawn():
    for table in ("6", "7"):
        printed = {cell.line for cell in PaperTable.of(PrintedTable("unknown_detection", table)).cells}
        assert printed == {(method.recipe, method.score) for method in unknown.METHODS}


def test_the_algorithms_agree_with_a_loop_over_all_pairs():
    for rows in (ds_f1_algorithm(), ds_aurc_algorithm()):
        by_loop = [one for one in rows if "by a loop" in one.printed]
        assert by_loop
        assert all(one.agrees for one in by_loop)


def test_tables_compare_by_published_forms_on_demand():
    base = row("basic", "ds_f1", "near", 0.7, pair="knn", benchmark="openood-cifar100")
    rows = [base, base | {"metric": "ds_f1_published", "value": 0.6}]
    for method, expected in (("exact", 70.0), ("published", 60.0)):
        table = PaperTable.of(PrintedTable("sure_plus", "3"), rows, method=method)
        (cell,) = [cell for cell in table.cells if cell.ours is not None]
        assert cell.ours == pytest.approx(expected)
