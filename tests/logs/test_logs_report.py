"""The page on logged predictions: right numbers, small, escaped, and clear about bad input."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

from log_sources import as_source, random_rows

from twofold import metrics
from twofold.cli import main
from twofold.errors import InvalidInput
from twofold.logs.curves import count_accepted
from twofold.report import report

HOSTILE = "</td><script>alert(1)</script>"


def run(*words):
    return CliRunner().invoke(main, ["report", *map(str, words)])


@pytest.mark.parametrize("engine", ["parquet", "polars", "dask"])
def test_accepted_rows_equal_a_count_by_hand(engine, tmp_path):
    rows = random_rows(n=500, ties=False)
    found = count_accepted(as_source(rows, engine, tmp_path / "rows"), cells=20)
    assert 10 <= len(found.threshold) <= 20
    known = rows["is_id"].sum()
    for place, threshold in enumerate(found.threshold):
        taken = rows["conf"] >= threshold
        assert found.coverage[place] == (taken & rows["is_id"]).sum() / known
        assert found.risk[place] == pytest.approx((taken & ~rows["correct"]).sum() / taken.sum(), abs=1e-15)
    assert found.coverage[-1] == 1.0


def test_page_has_the_metrics_of_arrays(tmp_path):
    rows = random_rows(n=600)
    source = as_source(rows, "parquet", tmp_path / "rows")
    options = ["--conf-ood", "conf_ood", "--is-id", "is_id", "--by", "model", "--resamples", 10]
    done = run(source, "--correct", "correct", *options, "-o", tmp_path / "page.json")
    assert done.exit_code == 0, done.output
    page = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    text = json.dumps(page)
    expected = metrics.evaluate(rows["correct"], rows["conf"], is_id=rows["is_id"], conf_ood=rows["conf_ood"])
    assert json.dumps(expected["aurc"])[:12] in text
    assert json.dumps(expected["ds_f1"])[:12] in text
    own = np.array(rows["model"]) == "m1"
    assert json.dumps(metrics.augrc(rows["correct"][own], rows["conf"][own], is_id=rows["is_id"][own]))[:12] in text


def test_size_does_not_grow_with_rows(tmp_path):
    sizes = []
    for n in (3000, 60_000):
        source = as_source(random_rows(n=n, ties=False), "parquet", tmp_path / str(n))
        page = report(source, tmp_path / f"{n}.html", columns={"by": "model"}, resamples=10)
        sizes.append(page.stat().st_size)
    assert sizes[1] < 1.02 * sizes[0]


def test_many_groups_are_cut(tmp_path):
    rows = random_rows(n=1000) | {"user": [f"user {number % 300}" for number in range(1000)]}
    source = as_source(rows, "parquet", tmp_path / "rows")
    page = report(source, tmp_path / "page.md", columns={"by": "user"}, format="md", resamples=10)
    text = page.read_text(encoding="utf-8")
    assert "The 100 largest of 300 groups are shown" in text
    assert len(re.findall(r"^\| user \d", text, re.MULTILINE)) == 100


def test_text_of_strangers_is_escaped(tmp_path):
    rows = random_rows(n=300)
    rows[HOSTILE] = [HOSTILE if name == "m1" else "x" * 5000 for name in rows.pop("model")]
    source = as_source(rows, "parquet", tmp_path / "rows")
    page = report(source, tmp_path / "page.html", columns={"by": f'"{HOSTILE}"'}, resamples=10)
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "x" * 100 not in text


def test_two_columns_of_a_csv_file_are_enough(tmp_path):
    (tmp_path / "log.csv").write_text("correct,conf\n" + "1,0.9\n1,0.8\n0,0.3\n" * 40, encoding="utf-8")
    done = run(tmp_path / "log.csv", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Of 120 known inputs, 66.7 % are classified correctly, so about 1 prediction in 3 is wrong." in text
    assert "better than chance" in text


@pytest.mark.parametrize("value", ["0", "1"])
def test_one_kind_of_row_still_makes_a_page(value, tmp_path):
    (tmp_path / "log.jsonl").write_text(f'{{"correct": {value}, "conf": 0.5}}\n' * 5, encoding="utf-8")
    done = run(tmp_path / "log.jsonl", "-o", tmp_path / "page.md")
    assert done.exit_code == 0, done.output
    assert "cannot be said" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_unknown_inputs_alone_still_make_a_page(tmp_path):
    (tmp_path / "log.csv").write_text("correct,conf,is_id\n0,0.5,0\n0,0.4,0\n", encoding="utf-8")
    done = run(tmp_path / "log.csv", "-o", tmp_path / "page.md")
    assert done.exit_code == 0, done.output
    assert "no known inputs" in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log.csv", "--conf", "nope"], "no column 'nope'"),
        (["log.csv", "--id", "msp"], "id applies to the report on a run"),
        (["none*.csv"], "matches none*.csv"),
        (["outputs.npz", "--conf", "conf"], "must end in"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("correct,conf\n1,0.9\n0,0.3\n", encoding="utf-8")
    np.savez(tmp_path / "outputs.npz", correct=[True, False], conf=[0.9, 0.2])
    done = run(*words, "-o", "page.html")
    assert done.exit_code != 0
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_columns_are_checked(tmp_path):
    (tmp_path / "log.csv").write_text("correct,conf\n1,0.9\n0,0.3\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="got 'confidence'"):
        report(tmp_path / "log.csv", tmp_path / "page.html", columns={"confidence": "conf"})
