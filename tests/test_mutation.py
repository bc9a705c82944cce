"""The kept results of mutation testing: complete, at least 95 % noticed, and what the page on testing says of them."""

import csv
import re
import tomllib
from pathlib import Path

import pytest

from twofold.stats import clopper_pearson

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rows():
    path = ROOT / "results" / "mutation.csv"
    if not path.is_file():
        pytest.skip("results/ is part of a source checkout only")
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["operator"] != "named"]


def test_at_least_95_percent_of_300_changes_are_noticed(rows):
    assert len(rows) >= 300
    assert {row["outcome"] for row in rows} <= {"killed", "timeout", "survived", "equivalent"}
    noticed = sum(row["outcome"] in ("killed", "timeout") for row in rows)
    equivalent = sum(row["outcome"] == "equivalent" for row in rows)
    assert noticed >= 0.95 * (len(rows) - equivalent)


def test_every_outcome_has_its_test_or_its_reason(rows):
    for row in rows:
        assert bool(row["test"]) == (row["outcome"] == "killed"), row
        assert bool(row["reason"]) == (row["outcome"] == "equivalent"), row


def test_the_page_says_what_the_rows_say(rows):
    text = " ".join((ROOT / "docs" / "testing.md").read_text(encoding="utf-8").split())
    noticed = sum(row["outcome"] in ("killed", "timeout") for row in rows)
    possible = sum(row["outcome"] != "equivalent" for row in rows)
    low, high = clopper_pearson(noticed, possible, delta=0.05, side="two")
    said = re.search(r"(\d+) of (\d+) \(([\d.]+) %, 95 % interval ([\d.]+) % to ([\d.]+) %\)", text)
    assert said is not None
    assert [int(n) for n in said.groups()[:2]] == [noticed, possible]
    assert [float(n) for n in said.groups()[2:]] == [round(100 * x, 1) for x in (noticed / possible, low, high)]
    assert f"{noticed} of {len(rows)}" in text


def test_the_page_of_results_is_current(rows, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import mutation

    notes = tomllib.loads(mutation.SETTINGS.read_text(encoding="utf-8"))["notes"]
    assert mutation.PAGE.read_text(encoding="utf-8") == mutation.page(mutation.load(), notes)
