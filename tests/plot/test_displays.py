"""Displays: files that open, hold every label, come out the same twice and have no overlapping labels."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import twofold
from twofold import metrics, plot
from twofold.bench.clique_maps import clique_map
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Gate, Monitor
from twofold.plot import comparisons, display, themes

SETS = {"test": "iid", "cifar100": "near", "tin": "near", "svhn": "far", "lsun": "far"}
STRANGE = "confid $x_1$"  # mathematics to matplotlib, and a name to us


def results(methods=5, runs=3, seed=0):
    rng = np.random.default_rng(seed)
    names = [STRANGE, "react(percentile=90)|energy", *(f"score<{j}>&" for j in range(methods - 2))]
    return Results.of(
        {"score": name, "shift": shift, "role": role, "metric": "augrc", "run": f"r{run}", "model": f"net{run % 2}"}
        | {"protocol": "stratified", "value": float(0.2 + 0.02 * j + 0.02 * rng.normal()), "better": "lower"}
        for run in range(runs)
        for j, name in enumerate(names)
        for shift, role in SETS.items()
    )


def samples(n=600, seed=0):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.7
    correct = is_id & (rng.random(n) < 0.8)
    conf = np.where(correct, 2.0, 0.5) + rng.normal(size=n)
    conf_ood = np.where(is_id, 1.5, 0.0) + rng.normal(size=n)
    return correct, conf, conf_ood, is_id


def watched():
    monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
    for share in (0.9, 0.9, 0.5, 0.2):
        accepted = int(40 * share)
        monitor.update(["accept"] * accepted + ["unsure"] * (40 - accepted))
    return monitor


def of_results(kind, methods):
    made = results(methods)
    if kind == "ranks":
        return plot.RankDisplay.from_results(made, "augrc")
    if kind == "cliques":
        return plot.CliqueDisplay.from_results(made, "augrc")
    if kind == "heat":
        return plot.PivotDisplay.from_results(made.filter(run="r0"), "augrc")
    x = np.linspace(0.01, 1, 50)
    names = dict.fromkeys(row["score"] for row in made)
    return plot.RiskCoverageDisplay.from_points({name: (x, x ** (1 + j)) for j, name in enumerate(names)})


def of_samples(kind):
    correct, conf, conf_ood, is_id = samples()
    several = {STRANGE: conf, "energy": conf_ood}
    made = {
        "risk": lambda: plot.RiskCoverageDisplay.from_predictions(correct, several, is_id=is_id),
        "both": lambda: plot.RiskCoverageDisplay.from_predictions(correct, conf, is_id=is_id, conf_ood=conf_ood),
        "roc": lambda: plot.RocDisplay.from_predictions(is_id, several),
        "precision": lambda: plot.PrecisionRecallDisplay.from_predictions(is_id, several, positive="unsafe"),
        "surface": lambda: plot.F1SurfaceDisplay.from_predictions(correct, conf, conf_ood, is_id, grid=20),
        "reliability": lambda: plot.ReliabilityDisplay.from_predictions(correct, 1 / (1 + np.exp(-conf))),
        "densities": lambda: plot.ScoreDensityDisplay.from_predictions(correct, conf, is_id=is_id, name=STRANGE),
        "monitor": lambda: plot.MonitorDisplay.from_monitor(watched()),
        "evaluation": lambda: plot.EvaluationDisplay.from_evaluation(twofold.evaluate(correct, conf, is_id=is_id)),
        "intervals": lambda: plot.EvaluationDisplay.from_intervals(metrics.intervals(correct, conf, n=10)),
    }
    return made[kind]()


LISTS = ["ranks", "cliques", "heat", "lines"]
ARRAYS = ["risk", "both", "roc", "precision", "surface", "reliability", "densities", "monitor", "evaluation"]
ARRAYS += ["intervals"]


def make(kind, methods=5):
    return of_results(kind, methods) if kind in LISTS else of_samples(kind)


@pytest.mark.parametrize("kind", LISTS + ARRAYS)
def test_the_same_values_give_the_same_bytes_light_and_dark(kind, tmp_path):
    for theme in ("light", "dark"):
        one = make(kind).save(tmp_path / f"a-{theme}.svg", theme=theme)
        two = make(kind).save(tmp_path / f"b-{theme}.svg", theme=theme)
        content = one.read_bytes()
        assert content == two.read_bytes()
        assert content.startswith(b"<?xml")
        assert b"Date" not in content
    assert (tmp_path / "a-light.svg").read_bytes() != (tmp_path / "a-dark.svg").read_bytes()


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_other_formats_too(suffix, start, tmp_path):
    one = make("heat").save(tmp_path / f"a.{suffix}")
    assert one.read_bytes() == make("heat").save(tmp_path / f"b.{suffix}").read_bytes()
    assert one.read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a.{suffix}", f"b.{suffix}"]


def texts(path):
    tree = ElementTree.parse(path)
    return ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("methods", [5, 40])
def test_every_label_is_there_once_and_letter_by_letter(kind, methods, tmp_path):
    shown = texts(make(kind, methods).save(tmp_path / "a.svg"))
    for name in dict.fromkeys(row["score"] for row in results(methods)):
        assert shown.count(name) == 1
    if kind == "cliques":
        assert {"net0 / near (4)", "net0 / far (4)"} <= set(shown)
        dropped = "Too few blocks to compare: net0 / iid, net1 / iid, net1 / near, net1 / far."
        assert dropped in " ".join(shown)
    if kind == "heat":
        assert set(SETS) <= set(shown)
        values = [row["value"] for row in results(methods).filter(run="r0")]
        assert {f"{1000 * value:.2f}" for value in values} <= set(shown)


@pytest.mark.parametrize("kind", LISTS + ARRAYS)
@pytest.mark.parametrize("methods", [5, 40])
def test_no_two_labels_overlap(kind, methods, tmp_path, monkeypatch):
    if kind in ARRAYS and methods > 5:
        pytest.skip("drawn once")
    seen = []
    monkeypatch.setattr(display, "write_figure", lambda figure, path, alt_text: seen.append(figure) or path)
    make(kind, methods).save(tmp_path / "a.png")
    (figure,) = seen
    boxes = text_boxes(figure)
    assert len(boxes) >= 3
    for i, (one, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            assert not a.overlaps(b), f"{one} and {other}"


def text_boxes(figure):
    """The boxes of all horizontal text that is drawn: ticks beyond the ends of an axis are not."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    drawn = []
    draw_text = renderer.draw_text

    def record(*args, mtext=None, **kwargs):
        if mtext is not None and mtext not in drawn:
            drawn.append(mtext)
        return draw_text(*args, mtext=mtext, **kwargs)

    renderer.draw_text = record
    figure.draw(renderer)
    level = [text for text in drawn if text.get_rotation() == 0]
    return [(text.get_text(), text.get_window_extent(renderer).padded(-0.5)) for text in level]


