"""The pages of findings: they are what the committed files say, and intervals, p-values and corrections are right."""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm, t

from twofold.bench.rows import key_of

ROOT = Path(__file__).parent.parent


@pytest.fixture
def findings(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import findings

    return findings


@pytest.fixture
def findings_claims(monkeypatch):
    return scripts(monkeypatch, "findings_claims")


@pytest.fixture
def findings_pages(monkeypatch):
    return scripts(monkeypatch, "findings_pages")


def test_the_pages_are_what_the_committed_files_say(findings, findings_pages):
    for path, text in findings.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run {findings_pages.COMMAND} ({path.name} is not current)"


def test_claims_on_scores_are_what_the_committed_tables_say(findings, findings_claims):
    committed = findings_claims.read_all()["scores"]
    assert findings.score_claims.decide_all() == committed


def test_the_summary_has_at_most_two_screens():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60


def test_every_paper_has_its_page_figure_and_place_in_the_site(findings_claims):
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    papers = findings_claims.read_papers()
    assert {paper.name for paper in papers} >= {"sure_plus", "fd_shifts", "aurc_estimators", "unknown_detection"}
    for paper in papers:
        assert f"findings/{paper.name}.md" in navigation
        assert f"results/claims_{paper.name}.md" in navigation
    for page in (ROOT / "docs" / "findings").glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), link


def claim(p, low, high, name="a claim"):
    from claims import judge

    about = {"printed_at": "Table 1", "printed": "1", "ours": "1", "unit": "points", "scale": "one", "command": "none"}
    return judge("sure_plus", name, low=low, high=high, p=p, **about)


def test_the_correction_is_that_of_holm_over_all_claims_of_a_paper(findings_claims):
    found = [
        claim(0.012, 1.0, 2.0),  # 4 x 0.012 = 0.048: stays
        claim(0.02, -2.0, -1.0),  # 3 x 0.02 = 0.06: no longer
        claim(0.04, 0.5, 2.0),  # after a claim that falls, all fall
        claim(0.5, -1.0, 2.0),
        claim(None, 1.0, 1.0),
    ]
    open_one = "inconclusive at this scale"
    assert findings_claims.correct(found) == ["holds", open_one, open_one, open_one, findings_claims.UNCORRECTED]


def test_lines_of_one_claim_are_joined_and_counted(findings_claims, findings_pages):
    lines = [
        findings_claims.Line(claim(0.01, 1.0, 2.0, "SURE+ wins: AURC, near sets"), "study_x", "holds"),
        findings_claims.Line(
            claim(0.9, -1.0, 2.0, "SURE+ wins: AURC, far sets"), "study_x", "inconclusive at this scale"
        ),
    ]
    paper = findings_claims.Paper("sure_plus", lines)
    assert list(paper.groups()) == ["SURE+ wins"]
    caption, table = findings_pages.claim_table([lines])
    assert caption == "Scale: one. Command: `none`."
    here = "AURC, near sets: 1 [1, 2] (points). Gain by AURC, far sets [-1, +2]"
    row = f"| SURE+ wins | 1 (Table 1) | {here} | holds (1), inconclusive (1) |"
    assert table.splitlines()[2:] == [row]


def test_a_verdict_names_that_after_the_correction_where_it_differs(findings_claims):
    holds = claim(0.01, 1.0, 2.0)
    assert findings_claims.verdict_words([findings_claims.Line(holds, "scores", "holds")]) == "holds"
    lost = findings_claims.Line(holds, "scores", "inconclusive at this scale")
    assert findings_claims.verdict_words([lost]) == "holds; after correction inconclusive"
    assert (
        findings_claims.verdict_words([findings_claims.Line(holds, "scores", findings_claims.UNCORRECTED)])
        == "holds (no p-value)"
    )


def test_a_claim_names_its_scale_where_most_have_another(findings_claims, findings_pages):
    from dataclasses import replace

    small = [claim(0.01, 1.0, 2.0, name) for name in ("small", "as small")]
    large = replace(claim(0.01, 1.0, 2.0, "large"), scale="two; half the data")
    lines = [[findings_claims.Line(one, "scores", "holds")] for one in (large, *small)]
    caption, table = findings_pages.claim_table(lines)
    assert caption == "Scale, unless a row names its own: one. Command: `none`."
    assert table.splitlines()[2:] == [
        "| large | 1 (Table 1) | 1 [1, 2] (points) (half the data). Scale: two | holds |",
        "| small | 1 (Table 1) | 1 [1, 2] (points) | holds |",
        "| as small | 1 (Table 1) | 1 [1, 2] (points) | holds |",
    ]


