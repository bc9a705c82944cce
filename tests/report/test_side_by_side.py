"""Several classifiers on one page, the glossary, and drawings in which nothing is cut."""

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from example import EVIL, world, write

from twofold import metrics
from twofold.cli import main
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.report import build_document, report
from twofold.report.charts import bar_rows, box_rows
from twofold.report.document import Markup, ReportTable
from twofold.report.glossary import glossary_section
from twofold.report.options import ReportOptions
from twofold.report.side_by_side import paired_difference
from twofold.report.svg import Plot


def noisy(sets, noise, seed=5):
    """The same inputs under a worse model."""
    rng = np.random.default_rng(seed)
    worse = {}
    for key, one in sets.items():
        logits = one.logits + noise * rng.normal(size=one.logits.shape)
        worse[key] = Outputs(logits, one.labels, ids=one.ids, class_names=one.class_names)
    return worse


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sets = world(rows=80)
    return [
        write(folder / "good", sets, model="good"),
        write(folder / "bad", noisy(sets, 3.0), model=f"bad{EVIL}"),
        write(folder / "other", noisy(world(seed=9, rows=70), 3.0), model="other inputs"),
    ]


@pytest.fixture(scope="module")
def document(runs):
    return build_document(runs, ReportOptions(id="msp", ood="energy", resamples=60))


def table(document, key) -> ReportTable:
    parts = [part for section in document.sections for part in section.parts]
    (found,) = [part for part in parts if isinstance(part, ReportTable) and part.key == key]
    return found


def test_values_are_those_of_each_run_and_differences_are_between_them(document, runs):
    rows = {row[0].split(",")[0]: row[1:] for row in table(document, "metrics-near").rows}
    areas = []
    for run in runs:
        both = Outputs.concat([run[name].replace(ids=None, features=None, head=None) for name in ("test", "strange")])
        relative = np.exp(both.logits - both.logits.max(axis=1, keepdims=True))
        msp = 1.0 / relative.sum(axis=1)
        areas.append(metrics.aurc_id(both.correct, msp, both.is_id))
    good, bad, other, difference, unpaired = rows["AURC-ID x1000"]
    assert [good.value, bad.value, other.value] == pytest.approx(areas, rel=1e-6)
    assert difference.value == pytest.approx(areas[1] - areas[0], rel=1e-6)
    assert difference.strong
    assert difference.low < difference.value < difference.high
    assert unpaired.value == pytest.approx(areas[2] - areas[0], rel=1e-6)
    assert np.isnan(unpaired.low)
    assert any("test has 160 and 140 rows" in note for note in table(document, "metrics-near").notes)


def test_pairing_narrows_the_interval(document):
    """The same inputs vary together: the interval of the difference is narrower than independent ones would give."""
    rows = {row[0].split(",")[0]: row[1:] for row in table(document, "metrics-near").rows}
    good, bad, _, difference, _ = rows["accuracy %"]
    apart = np.hypot(good.high - good.low, bad.high - bad.low)
    assert difference.high - difference.low < 1.05 * apart


def test_a_run_against_itself_differs_by_nothing(runs):
    same = build_document([runs[0], runs[0]], ReportOptions(id="msp", ood="energy", resamples=20))
    for row in table(same, "metrics-near").rows:
        assert (row[-1].value, row[-1].low, row[-1].high, row[-1].strong) == (0.0, 0.0, 0.0, False)
    assert any("statistically tied" in part for part in same.sections[0].parts)


def test_equal_replicates_decide_the_sign():
    number = paired_difference(np.array([0.2, 0.1, 0.3]), np.array([0.1, 0.2, 0.2]), 1)
    assert not number.strong


