"""Agreement of results with published numbers: what is compared, how far apart it is, and what is left out."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.bench import agreement as agreement_module
from twofold.bench.agreement import COUNTERPARTS, DIFFERENCES, agreement, incomplete_corruptions, rank_agreement
from twofold.bench.published import anchors
from twofold.bench.results import Results
from twofold.cli import main
from twofold.errors import InvalidInput, UnknownName


def result(score, value, **changes):
    row = {
        "benchmark": "cifar10-real",
        "model": "resnet20",
        "recipe": "",
        "score": score,
        "pair": "",
        "shift": "near",
        "role": "near",
        "metric": "auroc_ood",
        "value": value,
        "low": value - 0.01,
        "high": value + 0.01,
    }
    return row | changes


def test_agreement_by_hand():
    # leaderboard, CIFAR-10 near: MSP 88.03, EBO 87.58, KNN 90.64
    rows = [result("msp", 0.875), result("energy", 0.88), result("knn", 0.90, model="ResNet-18")]
    found = agreement(rows, "openood-cifar10")
    assert [(a.anchor.score, a.ours, a.inside_interval, a.same_model) for a in found] == [
        ("msp", 0.875, True, False),
        ("energy", 0.88, True, False),
        ("knn", 0.90, True, True),
    ]
    assert [a.difference for a in found] == pytest.approx([-0.0053, 0.0042, -0.0064])
    # published order energy < msp < knn, ours msp < energy < knn: 1 - 6 (1 + 1 + 0) / (3 * 8)
    [rank] = rank_agreement(found)
    assert (rank.metric, rank.shift, rank.scores, rank.table) == ("auroc_ood", "near", 3, "leaderboard")
    assert rank.spearman == pytest.approx(0.5)


def test_an_interval_that_misses_and_one_that_is_absent():
    rows = [result("msp", 0.80), result("msp", 0.80, seed=1, low=None, high=float("nan"))]
    assert [a.inside_interval for a in agreement(rows, "openood-cifar10")] == [False, None]


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark": "digits"},
        {"benchmark": "cifar100-real"},
        {"metric": "aurc"},
        {"shift": "cifar100"},  # one set is not the mean of the group
        {"pair": "energy"},
        {"score": "gini"},
        {"value": None},
        {"value": float("nan")},
        {"value": ""},
        {"recipe": "sure_plus"},  # another training than that of the leaderboard
    ],
)
def test_rows_that_have_no_counterpart(changes):
    assert agreement([result("msp", 0.9) | changes], "openood-cifar10") == []


def test_settings_that_the_paper_does_not_state_may_be_any():
    near = [result("react(percentile=95)|energy", 0.87), result("ash(kind='b', percentile=80.0)|energy", 0.75)]
    assert len(agreement(near, "openood-cifar10")) == 2
    assert agreement([result("ash(kind='s')|energy", 0.75)], "openood-cifar10") == []
    assert agreement([result("react(percentile=95)|msp", 0.87)], "openood-cifar10") == []
    assert len(agreement([result("ebo", 0.87)], "openood-cifar10")) == 1  # an alias
    assert agreement([result("no such score(", 0.87)], "openood-cifar10") == []


def test_pairs_match_in_either_order_and_by_recipe():
    here = {"benchmark": "openood-cifar100", "metric": "ds_f1", "model": "resnet18"}
    one = agreement([result("msp", 0.67, pair="vim", recipe="sure_plus", **here)], "openood-cifar100")
    two = agreement([result("vim", 0.67, pair="msp", recipe="sure_plus", **here)], "openood-cifar100")
    assert [a.anchor.value for a in one] == [a.anchor.value for a in two] == [70.67]
    assert one[0].same_model
    plain = agreement([result("msp", 0.67, pair="vim", **here)], "openood-cifar100")
    assert {(a.anchor.table, a.anchor.recipe) for a in plain} == {("1", "basic"), ("3", "basic")}


def test_the_test_set_and_the_pool_are_matched_by_role():
    here = {"benchmark": "unknown-cifar", "metric": "aurc"}
    known = agreement([result("msp", 0.07, shift="cifar40", role="iid", **here)], "unknown-cifar")
    pool = agreement([result("msp", 0.77, shift="all", role="pooled", **here)], "unknown-cifar")
    assert [a.anchor.value for a in known] == [75.25]
    assert [a.anchor.value for a in pool] == [773.15]


def test_an_accuracy_without_a_score_is_met_once():
    rows = [result(s, 0.92, metric="accuracy", shift="test", role="iid") for s in ("msp", "energy", "knn")]
    [only] = agreement(rows, "openood-cifar10")
    assert only.anchor.value == 95.06
    assert rank_agreement([only]) == []


def test_rows_of_another_protocol_do_not_enter():
    rows = [result("msp", 0.9, protocol=p) for p in ("joint_pooled", "unknown", "joint")]
    assert agreement(rows, "openood-cifar10") == []
    assert len(agreement([result("msp", 0.9, protocol="openood")], "openood-cifar10")) == 1
    new = {"shift": "tinyimagenet", "metric": "aurc", "model": "vgg13"}
    assert agreement([result("msp", 0.2, protocol="fd_shifts_original", **new)], "fd-cifar10") == []
    both = agreement([result("msp", 0.2, protocol="fd_shifts", **new)], "fd-cifar10")
    assert [(a.anchor.value, a.same_model) for a in both] == [(198, True), (208, False)]  # VGG-13 and ViT


def corrupted(levels, **changes):
    about = {"role": "corruption", "metric": "aurc", "protocol": "fd_shifts", "run": "r"} | changes
    return [result("msp", 0.1, shift=shift, **about) for shift in ("corruption", *(f"corruption/{k}" for k in levels))]


def test_a_mean_over_some_levels_of_corruption_is_not_compared_with_one_over_five():
    whole, part = corrupted((1, 2, 3, 4, 5)), corrupted((2, 4))
    assert {a.anchor.shift for a in agreement(whole, "fd-cifar10")} == {"corruption"}
    assert incomplete_corruptions(whole) == []
    assert agreement(part, "fd-cifar10") == []
    [line] = incomplete_corruptions(part)
    assert line.startswith("corruption of r is the mean over levels 2, 4, not compared: published ones are")
    mixed = whole + corrupted((3,), run="other", seed=1)
    assert len(agreement(mixed, "fd-cifar10")) == len(agreement(whole, "fd-cifar10"))
    assert incomplete_corruptions(mixed)[0].startswith("corruption of other is the mean over level 3,")


def test_the_command_names_corruptions_that_are_not_compared(tmp_path):
    rows = [*corrupted((2, 4)), result("msp", 0.006, shift="test", role="iid", metric="aurc", protocol="fd_shifts")]
    folder = Results.of(rows).save(tmp_path / "results")
    shown = CliRunner().invoke(main, ["bench", "check", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "Not compared:\n- corruption of r is the mean over levels 2, 4" in shown.output
    assert "aurc on corruption" not in shown.output
    printed = json.loads(CliRunner().invoke(main, ["bench", "check", str(folder), "--json"]).output)
    assert len(printed["not_compared"]) == 1


def test_the_known_test_set_is_the_same_in_every_protocol():
    known = {"shift": "test", "role": "iid", "metric": "aurc"}
    rows = [result("msp", 0.006, protocol=p, **known) for p in ("unknown", "fd_shifts")]
    assert [a.anchor.value for a in agreement(rows, "fd-cifar10")] == [5.62, 0.95]  # each once


def test_unreliable_cells_do_not_enter():
    assert agreement([result("gram", 0.58)], "openood-cifar10") == []
    assert len(agreement([result("mds", 0.84)], "openood-cifar10")) == 1


def test_rank_agreement_averages_seeds_and_needs_three_scores():
    rows = [result(s, v, seed=k) for k in (0, 1) for s, v in (("msp", 0.88 + k / 100), ("knn", 0.9))]
    [rank] = rank_agreement(agreement(rows, "openood-cifar10"))
    assert rank.scores == 2
    assert math.isnan(rank.spearman)
    flat = [result(s, 0.9) for s in ("msp", "energy", "knn")]
    [rank] = rank_agreement(agreement(flat, "openood-cifar10"))
    assert math.isnan(rank.spearman)


def test_spearman_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 6, 12).astype(float), rng.normal(size=12)
        assert agreement_module.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_results_read_from_csv_are_text():
    row = {k: "" if v is None else str(v) for k, v in result("msp", 0.875).items()}
    [one] = agreement([row], "openood-cifar10")
    assert one.ours == 0.875
    assert one.inside_interval


def test_bad_rows_are_named():
    with pytest.raises(InvalidInput, match="row 1 has no 'score'"):
        agreement(
            [result("msp", 0.9), {k: v for k, v in result("msp", 0.9).items() if k != "score"}], "openood-cifar10"
        )
    with pytest.raises(InvalidInput, match="value of results row 0 must be a number or empty, got 'high'"):
        agreement([result("msp", 0.9) | {"value": "high"}], "openood-cifar10")
    with pytest.raises(UnknownName, match="openood-cifar10"):
        agreement([], "openood-cifar1")


def test_differences_are_named_for_every_benchmark_that_is_compared():
    published = {a.benchmark for a in anchors()}
    for name, others in COUNTERPARTS.items():
        assert set(others) <= published
        assert len(DIFFERENCES[name]) >= (2 if name.startswith("stratified") else 5)
    for name in published - {"aurc-cifar10", "aurc-cifar100", "openood-imagenet1k-full-spectrum"}:
        assert DIFFERENCES[name]
    for sentences in DIFFERENCES.values():
        assert all(s.endswith(".") and not s[0].islower() for s in sentences)
