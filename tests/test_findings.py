"""The page of findings quotes result pages; what it quotes must be there."""

import re
from pathlib import Path

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
