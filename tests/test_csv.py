"""No text of a person becomes a formula in a spreadsheet, and every text comes back as it was."""

import csv
import io

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from twofold import Gate, Outputs
from twofold._csv import escape_cell, unescape_cell
from twofold.bench.results import Results
from twofold.bench.rows import COLUMNS
from twofold.cli import main

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1", "''-x", "'tis", "cat", "a=b", ""]


@given(st.text(alphabet="'=+-@\t\r ab1"))
@example("'=cmd|' /C calc'!A0")
def test_every_text_comes_back_and_none_is_a_formula(text):
    cell = escape_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unescape_cell(cell) == text


def test_results_keep_such_texts(tmp_path):
    rows = [
        {
            "model": text or None,
            "score": f"{text}s",
            "metric": "aurc",
            "value": -0.25,
            "seed": -3,
            "command": text or None,
        }
        for text in FORMULAS
    ]
    file = Results.of(rows).to_csv(tmp_path / "results.csv")
    lines = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"), newline="")))
    for line in lines:
        assert not line["model"].startswith(("=", "+", "-", "@", "\t"))
        assert (line["value"], line["seed"]) == ("-0.25", "-3")  # numbers stay numbers
    assert lines[0]["model"] == "'=1+1"
    back = Results.open(file)
    for column in COLUMNS:
        assert [row[column] for row in back.rows] == [row.get(column) for row in rows], column


@pytest.fixture
def odd(tmp_path):
    """Outputs with ids like formulas, under a name like one."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    logits = rng.normal(size=(40, 2)) + 2 * np.eye(2)[labels]
    outputs = Outputs(logits, labels=labels, ids=np.array([f"=HYPERLINK({i})" for i in range(40)]))
    outputs.to_npz(tmp_path / "@odd.npz")
    Gate.fit(outputs, id="msp").save(tmp_path / "gate")
    return tmp_path


@pytest.mark.parametrize(
    "command", [["gate", "apply", "gate", "--outputs", "@odd.npz"], ["score", "@odd.npz", "--score", "msp"]]
)
def test_commands_print_no_formula(odd, command, monkeypatch):
    monkeypatch.chdir(odd)
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines = list(csv.reader(io.StringIO(done.stdout)))
    assert len(lines) == 41
    for line in lines[1:]:
        assert line[0] == "'@odd"
        assert not line[1].startswith("=")
