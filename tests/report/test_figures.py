"""Figures: files that open, hold every label, come out the same twice and have no overlapping labels."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from twofold.bench.clique_maps import clique_map
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.errors import InvalidInput, MissingExtra
from twofold.report import figures

SETS = {"test": "iid", "cifar100": "near", "tin": "near", "svhn": "far", "lsun": "far"}


def results(methods=5, runs=3, seed=0):
    rng = np.random.default_rng(seed)
    names = ["confid $x_1$", "react(percentile=90)|energy", *(f"score<{j}>&" for j in range(methods - 2))]
    return Results.of(
        {"score": name, "shift": shift, "role": role, "metric": "augrc", "run": f"r{run}", "model": f"net{run % 2}"}
        | {"protocol": "stratified", "value": float(0.2 + 0.02 * j + 0.02 * rng.normal()), "better": "lower"}
        for run in range(runs)
        for j, name in enumerate(names)
        for shift, role in SETS.items()
    )


def draw(kind, path, methods=5):
    made = results(methods)
    if kind == "critical_difference":
        return figures.critical_difference(compare(made, "augrc"), path)
    if kind == "clique_map":
        return figures.clique_map(clique_map(made, "augrc"), path)
    if kind == "heat":
        return figures.heat(made.filter(run="r0").pivot(metric="augrc"), path)
    x = np.linspace(0.01, 1, 50)
    names = dict.fromkeys(r["score"] for r in made)
    return figures.risk_coverage({name: (x, x ** (1 + j)) for j, name in enumerate(names)}, path)


KINDS = ["critical_difference", "clique_map", "heat", "risk_coverage"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_values_give_the_same_bytes(kind, suffix, tmp_path):
    one, two = draw(kind, tmp_path / f"a.{suffix}"), draw(kind, tmp_path / f"b.{suffix}")
    content = one.read_bytes()
    assert content == two.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    assert b"Date" not in content
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"a.{suffix}", f"b.{suffix}"]


def texts(path):
    tree = ElementTree.parse(path)
    return ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("methods", [5, 40])
def test_every_label_is_there_once_and_letter_by_letter(kind, methods, tmp_path):
    shown = texts(draw(kind, tmp_path / "a.svg", methods))
    for name in dict.fromkeys(r["score"] for r in results(methods)):
        assert shown.count(name) == 1
    if kind == "clique_map":
        assert {"net0 / near (4)", "net0 / far (4)"} <= set(shown)
        dropped = "Too few blocks to compare: net0 / iid, net1 / iid, net1 / near, net1 / far."
        assert any(dropped in line for line in shown)
    if kind == "heat":
        assert set(SETS) <= set(shown)
        values = [r["value"] for r in results(methods).filter(run="r0")]
        assert {f"{1000 * value:.2f}" for value in values} <= set(shown)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("methods", [5, 12, 40])
def test_no_two_labels_overlap(kind, methods, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: seen.append(figure) or path)
    draw(kind, tmp_path / "a.png", methods)
    (figure,) = seen
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = []
    for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and hasattr(artist, "get_text")):
        if text.get_text() and text.get_visible() and text.get_rotation() == 0:
            boxes.append((text.get_text(), text.get_window_extent(renderer).padded(-0.5)))
    assert len(boxes) >= methods
    for i, (one, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            assert not a.overlaps(b), f"{one} and {other}"


def test_the_size_grows_with_the_methods(tmp_path):
    from PIL import Image

    sizes = []
    for methods in (5, 12, 40):
        with Image.open(draw("critical_difference", tmp_path / f"{methods}.png", methods)) as image:
            sizes.append(image.size)
    heights = [height for _, height in sizes]
    line = figures.ROW_HEIGHT * 200  # pixels at 200 dots an inch
    assert heights[1] - heights[0] == pytest.approx(7 * line, abs=5)
    assert heights[2] - heights[1] == pytest.approx(28 * line, abs=5)
    assert max(width for width, _ in sizes) < 3000


def test_empty_cells_and_equal_columns(tmp_path):
    rows = [
        {"score": s, "shift": d, "metric": "auroc", "value": v}
        for s, d, v in [("a", "x", 0.5), ("b", "x", float("nan")), ("a", "y", 0.7), ("b", "y", 0.7), ("c", "z", 0.1)]
    ]
    shown = texts(figures.heat(Results.of(rows).pivot(metric="auroc"), tmp_path / "a.svg"))
    assert shown.count("–") == 5
    assert shown.count("70.00") == 2


def test_nothing_rejected_is_said(tmp_path):
    made = Results.of(
        {"score": s, "shift": d, "role": "far", "metric": "aurc", "value": 0.1} for s in "abc" for d in "wxyz"
    )
    shown = texts(figures.critical_difference(compare(made, "aurc"), tmp_path / "a.svg"))
    assert any("Friedman's test rejects nothing" in line for line in shown)
    figures.clique_map(clique_map(made, "aurc"), tmp_path / "b.svg")


def test_errors_come_before_any_file(tmp_path):
    curve = {"a": ([0.5, 1.0], [0.1, 0.2])}
    for name, message in (("a.gif", "has the suffix '.gif'"), ("a", "has the suffix none"), ("x/a.png", "no folder")):
        with pytest.raises(InvalidInput, match=message):
            figures.risk_coverage(curve, tmp_path / name)
    with pytest.raises(InvalidInput, match="at least one curve"):
        figures.risk_coverage({}, tmp_path / "a.png")
    with pytest.raises(InvalidInput, match="must have the same length, got 2 and 1"):
        figures.risk_coverage({"a": ([0.5, 1.0], [0.1])}, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
    assert figures.risk_coverage(curve, tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingExtra, match=r'pip install "twofold\[report\]"'):
        draw("risk_coverage", tmp_path / "a.png")


def test_the_users_own_style_changes_nothing(tmp_path):
    import matplotlib

    before = draw("heat", tmp_path / "a.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "text.color": "green"}):
        assert draw("heat", tmp_path / "b.svg").read_bytes() == before


def test_importing_figures_does_not_import_matplotlib():
    code = "import twofold.report.figures, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