def test_a_test_that_is_not_there_cannot_be_cited(findings, monkeypatch):
    import sure_plus_pages

    missing = ("nothing", "tests/nn/test_averaging.py", "test_that_nobody_wrote")
    monkeypatch.setattr(sure_plus_pages, "FAITHFUL", (missing,))
    with pytest.raises(SystemExit, match="there is no test"):
        sure_plus_pages.faithful(ROOT)


def test_cells_that_are_not_finished_are_missing(findings, tmp_path):
    import sure_plus_pages

    text = "\n".join(sure_plus_pages.radius(tmp_path))
    assert "0 of 26 trials are finished." in text
    assert "- sure_plus: rho = 0.0; rho = 0.02; rho = 0.05; rho = 0.1; rho = 0.2; rho relative to the weights" in text
    longer = "\n".join(sure_plus_pages.longer(tmp_path))
    assert "No cell is finished: all 30 are missing. `twofold study run sure_plus_finetune" in longer
    assert "No cell is finished: the trials that choose its settings are missing." in longer


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
    assert "2 of 26 trials are finished." in text
    assert "- sure_plus: rho = 0.05; rho = 0.1; rho = 0.2; rho relative to the weights" in text


def write_accuracies(folder, accuracies):
    """Write the cells of one row, with their accuracies by seed."""
    folder.mkdir(parents=True)
    lines = ["benchmark,recipe,seed,score,pair,metric,shift,protocol,value"]
    places = (
        "msp,,accuracy,test,fd_shifts",
        "msp,,aurc,test,fd_shifts",
        "msp,knn,ds_f1,near,joint",
        "msp,knn,ds_f1,far,joint",
    )
    for seed, accuracy in accuracies.items():
        lines += [f"cifar10-real,basic-5,{seed},{place},{accuracy}" for place in places]
    (folder / "results.csv").write_text("\n".join(lines), encoding="utf-8")
    minutes = {f"basic-5-s{seed}": {"minutes": 4.0} for seed in accuracies}
    (folder / "cells.json").write_text(json.dumps({"content": minutes}), encoding="utf-8")


def test_a_cell_in_both_precisions_is_shown_twice(findings, tmp_path):
    import sure_plus_pages
    from sure_plus_cells import LONGER, SINGLE, open_comparison

    studies = tmp_path / "results" / "studies"
    write_accuracies(studies / SINGLE.folder, {1: 0.72})
    write_accuracies(studies / LONGER.folder, {0: 0.71, 1: 0.73, 2: 0.76})
    half, single = open_comparison(tmp_path, LONGER), open_comparison(tmp_path, SINGLE)
    table, words = sure_plus_pages.precision_table(half, single)
    assert "the accuracies of 3 seeds run from 71.00 to 76.00" in words
    assert [line.split(" | ")[1:4] for line in table.splitlines()[2:]] == [
        ["1", "bfloat16", "73.00"],
        ["1", "float32", "72.00"],
    ]
    empty = open_comparison(tmp_path / "empty", SINGLE)
    assert sure_plus_pages.precision_table(half, empty) == []


def test_verdicts_that_change_with_the_precision_are_named(findings, tmp_path):
    import sure_plus_pages

    file = tmp_path / "precision.csv"
    assert sure_plus_pages.precision_verdicts(file) == []
    head = "claim,bf16,verdict_bf16,float32,verdict_float32"
    same, other = "first,1,holds,2,holds", "second,1,holds,-1,does not hold"
    file.write_text("\n".join([head, same]), encoding="utf-8")
    (words,) = sure_plus_pages.precision_verdicts(file)
    assert "0 of 1 verdicts" in words
    file.write_text("\n".join([head, same, other]), encoding="utf-8")
    words, changed = sure_plus_pages.precision_verdicts(file)
    assert "1 of 2 verdicts" in words
    assert changed == "- second: holds in bfloat16, does not hold in float32"