def test_the_size_grows_with_the_methods(tmp_path):
    from PIL import Image

    sizes = []
    for methods in (5, 12, 40):
        with Image.open(make("ranks", methods).save(tmp_path / f"{methods}.png")) as image:
            sizes.append(image.size)
    heights = [height for _, height in sizes]
    line = comparisons.ROW_HEIGHT * 200  # pixels at 200 dots an inch
    assert heights[1] - heights[0] == pytest.approx(7 * line, abs=5)
    assert heights[2] - heights[1] == pytest.approx(28 * line, abs=5)
    assert max(width for width, _ in sizes) < 3000


def test_empty_cells_and_equal_columns(tmp_path):
    rows = [
        {"score": s, "shift": d, "metric": "auroc", "value": v}
        for s, d, v in [("a", "x", 0.5), ("b", "x", float("nan")), ("a", "y", 0.7), ("b", "y", 0.7), ("c", "z", 0.1)]
    ]
    shown = texts(plot.PivotDisplay.from_results(Results.of(rows), "auroc").save(tmp_path / "a.svg"))
    assert shown.count("–") == 5
    assert shown.count("70.00") == 2


def test_nothing_rejected_is_said(tmp_path):
    made = Results.of(
        {"score": s, "shift": d, "role": "far", "metric": "aurc", "value": 0.1} for s in "abc" for d in "wxyz"
    )
    shown = texts(plot.RankDisplay.from_results(made, "aurc").save(tmp_path / "a.svg"))
    assert "Friedman's test rejects nothing" in " ".join(shown)
    plot.CliqueDisplay.from_results(made, "aurc").save(tmp_path / "b.svg")


