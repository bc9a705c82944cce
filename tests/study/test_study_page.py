"""Tables show means over seeds of the row that validation data choose, and pages show the numbers of the tables."""

import json

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from click.testing import CliRunner
from tiny_study import changed

from twofold.bench.results import Results
from twofold.study import document, loads, report, values


def test_a_table_has_mean_and_deviation_over_seeds(whole, study):
    found = Results.open(whole)
    (one,) = [v for v in values(study, found) if v.row == "basic" and v.metric == "accuracy"]
    own = found.filter(recipe="basic", metric="accuracy", shift="test", protocol="fd_shifts", score="msp")
    each = [row["value"] for row in own]
    assert one.mean == pytest.approx(sum(each) / 2)
    assert one.spread == pytest.approx(abs(each[0] - each[1]) / 2**0.5)
    assert one.seeds == (0, 1)
    assert one.low <= one.mean <= one.high
    page = (whole / "report.md").read_text(encoding="utf-8")
    assert page == report(study, whole)
    assert f"{100 * one.mean:.2f} ± {100 * one.spread:.2f} [" in page
    for words in (
        "64 training images",
        "4 of 4 cells",
        "seeds 0, 1",
        "weights averaged",
        "minutes per cell",
        "test (test) 40",
    ):
        assert words in page


def test_the_page_has_the_numbers_of_the_table(whole, study):
    """Also in the other forms of a report, which the command finds by the folder."""
    from twofold.cli.report import report_command

    page = (whole / "report.html").read_text(encoding="utf-8")
    for one in values(study, Results.open(whole)):
        factor = 1000 if "aurc" in one.metric else 100
        assert f"{factor * one.mean:,.2f} ± {factor * one.spread:,.2f}<small>[{factor * one.low:,.2f}, " in page
    assert page.count("<figure") == 3
    again = CliRunner().invoke(report_command, [str(whole), "-o", str(whole / "again.html")])
    assert again.exit_code == 0, again.output
    assert (whole / "again.html").read_text(encoding="utf-8") == page
    (whole / "again.html").unlink()
    (accuracy,) = [v for v in values(study, Results.open(whole)) if v.row == "aurc" and v.metric == "accuracy"]
    table = json.loads(document(study, whole).to_json())["sections"][0]["tables"][0]
    (row,) = [row for row in table["rows"] if row[0] == "aurc"]
    assert row[1] == {"value": accuracy.mean, "low": accuracy.low, "high": accuracy.high, "spread": accuracy.spread}
    assert rf"{100 * accuracy.mean:,.2f} $\pm$ {100 * accuracy.spread:,.2f} " in document(study, whole).to_latex()
    refused = CliRunner().invoke(report_command, [str(whole), "--id", "msp", "-o", str(whole / "again.html")])
    assert refused.exit_code != 0
    assert "applies to the report on a run" in str(refused.exception)


def test_only_tuning_seeds_choose_among_the_rows_of_a_family():
    """Row 1 is best on validation data with seed 0, row 2 over both seeds; the test values are 1 and 2."""
    text = changed(
        'recipe = "basic"\n',
        'recipe = "basic"\nlr = [0.1, 0.2]\n',
        changed('checkpoint = "basic"', 'checkpoint = "basic-1"'),
    )
    aurc = {("basic-1", 0): 0.1, ("basic-1", 1): 0.9, ("basic-2", 0): 0.2, ("basic-2", 1): 0.2}
    rows = []
    for (recipe, seed), value in aurc.items():
        about = {"benchmark": "tiny", "run": f"{recipe}-s{seed}", "recipe": recipe, "seed": seed, "score": "msp"}
        about |= {"protocol": "fd_shifts", "metric": "aurc"}
        rows += [
            {**about, "shift": "validation", "value": value},
            {**about, "shift": "test", "value": float(recipe[-1])},
        ]
    for tuning_seeds, chosen in (("", 2.0), ("tuning_seeds = [0]\n", 1.0)):
        made = loads(text.replace("resamples", f"{tuning_seeds}resamples"))
        found = [one.mean for one in values(made, Results.of(rows)) if (one.row, one.metric) == ("basic", "aurc")]
        assert found == [chosen]
