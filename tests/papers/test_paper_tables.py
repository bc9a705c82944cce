"""Tables of papers: printed rows and columns, ours beside them, and how far apart they are."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import papers
from twofold.bench.published import anchors
from twofold.cli import main
from twofold.papers import PrintedTable
from twofold.papers.tables import PaperTable

TABLE7 = PrintedTable("sure_plus", "7")


def row(score, shift, metric, value, **changes):
    texts = {"benchmark": "openood-cifar100", "model": "resnet18", "recipe": "basic", "pair": None, "seed": None}
    texts |= {"score": score, "shift": shift, "role": shift, "metric": metric, "protocol": "openood"}
    return {**texts, "value": value, "low": None, "high": None, **changes}


# rows by the printed numbers of Table 7: AUROC on near sets, 80.82 for msp, 81.14 for energy, 68.10 for mds
OURS = [
    row("msp", "near", "auroc_ood", 0.8182),
    row("energy", "near", "auroc_ood", 0.8014),
    row("mds", "near", "auroc_ood", 0.7110),
]


def test_ours_stand_beside_the_printed_numbers():
    table = PaperTable.of(TABLE7, OURS)
    found = {cell.line[0]: cell for cell in table.cells if cell.column == ("auroc_ood", "near")}
    assert found["msp"].anchor.value == 80.82
    assert found["msp"].ours == pytest.approx(81.82)
    assert found["msp"].difference == pytest.approx(1.0)
    assert found["knn"].ours is None
    assert found["knn"].difference is None


def test_agreement_of_a_column():
    [column] = PaperTable.of(TABLE7, OURS).agreements()
    assert (column.column, column.cells, column.unit) == (("auroc_ood", "near"), 3, "percent")
    assert column.mean_difference == pytest.approx((1.0 - 1.0 + 3.0) / 3)
    assert column.mean_absolute == pytest.approx((1.0 + 1.0 + 3.0) / 3)
    assert column.spearman == pytest.approx(0.5)  # ranks 2, 3, 1 against 3, 2, 1
    summary = PaperTable.of(TABLE7, OURS).summary()
    assert summary.startswith("3 of 103 printed numbers")
    assert "mean difference +1.00 %" in summary
    assert "mean rank correlation +0.50 over 1 columns" in summary


def test_a_table_without_results_has_only_the_printed_numbers():
    table = PaperTable.of(TABLE7)
    assert table.summary() == "None of the 103 printed numbers has a counterpart here."
    assert len(table.to_report()) == 1


def test_the_mean_over_seeds_is_shown():
    seeds = [row("msp", "near", "auroc_ood", value, seed=seed) for seed, value in enumerate((0.80, 0.84))]
    table = PaperTable.of(TABLE7, seeds)
    [cell] = [cell for cell in table.cells if cell.ours is not None]
    assert cell.ours == pytest.approx(82.0)


@pytest.mark.parametrize("key", sorted({(anchor.paper, anchor.table) for anchor in anchors()}))
def test_every_printed_table_is_laid_out(key):
    """No cell of print is lost, and none hides another."""
    table = PaperTable.of(PrintedTable(*key))
    own = anchors(paper=key[0], table=key[1])
    assert [cell.anchor for cell in table.cells] == own
    rows = list(csv.DictReader(table.to_csv().splitlines()))
    assert [float(one["printed"]) for one in rows] == [anchor.value for anchor in own]
    report = table.to_report()[0]
    assert len(report.rows) == len(table.lines)
    assert all(len(cells) == len(report.columns) for cells in report.rows)


PAPER = """
name = "sure_plus"
title = "Mini"
source = "Nobody"

[steps.judged]
verb = "bench"
benchmark = "digits"
protocols = ["joint"]
scores = ["msp", "energy", "sirc(s1='msp', s2='norm')"]
pairs = ["msp + energy", "msp + msp"]

[scales.own]
data = ["a run"]
note = "Give a run."
steps = ["judged"]

[[plans]]
item = "table7"
kind = "result"
title = "A table with a < b & c_d"
says = "Something."
state = "verified"
printed = "7"
here = "own"
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "demo"
    assert CliRunner().invoke(main, ["demo", "--out", str(out), "--resamples", "10"]).exit_code == 0
    return out


def test_runs_are_judged_and_the_table_written_in_every_format(demo, tmp_path):
    plan = papers.loads(PAPER).plan("table7")
    work = papers.Workspace.open(tmp_path / "out")
    first = papers.run(plan, work, runs=[str(demo)])
    assert {name.rpartition(".")[2] for name in first.files} == {"csv", "md", "tex", "html"}
    contents = {}
    for name in first.files:
        with open(name, encoding="utf-8") as file:
            contents[name.rpartition(".")[2]] = file.read()
    assert "a &lt; b &amp; c\\_d" in contents["md"]
    assert "a &lt; b &amp; c_d" in contents["html"]
    assert r"80.82" in contents["tex"]
    again = papers.run(plan, work, runs=[str(demo)])
    assert (again.computed, again.files) == ((), first.files)
    [step] = [one.use_runs([str(demo)]) for one in plan.scales["here"].steps]
    methods = {(one["score"], one["pair"]) for one in step.read(work).rows}
    assert {("msp", None), ("msp", "energy"), ("msp", "msp")} <= methods


def test_a_changed_run_is_judged_again(demo, tmp_path):
    import shutil

    from twofold import Outputs, Run

    copy = tmp_path / "copy"
    shutil.copytree(demo, copy)
    plan = papers.loads(PAPER).plan("table7")
    work = papers.Workspace.open(tmp_path / "out")
    papers.run(plan, work, runs=[str(copy)])
    run = Run.open(copy)
    width = run[run.names("test")[0]].logits.shape[1]
    extra = Outputs(np.zeros((4, width)), np.full(4, -1))
    run.add("extra", extra, role="far")
    assert papers.run(plan, work, runs=[str(copy)]).computed[0].startswith("bench-")


def test_keys_of_a_set_are_refused_by_a_benchmark(tmp_path):
    file = tmp_path / "mini.toml"
    file.write_text(PAPER, encoding="utf-8")
    command = ["papers", "run", f"{file}/table7", "--out", str(tmp_path / "out")]
    asked = CliRunner().invoke(main, command)
    assert (asked.exit_code, "runs over digits, by --run" in asked.stderr) == (3, True)
    refused = CliRunner().invoke(main, [*command, "--run", "run?set=test"])
    assert (refused.exit_code, "judges whole runs" in refused.stderr) == (3, True)
    shown = json.loads(CliRunner().invoke(main, ["papers", "show", f"{file}/table7", "--json"]).stdout)
    assert shown["printed"][0]["value"] == 80.82