def test_errors_come_before_any_file(tmp_path):
    made = make("lines")
    for name, message in (("a.gif", "has the suffix '.gif'"), ("a", "has the suffix none"), ("x/a.png", "no folder")):
        with pytest.raises(InvalidInput, match=message):
            made.save(tmp_path / name)
    with pytest.raises(InvalidInput, match="theme: no choice"):
        made.save(tmp_path / "a.png", theme="pink")
    with pytest.raises(InvalidInput, match="at least one curve"):
        plot.RiskCoverageDisplay.from_points({})
    with pytest.raises(InvalidInput, match="must have the same length, got 2 and 1"):
        plot.RiskCoverageDisplay.from_points({"a": ([0.5, 1.0], [0.1])})
    assert list(tmp_path.iterdir()) == []
    assert made.save(tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")


def test_bad_arrays_have_one_clear_error():
    correct, conf, conf_ood, is_id = samples()
    with pytest.raises(InvalidInput, match="at least one confidence"):
        plot.RocDisplay.from_predictions(correct, {})
    with pytest.raises(InvalidInput, match="name is for a single confidence"):
        plot.RocDisplay.from_predictions(correct, {"a": conf}, name="b")
    with pytest.raises(InvalidInput, match="second of two"):
        plot.RiskCoverageDisplay.from_predictions(correct, {"a": conf, "b": conf}, is_id=is_id, conf_ood=conf_ood)
    with pytest.raises(InvalidInput, match="at least two finite thresholds"):
        plot.F1SurfaceDisplay.from_predictions([1, 0], [1.0, 1.0], [1.0, 2.0])
    with pytest.raises(InvalidInput, match="quantity: no choice"):
        metrics.f1_surface(correct, conf, conf_ood, is_id, grid=5).plot(quantity="loss")
    two = {name: twofold.evaluate(correct, conf, only=[name]) for name in ("auroc", "aurc")}
    with pytest.raises(InvalidInput, match="no metric in common"):
        plot.EvaluationDisplay.from_evaluation(two)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingExtra, match=r'pip install "twofold\[plot\]"'):
        make("lines").save(tmp_path / "a.png")
    with pytest.raises(MissingExtra, match=r'pip install "twofold\[plot\]"'):
        make("lines").plot()


