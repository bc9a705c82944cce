"""The report: what it says is what the library computes, and no text of a file can become markup."""

import base64
import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner
from example import EVIL, samples, unpacked, world, write

from twofold import metrics
from twofold.bench.results import Results
from twofold.errors import InvalidInput
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.report import build_document, report
from twofold.report.options import ReportOptions
from twofold.report.pictures import open_images
from twofold.report.scored import ReportSet
from twofold.report.svg import ticks
from twofold.report.threshold_grid import ThresholdGrid
from twofold.run import Run
from twofold.scores.chain import scorer

SECTIONS = [
    *("verdict", "joint", "explorer", "risk-coverage", "densities", "roc", "calibration", "sets", "classes", "cases"),
    *("softmax", "improvement", "glossary", "provenance"),
]


class Page(HTMLParser):
    """Elements, attributes and the text of scripts; unbalanced elements are an error."""

    VOID = frozenset({"meta", "img", "input", "br"})

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.scripts, self.texts = [], [], {}, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
            self.attrs = dict(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[self.attrs.get("id", "")] = data
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def ids(self, tag):
        return [attrs.get("id") for name, attrs in self.tags if name == tag]


def document(source, **options):
    return build_document(source, ReportOptions(**options))


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def data(parsed):
    return json.loads(parsed.scripts["data"])


def test_every_section_is_there_once_and_in_order(parsed):
    assert parsed.ids("section") == SECTIONS
    assert len({i for i in parsed.ids("div") if i}) == len([i for i in parsed.ids("div") if i])


def test_the_page_needs_no_network(page):
    text = page.read_text(encoding="utf-8")
    without_names = text.replace("http://www.w3.org/2000/svg", "")
    papers = r"(arxiv\.org/abs/[\d.]+|doi\.org/10\.[\w./()-]+|openreview\.net/forum\?id=[\w-]+)"
    without_names = re.sub(rf'<a href="https://{papers}" rel="noreferrer">', "", without_names)
    assert not re.search(r"https?://|//cdn|@import|url\(", without_names)
    assert "default-src 'none'" in text


def test_no_text_of_the_run_becomes_markup(page, parsed):
    assert set(parsed.scripts) == {"", "data", "twofold-summary"}
    assert not [attrs for tag, attrs in parsed.tags if "onerror" in attrs]
    assert all(attrs["src"].startswith("data:image/png") for tag, attrs in parsed.tags if tag == "img")
    assert any(EVIL in text for text in parsed.texts)  # shown, letter by letter
    assert "</script" not in parsed.scripts["data"] + parsed.scripts["twofold-summary"]
    assert "<!--" not in page.read_text(encoding="utf-8")


def test_only_the_pages_own_script_may_run(page, parsed):
    import hashlib

    digest = base64.b64encode(hashlib.sha256(parsed.scripts[""].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.read_text(encoding="utf-8")


def test_counts_are_those_of_the_samples(run, data):
    rng = np.random.default_rng(0)
    for pair in data["explorer"]["pairs"]:
        tau_id, tau_ood, counts = unpacked(pair)
        assert pair["kinds"] == ["correct", "wrong", "near", "far"]
        correct, is_id, near, conf_id, conf_ood = samples(run, pair)
        kinds = [correct, is_id & ~correct, near, ~is_id & ~near]
        assert counts.sum() == len(correct)
        for _ in range(50):
            i, j = int(rng.integers(len(tau_id))), int(rng.integers(len(tau_ood)))
            taken = (conf_id >= tau_id[i]) & (conf_ood >= tau_ood[j])
            assert [int((taken & kind).sum()) for kind in kinds] == counts[:, i:, j:].sum(axis=(1, 2)).tolist()


@pytest.mark.parametrize("share", [None, 0.1])
def test_the_grid_agrees_with_the_library(run, data, share):
    pair = data["explorer"]["pairs"][0]
    correct, is_id, near, conf_id, conf_ood = samples(run, pair)
    kinds = {"correct": correct, "wrong": is_id & ~correct, "near": near, "far": ~is_id & ~near}
    best = metrics.ds_f1(correct, conf_id, conf_ood, is_id, ood_share=share)
    grid = ThresholdGrid.from_samples(kinds, conf_id, conf_ood, ((best.tau_id, best.tau_ood),))
    point = grid.point(*grid.locate((best.tau_id, best.tau_ood)), share)
    for name, value in point.items():
        assert value == pytest.approx(getattr(best, name), rel=1e-12), name
    assert grid.rates(share).f1.max() == pytest.approx(best.value, rel=1e-12)
    small = ThresholdGrid.from_samples(kinds, conf_id, conf_ood, side=40)
    surface = metrics.f1_surface(correct, conf_id, conf_ood, is_id, grid=40, ood_share=share)
    for ours, theirs, conf in ((small.tau_id, surface.tau_id, conf_id), (small.tau_ood, surface.tau_ood, conf_ood)):
        assert ((ours[:, None] <= conf) == (theirs[:, None] <= conf)).all()  # each accepts the same samples
        assert not np.isin(ours[1:], conf).any()  # and lies between two of them
    for ours, theirs in zip(small.rates(share), (surface.risk, surface.coverage, surface.f1), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_the_start_is_the_gate_chosen_on_validation(run, data):
    for pair in data["explorer"]["pairs"]:
        outside = sum(len(run[name]) for name in ("strange", "alien"))
        share = outside / (outside + len(run["test"]))
        gate = Gate.fit(run, pair["id"], pair["ood"], ood_share=share)
        tau_id, tau_ood, _ = unpacked(pair)
        i, j = pair["start"]
        assert (tau_id[i], tau_ood[j]) == pytest.approx((gate.tau_id, gate.tau_ood), rel=1e-12)


def test_the_joint_table_has_the_values_of_evaluate(run, tmp_path):
    report(run, tmp_path / "r.json", format="json", id="msp", ood="energy", resamples=20)
    tables = {t["key"]: t for s in json.loads((tmp_path / "r.json").read_text())["sections"] for t in s["tables"]}
    rows = {(row[0], row[1]): row[2:] for row in tables["joint"]["rows"]}
    both = Outputs.concat([run[name].replace(ids=None) for name in ("test", "alien")])
    conf = [scorer(spec).score(both) for spec in ("msp", "energy")]
    found = metrics.evaluate(both.correct, conf[0], is_id=both.is_id, conf_ood=conf[1])
    names = ("accuracy", "aurc_id", "augrc", "auroc_ood", "fpr95_ood", "f1", "ds_f1", "ds_aurc")
    for name, cell in zip(names, rows["far unknown", "msp + energy"], strict=True):
        assert cell["value"] == pytest.approx(found[name], rel=1e-12), name
        assert cell["low"] <= cell["value"] + 1e-3
        assert cell["high"] >= cell["value"] - 1e-3


def test_tables_of_sets_and_classes_count_right(run, tmp_path):
    report(run, tmp_path / "r.json", format="json", id="msp", ood="energy", resamples=20)
    tables = {t["key"]: t for s in json.loads((tmp_path / "r.json").read_text())["sections"] for t in s["tables"]}
    sets = {row[0]: row for row in tables["sets"]["rows"]}
    assert list(sets) == ["test", "foggy", "strange", "alien"]
    gate = Gate.fit(run, "msp", "energy", ood_share=0.5)
    for name, row in sets.items():
        taken = gate.decide(run[name]).verdict == "accept"
        assert row[2] == len(run[name])
        assert row[5]["value"] == pytest.approx(taken.mean())
        if run.roles[name] in ("test", "shift"):
            assert row[3]["value"] == pytest.approx(np.mean(run[name].labels == run[name].predictions))
    test = run["test"]
    taken = gate.decide(test).verdict == "accept"
    for row in tables["classes"]["rows"]:
        k = run.class_names.index(row[0])
        own = [i for i in range(len(test)) if test.labels[i] == k]
        assert row[1] == len(own)
        assert row[2]["value"] == pytest.approx(sum(test.predictions[i] == k for i in own) / len(own))
        taken_as = [i for i in range(len(test)) if taken[i] and test.predictions[i] == k and test.labels[i] != k]
        assert row[5] == len(taken_as)
    accuracies = [row[2]["value"] for row in tables["classes"]["rows"]]
    assert accuracies == sorted(accuracies)


def test_the_verdict_counts_what_the_gate_does(run):
    text = document(run, id="msp", ood="energy", resamples=20).to_markdown().replace("\\", "")
    gate = Gate.fit(run, "msp", "energy", ood_share=0.5)
    test, foggy = run["test"], run["foggy"]
    taken = gate.decide(test).verdict == "accept"
    through = {name: gate.decide(run[name]).verdict == "accept" for name in ("strange", "alien")}
    wrong = int((taken & ~test.correct).sum())
    leaks = sum(int(passed.sum()) for passed in through.values())
    accepted = int(taken.sum()) + leaks
    assert f"the gate accepts {100 * taken.mean():.1f} % of known inputs" in text
    assert f"{100 * (wrong + leaks) / accepted:.1f} % of what it accepts is wrong ({wrong} mistakes and {leaks}" in text
    assert (
        f"rejects {100 * (~taken & test.correct).sum() / test.correct.sum():.1f} % of the correct predictions" in text
    )
    assert f"{100 * through['alien'].mean():.1f} % of far unknown inputs." in text
    fogged = gate.decide(foggy).verdict == "accept"
    assert f"{100 * (~foggy.correct[fogged]).mean():.1f} % of what the gate accepts there is wrong" in text


def test_worst_cases_are_the_worst(run, tmp_path):
    report(run, tmp_path / "r.json", format="json", id="msp", ood="energy", resamples=20)
    tables = {t["key"]: t for s in json.loads((tmp_path / "r.json").read_text())["sections"] for t in s["tables"]}
    test = run["test"]
    odds = scorer("msp").score(test)
    wrong = sorted((i for i in range(len(test)) if not test.correct[i]), key=lambda i: -odds[i])[:3]
    right = sorted((i for i in range(len(test)) if test.correct[i]), key=lambda i: odds[i])[:3]
    for key, chosen in (("overconfident", wrong), ("underconfident", right)):
        assert [row[1] for row in tables[key]["rows"] if row[0] == "test"] == [test.ids[i] for i in chosen]
    assert {row[0] for row in tables["underconfident"]["rows"]} == {"test", "foggy"}  # none on new classes
    assert {row[2] for row in tables["overconfident"]["rows"] if row[0] == "alien"} == {"no known class"}


def test_unknown_classes_come_from_ids_ordered_by_super_class(run, data):
    figure = data["figures"]["softmax"]
    names = [row[0] for row in figure["rows"]]
    assert names[0] == "alien"  # a set without classes has no super-class
    assert names[2] == "fern"
    assert names[1].endswith("!--")
    z = np.asarray(run["strange"].logits, dtype=float)[0::2]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(figure["rows"][2][1:], p.mean(axis=0), rtol=1e-5)


def test_curves_hold_the_values_of_the_library(run, data):
    pair = data["explorer"]["pairs"][0]
    correct, is_id, _, conf_id, conf_ood = samples(run, pair)
    curve = metrics.ds_risk_coverage_curve(correct, conf_id, conf_ood, is_id)
    drawn = [row[1:] for row in data["figures"]["cloud"]["rows"] if row[0] == "best"]
    for coverage, risk in drawn:
        k = round(coverage * is_id.sum()) - 1
        assert risk == pytest.approx(curve.risk[k], abs=1e-6)
    for kind, coverage, risk in data["figures"]["cloud"]["rows"]:
        if kind == "pair":
            k = round(coverage * is_id.sum()) - 1
            assert risk >= curve.risk[k] - 1e-6


def test_one_word_stands_for_one_area(run, page, parsed, data, tmp_path):
    """Unknown inputs part the two coverage conventions: a page that has some names them apart, everywhere."""
    words = " ".join([*parsed.texts, json.dumps(data["figures"])])
    assert not re.search(r"(?<![-_\w])AURC(?![-_\w])", words)
    assert "AURC-ID (aurc_id): the area under the risk of the first score alone, over the coverage of known" in words
    report(run, tmp_path / "r.json", format="json", resamples=20)
    tables = {t["key"]: t for s in json.loads((tmp_path / "r.json").read_text())["sections"] for t in s["tables"]}
    place = tables["joint"]["columns"].index("AURC-ID x1000")
    joint = {(row[0], row[1]): row[place]["value"] for row in tables["joint"]["rows"]}
    both = Outputs.concat([run[name].replace(ids=None) for name in ("test", "alien")])
    for score, area, _ in data["figures"]["improvement-far"]["rows"]:
        chain = scorer(score)
        conf = (chain if chain.ready else chain.fit(run["train"], val=run["val"])).score(both)
        risks = [np.mean(~both.correct[conf >= conf[i]]) for i in np.flatnonzero(both.is_id)]
        assert area == pytest.approx(np.mean(risks), rel=1e-9), score
    assert joint["far unknown", "msp"] == pytest.approx(slow_area(both), rel=1e-9)
    no_unknown = {k: v for k, v in world(evil=False).items() if k[1] in ("train", "val", "test")}
    text = document(write(tmp_path / "known", no_unknown, model="m"), resamples=20).to_markdown().replace("\\", "")
    assert (
        "AURC (aurc) and AUGRC (augrc): areas under the risk of the first score alone, over the coverage of all" in text
    )


def slow_area(outputs):
    conf = scorer("msp").score(outputs)
    return np.mean([np.mean(~outputs.correct[conf >= conf[i]]) for i in np.flatnonzero(outputs.is_id)])


def test_heat_maps_have_a_scale_and_captions_for_both_themes(page):
    text = page.read_text(encoding="utf-8")
    figure = re.search(r'<figure[^>]*data-figure="softmax".*?</figure>', text, re.DOTALL)[0]
    caption = re.search(r"<figcaption>(.*?)</figcaption>", figure)[1]
    assert not re.search(r"\b(dark|light|bright)", caption)  # which turns round with the theme
    levels = [float(x) for x in re.findall(r'class="h scale"[^>]*fill-opacity:([\d.]+)', figure)]
    assert (levels[0], levels[-1]) == (0.0, 1.0)
    assert levels == sorted(levels)
    shares = [float(x) for x in re.findall(r"→ [^<]*: ([\d.]+)</title>", figure)]
    assert f">{max(shares):.3f}</text>" in figure  # the end of the scale is the largest value
    map_ = re.search(r'<figure class="surface".*?</figure>', text, re.DOTALL)[0]
    assert "Bright is good" in map_  # its colours are the same in both themes, and its scale is drawn with it


def test_images_are_inside(parsed):
    pictures = [attrs for tag, attrs in parsed.tags if tag == "img"]
    assert len(pictures) == 3 + 3 + 3  # over and under on test, over alone on unknown inputs
    assert all(attrs["alt"] for attrs in pictures)


def test_images_are_looked_up_by_id(run, tmp_path):
    class Folder:
        """Images in another order than the rows, one grey level each."""

        ids = run["test"].ids[::-1]

        def read(self, rows):
            return np.stack([np.full((4, 4, 3), row % 256, np.uint8) for row in rows])

    def scored(ids, rows):
        return [ReportSet("test", "test", np.ones(rows, bool), {}, ids=ids)]

    found = open_images({"test": Folder()}, scored(run["test"].ids, 300))["test"]
    assert [int(found[row][0, 0, 0]) for row in (0, 299, 100)] == [299 % 256, 0, 199]
    lost = "no image with the id 'other', nor with 0 more of the 1 ids of its outputs; the ids of these images are like"
    with pytest.raises(InvalidInput, match=lost):
        open_images({"test": Folder()}, scored(np.array(["other"]), 1))
    with pytest.raises(InvalidInput, match=r"its outputs have no ids\. Extract them again"):
        open_images({"test": Folder()}, scored(None, 300))


def test_what_a_screen_reader_needs(parsed):
    assert ("html", {"lang": "en"}) in parsed.tags
    for tag, attrs in parsed.tags:
        if tag == "svg":
            assert attrs["role"] == ("application" if attrs.get("id") == "x-map" else "img")
            assert attrs["aria-label"]
        if tag == "th":
            assert attrs["scope"] in ("row", "col")
    labels = {attrs.get("for") for tag, attrs in parsed.tags if tag == "label"}
    assert {"x-id", "x-ood", "x-pair", "x-goal"} <= labels
    assert sum(tag == "table" for tag, _ in parsed.tags) == sum(tag == "caption" for tag, _ in parsed.tags)


def test_the_same_source_gives_the_same_bytes(run, tmp_path):
    one, two = (report(run, tmp_path / f"{i}.html", id="msp", ood="energy", resamples=20).read_bytes() for i in "ab")
    assert one == two


# --- other sources --------------------------------------------------------------------------------------------------


def test_a_file_of_outputs(tmp_path):
    sets = world(evil=False)
    both = Outputs.concat([sets["test", "test"].replace(ids=None), sets["alien", "far"].replace(ids=None)])
    both.to_npz(tmp_path / "outputs.npz")
    made = document(tmp_path / "outputs.npz", resamples=20)
    assert made.data["pairs"][0]["kinds"] == ["correct", "wrong", "unknown"]
    assert made.data["pairs"][0]["command"].startswith("twofold gate fit ")
    assert "optimistic" in made.to_markdown()


def test_a_file_of_confidences_without_unknown_inputs(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "c.npz", correct=rng.random(400) < 0.9, conf=rng.random(400))
    made = document(tmp_path / "c.npz", resamples=20)
    text = made.to_markdown()
    assert "There are no unknown inputs here" in text
    assert made.data["pairs"][0]["command"] == ""
    assert "no gate can be fitted" in made.data["pairs"][0]["gate"]
    report(tmp_path / "c.npz", tmp_path / "c.html", resamples=20)
    with pytest.raises(InvalidInput, match="ood_classes names data sets of a run"):
        document(tmp_path / "c.npz", ood_classes={"far": ["cat"]})


def test_confidences_that_are_no_probabilities(tmp_path):
    rng = np.random.default_rng(0)
    right = rng.random(300) < 0.8
    inside = np.arange(300) < 200
    arrays = {
        "correct": right & inside,
        "is_id": inside,
        "conf": rng.normal(size=300),
        "conf_ood": rng.normal(size=300),
    }
    arrays["conf"][0], arrays["conf_ood"][1] = np.inf, -np.inf
    np.savez(tmp_path / "c.npz", **arrays)
    made = document(tmp_path / "c.npz", resamples=20)
    assert "they leave the range from 0 to 1" in made.to_markdown()
    text = report(tmp_path / "c.npz", tmp_path / "c.html", resamples=20).read_text(encoding="utf-8")
    tau_id, tau_ood, counts = unpacked(json.loads(Page(text).scripts["data"])["explorer"]["pairs"][0])
    assert (tau_id[-1], tau_ood[0], counts.sum()) == (np.inf, -np.inf, 300)
    assert not re.search(r' (d|x|y|width|height)="[^"]*(nan|inf)', text)  # coordinates are numbers


def test_a_perfect_classifier(tmp_path):
    np.savez(tmp_path / "p.npz", correct=np.ones(50, bool), conf=np.linspace(0.5, 1, 50))
    text = document(tmp_path / "p.npz", resamples=20).to_markdown()
    assert "100.0 % are classified correctly" in text


def test_results_have_ranks_maps_boxes_and_bars(results, tmp_path):
    page = Page(report(results, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.ids("section") == ["verdict", "protocol-fd-shifts", "missing", "provenance"]
    figures = json.loads(page.scripts["data"])["figures"]
    kinds = {key.split("-")[0]: figure for key, figure in figures.items()}
    assert set(kinds) == {"ranks", "map", "improvement", "boxes"}
    opened = Results.open(results)
    mean = {s: np.mean([r["value"] for r in opened.rows if r["score"] == s and r["metric"]]) for s in ("msp", "mds")}
    shown = dict(kinds["improvement"]["rows"])
    assert shown["mds"] == pytest.approx(100 * (mean["msp"] - mean["mds"]) / mean["msp"])
    assert kinds["ranks"]["rows"] == [[f"knn{EVIL}", 1.0], ["mds", 2.0], ["msp", 3.0]]
    assert {row[0].split(", ")[-1] for row in kinds["boxes"]["rows"]} == {"resnet", "vit"}
    assert any("needs <passes>" in text for text in page.texts)


def test_two_data_sets_of_results_are_shown_without_tests(tmp_path):
    rows = [
        {"run": "r", "score": score, "shift": shift, "role": "far", "protocol": "fd_shifts", "metric": "aurc"}
        | {"value": value}
        for score, value in (("msp", 0.3), ("mds", 0.2))
        for shift in ("svhn", "dtd")
    ]
    saved = Results.of(rows).save(tmp_path / "results")
    page = Page(report(saved, tmp_path / "r.html").read_text(encoding="utf-8"))
    text = " ".join(page.texts)
    assert "mds has the best mean" in text
    assert "Methods were not compared: 2 methods cannot be compared over 2 blocks" in text
    assert "No ranks are drawn: 2 methods cannot be compared over 2 blocks" in text
    assert "at the top" not in text
    assert "Friedman finds" not in text
    assert "twofold compare" not in text
    assert not any(key.startswith(("ranks", "map")) for key in json.loads(page.scripts["data"])["figures"])


def test_groups_of_too_few_blocks_are_named_on_the_page(tmp_path):
    rows = [
        {"run": f"r{seed}", "seed": seed, "score": score, "shift": shift, "role": role, "protocol": "fd_shifts"}
        | {"metric": "aurc", "value": value + 0.01 * seed}
        for score, value in (("msp", 0.3), ("mds", 0.2), ("knn", 0.1))
        for shift, role in (("cifar", "near"), ("svhn", "far"), ("dtd", "far"))
        for seed in range(3)
    ]
    saved = Results.of(rows).save(tmp_path / "results")
    page = Page(report(saved, tmp_path / "r.html").read_text(encoding="utf-8"))
    text = " ".join(page.texts)
    assert "group near: 3 methods cannot be compared over 3 blocks" in text
    assert "--metric aurc --protocol fd_shifts" in text


def test_a_method_measured_on_less_is_no_improvement(results, tmp_path):
    rows = [dict(row) for row in Results.open(results).rows if row["metric"]]
    rows += [{**row, "score": "odin", "value": 0.01} for row in rows if row["score"] == "msp" and row["seed"] == 0]
    saved = Results.of(rows).save(tmp_path / "more")
    page = Page(report(saved, tmp_path / "r.html").read_text(encoding="utf-8"))
    figures = json.loads(page.scripts["data"])["figures"]
    names = [name for name, _ in figures["improvement-fd-shifts"]["rows"]]
    assert sorted(names) == sorted(["mds", f"knn{EVIL}"])
    assert any("1 method without a value" in text for text in page.texts)


def test_means_are_over_the_same_places(tmp_path):
    """A method with as many values, but of other data sets, does not lead by them."""
    rows = [
        {"benchmark": "b", "run": f"r{seed}", "seed": seed, "score": score, "shift": shift, "role": role}
        | {"protocol": "fd_shifts", "metric": "aurc", "value": value}
        for score, shift, role, value in (
            *(("msp", "cifar", "near", 0.3), ("msp", "svhn", "far", 0.3)),
            *(("mds", "cifar", "near", 0.2), ("mds", "svhn", "far", 0.2)),
            *(("klm", "cifar", "near", 0.25), ("klm", "mnist", "far", 0.01)),
        )
        for seed in (0, 1)
    ]
    saved = Results.of(rows).save(tmp_path / "results")
    page = Page(report(saved, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert any("mds has the best mean" in text for text in page.texts)
    assert [name for name, _ in json.loads(page.scripts["data"])["figures"]["improvement-fd-shifts"]["rows"]] == ["mds"]


# --- forms ----------------------------------------------------------------------------------------------------------


def test_markdown_latex_and_json(run, tmp_path):
    texts = {}
    for form in ("md", "latex", "json"):
        file = report(run, tmp_path / form, format=form, id="msp", ood="energy", resamples=20)
        texts[form] = file.read_text(encoding="utf-8")
    assert "<script" not in texts["md"]
    rows = [line for line in texts["md"].splitlines() if line.startswith("| near unknown |")]
    assert len(rows) == 2  # msp + energy, and msp alone
    assert texts["latex"].count(r"\begin{tabular}") == texts["latex"].count(r"\end{tabular}") >= 6
    assert not re.search(r"(?<!\\)[&%#]dog|</script", texts["latex"])
    assert [s["key"] for s in json.loads(texts["json"])["sections"]] == SECTIONS


def test_the_command(run, tmp_path):
    from twofold.cli.report import report_command

    out = tmp_path / "r.md"
    done = CliRunner().invoke(
        report_command, [str(run.path), "-o", str(out), "--id", "msp", "--ood", "energy", "--resamples", "20", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"report": str(out), "format": "md", "bytes": out.stat().st_size}
    assert "twofold report" in CliRunner().invoke(report_command, ["--help"]).output


def test_the_gate_command_exists(run, data, tmp_path):
    import shlex

    from twofold.cli.gate import gate_group

    pair = data["explorer"]["pairs"][0]
    words = shlex.split(f"{pair['command']} --objective coverage --coverage 0.5 --ood-share 0.1")
    assert words[:3] == ["twofold", "gate", "fit"]
    done = CliRunner().invoke(gate_group, [*words[2:], "--out", str(tmp_path / "gate")])
    assert done.exit_code == 0, done.output
    assert Gate.load(tmp_path / "gate").promise.coverage == 0.5


# --- sizes and mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_of_a_million_samples_is_small(tmp_path):
    rng = np.random.default_rng(0)
    n = 1_000_000
    inside = rng.random(n) < 0.6
    right = inside & (rng.random(n) < 0.9)
    np.savez(
        tmp_path / "big.npz",
        correct=right,
        is_id=inside,
        conf=(rng.normal(size=n) + right).astype(np.float32),
        conf_ood=(rng.normal(size=n) + inside).astype(np.float32),
    )
    page = report(tmp_path / "big.npz", tmp_path / "big.html")
    assert page.stat().st_size < 5_000_000
    pair = json.loads(Page(page.read_text(encoding="utf-8")).scripts["data"])["explorer"]["pairs"][0]
    assert unpacked(pair)[2].sum() == n


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: report(d / "none", d / "r.html"), "there is no file or folder"),
        (lambda d: report(d / "x.npz", d / "no" / "r.html"), "there is no folder"),
        (lambda d: report(d / "x.npz", d / "r.html", format="pdf"), "format: no choice 'pdf'"),
        (lambda d: report(d / "x.npz", d / "r.html", id="msp"), "scores cannot be chosen"),
        (lambda d: report(d / "odd.npz", d / "r.html"), "must hold logits and labels"),
        (lambda d: report(d / "alien.npz", d / "r.html"), "is_id is False everywhere"),
        (lambda d: report(d / "x.npz", d / "r.html", images={"y": np.zeros((4, 2, 2))}), "no data set 'y'"),
        (
            lambda d: report(d / "x.npz", d / "r.html", images={"x": np.zeros((3, 2, 2))}),
            "has 3 images, but",
        ),
        (lambda d: report(d / "x.npz", d / "r.html", images={"x": np.zeros((4, 2))}), "must be (N, H, W)"),
    ],
)
def test_mistakes_are_told(tmp_path, make, message):
    np.savez(tmp_path / "x.npz", correct=[True, False, True, True], conf=[0.9, 0.3, 0.5, 0.7])
    np.savez(tmp_path / "odd.npz", something=[1.0])
    np.savez(tmp_path / "alien.npz", correct=[False, False], conf=[0.9, 0.3], is_id=[False, False])
    with pytest.raises(InvalidInput, match=re.escape(message)):
        make(tmp_path)
    assert not (tmp_path / "r.html").exists()


def test_mistakes_with_runs_are_told(run, results, tmp_path):
    empty = Run.create(tmp_path / "empty", model="m")
    with pytest.raises(InvalidInput, match="no data set with the role test"):
        report(empty, tmp_path / "r.html")
    with pytest.raises(InvalidInput, match="mc_msp cannot be used here: needs passes"):
        report(run, tmp_path / "r.html", id="mc_msp")
    with pytest.raises(InvalidInput, match="applies to the report on a run"):
        report(results, tmp_path / "r.html", id="msp")
    with pytest.raises(InvalidInput, match="150 rows but 2 class names"):
        report(run, tmp_path / "r.html", id="msp", ood_classes={"alien": ["a", "b"]})


def test_unknown_rows_inside_a_test_set_are_unknown(run, tmp_path):
    sets = dict(world(evil=False))
    mixed = Outputs.concat([sets["test", "test"].replace(ids=None), sets["alien", "far"].replace(ids=None)])
    sets = {("train", "train"): sets["train", "train"], ("test", "test"): mixed}
    made = document(write(tmp_path / "run", sets, model="m"), resamples=20)
    table = next(table for table in made.tables() if table.key == "sets")
    assert [(row[0], row[2]) for row in table.rows] == [("test", 300), ("test, unknown rows", 150)]


def test_scores_with_settings_are_quoted(run, tmp_path):
    import shlex

    first, second = 'sum(of=("msp","energy"))', "react(percentile=90)|energy"
    made = document(run, id=first, ood=second, resamples=20)
    words = shlex.split(made.data["pairs"][0]["command"])
    assert words[4:] == ["--id", scorer(first).spec, "--ood", scorer(second).spec]


def test_one_score_alone(run):
    made = document(run, id="msp", ood="none", resamples=20)
    assert made.data["pairs"][0]["command"].endswith("--id msp --ood none")
    assert "With two thresholds" not in made.to_markdown()


def test_a_run_without_validation_says_so(tmp_path):
    sets = {key: value for key, value in world(evil=False).items() if key[1] in ("train", "test", "far")}
    made = document(write(tmp_path / "run", sets, model="m"), resamples=20)
    text = html.unescape(made.to_markdown())
    assert "no validation data" in text
    assert made.data["pairs"][0]["gate"].startswith("the run has no validation set")


def test_ticks_are_round_and_inside():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = float(rng.normal() * 10.0 ** rng.integers(-4, 5))
        high = low + float(rng.exponential() * 10.0 ** rng.integers(-4, 5))
        found = ticks(low, high)
        assert 1 <= len(found) <= 7
        assert all(low - 1e-9 * abs(low) - 1e-9 <= t <= high + 1e-9 * abs(high) + 1e-9 for t in found)


@pytest.mark.parametrize(
    ("correct", "is_id", "said"),
    [
        ([True], None, "Of 1 known test input, 100.0 % are classified correctly."),
        ([False, False, False], [True, True, False], "the gate accepts nothing"),
        ([True, False, False, True], [True, True, False, True], "1 prediction in 3 is wrong"),
    ],
    ids=["one sample", "nothing right", "all scores equal"],
)
def test_odd_data_have_a_page_too(tmp_path, correct, is_id, said):
    arrays = {"correct": correct, "conf": np.full(len(correct), 0.5)}
    arrays |= {} if is_id is None else {"is_id": is_id, "conf_ood": np.ones(len(correct))}
    np.savez(tmp_path / "odd.npz", **arrays)
    assert said in document(tmp_path / "odd.npz", resamples=20).to_markdown().replace("\\", "")
    text = report(tmp_path / "odd.npz", tmp_path / "odd.html", resamples=20).read_text(encoding="utf-8")
    assert Page(text).ids("section") == SECTIONS
    assert not re.search(r' (d|x|y|width|height)="[^"]*(nan|inf)', text)
