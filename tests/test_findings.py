"""The pages of findings: they are what the committed files say, and intervals, p-values and corrections are right."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

ROOT = Path(__file__).parent.parent


@pytest.fixture
def findings(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import findings

    return findings


def test_the_pages_are_what_the_committed_files_say(findings):
    for path, text in findings.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run {findings.COMMAND} ({path.name} is not current)"


def test_claims_on_scores_are_what_the_committed_tables_say(findings):
    committed = findings.read_all()["scores"]
    assert findings.score_claims.decide_all() == committed


def test_the_summary_has_at_most_two_screens(findings):
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60


def test_every_paper_has_its_page_figure_and_place_in_the_site(findings):
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    papers = findings.read_papers()
    assert {paper.name for paper in papers} >= {"sure_plus", "fd_shifts", "aurc_estimators", "unknown_detection"}
    for paper in papers:
        assert f"findings/{paper.name}.md" in navigation
        assert f"results/claims_{paper.name}.md" in navigation
    for page in (ROOT / "docs" / "findings").glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), link


def claim(findings, p, low, high, name="a claim"):
    from claims import judge

    about = {"printed_at": "Table 1", "printed": "1", "ours": "1", "unit": "points", "scale": "one", "command": "none"}
    return judge("sure_plus", name, low=low, high=high, p=p, **about)


def test_the_correction_is_that_of_holm_over_all_claims_of_a_paper(findings):
    found = [
        claim(findings, 0.012, 1.0, 2.0),  # 4 x 0.012 = 0.048: stays
        claim(findings, 0.02, -2.0, -1.0),  # 3 x 0.02 = 0.06: no longer
        claim(findings, 0.04, 0.5, 2.0),  # after a claim that falls, all fall
        claim(findings, 0.5, -1.0, 2.0),
        claim(findings, None, 1.0, 1.0),
    ]
    open_one = "inconclusive at this scale"
    assert findings.correct(found) == ["holds", open_one, open_one, open_one, findings.UNCORRECTED]


def test_lines_of_one_claim_are_joined_and_counted(findings):
    lines = [
        findings.Line(claim(findings, 0.01, 1.0, 2.0, "SURE+ wins: AURC, near sets"), "study_x", "holds"),
        findings.Line(
            claim(findings, 0.9, -1.0, 2.0, "SURE+ wins: AURC, far sets"), "study_x", "inconclusive at this scale"
        ),
    ]
    paper = findings.Paper("sure_plus", lines)
    assert list(paper.groups()) == ["SURE+ wins"]
    assert (
        "| SURE+ wins | 1 (Table 1) | AURC, near sets: 1 [1, 2] (points) | one | holds (1), inconclusive"
        in findings.claim_table(paper)
    )


def test_a_test_that_is_not_there_cannot_be_cited(findings, monkeypatch):
    import sure_plus_pages

    missing = ("nothing", "tests/nn/test_averaging.py", "test_that_nobody_wrote")
    monkeypatch.setattr(sure_plus_pages, "FAITHFUL", (missing,))
    with pytest.raises(SystemExit, match="there is no test"):
        sure_plus_pages.faithful(ROOT)


def test_cells_that_are_not_finished_are_missing(findings, tmp_path):
    import sure_plus_pages

    text = "\n".join(sure_plus_pages.radius(tmp_path))
    assert "0 of 24 trials are finished." in text
    assert "- sure_plus: rho = 0.0; rho = 0.02; rho = 0.05; rho = 0.1; rho = 0.2; rho relative to the weights" in text
    assert "No cell is finished: missing." in "\n".join(sure_plus_pages.longer(tmp_path))


def test_a_radius_is_chosen_by_the_validation_images_of_the_trials(findings, tmp_path):
    import sure_plus_pages

    folder = tmp_path / "results" / "studies" / "sure_plus_trials"
    folder.mkdir(parents=True)
    areas = {("sure_plus-1", 0): 0.10, ("sure_plus-2", 0): 0.12}
    columns = "recipe,seed,score,pair,metric,shift,protocol,value"
    lines = [columns]
    for (recipe, seed), area in areas.items():
        lines.append(f"{recipe},{seed},msp,,aurc,validation,fd_shifts,{area}")
        lines.append(f"{recipe},{seed},msp,,accuracy,test,fd_shifts,{0.7 + area}")
        lines.append(f"{recipe},{seed},msp,knn,ds_f1,near,joint,0.5")
    (folder / "results.csv").write_text("\n".join(lines), encoding="utf-8")
    minutes = {f"{recipe}-s{seed}": {"minutes": 20.0 + seed} for recipe, seed in areas}
    (folder / "cells.json").write_text(json.dumps({"content": minutes}), encoding="utf-8")
    text = "\n".join(sure_plus_pages.radius(tmp_path))
    assert "| sure_plus | rho = 0.0 (chosen so far) | 100.00 | 80.00 | – | 50.00 | – | 20 |" in text
    assert "| sure_plus | rho = 0.02 | 120.00 | 82.00 | – | 50.00 | – | 20 |" in text
    assert "2 of 24 trials are finished." in text
    assert "- sure_plus: rho = 0.05; rho = 0.1; rho = 0.2; rho relative to the weights" in text


@pytest.mark.parametrize(("mean", "deviation"), [(1.0, 0.4), (-1.0, 0.4), (0.2, 0.4), (-3.0, 0.5)])
def test_the_p_value_of_a_difference_is_that_of_its_interval(monkeypatch, mean, deviation):
    studies = scripts(monkeypatch, "studies")
    width = 1.959963984540054 * deviation
    found = studies.Difference(mean, mean - width, mean + width, 3)
    assert found.p == pytest.approx(2 * norm.cdf(-abs(mean) / deviation), rel=1e-9)
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)


def test_a_difference_of_one_seed_decides_nothing(monkeypatch):
    studies = scripts(monkeypatch, "studies")
    assert studies.Difference(1.0, 0.5, 1.5, 1).verdict() == studies.UNTESTABLE
    assert studies.Difference(1.0, 0.5, 1.5, 2).verdict() == "holds"
    assert studies.Difference(1.0, 0.5, 1.5, 2).verdict(worse=True) == "does not hold"


def test_the_gain_of_a_study_has_the_sign_of_the_claim(monkeypatch):
    studies = scripts(monkeypatch, "studies")
    column = ("aurc", "test", "fd_shifts")
    found = studies.Difference(-0.02, -0.03, -0.01, 2)
    line = studies.Line("a is worse than b", column, "no number", "a, b", "holds", found, True)
    monkeypatch.setattr(studies, "extent", lambda world, key: "small")
    made = studies.as_claim(line, "unknown", None, "unknown")
    assert (made.low, made.high, made.verdict) == (10.0, 30.0, "holds")
    assert (made.paper, made.claim) == ("unknown_detection", "A is worse than b: AURC, test data")


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


def test_full_presets_are_called_the_papers_scale_only_where_they_have_its_network(monkeypatch):
    studies = scripts(monkeypatch, "studies")
    words, _, rest = studies.full_scale().partition("For the others")
    assert "`sure_plus` and `aurc_finetune` with the networks" in words
    assert "`unknown` trains a resnet18_32" in rest
    assert "`paradigms` trains a resnet18_32, while the paper's code has a vgg13" in rest


def test_what_is_kept_of_a_study_can_be_summed_up(monkeypatch):
    pytest.importorskip("torch")
    studies = scripts(monkeypatch, "studies")
    world = studies.World.open("aurc_converged")
    assert "resnet8_cifar_kd, " in studies.summary(world, "aurc_converged")
    text = (ROOT / "results" / "study_aurc_finetune.md").read_text(encoding="utf-8")
    assert studies.summary(world, "aurc_converged") in text
