"""Files of claims: what is written is read again, and every verdict follows from its interval."""

from pathlib import Path

import pytest

from twofold.errors import InvalidInput

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "results" / "claims").glob("*.csv"))
TEXTS = {
    "printed_at": "Table 1",
    "printed": "+0.25 near, +2.13 far",
    "ours": "+0.37 near",
    "unit": "F1, points",
    "scale": "one network",
    "command": "python benchmarks/text_claims.py --save",
}


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import claims

    return claims


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.2, "holds"),
        (-0.2, -0.1, "does not hold"),
        (-0.1, 0.2, "inconclusive at this scale"),
        (0.0, 0.2, "inconclusive at this scale"),
        (-0.2, 0.0, "inconclusive at this scale"),
        (None, None, "not testable at this scale"),
    ],
)
def test_the_interval_decides(claims, low, high, verdict):
    assert claims.decide(low, high) == verdict


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.1), (float("nan"), 0.1), (None, 0.1), (0.1, None)])
def test_half_an_interval_decides_nothing(claims, low, high):
    with pytest.raises(InvalidInput):
        claims.decide(low, high)


def test_what_is_written_is_read_again(claims, tmp_path):
    first = claims.judge("sure_plus", "=Far sets gain more", low=1 / 3, high=2 / 3, p=0.001, **TEXTS)
    why = {name: TEXTS[name] for name in ("printed_at", "printed", "scale", "command")}
    second = claims.untestable("beyond", 'Dropout helps, "much"', why="a network with dropout would", **why)
    path = claims.write_claims("mine", [first, second], folder=tmp_path)
    assert claims.read_claims(path) == [first, second]
    assert "'=Far" in path.read_text(encoding="utf-8")
    assert claims.read_all([path]) == {"mine": [first, second]}


def test_a_changed_verdict_is_noticed(claims, tmp_path):
    path = claims.write_claims(
        "mine", [claims.judge("beyond", "It helps", low=0.1, high=0.2, **TEXTS)], folder=tmp_path
    )
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("0.1,", "-0.1,"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="its interval says 'inconclusive at this scale'"):
        claims.read_claims(path)
    path.write_text(text.replace("0.1,", "high,"), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"low of .*line 2 is 'high'"):
        claims.read_claims(path)
    path.write_text(text.replace(",holds", ""), encoding="utf-8")
    with pytest.raises(InvalidInput, match="does not have 12 cells"):
        claims.read_claims(path)
    path.write_text(text.replace("paper,", "article,"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="has the columns"):
        claims.read_claims(path)


def test_papers_and_texts_are_checked(claims):
    with pytest.raises(InvalidInput, match="no paper 'sure'"):
        claims.judge("sure", "It helps", low=0.1, high=0.2, **TEXTS)
    with pytest.raises(InvalidInput, match="ours of the claim 'It helps' is empty"):
        claims.judge("beyond", "It helps", low=0.1, high=0.2, **{**TEXTS, "ours": " "})
    with pytest.raises(InvalidInput, match="no probability"):
        claims.judge("beyond", "It helps", low=0.1, high=0.2, p=2.0, **TEXTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_committed_claims_are_valid(claims, path):
    """Reading checks each line; beyond that, p and interval must not contradict each other."""
    found = claims.read_claims(path)
    assert len({(one.paper, one.claim) for one in found}) == len(found), "two lines with one claim"
    for one in found:
        script = one.command.split()[1]
        assert (ROOT / script).is_file() or not script.startswith("benchmarks/"), one.command
        if one.p is not None and one.p < 0.04:
            assert one.verdict in ("holds", "does not hold"), one.claim
