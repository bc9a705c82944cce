"""The page of findings: what it quotes is on the pages of results, and its intervals are over seeds too."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
NUMBER = r"\d+(?:\.\d+)?"


def claims():
    """Every claim of the page on scores: its name, what was found here, its verdict, the pages of its numbers."""
    text = (ROOT / "docs" / "findings_scores.md").read_text(encoding="utf-8")
    for section in text.split("\n### ")[1:]:
        claim, _, rest = section.partition("\n")
        items = " ".join(rest.partition("\n## ")[0].split()).split("- ")
        said = dict(item.strip().split(": ", 1) for item in items if ": " in item)
        yield claim, said["Here"], said["Verdict"], re.findall(r"results/(\w+\.md)", said["Numbers"])


def rows():
    for claim, here, _, pages in claims():
        yield pytest.param(here, pages, id=claim[:40])


@pytest.mark.parametrize(("here", "pages"), list(rows()))
def test_every_number_is_on_its_page(here, pages):
    assert pages
    text = " ".join((ROOT / "results" / name).read_text(encoding="utf-8") for name in pages)
    known = set(re.findall(NUMBER, text))
    for number in re.findall(NUMBER, here):
        digits = len(number.partition(".")[2])
        assert number in known or (digits and number in {f"{float(x):.{digits}f}" for x in known}), number


def test_the_overview_has_every_claim_with_its_verdict():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \[(.+)\]\(findings_scores\.md.*\) \| .* \| (.*) \|$", text, flags=re.MULTILINE)
    verdicts = {claim: re.match(r"\*\*(.*)\*\*", verdict)[1] for claim, _, verdict, _ in claims()}
    assert len(lines) > 10
    assert dict(lines) == verdicts


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


def scripts(monkeypatch, name):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return pytest.importorskip(name)


def clique_table(real_bench, member, omnibus=None):
    member = np.array(member, dtype=bool)
    rows, columns = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in zip("sg", member.shape, strict=True))
    rejected = (True,) * len(columns) if omnibus is None else omnibus
    about = "augrc", None, "rank_z", 0.05, rows, columns
    return real_bench.CliqueMap(*about, member, np.ones_like(member), (4,) * len(columns), rejected)


def test_leaders_differ_only_where_no_score_leads_everywhere(monkeypatch):
    pytest.importorskip("torch")
    real_bench = scripts(monkeypatch, "real_bench")
    words = real_bench.clique_words
    assert " holds: no score" in words(clique_table(real_bench, [[1, 0], [0, 1]]))
    shared = words(clique_table(real_bench, [[1, 1], [0, 1], [1, 0]]))  # the columns differ, and one score is in both
    assert "inconclusive at this scale: 1 of 3 scores are in the top clique of each of the 2 groups (s0)" in shared
    undecided = words(clique_table(real_bench, [[1, 1], [0, 1]], omnibus=(True, False)))
    assert "inconclusive at this scale: Friedman's test rejects in fewer than two groups" in undecided
    ignored = clique_table(real_bench, [[1, 0, 1], [0, 1, 1]], omnibus=(True, True, False))
    assert " holds: no score" in words(ignored)


def test_calibration_compares_scaled_with_scaled_and_counts_no_constants(monkeypatch):
    pytest.importorskip("torch")
    real_bench = scripts(monkeypatch, "real_bench")
    lines = [
        ["collapsed", "0.20", "10.10"],
        ["lower", "0.50", "4.00"],
        ["msp", "0.70", "3.00"],
        ["higher", "0.90", "2.50"],  # lower than unscaled msp, which is no rival
        [real_bench.CONSTANT, "0.20", "10.00"],
        [real_bench.UNSCALED, "5.00", "12.00"],
    ]
    words = real_bench.calibration_words(lines)
    assert "1 of 2 other scores have a lower error on the test set than scaled msp (0.70 %" in words
    assert "are not counted: collapsed." in words
    assert "can be calibrated holds for these 1" in words
    assert "the least error is 2.50 %, so scaling fitted on clean data no longer works there" in words
    none = real_bench.calibration_words([line for line in lines if line[0] != "lower"])
    assert "0 of 1 other scores" in none
    assert "can be calibrated does not hold" in none


def test_sentences_of_the_page_are_what_the_rules_say_of_its_tables(monkeypatch):
    pytest.importorskip("torch")
    real_bench = scripts(monkeypatch, "real_bench")
    page = (ROOT / "results" / "real_bench.md").read_text(encoding="utf-8")
    assert real_bench.rewrite_words(page)[0] == page


def test_limits_of_a_difference_stay_in_the_range_of_the_metric(monkeypatch):
    studies = scripts(monkeypatch, "studies")
    assert studies.in_range("aurc", -1.16, 0.89) == (-1.0, 0.89)
    assert studies.in_range("accuracy", -0.1, 1.2) == (-0.1, 1.0)
    assert studies.in_range("auroc_ood", -3.0, 3.0) == (-1.0, 1.0)
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "results").glob("study_*.md")))
    limits = re.findall(r"\(x1000\)[^|]*\|[^|]*\|[^|]*\[(-?[\d.]+), (-?[\d.]+)\]", text)
    assert len(limits) > 100
    assert all(-1000 <= float(low) <= float(high) <= 1000 for low, high in limits)


def test_claims_on_sharpness_aware_recipes_are_not_testable_on_a_small_network(monkeypatch):
    torch = pytest.importorskip("torch")
    studies = scripts(monkeypatch, "studies")
    from twofold.nn.models import build

    def norm(model, classes):
        torch.manual_seed(0)
        parts = [p.detach().double().flatten() for p in build(model, classes=classes).parameters()]
        return float(torch.cat(parts).norm())

    ratio = studies.perturbation_ratio(studies.loaded("sure_plus"))
    assert ratio == pytest.approx(norm("resnet18_32", 100) / norm("resnet8_cifar", 10), rel=1e-9)
    assert 4.4 < ratio < 4.6
    for name in ("sure_plus", "sure_plus_long"):
        verdicts = {one.text: studies.verdict_without_numbers(name, one) for one in studies.sure_plus_claims()}
        assert verdicts["SURE+ is better than plain training"] == studies.UNTESTABLE
        assert verdicts["cutmix is worse than plain training"] is None


def test_the_verdict_on_aurc_as_a_loss_is_that_of_the_converged_network(monkeypatch):
    studies = scripts(monkeypatch, "studies")
    claim = studies.aurc_claims()[0]
    assert studies.verdict_without_numbers("aurc_finetune", claim) == studies.UNTESTABLE
    assert studies.verdict_without_numbers("aurc_converged", claim) is None
    label = studies.VARIANTS["aurc_converged"][-1]
    lines = [
        ["it beats cross-entropy", "aurc test", "paper", "short", studies.UNTESTABLE],
        [f"it beats cross-entropy, {label}", "aurc test", "paper", "long", studies.INCONCLUSIVE],
    ]
    verdict = studies.headline(lines, "AURC wins", "beats cross-entropy", "aurc test")
    assert verdict[3] == "long"
    assert verdict[4].startswith(f"{studies.INCONCLUSIVE} (1 of 1 lines), {label}")


def test_full_presets_are_called_the_papers_scale_only_where_they_have_its_network(monkeypatch):
    pytest.importorskip("torch", reason="studies are read with torch installed")
    studies = scripts(monkeypatch, "studies")
    words, _, rest = studies.full_scale()
    assert "`sure_plus` and `aurc_finetune` with the networks" in words
    assert "`unknown` trains a resnet18_32" in rest
    assert "`paradigms` trains a resnet18_32, while the paper's code has a vgg13" in rest


def test_what_is_kept_of_a_study_can_be_summed_up(monkeypatch):
    pytest.importorskip("torch")
    studies = scripts(monkeypatch, "studies")
    world = studies.World.open("aurc_converged")
    assert "resnet8_cifar_kd, " in studies.summary(world, "aurc_converged")
    text = (ROOT / "docs" / "findings_training.md").read_text(encoding="utf-8")
    assert studies.summary(world, "aurc_converged") in text
