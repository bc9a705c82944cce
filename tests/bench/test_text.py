"""Text of results: the overview, escaped tables, units and coverage."""

import shutil
import subprocess

import pytest
from example_rows import NAN, row

from twofold.bench.protocols import PROTOCOLS
from twofold.bench.results import Results
from twofold.bench.text import coverage_of, scale
from twofold.errors import InvalidInput


def test_overview_has_the_means_of_single_sets_best_first():
    values = {"msp": (0.1, 0.3), "knn": (0.2, 0.1), "mds": (0.0, NAN)}
    rows = [row(s, v, shift=d, role="far") for s, pair in values.items() for d, v in zip("ab", pair, strict=True)]
    rows += [row(s, 0.0, shift=d, role=r) for s in values for d, r in (("far", "far"), ("validation", "val"))]
    rows += [
        row("msp", 0.5, metric="f1", protocol="joint"),
        row("msp", 0.7, metric="ds_f1", pair="knn", protocol="joint"),
    ]
    assert Results.of(rows).overview().splitlines() == [
        "fd_shifts: aurc (x1000), lower is better, coverage of all samples "
        "(without misclassified ID samples beside OOD samples), mean of 2 values",
        "  150.00  knn",
        "  200.00  msp",
        "    0.00  mds  (of 1 only)",
        "",
        "joint: ds_f1 (%), higher is better, mean of 1 value",
        "  70.00  msp + knn",
    ]
    many = Results.of([row(f"s{i}", i / 100) for i in range(40)]).overview().splitlines()
    assert len(many) == 17
    assert many[-1] == "  and 25 more"
    assert Results.of([]).overview() == Results.of([row(value=NAN)]).overview() == "no values"


def test_text_is_escaped():
    made = Results.of([row("a|b_c*<d>&$", 0.5, shift="50%_x\\")])
    line = made.to_markdown(metric="aurc").splitlines()
    assert line[0] == "| | 50%\\_x\\\\ |"
    assert line[2] == "| a\\|b\\_c\\*&lt;d&gt;&amp;\\$ | **500.00** |"
    latex = made.to_latex(metric="aurc")
    assert r" & 50\%\_x\textbackslash{} \\" in latex
    assert r"a\textbar{}b\_c{*}\textless{}d\textgreater{}\&\$ & \textbf{500.00} \\" in latex
    assert latex.count("{") - latex.count(r"\{") == latex.count("}") - latex.count(r"\}")


def wide_results():
    rows = []
    for i, score in enumerate(
        ("msp", "a|b_c*<d>&$\\~^{}#%", "中文 → é ß 'q' \"r\" `s` - -- x", "react(percentile=90)|energy")
    ):
        for j, shift in enumerate(("svhn", "50%_x", "[near]")):
            value = 0.1 + 0.03 * i + 0.01 * j
            limits = {"low": value - 0.035, "high": value + 0.025, "level": 0.95, "resamples": 100}
            rows.append(row(score, value, shift=shift, role="far") | limits)
    return Results.of(rows)


def test_a_latex_table_has_rules_intervals_marks_and_a_caption_that_stands_alone():
    latex = wide_results().to_latex(metric="aurc", digits=1, label="tab:aurc")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\label{tab:aurc}"):
        assert latex.count(rule) == 1
    assert r"msp & \textbf{100.0} {\scriptsize [65.0, 125.0]} & " in latex
    assert r" & 130.0$^{\dagger}$ {\scriptsize [95.0, 155.0]} & " in latex
    assert latex.count("dagger") == 3, "one in each column"
    assert r"aurc (x1000) under the protocol fd\_shifts" in latex
    assert "lower is better, coverage of all samples" in latex
    assert r"Brackets: 95\% bootstrap intervals." in latex
    assert "scriptsize" not in wide_results().to_latex(metric="aurc", intervals=False)
    with pytest.raises(InvalidInput, match="label must hold"):
        wide_results().to_latex(metric="aurc", label="a}b")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_a_latex_table_compiles_as_it_is(tmp_path):
    source = tmp_path / "table.tex"
    source.write_text(wide_results().to_latex(metric="aurc", document=True), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", source.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").read_bytes().startswith(b"%PDF")
    assert "Overfull" not in done.stdout


def test_units_of_metrics():
    assert [scale(m) for m in ("augrc", "ds_f1", "fpr95_ood", "nonsense")] == [
        (1000, "x1000"),
        (100, "%"),
        (100, "%"),
        (1, ""),
    ]


def test_protocols_that_judge_other_samples_say_so():
    """An area under a protocol that leaves samples out, or turns them round, is not that of ``evaluate``."""
    sets = {"test": "test", "a": "near", "b": "mid", "c": "far"}
    for name, protocol in PROTOCOLS.items():
        rules = {view.rule for view in protocol.views(sets) if view.unknown}
        said = coverage_of("aurc", name)
        assert ("without misclassified ID samples" in said) == ("proposed" in rules), name
        assert ("every ID sample counted as correct" in said) == ("original" in rules), name
