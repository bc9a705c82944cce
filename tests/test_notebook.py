"""What notebooks show: every listed object has a small, escaped table, and a short text."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import twofold
from twofold import Gate, Head, Outputs, Run, _notebook, metrics, stats
from twofold.bench import catalogue
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.scores.chain import scorer

HOSTILE = "<script>alert(1)</script>&\"'"


class Page(HTMLParser):
    """Collects tags and text, and notices tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], set(), []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def outputs(n=60, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 3, n)
    features = rng.normal(size=(n, 4)) + 2 * np.eye(4)[np.maximum(labels, 0)] * (labels >= 0)[:, None]
    head = Head(np.eye(3, 4), np.zeros(3))
    return Outputs(features @ head.weight.T, labels=labels, features=features, head=head)


def rows():
    for score, value in ((HOSTILE, 0.2), ("knn", 0.1), ("mds", 0.3)):
        for i, shift in enumerate("abcdefgh"):
            yield {"score": score, "shift": shift, "metric": "aurc", "value": value + 0.01 * i, "run": HOSTILE}


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    data = outputs()
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", model=HOSTILE)
    run.add("test", data, role="test")
    known = outputs(seed=1)
    run.add("val", known[known.is_id], role="val")
    run.add("train", outputs(seed=2), role="train")
    strange = outputs(seed=3)
    run.add("noise", strange.replace(labels=np.full(len(strange), -1)), role="ood_val")
    gate = Gate.fit(data)
    monitor = gate.monitor()
    monitor.update(gate.decide(data))
    correct, conf = data.correct, scorer("msp").score(data)
    results = Results.of(rows())
    bench = catalogue.load("digits")
    made = [
        twofold.evaluate(correct, conf, is_id=data.is_id),
        twofold.evaluate([True, True], [0.1, 0.2], only=["auroc"]),
        stats.bootstrap(metrics.auroc, correct, conf, n=20),
        data,
        run,
        data.head,
        scorer("react|energy"),
        gate,
        gate.decide(data),
        monitor,
        twofold.recommend(run, id_scores=["msp", "entropy"], ood_scores=["msp", "energy"], n=20),
        results,
        compare(results, "aurc"),
        bench,
        gate.report_card(data),
    ]
    return {f"{type(thing).__name__}{i}": thing for i, thing in enumerate(made)}


NAMES = "Evaluation Evaluation Interval Outputs Run Head Chain Gate Decision Monitor Recommendation "
NAMES += "Results Comparison Benchmark ReportCard"


@pytest.mark.parametrize("name", [f"{name}{i}" for i, name in enumerate(NAMES.split())])
def test_a_notebook_shows_a_small_table(name, things):
    html = things[name]._repr_html_()
    page = Page(html)
    assert page.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert len(html) < 16_000
    assert not re.search(r"(?<!-)\bcolor:(?!inherit)|background:(?!transparent)", html), "colours are those of the page"


@pytest.mark.parametrize("name", [f"{name}{i}" for i, name in enumerate(NAMES.split())])
def test_the_text_has_at_most_a_few_lines(name, things):
    text = repr(things[name])
    assert len(text.splitlines()) <= 3
    assert len(text) < 400
    assert text.startswith(name.rstrip("0123456789"))


def test_names_from_files_are_escaped(things):
    for name in ("Run4", "Results11", "Comparison12"):
        html = things[name]._repr_html_()
        assert "<script" not in html
        assert any("<script>alert(1)</script>" in text for text in Page(html).texts), "and shown in full"


def test_numbers_are_those_of_the_object(things):
    evaluation, decision, results = things["Evaluation0"], things["Decision8"], things["Results11"]
    texts = Page(evaluation._repr_html_()).texts
    assert f"{evaluation.aurc:.5g}" in texts
    assert any(text.startswith("undefined: ") for text in Page(things["Evaluation1"]._repr_html_()).texts)
    texts = Page(decision._repr_html_()).texts
    accepted = sum(str(verdict) == "accept" for verdict in decision.verdict)
    assert f"{accepted:,} ({accepted / 60:.1%})" in texts
    assert "and 44 more" in texts
    report = things["ReportCard14"]
    texts = Page(report._repr_html_()).texts
    assert {f"{report.risk:.4f}", f"{report.false_reject}", report.kept} <= set(texts)
    assert not any("groups" in text for text in texts), "samples are independent here"
    assert repr(results) == "Results(24 rows: 1 runs, 3 methods, 8 shifts, 1 protocols, 1 metrics)"


def test_long_texts_are_cut_and_tables_say_what_is_left_out():
    table = _notebook.NotebookTable(["a"], [["x" * 1000]] * 20)
    texts = Page(_notebook.card("title", {"none": None, "some": 1}, table)).texts
    assert "none" not in texts
    assert max(map(len, texts)) <= _notebook.MOST_LETTERS
    assert "and 4 more" in texts
