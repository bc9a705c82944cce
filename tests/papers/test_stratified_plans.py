"""Plans of the stratified study and of fine-tuning: what is chosen, renamed and drawn, on made rows."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from twofold.bench.grouping import Grouping
from twofold.bench.results import Results
from twofold.papers import load
from twofold.papers.drawings import DRAWINGS
from twofold.papers.finetune_step import _as_printed, _family
from twofold.papers.material import Material
from twofold.papers.plan import PrintedTable
from twofold.papers.strata_steps import (
    BEST,
    BEST_PASSES,
    EmbedSets,
    GroupSets,
    JudgeStratified,
    _rename_learned,
    best_rows,
    choose_runs,
)
from twofold.papers.stratified_figures import projected_scores
from twofold.papers.tables import PaperTable
from twofold.papers.workspace import Workspace

SCORES = {"msp": 0.1, "energy": 0.2, "knn": 0.3, "confidence": 0.35}


def rows():
    """Results of six runs: three paradigms, with and without dropout; the order of scores is the same everywhere."""
    made = []
    for place, recipe in enumerate(("confidnet", "devries", "gamblers(reward=6.0)")):
        for dropout in ("", "_dropout"):
            for shift, role in (("test", "iid"), ("cifar100", "near"), ("svhn", "mid"), ("textures", "far")):
                for number, (score, value) in enumerate(SCORES.items()):
                    names = [score, f"mc(of='{score}')"] if dropout else [score]
                    for name in names:
                        for metric in ("aurc", "augrc"):
                            made.append(
                                {
                                    "benchmark": "stratified-cifar10-real",
                                    "model": "resnet8_cifar",
                                    "recipe": recipe,
                                    "seed": 0,
                                    "run": f"stratified-cifar10-real-{recipe[:5]}{dropout}-s0",
                                    "score": name,
                                    "shift": shift,
                                    "role": role,
                                    "protocol": "stratified",
                                    "metric": metric,
                                    "value": value + 0.01 * place + 0.001 * number + (0.05 if name != score else 0.0),
                                }
                            )
    return Results.of(made).to_dicts()


def test_the_best_row_is_the_least_value_of_one_pass_and_of_several():
    found = {(row["shift"], row["score"]): row for row in best_rows(rows())}
    assert len(found) == 8
    for shift in ("test", "cifar100", "svhn", "textures"):
        assert found[shift, BEST]["value"] == pytest.approx(0.1)
        assert found[shift, BEST]["chosen"] == "confidnet: msp"
        assert found[shift, BEST_PASSES]["value"] == pytest.approx(0.15)
    table = PaperTable.of(PrintedTable("stratified", "2"), [*rows(), *found.values()])
    ours = {(cell.line[1], cell.column[0]): cell.ours for cell in table.cells if cell.ours is not None}
    assert ours["cifar100", "best"] == pytest.approx(100.0)  # x1000
    assert ours["svhn", "best_mc"] == pytest.approx(150.0)
    assert len(ours) == 8


def test_top_cliques_hold_the_best_score_of_every_group():
    drawn = DRAWINGS["top_cliques"](Material(rows=tuple(rows())))
    printed = {(row[1], row[4]): row for row in drawn.rows if row[0] == "printed"}
    groups = {row[1] for row in drawn.rows}
    assert len(groups) == 4
    for group in groups:
        assert printed[group, "msp"][5]
        assert not printed[group, "confidence"][5]
        assert printed[group, "msp"][2] == 12  # two metrics of six runs
    ours = [row for row in drawn.rows if row[0] == "ours"]
    assert {row[2] for row in ours} == {6}


def test_best_by_passes_counts_paradigms():
    drawn = DRAWINGS["best_by_passes"](Material(rows=tuple(best_rows(rows()))))
    assert drawn.notes[0] == "One pass is better than several on 4 of 4 sets."
    assert "ConfidNet 4" in drawn.notes[1]
    assert {row[4] for row in drawn.rows} == {"ConfidNet"}


def test_distances_are_drawn_with_groups():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(20, 3)) + place for place, name in enumerate(("cifar100", "svhn", "textures"))}
    train = rng.normal(size=(20, 3))
    found = Grouping.measure("made", ("train", train, np.arange(20) % 2), arrays, test=("test", train + 0.1))
    material = Material(rows=tuple(found.to_rows("stratified-cifar10-real")))
    drawn = DRAWINGS["distances"](material)
    assert len(drawn.rows) == 4 * 3
    assert "Of 3 sets that the paper has too" in drawn.notes[1]
    table = PaperTable.of(PrintedTable("stratified", "distances-cifar10"), material.rows)
    assert sum(cell.ours is not None for cell in table.cells) == 4 * 3


def test_runs_that_compete_are_chosen_on_validation_data_score_by_score():
    made = []
    for number, values in ((1, {"msp": 0.2, "energy": 0.1}), (2, {"msp": 0.1, "energy": 0.2})):
        for score, value in values.items():
            for shift in ("validation", "test"):
                row = {"run": f"r{number}", "score": score, "shift": shift, "metric": "augrc", "value": value}
                made.append({**row, "recipe": "gamblers", "seed": 0})
    kept = choose_runs(made, lambda row: "one", "augrc")
    assert {(row["run"], row["score"]) for row in kept} == {("r1", "energy"), ("r2", "msp")}


def test_learned_confidences_are_one_method():
    names = {_rename_learned({"score": score})["score"] for score in ("confidnet", "devries", "gambler")}
    assert names == {"confidence"}
    assert _rename_learned({"score": "mc(of='devries')"})["score"] == "mc(confidence)"
    assert _rename_learned({"score": "msp"})["score"] == "msp"


def test_fine_tuned_rows_are_named_as_printed():
    row = {"benchmark": "openood-cifar100", "model": "resnet18_32", "recipe": "basic", "seed": 1, "run": "x-ce-2-s1"}
    named = _as_printed(row)
    assert (named["benchmark"], named["model"], named["recipe"]) == ("aurc-cifar100", "resnet18", "basic")
    assert _family(row) == _family({**row, "run": "x-ce-3-s1"})
    other = _as_printed({**row, "benchmark": "cifar10-real", "run": "log-s1", "model": "wrn28_10"})
    assert (other["benchmark"], other["model"]) == ("aurc-cifar10", "wideresnet28x10")
    assert other["recipe"] == "aurc_finetune(estimator='log')"


def test_a_network_of_the_paper_stands_in_its_own_line_alone():
    row = {
        "benchmark": "aurc-cifar100",
        "score": "msp",
        "shift": "test",
        "role": "iid",
        "metric": "aurc",
        "value": 0.06,
    }
    own = Results.of([{**row, "model": "resnet34", "recipe": "basic"}]).to_dicts()
    cells = [cell for cell in PaperTable.of(PrintedTable("aurc_estimators", "1"), own).cells if cell.ours is not None]
    assert [cell.line for cell in cells] == [("resnet34",)]
    other = Results.of([{**row, "model": "resnet8_cifar_kd", "recipe": "basic"}]).to_dicts()
    cells = [cell for cell in PaperTable.of(PrintedTable("aurc_estimators", "1"), other).cells if cell.ours is not None]
    assert len(cells) == 6


def test_steps_name_one_another(tmp_path):
    paper = load("stratified_ood")
    (groups,) = paper.plan("distances-cifar10").scales["here"].steps
    assert isinstance(groups, GroupSets)
    assert isinstance(groups.extracts[0], EmbedSets)
    work = Workspace(tmp_path)
    assert "--embeddings" in groups.command(work)
    for plan in ("figure1", "figure2", "table2"):
        for step in paper.plan(plan).scales["here"].steps:
            assert isinstance(step, JudgeStratified)
            assert "--strata" in step.command(work)
            assert all("-ce" not in path.name for path in step.run_paths(work))
    mine = groups.use_runs([str(tmp_path / "mine")])
    assert mine.command(work).startswith(f"twofold bench strata {tmp_path / 'mine'}")


def test_every_cell_of_table_3_is_in_the_pool():
    assert all(row.agrees for row in projected_scores())