def test_the_users_own_style_changes_nothing(tmp_path):
    import matplotlib

    before = make("heat").save(tmp_path / "a.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "text.color": "green"}):
        assert make("heat").save(tmp_path / "b.svg").read_bytes() == before


def test_importing_plot_does_not_import_matplotlib():
    code = "import twofold.plot, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# --- what is drawn --------------------------------------------------------------------------------------------------


def test_risk_over_coverage_is_that_of_the_definition():
    correct, conf, _, _ = samples(80)
    (curve,) = plot.RiskCoverageDisplay.from_predictions(correct, conf).curves
    for coverage, risk in zip(curve.x, curve.y, strict=True):
        taken = np.argsort(-conf)[: round(coverage * len(conf))]
        assert risk == pytest.approx(np.mean(~correct[taken]))
    assert len(curve.x) == 80


def test_precision_and_recall_are_those_of_scikit_learn():
    from sklearn.metrics import precision_recall_curve

    _, conf, _, is_id = samples(90)
    conf = conf.round(1)  # ties
    for positive, truth, ranked in (("safe", is_id, conf), ("unsafe", ~is_id, -conf)):
        precision, recall, thresholds = precision_recall_curve(truth, ranked)
        mine = metrics.precision_recall_curve(is_id, conf, positive=positive)
        np.testing.assert_allclose(mine.precision, precision[:-1][::-1])
        np.testing.assert_allclose(mine.recall, recall[:-1][::-1])
        np.testing.assert_allclose(mine.threshold, (thresholds if positive == "safe" else -thresholds)[::-1])
        (drawn,) = plot.PrecisionRecallDisplay.from_curve(mine).curves
        expected = metrics.average_precision(is_id, conf, positive=positive == "safe")
        assert drawn.area == pytest.approx(expected)


def test_a_curve_made_before_has_the_same_area():
    _, conf, _, is_id = samples(90)
    (drawn,) = plot.RocDisplay.from_curve(metrics.roc_curve(is_id, conf.round(1))).curves
    assert drawn.area == pytest.approx(metrics.auroc(is_id, conf.round(1)))


def test_the_oracle_is_below_every_curve_and_touches_at_full_coverage():
    correct, conf, conf_ood, is_id = samples()
    made = plot.RiskCoverageDisplay.from_predictions(correct, conf, is_id=is_id, conf_ood=conf_ood)
    for curve in made.curves:
        assert (np.interp(curve.x, made.oracle.x, made.oracle.y) <= curve.y + 1e-3).all()
    assert [curve.area for curve in made.curves] == pytest.approx(
        [metrics.aurc(correct, conf, is_id=is_id, coverage="id"), metrics.ds_aurc(correct, conf, conf_ood, is_id)]
    )
    alone = plot.RiskCoverageDisplay.from_predictions(correct, conf)
    assert alone.oracle.y[-1] == pytest.approx(alone.curves[0].y[-1])


def test_densities_have_area_one_and_name_every_kind():
    correct, conf, _, is_id = samples()
    made = plot.ScoreDensityDisplay.from_predictions(correct, conf, is_id=is_id)
    assert [curve.name for curve in made.curves] == ["correct", "wrong", "OOD"]
    assert list(made.counts) == [correct.sum(), (is_id & ~correct).sum(), (~is_id).sum()]
    for curve in made.curves:
        assert curve.y.sum() * (curve.x[1] - curve.x[0]) == pytest.approx(1.0, abs=0.01)


def test_the_mark_of_a_surface_is_at_the_best_pair():
    correct, conf, conf_ood, is_id = samples()
    made = plot.F1SurfaceDisplay.from_predictions(correct, conf, conf_ood, is_id, grid=30)
    value, tau_id, tau_ood = made.best
    accepted = (conf >= tau_id) & (conf_ood >= tau_ood)
    assert value == pytest.approx(2 * correct[accepted].sum() / (accepted.sum() + is_id.sum()))
    assert value == made.surface.f1.max()


def test_calibration_error_is_that_of_the_metric():
    correct, conf, _, _ = samples()
    prob = 1 / (1 + np.exp(-conf))
    assert plot.ReliabilityDisplay.from_predictions(correct, prob).ece == pytest.approx(metrics.ece(correct, prob))


def test_a_monitor_shows_limit_and_alarm(tmp_path):
    made = plot.MonitorDisplay.from_monitor(watched())
    assert made.alt_text.endswith("; alarm.")
    shown = texts(made.save(tmp_path / "a.svg"))
    assert {"accept", "unsure", "unknown", "limit", "alarm", "inputs seen"} <= set(shown)
    nothing = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
    assert plot.MonitorDisplay.from_monitor(nothing).alt_text == "A monitor that has seen no input."
    plot.MonitorDisplay.from_monitor(nothing).save(tmp_path / "b.svg")


# --- scikit-learn's convention --------------------------------------------------------------------------------------


@pytest.fixture
def pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("kind", LISTS + ARRAYS)
def test_plot_returns_the_display_with_axes_and_figure(kind, pyplot):
    made = make(kind)
    assert made.plot() is made
    assert made.figure_ is made.ax_.figure
    box = made.figure_.get_tightbbox()  # in inches
    width, height = made.figure_.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > 0.03, "nothing is cut"
    figure, axes = pyplot.subplots()
    assert made.plot(axes).ax_ is axes
    assert made.figure_ is figure
    figure.canvas.draw()


def test_dark_axes_get_colours_for_a_dark_ground(pyplot):
    _, axes = pyplot.subplots(facecolor="black", subplot_kw={"facecolor": "black"})
    make("roc").plot(axes)
    drawn = {line.get_color() for line in axes.lines}
    assert themes.DARK.colours[0] in drawn
    assert themes.LIGHT.colours[0] not in drawn
    assert make("roc").plot(theme="dark").figure_.get_facecolor() != (1, 1, 1, 1)


def test_results_plot_themselves(pyplot):
    correct, conf, conf_ood, is_id = samples()
    made = results()
    outputs = twofold.Outputs(np.stack([conf, -conf], axis=1), labels=np.where(is_id, ~correct, -1).astype(int))
    drawn = {
        plot.EvaluationDisplay: [
            twofold.evaluate(correct, conf).plot(),
            Gate.fit(outputs).report_card(outputs).plot(),
        ],
        plot.RiskCoverageDisplay: [
            metrics.risk_coverage_curve(correct, conf).plot(name="msp"),
            metrics.ds_risk_coverage_curve(correct, conf, conf_ood, is_id).plot(),
        ],
        plot.F1SurfaceDisplay: [metrics.f1_surface(correct, conf, conf_ood, is_id, grid=9).plot(quantity="risk")],
        plot.RocDisplay: [metrics.roc_curve(is_id, conf).plot()],
        plot.PrecisionRecallDisplay: [metrics.precision_recall_curve(is_id, conf).plot()],
        plot.ReliabilityDisplay: [metrics.reliability_diagram(correct, 1 / (1 + np.exp(-conf))).plot()],
        plot.RankDisplay: [compare(made, "augrc").plot()],
        plot.CliqueDisplay: [clique_map(made, "augrc").plot()],
        plot.PivotDisplay: [
            made.filter(run="r0").plot("augrc"),
            made.filter(run="r0").pivot(metric="augrc").plot(digits=1),
        ],
        plot.MonitorDisplay: [watched().plot(theme="dark")],
    }
    for kind, several in drawn.items():
        for one in several:
            assert isinstance(one, kind)
            assert one.figure_ is one.ax_.figure


# --- accessible -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LISTS + ARRAYS)
def test_a_file_says_in_words_what_it_shows(kind, tmp_path):
    made = make(kind)
    title = ElementTree.parse(made.save(tmp_path / "a.svg")).getroot().find("{http://www.w3.org/2000/svg}title")
    assert title.text == made.alt_text
    assert made.alt_text.endswith(".")
    assert len(made.alt_text) > 30


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", themes.THEMES.values(), ids=list(themes.THEMES))
def test_colours_stand_out_from_the_ground(theme):
    """WCAG 2.2: 3 for graphics (1.4.11), 4.5 for text (1.4.3)."""
    assert min(contrast(colour, theme.ground) for colour in theme.colours) >= 3
    assert contrast(theme.soft, theme.ground) >= 4.5
    for ground in (theme.ground, *theme.heat, theme.band):
        assert contrast(theme.text, ground) >= 4.5


def test_figures_have_the_colours_of_the_page():
    style = (Path(twofold.__file__).parent / "report/static/page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root(?:\[[^{]*)? \{(.*?)\n\}", style, flags=re.DOTALL)[:2]
    for theme, block in zip((themes.LIGHT, themes.DARK), blocks, strict=True):
        of_page = dict(re.findall(r"--(\w+): (#\w+);", block))
        assert (theme.ground, theme.text, theme.soft) == (of_page["page"], of_page["text"], of_page["soft"])
        assert theme.colours[:6] == tuple(of_page[f"k{i}"] for i in range(6))
