"""Protocols on small worlds whose answers are found by slow loops, on published identities, and on broken input."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

from twofold import metrics
from twofold.bench import PROTOCOLS, Average, Choice, ProtocolView, ScoredSet, Tuning, protocol, select
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName
from twofold.roles import ROLES as RUN_ROLES

ROLES = {
    "train": "train",
    "val": "val",
    "tin_val": "ood_val",
    "id": "test",
    "c100": "near",
    "tin": "near",
    "lsun": "mid",
    "svhn": "far",
    "mnist": "far",
    "camera": "shift",
    "fog/1": "shift",
    "snow/1": "shift",
    "fog/4": "shift",
    "snow/4": "shift",
    "hospital/7": "shift",
}


def make(rng, n, *, known, pair=False, accuracy=0.7):
    """Scores on a coarse grid, so that ties are common."""
    correct = rng.random(n) < accuracy if known else np.zeros(n, bool)
    shift = 2.0 * correct + known

    def conf():
        return np.round(rng.normal(size=n) + shift, 1)

    return ScoredSet(correct, np.full(n, known), conf(), conf() if pair else None)


def world(seed=0, *, pair=False, accuracy=0.7):
    rng = np.random.default_rng(seed)
    known = {"test", "shift", "val", "train"}
    return {
        name: make(rng, int(rng.integers(20, 60)), known=role in known, pair=pair, accuracy=accuracy)
        for name, role in ROLES.items()
    }


def find(name, shift, roles=ROLES):
    (view,) = [v for v in protocol(name).views(roles) if v.shift == shift]
    return view


def values(view, scored, *, pair=False):
    table = view.collect(scored)
    only, second = (view.pair_metrics, table.conf_ood) if pair else (view.metrics, None)
    return metrics.evaluate(table.correct, table.conf, is_id=table.is_id, conf_ood=second, only=only)


def rows(*parts):
    """Plain Python rows (correct, is_id, conf) of several scored sets."""
    return [
        row for one in parts for row in zip(one.correct.tolist(), one.is_id.tolist(), one.conf.tolist(), strict=True)
    ]


def slow_aurc(samples, *, over_id=False):
    """Mean over (known) samples of the failure share among all that are trusted at least as much."""
    risks = []
    for _, inside, level in samples:
        if over_id and not inside:
            continue
        accepted = [right for right, _, conf in samples if conf >= level]
        risks.append(accepted.count(False) / len(accepted))
    return sum(risks) / len(risks)


def slow_augrc(samples):
    """Mean rank form with mid-ranks."""
    n, total = len(samples), Fraction(0)
    for right, _, conf in samples:
        above = sum(c > conf for *_, c in samples)
        tied = sum(c == conf for *_, c in samples)
        middle = above + Fraction(tied, 2)
        total += (not right) * (1 - middle / n)
    return float(total / n)


def slow_auroc(safe, unsafe):
    return sum((a > b) + 0.5 * (a == b) for a in safe for b in unsafe) / (len(safe) * len(unsafe))


def slow_fpr(safe, unsafe):
    """Share of the unsafe that pass the highest threshold which at least 95 % of the safe pass."""
    for level in sorted(set(safe + unsafe), reverse=True):
        if sum(a >= level for a in safe) >= 0.95 * len(safe):
            return sum(b >= level for b in unsafe) / len(unsafe)
    raise AssertionError


def slow_f1(samples):
    inside = sum(i for _, i, _ in samples)
    best = 0.0
    for *_, level in samples:
        accepted = [right for right, _, conf in samples if conf >= level]
        best = max(best, 2 * sum(accepted) / (len(accepted) + inside))
    return best


def slow_ds_f1(correct, is_id, first, second):
    best = 0.0
    for a in set(first):
        for b in set(second):
            accepted = [c for c, x, y in zip(correct, first, second, strict=True) if x >= a and y >= b]
            best = max(best, 2 * sum(accepted) / (len(accepted) + sum(is_id)))
    return best


def split(samples, field):
    return [s[2] for s in samples if s[field]], [s[2] for s in samples if not s[field]]


def test_every_metric_is_known_and_computable():
    scored, pairs = world(), world(pair=True)
    for one in PROTOCOLS.values():
        views = one.views(ROLES)
        assert views
        for view in views:
            assert view.metrics
            for name in (*view.metrics, *view.pair_metrics):
                metrics.info(name)
            found = values(view, scored)
            assert tuple(found) == view.metrics
            assert not found.reasons
            if view.pair_metrics:
                assert not values(view, pairs, pair=True).reasons
        metrics.info(one.tuning.metric)
        assert one.source
        assert one.summary
        assert one.name == PROTOCOLS[one.name].name


def test_joint_by_loops():
    scored, seen = world(1), []
    for view in protocol("joint").views(ROLES):
        assert view.sets == ("id", view.shift)
        samples = rows(scored["id"], scored[view.shift])
        found = values(view, scored)
        assert found["aurc_id"] == pytest.approx(slow_aurc(samples, over_id=True), abs=1e-12)
        assert found["f1"] == pytest.approx(slow_f1(samples), abs=1e-12)
        seen.append((view.shift, view.role))
    assert seen == [(n, r) for r in ("near", "mid", "far") for n, own in ROLES.items() if own == r]


def test_joint_pair_by_loops():
    scored = world(2, pair=True)
    view = find("joint", "tin")
    parts = [scored["id"], scored["tin"]]
    arrays = [np.concatenate([getattr(p, f) for p in parts]).tolist() for f in ("correct", "is_id", "conf", "conf_ood")]
    assert values(view, scored, pair=True)["ds_f1"] == pytest.approx(slow_ds_f1(*arrays), abs=1e-12)
    assert view.pair_metrics == ("ds_f1", "ds_aurc")


def test_joint_on_the_published_vector():
    scored = {
        "id": ScoredSet([1, 1, 1, 0, 1, 0], [1] * 6, [0.95, 0.90, 0.80, 0.70, 0.60, 0.40], [5, 1, 4, 3, 2, -1]),
        "c100": ScoredSet([0] * 3, [0] * 3, [0.85, 0.55, 0.30], [0, 2.5, -2]),
    }
    found = values(find("joint", "c100"), scored, pair=True)
    assert found["ds_f1"] == pytest.approx(8 / 11)
    assert found["ds_aurc"] == pytest.approx(0.158333, abs=1e-6)
    single = values(find("joint", "c100"), scored)
    assert single["f1"] == pytest.approx(2 / 3)
    assert single["aurc_id"] == pytest.approx(0.247222, abs=1e-6)


def constant(n, right=0, *, known):
    return ScoredSet(np.arange(n) < right, np.full(n, known), np.zeros(n), np.zeros(n))


@pytest.mark.parametrize(
    ("accuracy", "test", "sizes", "printed"),
    [
        (0.7732, 9_000, (10_000, 6_526), 53.23),
        (0.8179, 45_000, (49_000, 5_879), 64.87),
        (0.8179, 45_000, (10_000, 5_160, 15_869), 73.50),
    ],
    ids=["cifar100-near", "imagenet-near", "imagenet-far"],
)
def test_accept_all_gives_the_printed_floor(accuracy, test, sizes, printed):
    """Constant scores accept all or nothing; the printed group values are means over sets, not pools."""
    scored = {"id": constant(test, round(accuracy * test), known=True)}
    scored |= {f"ood{i}": constant(n, known=False) for i, n in enumerate(sizes)}
    roles = {name: "test" if name == "id" else "near" for name in scored}
    found = {v.shift: values(v, scored, pair=True)["ds_f1"] for v in protocol("joint").views(roles)}
    (mean,) = protocol("joint").averages(roles)
    assert mean == Average("near", "near", tuple(n for n in scored if n != "id"))
    assert 100 * np.mean([found[name] for name in mean.of]) == pytest.approx(printed, abs=0.006)
    (pool,) = protocol("joint_pooled").views(roles)
    pooled = values(pool, scored, pair=True)["ds_f1"]
    assert pooled == pytest.approx(2 * round(accuracy * test) / (2 * test + sum(sizes)))
    assert abs(100 * pooled - printed) > 1


def test_joint_pooled_by_loops():
    scored = world(3)
    views = protocol("joint_pooled").views(ROLES)
    assert [(v.shift, v.role) for v in views] == [(r, r) for r in ("near", "mid", "far")]
    assert protocol("joint_pooled").averages(ROLES) == ()
    samples = rows(scored["id"], scored["svhn"], scored["mnist"])
    found = values(views[2], scored)
    assert views[2].sets == ("id", "svhn", "mnist")
    assert found["aurc_id"] == pytest.approx(slow_aurc(samples, over_id=True), abs=1e-12)
    assert found["f1"] == pytest.approx(slow_f1(samples), abs=1e-12)


def test_openood_by_loops():
    scored = world(4)
    accuracy = find("openood", "test")
    assert accuracy.sets == ("id",)
    assert accuracy.role == "iid"
    assert values(accuracy, scored)["accuracy"] == pytest.approx(sum(scored["id"].correct) / len(scored["id"]))
    for name in ("c100", "tin", "lsun", "svhn", "mnist"):
        safe, unsafe = scored["id"].conf.tolist(), scored[name].conf.tolist()
        found = values(find("openood", name), scored)
        assert found["auroc_ood"] == pytest.approx(slow_auroc(safe, unsafe), abs=1e-12)
        assert found["fpr95_ood"] == pytest.approx(slow_fpr(safe, unsafe), abs=1e-12)
        turned = slow_fpr([-c for c in unsafe], [-c for c in safe])
        assert found["fpr95_unsafe_ood"] == pytest.approx(turned, abs=1e-12)
    assert {a.shift: a.of for a in protocol("openood").averages(ROLES)} == {
        "near": ("c100", "tin"),
        "mid": ("lsun",),
        "far": ("svhn", "mnist"),
    }


def test_openood_precision_against_scikit_learn():
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve

    scored = world(5)
    conf = np.concatenate([scored["id"].conf, scored["svhn"].conf])
    inside = np.arange(len(conf)) < len(scored["id"])
    found = values(find("openood", "svhn"), scored)
    precision, recall, _ = precision_recall_curve(inside, conf)
    assert found["aupr_ood"] == pytest.approx(auc(recall, precision), abs=1e-12)
    precision, recall, _ = precision_recall_curve(~inside, -conf)
    assert found["aupr_unsafe_ood"] == pytest.approx(auc(recall, precision), abs=1e-12)
    assert found["average_precision_ood"] == pytest.approx(average_precision_score(inside, conf), abs=1e-12)
    assert found["average_precision_unsafe_ood"] == pytest.approx(average_precision_score(~inside, -conf), abs=1e-12)


def test_unknown_by_loops():
    scored = world(6)
    ood = ["c100", "tin", "lsun", "svhn", "mnist"]
    pool = find("unknown", "pooled")
    assert (pool.sets, pool.role) == (("id", *ood), "pooled")
    assert values(pool, scored)["aurc"] == pytest.approx(slow_aurc(rows(*(scored[n] for n in pool.sets))), abs=1e-12)
    alone = values(find("unknown", "test"), scored)
    samples = rows(scored["id"])
    assert alone["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)
    assert alone["auroc"] == pytest.approx(slow_auroc(*split(samples, 0)), abs=1e-12)
    assert alone["fpr95"] == pytest.approx(slow_fpr(*split(samples, 0)), abs=1e-12)
    for shift, names in {"near": ("c100", "tin"), "far": ("svhn", "mnist"), "lsun": ("lsun",)}.items():
        view = find("unknown", shift)
        assert view.unknown == names
        samples = rows(scored["id"], *(scored[n] for n in names))
        found = values(view, scored)
        assert found["auroc_ood"] == pytest.approx(slow_auroc(*split(samples, 1)), abs=1e-12)
        assert found["fpr95_ood"] == pytest.approx(slow_fpr(*split(samples, 1)), abs=1e-12)
        if shift in ("near", "far"):
            assert found["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)
    assert protocol("unknown").averages(ROLES) == ()


@pytest.mark.parametrize(
    ("error", "test", "sizes", "oracle", "alone"),
    [
        (0.2557, 4_000, (6_000, 4_000, 4_000, 5_640, 10_000), 0.6969, 0.0359),
        (0.2055, 4_000, (6_000, 4_000, 4_000, 5_640, 10_000), 0.6826, 0.0227),
    ],
    ids=["MCP", "ensemble"],
)
def test_unknown_oracle(error, test, sizes, oracle, alone):
    """A perfect ranking reaches 1 - q + q ln q with q the share of correct predictions: the tabled floors of CIFAR."""
    wrong = round(error * test)
    conf = np.arange(test, 0, -1.0)
    scored = {"id": ScoredSet(np.arange(test) < test - wrong, np.ones(test, bool), conf)}
    last = 0.0
    for i, n in enumerate(sizes):
        scored[f"ood{i}"] = ScoredSet(np.zeros(n, bool), np.zeros(n, bool), last - np.arange(1.0, n + 1))
        last -= n
    roles = {name: "test" if name == "id" else "near" if name == "ood0" else "far" for name in scored}
    found = values(find("unknown", "pooled", roles), scored)
    q = (test - wrong) / (test + sum(sizes))
    assert found["aurc"] == pytest.approx(1 - q + q * math.log(q), abs=2e-4)
    assert found["aurc"] == pytest.approx(oracle, abs=2e-4)
    assert values(find("unknown", "test", roles), scored)["aurc"] == pytest.approx(alone, abs=2e-4)


def test_fd_shifts_by_loops():
    scored = world(7)
    right = [row for row in rows(scored["id"]) if row[0]]
    every = [(True, True, conf) for _, _, conf in rows(scored["id"])]
    for name in ("c100", "tin", "lsun", "svhn", "mnist"):
        for mode, inliers in (("fd_shifts", right), ("fd_shifts_original", every)):
            samples = inliers + rows(scored[name])
            found = values(find(mode, name), scored)
            assert found["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)
            assert found["augrc"] == pytest.approx(slow_augrc(samples), abs=1e-12)
            assert found["auroc"] == pytest.approx(slow_auroc(*split(samples, 0)), abs=1e-12)
            assert found["fpr95"] == pytest.approx(slow_fpr(*split(samples, 0)), abs=1e-12)
            assert found["accuracy"] == pytest.approx(len(inliers) / len(samples))


def test_fd_shifts_known_sets_by_loops():
    scored = world(8)
    expected = {
        "test": ("id",),
        "camera": ("camera",),
        "hospital/7": ("hospital/7",),
        "corruption/1": ("fog/1", "snow/1"),
        "corruption/4": ("fog/4", "snow/4"),
    }
    for mode in ("fd_shifts", "fd_shifts_original"):
        known = [v for v in protocol(mode).views(ROLES) if v.role in ("iid", "shift", "corruption")]
        assert {v.shift: v.sets for v in known} == expected
        assert [v.role for v in known] == ["iid", "shift", "shift", "corruption", "corruption"]
        for view in known:
            samples = rows(*(scored[n] for n in view.sets))
            found = values(view, scored)
            assert found["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)
            assert found["augrc"] == pytest.approx(slow_augrc(samples), abs=1e-12)
            assert found["accuracy"] == pytest.approx(sum(s[0] for s in samples) / len(samples))
        levels = Average("corruption", "corruption", ("corruption/1", "corruption/4"))
        assert protocol(mode).averages(ROLES) == (levels,)


@pytest.mark.parametrize(
    ("accuracy", "new", "printed"),
    [(0.943, 10_000, 45.9), (0.943, 26_032, 24.6), (0.751, 10_000, 40.3), (0.751, 26_032, 20.6)],
)
def test_fd_shifts_accuracy_as_printed(accuracy, new, printed):
    """Accuracy of new-class studies in the paper: correct predictions among those and new-class inputs."""
    scored = {"id": constant(9_000, round(accuracy * 9_000), known=True), "ood": constant(new, known=False)}
    view = find("fd_shifts", "ood", {"id": "test", "ood": "far"})
    table = view.collect(scored)
    assert 100 * metrics.evaluate(table.correct, table.conf, only="accuracy")["accuracy"] == pytest.approx(
        printed, abs=0.06
    )


def test_modes_agree_without_wrong_inliers():
    scored = world(9, accuracy=1.1)
    for name in ("c100", "svhn"):
        proposed, original = (values(find(m, name), scored) for m in ("fd_shifts", "fd_shifts_original"))
        assert dict(proposed) == dict(original)
    scored = world(9)
    assert len(find("fd_shifts", "svhn").collect(scored).conf) < len(
        find("fd_shifts_original", "svhn").collect(scored).conf
    )


def test_wrong_inliers_are_removed_per_score():
    """Two scores of one model that judge different predictions keep different rows."""
    ood = ScoredSet([False], [False], [0.5])
    one = ScoredSet([True, False, True], [True] * 3, [0.9, 0.8, 0.7])
    averaged = ScoredSet([True, True, True], [True] * 3, [0.9, 0.8, 0.7])
    view = find("fd_shifts", "ood", {"id": "test", "ood": "far"})
    assert view.collect({"id": one, "ood": ood}).conf.tolist() == [0.9, 0.7, 0.5]
    assert view.collect({"id": averaged, "ood": ood}).conf.tolist() == [0.9, 0.8, 0.7, 0.5]


def test_open_set():
    scored = world(10)
    views = protocol("open_set").views(ROLES)
    assert [(v.shift, v.role) for v in views] == [("c100", "near"), ("tin", "near")]
    samples = [row for row in rows(scored["id"]) if row[0]] + rows(scored["tin"])
    assert values(views[1], scored)["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)


def test_stratified():
    scored = world(11)
    views = protocol("stratified").views(ROLES)
    assert [(v.shift, v.role) for v in views] == [
        ("test", "iid"),
        ("c100", "near"),
        ("tin", "near"),
        ("lsun", "mid"),
        ("svhn", "far"),
        ("mnist", "far"),
    ]
    assert {a.shift: a.of for a in protocol("stratified").averages(ROLES)} == {
        "near": ("c100", "tin"),
        "mid": ("lsun",),
        "far": ("svhn", "mnist"),
    }
    right = [row for row in rows(scored["id"]) if row[0]]
    for view in views[1:]:
        samples = right + rows(scored[view.shift])
        found = values(view, scored)
        assert found["aurc"] == pytest.approx(slow_aurc(samples), abs=1e-12)
        assert found["augrc"] == pytest.approx(slow_augrc(samples), abs=1e-12)


@pytest.mark.parametrize("name", ["fd_shifts", "fd_shifts_original", "open_set", "stratified"])
def test_augrc_identity_on_views(name):
    """AUGRC = (1 - AUROC_f) a e + e^2 / 2, ties included."""
    scored = world(12)
    for view in protocol(name).views(ROLES):
        table = view.collect(scored)
        right, wrong = table.conf[table.correct].tolist(), table.conf[~table.correct].tolist()
        e = len(wrong) / len(table.conf)
        expected = (1 - slow_auroc(right, wrong)) * (1 - e) * e + e**2 / 2
        assert values(view, scored)["augrc"] == pytest.approx(expected, abs=1e-12)


def test_means_never_pool():
    """A large and a small set weigh the same."""
    scored = {
        "id": ScoredSet([True], [True], [0.5]),
        "big": ScoredSet([False] * 99, [False] * 99, np.full(99, 0.1)),
        "small": ScoredSet([False], [False], [0.9]),
    }
    roles = {"id": "test", "big": "far", "small": "far"}
    found = {v.shift: values(v, scored) for v in protocol("openood").views(roles)}
    (far,) = protocol("openood").averages(roles)
    assert np.mean([found[n]["auroc_ood"] for n in far.of]) == 0.5
    assert slow_auroc([0.5], [0.1] * 99 + [0.9]) == 0.99


@pytest.mark.parametrize("name", PROTOCOLS)
def test_order_of_rows_and_sets_changes_nothing(name):
    rng = np.random.default_rng(13)
    scored = world(13, pair=True)
    mixed = {}
    for one in reversed(scored):
        s = scored[one]
        order = rng.permutation(len(s))
        mixed[one] = ScoredSet(s.correct[order], s.is_id[order], s.conf[order], s.conf_ood[order])
    turned = {v.shift: v for v in protocol(name).views(dict(reversed(ROLES.items())))}
    for view in protocol(name).views(ROLES):
        assert sorted(view.sets) == sorted(turned[view.shift].sets)
        for pair in (False, True):
            if pair and not view.pair_metrics:
                continue
            before, after = (values(v, s, pair=pair) for v, s in ((view, scored), (turned[view.shift], mixed)))
            assert dict(after) == pytest.approx(dict(before), abs=1e-12)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_missing_role_gives_no_view(name):
    whole = {v.shift for v in protocol(name).views(ROLES)}
    for gone in set(ROLES.values()):
        left = {n: r for n, r in ROLES.items() if r != gone}
        views, averages = protocol(name).views(left), protocol(name).averages(left)
        assert {v.shift for v in views} <= whole
        assert all(set(v.sets) <= set(left) for v in views)
        assert all(a.of and set(a.of) <= {v.shift for v in views} for a in averages)
        if gone == "test":
            assert all(v.role in ("shift", "corruption") for v in views)
        if gone in ("near", "mid", "far"):
            assert not any(v.role == gone for v in views)
            assert not any(a.role == gone for a in averages)
    assert protocol(name).views({}) == ()
    assert protocol(name).averages({}) == ()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_roles_are_those_of_a_run(name):
    """What a run can hold every protocol takes, and nothing else: held-out classes are near."""
    every = {f"set {role}": role for role in RUN_ROLES}
    assert {view.role for view in protocol(name).views(every)} <= {*RUN_ROLES, "iid", "pooled"}
    with pytest.raises(InvalidInput, match="role of held: no choice 'new'; did you mean 'near'"):
        protocol(name).views({"held": "new"})


def test_several_test_sets_are_one():
    roles = {"a": "test", "b": "test", "svhn": "far"}
    assert find("joint", "svhn", roles).sets == ("a", "b", "svhn")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_everything_pickles(name):
    scored = world(14, pair=True)
    one = pickle.loads(pickle.dumps(protocol(name)))
    assert one == protocol(name)
    views, averages = one.views(ROLES), one.averages(ROLES)
    assert pickle.loads(pickle.dumps(views)) == views
    assert pickle.loads(pickle.dumps(averages)) == averages
    assert len(set(views)) == len(views)
    for view in views:
        table = pickle.loads(pickle.dumps(view)).collect(pickle.loads(pickle.dumps(scored)))
        np.testing.assert_array_equal(table.conf, view.collect(scored).conf)
        np.testing.assert_array_equal(table.conf_ood, view.collect(scored).conf_ood)


def test_tables_leave_their_sources_alone():
    scored = world(15)
    before = {name: (s.correct.copy(), s.conf.copy()) for name, s in scored.items()}
    for view in protocol("fd_shifts_original").views(ROLES):
        table = view.collect(scored)
        table.conf[:] = 0
        table.correct[:] = False
    for name, s in scored.items():
        np.testing.assert_array_equal(s.correct, before[name][0])
        np.testing.assert_array_equal(s.conf, before[name][1])


def test_tuning_rules():
    with_ood = Tuning("auroc_ood", ("val", "ood_val"))
    assert {name: one.tuning for name, one in PROTOCOLS.items()} == {
        "joint": with_ood,
        "joint_pooled": with_ood,
        "openood": with_ood,
        "unknown": with_ood,
        "fd_shifts": Tuning("aurc", ("val",)),
        "fd_shifts_original": Tuning("aurc", ("val",)),
        "open_set": Tuning("aurc", ("val",)),
        "stratified": Tuning("augrc", ("val",), temperature=True, grids=PROTOCOLS["stratified"].tuning.grids),
    }
    grids = dict(PROTOCOLS["stratified"].tuning.grids)
    assert all(0 < value < 1 for key in ("gen.gamma", "renyi.alpha") for value in grids[key])
    assert min(grids["vim.dim"]) < 8  # for narrow features
    assert {"kpca_error.gamma", "neco.dim", "residual.dim"} <= set(grids)


def test_unknown_names():
    with pytest.raises(UnknownName, match=r"no protocol 'fdshifts'; did you mean 'fd_shifts'"):
        protocol("fdshifts")
    with pytest.raises(InvalidInput, match=r"role of svhn: no choice 'farr'; did you mean 'far'"):
        protocol("joint").views({"svhn": "farr"})


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("joint", {"id": "test", "near": "near"}),
        ("unknown", {"id": "test", "pooled": "far"}),
        ("fd_shifts", {"id": "test", "test": "far"}),
        ("fd_shifts", {"corruption": "shift", "fog/1": "shift"}),
    ],
)
def test_rows_of_one_name_are_refused(name, roles):
    with pytest.raises(InvalidInput, match="two rows of the results would be called"):
        protocol(name).views(roles)
    with pytest.raises(InvalidInput, match="rename that data set"):
        protocol(name).averages(roles)


def test_a_set_of_the_wrong_kind_is_refused():
    known, ood = ScoredSet([True, False], [True, True], [0.9, 0.1]), ScoredSet([False], [False], [0.5])
    view = find("joint", "svhn", {"id": "test", "svhn": "far"})
    with pytest.raises(InvalidInput, match=r"takes svhn as unknown inputs, but row 0 .* \(2 such rows\)"):
        view.collect({"id": known, "svhn": known})
    with pytest.raises(InvalidInput, match="takes id as known inputs, but row 0 is of no known class"):
        view.collect({"id": ood, "svhn": ood})
    with pytest.raises(InvalidInput, match="needs the data set svhn, which is not scored; scored: id"):
        view.collect({"id": known})
    pair = ScoredSet([True], [True], [0.9], [0.9])
    with pytest.raises(InvalidInput, match="svhn has no conf_ood, but other data sets of the view svhn have one"):
        view.collect({"id": pair, "svhn": ood})


def test_scored_set_checks_its_arrays():
    with pytest.raises(InvalidInput, match="correct must be False on OOD samples"):
        ScoredSet([True], [False], [0.5])
    with pytest.raises(InvalidInput, match="conf has NaN in row 1"):
        ScoredSet([True, True], [True, True], [0.5, math.nan])
    with pytest.raises(InvalidInput, match="conf_ood has NaN in row 0"):
        ScoredSet([True], [True], [0.5], [math.nan])
    with pytest.raises(InvalidInput, match="rows but correct has 2"):
        ScoredSet([True, False], [True, True], [0.5])
    with pytest.raises(InvalidInput, match="group has 1 rows but correct has 2"):
        ScoredSet([True, False], [True, True], [0.5, 0.4], group=[3])
    with pytest.raises(InvalidInput, match="group must be integers"):
        ScoredSet([True], [True], [0.5], group=[0.5])
    with pytest.raises(InvalidInput, match="is empty"):
        ScoredSet([], [], np.empty(0))
    one = ScoredSet([1, 0], [1, 1], [1, 2], group=[4, 5])
    assert len(one) == 2
    assert one.correct.dtype == bool
    assert one.conf.dtype == np.float64
    assert one.group.tolist() == [4, 5]
    with pytest.raises(FrozenInstanceError):
        one.conf = one.conf


def test_undefined_values_are_told_not_hidden():
    """A score under which no answer is right leaves no inlier."""
    scored = {"id": ScoredSet([False], [True], [0.5]), "svhn": ScoredSet([False], [False], [0.1])}
    found = values(find("fd_shifts", "svhn", {"id": "test", "svhn": "far"}), scored)
    assert math.isnan(found["auroc"])
    assert "auroc" in found.reasons
    assert found["aurc"] == 1
    assert found["accuracy"] == 0


def test_select():
    given = {
        "msp": {"plain": 0.02, "dropout": 0.01, "wide": 0.01},
        "devries": {"plain": math.nan, "dropout": 0.5, "wide": math.inf},
    }
    low, high = select(given, "lower"), select(given, "higher")
    assert low["msp"] == Choice("msp", "dropout", 0.01, (("plain", 0.02), ("dropout", 0.01), ("wide", 0.01)))
    assert low["devries"].run == "dropout"
    assert len(low["devries"].candidates) == 3
    assert (high["msp"].run, high["devries"].run) == ("plain", "wide")
    assert list(low) == list(given)
    assert pickle.loads(pickle.dumps(low["msp"])) == low["msp"]
    assert select({"s": {"a": 1, "b": 1.0, "c": np.float32(1)}}, "higher")["s"].run == "a"
    assert select({}, "lower") == {}


def test_select_refuses():
    with pytest.raises(UndefinedMetric, match="no run can be chosen for msp: the validation value of a, b is NaN"):
        select({"msp": {"a": math.nan, "b": math.nan}}, "lower")
    with pytest.raises(InvalidInput, match="no run to choose from for msp"):
        select({"msp": {}}, "lower")
    with pytest.raises(InvalidInput, match=r"of a for msp must be one number, got '0\.1'"):
        select({"msp": {"a": "0.1"}}, "lower")
    with pytest.raises(InvalidInput, match="of a for msp must be one number, got None"):
        select({"msp": {"a": None}}, "lower")
    with pytest.raises(InvalidInput, match="better"):
        select({"msp": {"a": 0.1}}, "best")


def test_views_are_values():
    view = find("joint", "svhn")
    assert view == ProtocolView("svhn", "far", ("id",), ("svhn",), "joint", ("f1", "aurc_id"), ("ds_f1", "ds_aurc"))
    with pytest.raises(FrozenInstanceError):
        view.shift = "other"


def test_levels_are_averaged_in_their_order():
    roles = {"fog/5": "shift", "fog/2": "shift", "snow/2": "shift", "fog/3": "shift"}
    (mean,) = protocol("fd_shifts").averages(roles)
    assert mean.of == ("corruption/2", "corruption/3", "corruption/5")
    assert protocol("joint").views(roles) == ()