def test_gains_are_differences_of_the_means_of_both_rows(findings):
    """Compared with sums over the committed file, row by row; positive where the row is better."""
    from sure_plus_cells import LONGER
    from sure_plus_gains import gain_table

    names = ["basic-5", "sure_plus-2", "sure_plus-5", "basic-0"]  # the last has one seed
    (table,) = gain_table(LONGER, names, "cifar10-real")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [line[:2] for line in lines] == [
        ["sure_plus, rho = 0.02", "basic, lr = 0.2"],
        ["sure_plus, rho = 0.2", "basic, lr = 0.2"],
        ["sure_plus, rho = 0.02", "sure_plus, rho = 0.2"],
    ]
    with (ROOT / "results/studies/sure_plus_tuned/results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def mean(recipe, metric, shift, pair=""):
        wanted = (recipe, metric, shift, "msp", pair)
        protocol = "joint" if pair else "fd_shifts"
        values = []
        for row in rows:
            about = (row["recipe"], row["metric"], row["shift"], row["score"], row["pair"])
            if about == wanted and row["protocol"] == protocol:
                values.append(float(row["value"]))
        return sum(values) / len(values)

    for line, (better, worse) in zip(
        lines,
        [("sure_plus-2", "basic-5"), ("sure_plus-5", "basic-5"), ("sure_plus-2", "sure_plus-5")],
        strict=True,
    ):
        expected = [
            100 * (mean(better, "accuracy", "test") - mean(worse, "accuracy", "test")),
            1000 * (mean(worse, "aurc", "test") - mean(better, "aurc", "test")),
            100 * (mean(better, "ds_f1", "near", "knn") - mean(worse, "ds_f1", "near", "knn")),
        ]
        for cell, value in zip(line[2:5], expected, strict=True):
            gain, low, high = (float(number) for number in re.findall(r"[-+][\d.]+", cell))
            assert gain == pytest.approx(value, abs=0.006)
            assert low < gain < high


def test_gains_need_a_chosen_rate_of_plain_training(findings):
    from sure_plus_gains import compared_pairs

    assert compared_pairs(["mixup", "sure_plus-2", "sure_plus-5"]) == []
    assert compared_pairs(["basic-5", "sure_plus-5"]) == [("sure_plus-5", "basic-5")]
    assert compared_pairs(["basic", "sure_plus", "sure_plus_relative"]) == [
        ("sure_plus", "basic"),
        ("sure_plus_relative", "basic"),
    ]


def test_a_claim_about_one_benchmark_is_decided_on_its_cells_alone(monkeypatch):
    pytest.importorskip("torch")
    study_sure_plus = scripts(monkeypatch, "study_sure_plus")
    from study_cells import FinishedCells
    from study_claim_files import decide_later

    cells = FinishedCells.open("sure_plus_finetune")
    decided = decide_later("sure_plus_finetune", study_sure_plus.finetune_claims())
    for benchmark, target in study_sure_plus.FINE_TUNED_TO.items():
        by_recipe = {"sure_plus_relative": {}, "basic": {}}
        for row in cells.results.rows:
            about = (row["benchmark"], row["metric"], row["shift"], row["protocol"], row["score"])
            if about == (benchmark, "accuracy", "test", "fd_shifts", "msp") and row["recipe"] in by_recipe:
                by_recipe[row["recipe"]][row["seed"]] = 100 * row["value"]
        shared = by_recipe["basic"].keys() & by_recipe["sure_plus_relative"].keys()
        ours, plain = (np.mean([values[seed] for seed in shared]) for values in by_recipe.values())
        claim = next(one for one in decided if one.claim.startswith(f"SURE+ fine-tuned to {target}, "))
        assert f"sure_plus_relative {ours:.2f}, basic {plain:.2f}" in claim.ours
        assert claim.low < ours - plain < claim.high


def test_cells_in_single_precision_replace_those_of_the_same_name(monkeypatch):
    pytest.importorskip("torch")
    precision = scripts(monkeypatch, "study_precision")
    half = precision.FinishedCells.open("sure_plus_tuned")
    single = precision.FinishedCells.open("sure_plus_float32")
    mixed = precision.take_cells(half, single)
    retrained = {row["run"] for row in single.results.rows}
    assert retrained
    assert len(mixed.results) == len(half.results)
    for row in mixed.results.rows:
        source = single if row["run"] in retrained else half
        key = key_of(row)
        if key in source.results.replicates:
            assert np.array_equal(mixed.results.replicates[key], source.results.replicates[key])
    lines = list(precision.precision_lines(half, single))
    assert lines
    assert all(line["bf16"] != line["float32"] for line in lines)


def test_larger_learning_rates_of_sure_plus_are_judged_by_their_trials(findings):
    import sure_plus_pages

    cells = sure_plus_pages.opened_trials(ROOT)
    areas = {}
    for row in cells.rows:
        about = (row["score"], row["pair"], row["metric"], row["shift"], row["protocol"])
        if about == ("msp", "", "aurc", "validation", "fd_shifts"):
            areas[row["recipe"]] = 1000 * float(row["value"])
    faster = min(areas["sure_plus_lr-1"], areas["sure_plus_lr-2"])
    own = min(area for name, area in areas.items() if re.fullmatch(r"sure_plus-\d", name))
    answer = "One is better" if faster < own else "Neither is better"
    words = f"{answer}: their lowest AURC is {faster:.2f}, against {own:.2f}."
    assert words in sure_plus_pages.sweep_words(cells)


@pytest.mark.parametrize(("size", "deviation"), [(1.0, 0.4), (0.2, 0.4), (3.0, 0.5)])
def test_the_p_value_of_a_difference_is_normal_over_images_and_students_over_seeds(monkeypatch, size, deviation):
    differences = scripts(monkeypatch, "study_differences")
    images = differences.Spread(norm.ppf(0.975) * deviation, differences.SeedError(0.0, 0))
    assert images.level(size) == pytest.approx(2 * norm.cdf(-size / deviation), rel=1e-9)
    seeds = differences.Spread(0.0, differences.SeedError(deviation, 4))
    assert seeds.level(size) == pytest.approx(2 * t.cdf(-size / deviation, 4), rel=1e-9)


@pytest.mark.parametrize("size", [1.0, 0.2, 3.0])
def test_the_interval_at_the_p_value_ends_at_zero(monkeypatch, size):
    differences = scripts(monkeypatch, "study_differences")
    alpha = differences.Spread(0.6, differences.SeedError(0.2, 4)).level(size)
    images = 0.6 / norm.ppf(0.975) * norm.ppf(1 - alpha / 2)
    seeds = 0.2 * t.ppf(1 - alpha / 2, 4)
    assert np.hypot(images, seeds) == pytest.approx(size, rel=1e-6)
    ends_before_zero = np.hypot(0.6, 0.2 * t.ppf(0.975, 4)) < size
    assert (alpha < 0.05) == ends_before_zero


def test_a_difference_without_noise_has_a_p_value_of_zero_or_one(monkeypatch):
    differences = scripts(monkeypatch, "study_differences")
    certain = differences.Spread(0.0, differences.SeedError(0.0, 0))
    assert certain.level(0.1) == 0.0
    assert certain.level(0.0) == 1.0


def test_the_lead_of_the_best_of_several_may_be_luck(monkeypatch):
    """Of networks that are all alike, the best of nine rivals is rarely called better, and of one as rarely."""
    differences = scripts(monkeypatch, "study_differences")
    column = differences.Column("accuracy", "test", "fd_shifts")
    monkeypatch.setattr(differences, "network", lambda cells, name: name)
    rng = np.random.default_rng(0)
    worse = 0
    trials = 400
    for _ in range(trials):
        cells = AlikeCells(rng, rows=10, seeds=3)
        rivals = [differences.Contender(f"row{i}", "msp") for i in range(1, 10)]
        best = max(rivals, key=lambda rival: np.mean([row["value"] for row in cells.rows(rival, column).values()]))
        first = differences.Contender("row0", "msp")
        found = differences.difference(cells, first, best, column, differences.Choices(rivals=len(rivals)))
        assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)
        worse += found.high < 0
    assert worse / trials < 0.05