def test_the_command_makes_the_page_and_nothing_becomes_markup(runs, tmp_path):
    out = tmp_path / "page.html"
    paths = [str(run.path) for run in runs[:2]]
    done = CliRunner().invoke(main, ["report", *paths, "-o", str(out), "--id", "msp", "--resamples", "20", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["bytes"] == out.stat().st_size
    text = out.read_text(encoding="utf-8")
    assert EVIL not in text
    assert "<img" not in text
    assert "bad&lt;/script&gt;" in text
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert f"twofold report {paths[0]} {paths[1]} --id msp" in text.replace("&#x27;", "'")


def test_what_cannot_be_compared_is_one_line(runs, tmp_path):
    known = {key: value for key, value in world(rows=40).items() if key[1] in ("train", "val", "test")}
    alone = write(tmp_path / "known", known, model="known only")
    options = ReportOptions(id="msp", ood="energy", resamples=20)
    with pytest.raises(InvalidInput, match="different kinds of unknown inputs"):
        build_document([runs[0], alone], options)
    with pytest.raises(InvalidInput, match="2 to 6 runs"):
        build_document([runs[0]] * 7, options)
    with pytest.raises(InvalidInput, match="no file or folder"):
        build_document([runs[0], tmp_path / "nothing"], options)
    with pytest.raises(InvalidInput, match="images applies to the report on one run"):
        build_document(runs, ReportOptions(images={"test": np.zeros((1, 2, 2))}))
    single = report([runs[0]], tmp_path / "one.md", format="md", resamples=20)
    assert "How far can this classifier be trusted?" in single.read_text(encoding="utf-8").replace("\\", "")


def test_files_are_compared_too(tmp_path):
    rng = np.random.default_rng(0)
    correct = rng.random(200) < 0.8
    for name, noise in (("a", 0.5), ("b", 2.0)):
        np.savez(tmp_path / f"{name}.npz", correct=correct, conf=correct + noise * rng.normal(size=200))
    made = build_document([tmp_path / "a.npz", tmp_path / "b.npz"], ReportOptions(resamples=50))
    rows = {row[0].split(",")[0]: row for row in table(made, "metrics-known").rows}
    assert rows["AURC x1000"][-1].value > 0


# --- glossary -------------------------------------------------------------------------------------------------------


def test_every_score_has_a_sentence_and_a_link():
    section = glossary_section(["msp", "react(percentile=90)|energy", "my own"], has_unknown=True)
    scores, words = [part for part in section.parts if isinstance(part, Markup)]
    assert re.findall(r"<dt>(.*?)</dt>", scores.html) == ["msp", "react", "energy"]
    assert 'href="https://arxiv.org/abs/1610.02136"' in scores.html
    assert "<dt>AURC-ID (aurc_id)</dt>" in words.html
    assert "AURC (aurc)" in glossary_section([], has_unknown=False).parts[-1].plain


def test_a_comparison_explains_every_score_that_it_names(runs):
    page = build_document(runs[:2], ReportOptions(scores=("msp", "energy", "gen"), resamples=10))
    (glossary,) = [section for section in page.sections if section.key == "glossary"]
    scores = next(part for part in glossary.parts if isinstance(part, Markup))
    assert sorted(re.findall(r"<dt>(.*?)</dt>", scores.html)) == ["energy", "gen", "msp"]


@pytest.mark.parametrize(
    ("score", "page"),
    [
        ("entropy", "https://doi.org/10.1109/TIT.1970.1054406"),
        ("margin", "https://doi.org/10.1007/3-540-44816-0_31"),
        ("gen", "https://openreview.net/forum?id=Sie7oeTABS"),
        ("knn", "https://arxiv.org/abs/2204.06507"),
    ],
)
def test_papers_outside_arxiv_have_a_link_too(score, page):
    scores = next(part for part in glossary_section([score], has_unknown=True).parts if isinstance(part, Markup))
    assert re.findall(r'href="([^"]*)"', scores.html) == [page]


def test_every_score_of_a_report_has_a_link():
    usual = ["msp", "energy", "mls", "entropy", "gen", "knn", "mds", "vim", "neco", "fdbd"]
    scores = next(part for part in glossary_section(usual, has_unknown=True).parts if isinstance(part, Markup))
    assert scores.html.count("<a href=") == len(usual)


# --- nothing is cut -------------------------------------------------------------------------------------------------


def test_a_legend_shows_every_name_in_full():
    plot = Plot((0, 1), (0, 1), "x", "y", "about")
    names = ["a" * 150, "known against near unknown, react(percentile=90)|energy and more of it", "msp"]
    for i, name in enumerate(names):
        plot.line([0, 1], [0, 1], f"k{i}", name)
    svg = plot.svg()
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert "…" not in svg
    assert "".join(names).replace(" ", "") in "".join(shown).replace(" ", "")
    tops = [float(y) for y in re.findall(r'<text class="t" x="[\d.]+" y="([\d.]+)"', svg)]
    (shift,) = re.findall(r"translate\(0 (\d+)\)", svg)
    assert max(tops) < int(shift) + 16


def test_bars_end_where_their_values_are():
    svg = bar_rows({"far worse": -400.0, "worse": -100.0, "better": 50.0}, "x", "about")
    widths = [float(width) for width in re.findall(r'<rect class="b k\d"[^>]*width="([\d.]+)"', svg)]
    assert widths[0] / widths[1] == pytest.approx(4.0, rel=0.01)
    assert widths[1] / widths[2] == pytest.approx(2.0, rel=0.01)


def test_a_very_long_bar_does_not_squash_the_others_and_shows_its_number_and_an_arrow():
    values = {"a": 18.0, "b": 12.0, "c": 9.0, "d": -10.0, "e": -80.0, "far worse": -16790.0}
    svg = bar_rows(values, "x", "about")
    widths = [float(width) for width in re.findall(r'<rect class="b k\d"[^>]*width="([\d.]+)"', svg)]
    pixels_per_unit = [width / abs(value) for width, value in zip(widths, list(values.values())[:-1], strict=True)]
    assert pixels_per_unit == pytest.approx([pixels_per_unit[0]] * 5, rel=0.02)
    assert widths[4] > 100  # of the 480 of the drawing; to scale with the longest, it would have 2
    (arrow,) = re.findall(r'<path class="b cut k1" d="M([\d.]+) [\d.]+H([\d.]+)v-4L([\d.]+)', svg)
    start, neck, tip = map(float, arrow)
    assert tip < neck < start
    assert start - tip > widths[4]
    assert ">-16,790.0%</text>" in svg
    assert svg.count("Bars with an arrow are longer than the axis.") == 1


@pytest.mark.parametrize("values", [(5.0,), (0.0, 0.0, 3.0), (-400.0, -100.0, 50.0), (math.nan,)])
def test_bars_of_similar_lengths_have_no_arrows(values):
    svg = bar_rows({str(i): value for i, value in enumerate(values)}, "x", "about")
    assert "cut" not in svg
    assert "arrow" not in svg


def test_names_of_boxes_are_broken_and_not_cut():
    names = ["msp", "msp + gram, resnet32_cifar_kd", "msp + react(percentile=90)|energy, resnet20"]
    svg = box_rows([(name, np.array([1.0, 2.0, 3.0])) for name in names], "x", "about")
    assert "…" not in svg
    shown = re.findall(r'<text class="t e"[^>]*>([^<]*)</text>', svg)
    assert shown[:3] == ["msp (3)", "msp + gram,", "resnet32_cifar_kd (3)"]
    assert "".join(shown[3:]).replace(" ", "") == f"{names[2]}(3)".replace(" ", "")
