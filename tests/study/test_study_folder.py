"""A folder knows its study and its finished cells, and what is kept of it is enough to resume."""

import shutil

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tiny_study import changed, numbers

from twofold.errors import InvalidInput, RunError
from twofold.study import finished, keep, loads, opened, report, results, run, table
from twofold.study.folder import CELLS, cell_digests, write_json


def test_the_folder_knows_its_study(whole, study):
    assert opened(whole) == study
    assert finished(study, whole) == tuple(cell.name for cell in study.cells())
    assert numbers(whole) == [
        {k: "" if v is None else str(v) for k, v in row.items() if k != "command"} for row in results(study, whole)
    ]
    with pytest.raises(RunError, match="holds the study tiny; choose another"):
        run(loads(changed('name = "tiny"', 'name = "other"')), whole)
    with pytest.raises(InvalidInput, match="holds no study"):
        opened(whole / "runs")


def test_what_is_kept_has_the_tables_and_nothing_else(whole, study, root, tmp_path):
    small = tmp_path / "small"
    assert keep(study, whole, small) == finished(study, whole) == finished(study, small)
    assert {path.name for path in small.iterdir()} <= {
        *("study.json", "cells.json", "results.csv", "results.json", "results.parquet", "replicates.safetensors"),
    }
    assert table(study, results(study, small)) == table(study, results(study, whole))
    assert report(study, small) == report(study, whole)
    assert {row["metric"] for row in results(study, small)} == {"accuracy", "aurc", "ds_f1"}
    assert {row["command"] for row in results(study, small)} == {"twofold study run tiny.toml --out DIR"}
    assert run(study, small, root=root).finished == ()
    assert keep(study, small, tmp_path / "again") == finished(study, whole)
    assert numbers(tmp_path / "again") == numbers(small)


def test_a_study_resumes_from_what_was_kept(whole, study, root, tmp_path):
    """Without any weights: the cell that the next one starts from is trained again, and only trained."""
    part = shutil.copytree(whole, tmp_path / "part")
    shutil.rmtree(part / "judged" / "aurc-s1")
    small = tmp_path / "small"
    rest = shutil.copytree(part, tmp_path / "rest")
    shutil.rmtree(rest / "judged" / "aurc-s0")
    shutil.rmtree(part / "judged" / "basic-s1")
    keep(study, rest, small)  # what is kept adds up
    assert keep(study, part, small) == ("basic-s0", "aurc-s0", "basic-s1")
    assert run(study, small, root=root).finished == ("aurc-s1",)
    assert not (small / "runs" / "basic-s1").exists()
    assert table(study, results(study, small)) == table(study, results(study, whole))
    with pytest.raises(InvalidInput, match="nothing to keep"):
        keep(study, tmp_path / "empty", tmp_path / "to")


def test_precision_reaches_the_training_and_marks_its_cells(study, root, tmp_path):
    half = loads(changed("resamples", 'precision = "bf16"\nresamples'))
    cell = half.cells()[0]
    assert half.plan(cell, tmp_path, root=root).precision == "bf16"
    assert study.plan(cell, tmp_path, root=root).precision == "float32"
    assert cell_digests(half, cell)["trained"] != cell_digests(study, cell)["trained"]
    assert cell_digests(half, cell)["judged"] == cell_digests(study, cell)["judged"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([1], r"cells\.json was not written by a study"),
        ({"basic-s0": [1]}, "the record of basic-s0 in .* was not written by a study"),
    ],
)
def test_forged_records_are_one_clear_error(study, tmp_path, records, message):
    write_json(tmp_path / CELLS, records)
    with pytest.raises(RunError, match=message):
        finished(study, tmp_path)