class AlikeCells:
    """Cells of rows that differ by the noise of seeds alone; resampled images change nothing."""

    name = "alike"

    def __init__(self, rng, rows, seeds):
        self.values = {f"row{i}": rng.normal(0.5, 0.01, seeds) for i in range(rows)}
        self.study = SimpleNamespace(families=list(self.values))

    def rows(self, contender, column):
        return {("one", seed): {"value": value} for seed, value in enumerate(self.values[contender.row])}

    def replicates(self, row):
        return np.full(20, row["value"])


def test_a_perturbation_that_is_too_large_for_the_network_decides_nothing(monkeypatch):
    pytest.importorskip("torch")
    testability = scripts(monkeypatch, "study_testability")
    from study_sure_plus import finetune_claims, tuned_claims

    for study, claims in (("sure_plus_tuned", tuned_claims()), ("sure_plus_finetune", finetune_claims())):
        for one in claims:
            is_printed = "printed radius" in one.text or one.text.startswith("SURE+ in fine-tuning is")
            expected = "not testable at this scale" if is_printed else None
            assert testability.verdict_without_numbers(study, one) == expected, one.text


def test_a_difference_of_one_seed_decides_nothing(monkeypatch):
    differences = scripts(monkeypatch, "study_differences")
    assert differences.Difference(1.0, 0.5, 1.5, 1, 0.01).verdict() == "not testable at this scale"
    assert differences.Difference(1.0, 0.5, 1.5, 2, 0.01).verdict() == "holds"
    assert differences.Difference(1.0, 0.5, 1.5, 2, 0.01).verdict(worse=True) == "does not hold"


