"""The page of findings: what it quotes is on the pages of results, and its intervals are over seeds too."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
NUMBER = r"\d+(?:\.\d+)?"


def rows():
    """Claim, what is said of it here and the result pages that say so, for the table that is written by hand."""
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split("## What training does")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for claim, _, here, _, pages in lines[1:]:
        yield pytest.param(here, re.findall(r"results/(\w+\.md)", pages), id=claim[:40])


@pytest.mark.parametrize(("here", "pages"), list(rows()))
def test_every_number_is_on_its_page(here, pages):
    assert pages
    text = " ".join((ROOT / "results" / name).read_text(encoding="utf-8") for name in pages)
    known = set(re.findall(NUMBER, text))
    for number in re.findall(NUMBER, here):
        digits = len(number.partition(".")[2])
        assert number in known or (digits and number in {f"{float(x):.{digits}f}" for x in known}), number


def test_the_noise_of_seeds_is_what_rows_and_seeds_leave(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from studies import residual

    table = np.random.default_rng(0).normal(size=(5, 3)) + np.arange(5)[:, None] + 10 * np.arange(3)
    design = [[i == row for row in range(5)] + [j == seed for seed in range(3)] for i in range(5) for j in range(3)]
    fit, _, rank, _ = np.linalg.lstsq(np.array(design, dtype=float), table.ravel(), rcond=None)
    left = table.ravel() - np.array(design, dtype=float) @ fit
    assert residual(table) == (pytest.approx(np.sqrt((left**2).sum() / (15 - rank))), 15 - rank)
    assert residual(table[:, :1]) == (0.0, 0)


def test_two_scores_of_one_network_share_its_noise(monkeypatch):
    """However far networks are apart, a difference that is the same on all of them is known exactly."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from studies import within

    networks = 100 * np.random.default_rng(0).normal(size=(4, 3))
    gain = np.random.default_rng(1).normal(size=(4, 3))
    noise, free = within((networks + gain) - networks)
    assert (noise, free) == (pytest.approx(np.sqrt(np.mean([np.var(row, ddof=1) for row in gain]))), 8)
    assert within(networks + np.arange(4)[:, None] - networks)[0] == pytest.approx(0, abs=1e-9)
    assert within(gain[:, :1]) == (0.0, 0)