def test_the_gain_of_a_study_has_the_sign_of_the_claim(monkeypatch):
    files = scripts(monkeypatch, "study_claim_files")
    from study_differences import Difference

    column = files.Column("aurc", "test", "fd_shifts")
    found = Difference(-0.02, -0.03, -0.01, 2, 0.01)
    line = files.ClaimLine("a is worse than b", column, "no number", "a, b", "holds", found, True)
    monkeypatch.setattr(files, "describe_scale", lambda cells: "small")
    made = files.as_claim(line, files.FinishedCells("unknown", None, None, {}))
    assert (made.low, made.high, made.verdict) == (10.0, 30.0, "holds")
    assert (made.paper, made.claim) == ("unknown_detection", "A is worse than b: AURC, test data")


def test_the_noise_of_seeds_is_what_rows_and_seeds_leave(monkeypatch):
    residual = scripts(monkeypatch, "study_differences").residual
    table = np.random.default_rng(0).normal(size=(5, 3)) + np.arange(5)[:, None] + 10 * np.arange(3)
    design = [[i == row for row in range(5)] + [j == seed for seed in range(3)] for i in range(5) for j in range(3)]
    fit, _, rank, _ = np.linalg.lstsq(np.array(design, dtype=float), table.ravel(), rcond=None)
    left = table.ravel() - np.array(design, dtype=float) @ fit
    assert residual(table) == (pytest.approx(np.sqrt((left**2).sum() / (15 - rank))), 15 - rank)
    assert residual(table[:, :1]) == (0.0, 0)


def test_two_scores_of_one_network_share_its_noise(monkeypatch):
    """However far networks are apart, a difference that is the same on all of them is known exactly."""
    within = scripts(monkeypatch, "study_differences").within
    networks = 100 * np.random.default_rng(0).normal(size=(4, 3))
    gain = np.random.default_rng(1).normal(size=(4, 3))
    noise, free = within((networks + gain) - networks)
    assert (noise, free) == (pytest.approx(np.sqrt(np.mean([np.var(row, ddof=1) for row in gain]))), 8)
    assert within(networks + np.arange(4)[:, None] - networks)[0] == pytest.approx(0, abs=1e-9)
    assert within(gain[:, :1]) == (0.0, 0)


def scripts(monkeypatch, name):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return pytest.importorskip(name)


def clique_table(cliques, member, omnibus=None):
    member = np.array(member, dtype=bool)
    rows, columns = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in zip("sg", member.shape, strict=True))
    rejected = (True,) * len(columns) if omnibus is None else omnibus
    about = "augrc", None, "rank_z", 0.05, rows, columns
    return cliques.CliqueMap(*about, member, np.ones_like(member), (4,) * len(columns), rejected)


def test_leaders_differ_only_where_no_score_leads_everywhere(monkeypatch):
    cliques = scripts(monkeypatch, "real_bench_cliques")
    words = cliques.clique_words
    assert " holds: no score" in words(clique_table(cliques, [[1, 0], [0, 1]]))
    shared = words(clique_table(cliques, [[1, 1], [0, 1], [1, 0]]))  # the columns differ, and one score is in both
    assert "inconclusive at this scale: 1 of 3 scores are in the top clique of each of the 2 groups (s0)" in shared
    undecided = words(clique_table(cliques, [[1, 1], [0, 1]], omnibus=(True, False)))
    assert "inconclusive at this scale: Friedman's test rejects in fewer than two groups" in undecided
    ignored = clique_table(cliques, [[1, 0, 1], [0, 1, 1]], omnibus=(True, True, False))
    assert " holds: no score" in words(ignored)


def test_calibration_compares_scaled_with_scaled_and_counts_no_constants(monkeypatch):
    pytest.importorskip("torch")
    calibration = scripts(monkeypatch, "real_bench_calibration")
    lines = [
        ["collapsed", "0.20", "10.10"],
        ["lower", "0.50", "4.00"],
        ["msp", "0.70", "3.00"],
        ["higher", "0.90", "2.50"],  # lower than unscaled msp, which is no rival
        [calibration.CONSTANT, "0.20", "10.00"],
        [calibration.UNSCALED, "5.00", "12.00"],
    ]
    words = calibration.calibration_words(lines)
    assert "1 of 2 other scores have a lower error on the test set than scaled msp (0.70 %" in words
    assert "are not counted: collapsed." in words
    assert "can be calibrated holds for these 1" in words
    assert "the least error is 2.50 %, so scaling fitted on clean data no longer works there" in words
    none = calibration.calibration_words([line for line in lines if line[0] != "lower"])
    assert "0 of 1 other scores" in none
    assert "can be calibrated does not hold" in none


def test_sentences_of_the_page_are_what_the_rules_say_of_its_tables(monkeypatch):
    pytest.importorskip("torch")
    sentences = scripts(monkeypatch, "real_bench_words")
    page = (ROOT / "results" / "real_bench.md").read_text(encoding="utf-8")
    assert sentences.rewrite_words(page)[0] == page


def test_limits_of_a_difference_stay_in_the_range_of_the_metric(monkeypatch):
    in_range = scripts(monkeypatch, "study_differences").in_range
    assert in_range("aurc", -1.16, 0.89) == (-1.0, 0.89)
    assert in_range("accuracy", -0.1, 1.2) == (-0.1, 1.0)
    assert in_range("auroc_ood", -3.0, 3.0) == (-1.0, 1.0)
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "results").glob("study_*.md")))
    limits = re.findall(r"\(x1000\)[^|]*\|[^|]*\|[^|]*\[(-?[\d.]+), (-?[\d.]+)\]", text)
    assert len(limits) > 100
    assert all(-1000 <= float(low) <= float(high) <= 1000 for low, high in limits)


def test_claims_on_sharpness_aware_recipes_are_not_testable_on_a_small_network(monkeypatch):
    torch = pytest.importorskip("torch")
    testability = scripts(monkeypatch, "study_testability")
    from study_sure_plus import sure_plus_claims
    from twofold.nn.models import build

    def norm(model, classes):
        torch.manual_seed(0)
        parts = [p.detach().double().flatten() for p in build(model, classes=classes).parameters()]
        return float(torch.cat(parts).norm())

    ratio = testability.perturbation_ratio(testability.load_study("sure_plus"))
    assert ratio == pytest.approx(norm("resnet18_32", 100) / norm("resnet8_cifar", 10), rel=1e-9)
    assert 4.4 < ratio < 4.6
    for name in ("sure_plus", "sure_plus_long"):
        verdicts = {one.text: testability.verdict_without_numbers(name, one) for one in sure_plus_claims()}
        assert verdicts["SURE+ is better than plain training"] == testability.NOT_TESTABLE
        assert verdicts["CutMix is worse than plain training"] is None


def test_the_verdict_on_aurc_as_a_loss_is_that_of_the_converged_network(monkeypatch):
    testability = scripts(monkeypatch, "study_testability")
    from study_aurc import aurc_claims

    first = aurc_claims()[0]
    assert testability.verdict_without_numbers("aurc_finetune", first) == testability.NOT_TESTABLE
    assert testability.verdict_without_numbers("aurc_converged", first) is None


def test_full_presets_are_called_the_papers_scale_only_where_they_have_its_network(monkeypatch):
    testability = scripts(monkeypatch, "study_testability")
    words, _, rest = testability.full_scale().partition("For the others")
    assert "`sure_plus` and `aurc_finetune` with the networks" in words
    assert "`unknown` trains a resnet18_32" in rest
    assert "`paradigms` trains a resnet18_32, while the paper's code has a vgg13" in rest


def test_what_is_kept_of_a_study_can_be_summed_up(monkeypatch):
    pytest.importorskip("torch")
    pages = scripts(monkeypatch, "study_pages")
    summary = pages.summary(pages.FinishedCells.open("aurc_converged"))
    assert "resnet8_cifar_kd, " in summary
    text = (ROOT / "results" / "study_aurc_finetune.md").read_text(encoding="utf-8")
    assert summary in text
