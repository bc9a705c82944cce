"""Comparison of methods: against scipy, scikit-posthocs and slow loops; gaps, groups, replicates and warnings."""

import itertools
import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from example_blocks import SETS, rows_of, world
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.bench.clique_maps import clique_map
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.bench.rows import KEY
from twofold.cli import main
from twofold.errors import DoubtfulTable, InvalidInput, TooFewBlocks, UnknownName
from twofold.stats import cliques


def random_table(rng, blocks, methods, ties):
    table = rng.normal(size=(blocks, methods)) + 0.5 * np.arange(methods)
    return np.round(table) if ties else table


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_friedman_and_conover_are_those_of_other_libraries(seed, ties):
    posthocs = pytest.importorskip("scikit_posthocs")
    from scipy import stats

    rng = np.random.default_rng(seed)
    table = random_table(rng, int(rng.integers(4, 12)), int(rng.integers(3, 8)), ties)
    found = compare(Results.of(rows_of(table)), "aurc")
    ranks = stats.rankdata(table, axis=1).mean(axis=0)
    place = [int(name[1:]) for name in found.methods]
    assert found.mean_ranks == pytest.approx(ranks[place])
    assert sorted(found.mean_ranks) == list(found.mean_ranks)
    expected = stats.friedmanchisquare(*table.T)
    assert found.friedman.statistic == pytest.approx(expected.statistic)
    assert found.friedman.p == pytest.approx(expected.pvalue)
    p = posthocs.posthoc_conover_friedman(table, p_adjust="holm").to_numpy()
    assert found.p == pytest.approx(p[np.ix_(place, place)], abs=1e-9)
    assert found.values == pytest.approx(table[:, place])


@pytest.mark.parametrize("seed", range(5))
def test_wilcoxon_is_that_of_scipy_with_holm(seed):
    pytest.importorskip("networkx")
    from scipy import stats

    table = np.random.default_rng(seed).normal(size=(12, 4))
    found = compare(Results.of(rows_of(table)), "aurc", test="wilcoxon")
    place = [int(name[1:]) for name in found.methods]
    raw = {}
    for i, j in itertools.combinations(range(4), 2):
        raw[i, j] = stats.wilcoxon(table[:, place[i]], table[:, place[j]]).pvalue
    reached = 0.0
    for step, (pair, p) in enumerate(sorted(raw.items(), key=lambda item: item[1])):
        reached = max(reached, min(1.0, (6 - step) * p))
        assert found.p[pair] == pytest.approx(reached)


def outcome(rows):
    try:
        return compare(Results.of(rows), "aurc").to_dict()
    except InvalidInput as error:
        return str(error)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_order_of_rows_does_not_matter(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    table = random_table(rng, data.draw(st.integers(2, 7)), data.draw(st.integers(2, 6)), data.draw(st.booleans()))
    rows = rows_of(table)
    for hole in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3)):
        rows[hole]["value"] = float("nan")
    mixed = data.draw(st.permutations(rows))
    assert outcome(mixed) == outcome(rows)


def test_higher_is_better_where_the_rows_say_so():
    table = np.array([[0.9, 0.8, 0.7], [0.8, 0.9, 0.6], [0.9, 0.8, 0.5], [0.7, 0.6, 0.5]])
    up = compare(Results.of(rows_of(table, metric="auroc", better="higher")), "auroc")
    assert up.methods == ("m0", "m1", "m2")
    assert up.mean_ranks.tolist() == [1.25, 1.75, 3.0]
    down = compare(Results.of(rows_of(table)), "aurc")
    assert down.methods == ("m2", "m1", "m0")
    assert compare(Results.of(rows_of(table, metric="auroc", better=None)), "auroc").methods == up.methods


def test_cliques_are_those_of_the_table_of_single_sets():
    results = world()
    found = compare(results, "augrc")
    table = [
        [
            next(r["value"] for r in results if (r["score"], r["shift"], r["run"]) == (name, shift, f"run{run}"))
            for name in found.methods
        ]
        for run in range(3)
        for shift in SETS
    ]
    assert len(found.blocks) == 21
    assert sorted(map(tuple, found.values.tolist())) == sorted(map(tuple, table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulTable)
        expected = cliques(table, better="lower", names=found.methods)
    assert found.cliques == expected.groups
    assert found.top == expected.top == ("msp",)
    assert found.models == 3
    assert {(one.kind, one.name) for one in found.dropped} == {("shift", "near"), ("shift", "mid"), ("shift", "far")}
    assert any("21 blocks come from 3 models" in text for text in found.warnings)


def test_pools_are_no_blocks_beside_their_members():
    def measured(shifts):
        """The data sets that are blocks; three runs of each make enough of them."""
        rows = []
        for run, (j, name) in itertools.product("abc", enumerate(("msp", "knn"))):
            for i, (shift, role) in enumerate(shifts):
                row = {"score": name, "shift": shift, "role": role, "metric": "aurc", "value": 0.1 * j + 0.01 * i}
                rows.append({"protocol": "unknown", "run": run, **row})
        blocks = compare(Results.of(rows), "aurc").blocks
        sets = [block.removeprefix("a / ") for block in blocks if block.startswith("a / ")]
        assert len(blocks) == 3 * len(sets)
        return tuple(sets)

    pools = [("near", "near"), ("far", "far")]
    assert measured([("pooled", "pooled"), ("test", "iid"), *pools]) == ("far", "near", "test")
    assert measured([("pooled", "pooled"), *pools]) == ("far", "near")
    assert measured([*pools, ("svhn", "far")]) == ("near", "svhn")
    assert measured([("mean", None), ("near", None), ("svhn", None), ("dtd", None)]) == ("dtd", "svhn")
    levels = [(f"corruption/{k}", "corruption") for k in (1, 2)]
    assert measured([("corruption", "corruption"), *levels]) == ("corruption/1", "corruption/2")


def test_incomplete_methods_and_blocks_are_left_out_and_named():
    table = np.arange(40.0).reshape(8, 5) / 100
    rows = [row for row in rows_of(table) if (row["score"], row["shift"]) != ("m3", "set00")]
    for row in rows:
        if row["score"] == "m4" and row["shift"] != "set02":
            row |= {"value": float("nan"), "reason": "no passes"}
        if row["shift"] == "set07":
            row |= {"value": float("nan"), "reason": "one class only"}
    rows.append({"score": "mc", "protocol": "fd_shifts", "value": float("nan"), "reason": "needs passes"})
    found = compare(Results.of(rows), "aurc")
    assert sorted(found.methods) == ["m0", "m1", "m2", "m3"]
    assert found.blocks == tuple(f"set{i:02d}" for i in range(1, 7))
    reasons = {(one.kind, one.name): one.reason for one in found.dropped}
    assert reasons["method", "mc"] == "needs passes"
    assert reasons["method", "m4"] == "no value for 6 of 7 blocks, the first set00 (no passes)"
    assert reasons["block", "set07"] == "no value for 5 of 5 methods, the first m0 (one class only)"
    assert reasons["block", "set00"] == "no value for 1 of 4 methods, the first m3 (not in the results)"
    assert len(reasons) == 4


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_complete_and_nothing_full_is_dropped(seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(9, 6))
    holes = rng.random(table.shape) < 0.12
    rows = [row for row, hole in zip(rows_of(table), holes.ravel(), strict=True) if not hole]
    found = compare(Results.of(rows), "aurc")
    place = [int(name[1:]) for name in found.methods], [int(name[3:]) for name in found.blocks]
    assert np.array_equal(found.values, table[np.ix_(place[1], place[0])])
    full = {f"m{j}" for j in range(6) if not holes[:, j].any()} | {
        f"set{i:02d}" for i in range(9) if not holes[i].any()
    }
    gone = {one.name for one in found.dropped}
    assert not full & gone
    assert len(gone) + len(found.methods) + len(found.blocks) == 15


def test_averaged_blocks_against_a_loop():
    results = world(runs=4)
    found = compare(results, "augrc", blocks=("model", "seed"))
    assert found.blocks == ("net0 / 0", "net0 / 2", "net1 / 1", "net1 / 3")
    for i, seed in enumerate((0, 2, 1, 3)):
        for j, name in enumerate(found.methods):
            kept = [r["value"] for r in results if (r["score"], r["seed"]) == (name, seed) and r["shift"] in SETS]
            assert len(kept) == 7
            assert found.values[i, j] == pytest.approx(np.mean(kept))
    assert not any("come from" in text for text in found.warnings)
    assert compare(results, "augrc", blocks="role").blocks == ("far", "iid", "mid", "near")
    with pytest.raises(UnknownName, match=r"no column of blocks 'shfit'; did you mean 'shift'\?"):
        compare(results, "augrc", blocks=("shfit",))
    with pytest.raises(InvalidInput, match="at least one of"):
        compare(results, "augrc", blocks=())


@pytest.mark.parametrize("blocks", [None, ("run",)])
def test_paired_differences_against_a_loop(blocks):
    results = world()
    lost = [key for key in results.replicates if key[1] == "mds" and key[0] == "run1"]
    lost += [key for key in results.replicates if key[1] == "vim"]
    results = Results.of(results.rows, {k: a for k, a in results.replicates.items() if k not in lost})
    found = compare(results, "augrc", alpha=0.1, blocks=blocks)
    assert found.methods[0] == "msp"
    assert set(found.differences) == {"knn", "mds"}
    for name, runs in (("knn", (0, 1, 2)), ("mds", (0, 2))):
        cells = [(f"run{run}", shift) for run in runs for shift in SETS]
        drawn = [0.0] * 50
        exact = 0.0
        for run, shift in cells:
            one, best = (results.replicates[run, s, None, shift, "stratified", "augrc"] for s in (name, "msp"))
            for r in range(50):
                drawn[r] += (one[r] - best[r]) / len(cells)
            value = {r["score"]: r["value"] for r in results if (r["run"], r["shift"]) == (run, shift)}
            exact += (value[name] - value["msp"]) / len(cells)
        gap = found.differences[name]
        assert gap.value == pytest.approx(exact)
        assert (gap.low, gap.high) == pytest.approx(tuple(np.quantile(drawn, (0.05, 0.95))))
        assert (gap.blocks, gap.of, gap.resamples) == (len(cells), 21, 50)
        assert gap.is_significant
    assert any("no paired replicates for vim" in text for text in found.warnings)
    assert str(found).count(", 14 of 21 blocks") == 1


def test_replicates_of_other_lengths_are_not_paired():
    rows = rows_of(np.array([[0.1, 0.2], [0.1, 0.3], [0.2, 0.3], [0.1, 0.2], [0.1, 0.2], [0.2, 0.5]]))
    drawn = {tuple(row.get(c) for c in KEY): np.full(20, row["value"]) for row in rows}
    short = tuple(rows[1].get(c) for c in KEY)
    drawn[short] = drawn[short][:10]
    found = compare(Results.of(rows, drawn), "aurc")
    assert found.differences["m1"].blocks == 5
    assert found.differences["m1"].value == pytest.approx((0.2 + 0.1 + 0.1 + 0.1 + 0.3) / 5)
    empty = {key: np.full(20, np.nan) for key in drawn}
    assert compare(Results.of(rows, empty), "aurc").differences == {}


def test_two_methods_and_identical_methods():
    table = np.random.default_rng(0).normal(size=(12, 2))
    two = compare(Results.of(rows_of(table)), "aurc")
    assert two.p[0, 1] == two.p[1, 0]
    twins = compare(Results.of(rows_of(table[:, [0, 0, 0]])), "aurc")
    assert twins.mean_ranks.tolist() == [2.0, 2.0, 2.0]
    assert twins.friedman.p == 1.0
    assert not twins.omnibus
    assert twins.cliques == (("m0", "m1", "m2"),)
    assert any("12 of 12 blocks have ties" in t and "equal in all blocks: m0, m1, m2" in t for t in twins.warnings)
    assert "not run" in str(twins)
    runs = [rows_of(np.random.default_rng(k).normal(size=(7, 1)) * np.ones((1, 9)), run=f"r{k}") for k in range(4)]
    assert compare(Results.of(itertools.chain(*runs)), "aurc", blocks="run").mean_ranks.tolist() == [5.0] * 9


def test_perfect_agreement_is_json():
    found = compare(Results.of(rows_of(np.tile([0.1, 0.2, 0.3], (4, 1)) + 0.01 * np.arange(4)[:, None])), "aurc")
    found_json = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert found_json["friedman"]["f"] is None
    for name in ("f_p", "exact_p", "least_p"):  # of the 6 ** 4 tables, 6 agree in all blocks
        assert found_json["friedman"][name] == pytest.approx(6**-3)
    assert found_json["p"][0][1] == pytest.approx(3 * 6**-3)  # three pairs, by Holm
    assert "exact p = 0.0046 (the smallest attainable with 4 blocks)" in str(found)
    assert "p = 0;" not in str(found)
    assert [one["name"] for one in found_json["methods"]] == ["m0", "m1", "m2"]
    assert [one["top"] for one in found_json["methods"]] == [True, False, False]
    assert found_json["methods"][1]["difference"] is None


def test_few_blocks_are_said():
    rng = np.random.default_rng(0)
    few = compare(Results.of(rows_of(rng.normal(size=(4, 3)))), "aurc")
    assert any("only 4 blocks" in text for text in few.warnings)
    ten = compare(Results.of(rows_of(rng.normal(size=(10, 3)))), "aurc")  # Demšar asks for more than 10
    assert any("only 10 blocks" in text for text in ten.warnings)
    many = compare(Results.of(rows_of(rng.normal(size=(11, 3)))), "aurc")
    assert not any("only" in text for text in many.warnings)


@pytest.mark.parametrize(
    ("blocks", "methods", "settings", "message"),
    [
        (2, 2, {}, "2 methods cannot be compared over 2 blocks: conover_t at 0.05 needs at least 6, since the smallest "
                   "p-value of Friedman's test on 2 blocks is 0.5"),
        (5, 2, {}, "needs at least 6, since .* is 0.062"),
        (3, 3, {}, "needs at least 4, since the smallest adjusted p-value of a pair in 3 blocks is 0.05 or more"),
        (2, 12, {}, "needs at least 3, since 2 blocks only show how alike they rank the methods"),
        (6, 3, {"test": "wilcoxon"}, "wilcoxon at 0.05 needs at least 7"),
        (7, 2, {"alpha": 0.01}, "at 0.01 needs at least 8"),
    ],
)  # fmt: skip
def test_too_few_blocks_for_any_significance_are_refused(blocks, methods, settings, message):
    table = np.random.default_rng(0).normal(size=(blocks, methods))
    with pytest.raises(TooFewBlocks, match=message):
        compare(Results.of(rows_of(table)), "aurc", **settings)


@pytest.mark.parametrize(("blocks", "methods", "settings"), [
    (6, 2, {}), (4, 3, {}), (3, 4, {}), (3, 12, {}), (3, 3, {"test": "rank_z"}), (7, 3, {"test": "wilcoxon"}),
    (8, 2, {"alpha": 0.01}),
])  # fmt: skip
def test_with_the_required_blocks_agreement_is_significant(blocks, methods, settings):
    pytest.importorskip("networkx")
    rng = np.random.default_rng(1)
    agreeing = np.sort(rng.random((blocks, methods)), axis=1) + np.arange(methods)
    found = compare(Results.of(rows_of(agreeing)), "aurc", **settings)
    assert found.omnibus
    assert found.p[0, -1] < found.alpha
    assert found.friedman.decisive_p > 0
    assert (found.p > 0).all()


def test_copied_blocks_are_a_warning_of_the_comparison_not_of_python():
    table = np.random.default_rng(0).normal(size=(6, 6))
    found = compare(Results.of(rows_of(np.vstack([table, table]))), "aurc")  # warnings are errors in tests
    assert any("counted twice" in text for text in found.warnings)


def test_what_cannot_be_compared():
    rows = rows_of(np.random.default_rng(0).normal(size=(4, 1)))
    with pytest.raises(InvalidInput, match="at least 2 methods and 2 blocks; aurc has 1 method and 4 blocks"):
        compare(Results.of(rows), "aurc")
    rows = rows_of(np.random.default_rng(0).normal(size=(1, 4)))
    with pytest.raises(InvalidInput, match="aurc has 4 methods and 1 block "):
        compare(Results.of(rows), "aurc")
    for row in rows:
        row["shift"] = "validation"
    with pytest.raises(InvalidInput, match="validation data only"):
        compare(Results.of(rows), "aurc")
    both = Results.of(rows_of(np.ones((6, 2))) + rows_of(np.ones((6, 2)), protocol="openood"))
    with pytest.raises(InvalidInput, match="several protocols"):
        compare(both, "aurc")
    assert len(compare(both, "aurc", protocol="openood").blocks) == 6
    with pytest.raises(UnknownName, match="no metric of these results 'aucr'"):
        compare(both, "aucr")
    with pytest.raises(InvalidInput, match="no row of aurc has a score"):
        compare(Results.of([{"metric": "aurc", "shift": "svhn", "value": 0.1}]), "aurc")
    for wrong in ({"test": "nemenyi"}, {"alpha": 0.0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            compare(both, "aurc", protocol="openood", **wrong)
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            clique_map(both, "aurc", protocol="openood", **wrong)


def test_pairs_are_methods():
    table = np.tile([[0.9, 0.8], [0.8, 0.7], [0.9, 0.7]], (2, 1))
    rows = rows_of(table, metric="ds_f1", names=["msp", "knn"], better="higher", pair="energy")
    found = compare(Results.of(rows), "ds_f1")
    assert found.methods == ("msp + energy", "knn + energy")
    clash = rows + rows_of(table, metric="ds_f1", names=["msp + energy", "x"], better="higher")
    with pytest.raises(InvalidInput, match="two methods are called 'msp \\+ energy'"):
        compare(Results.of(clash), "ds_f1")


def test_the_command(tmp_path):
    folder = world().save(tmp_path / "results")
    runner = CliRunner()
    shown = runner.invoke(main, ["compare", str(folder), "--metric", "augrc"])
    assert shown.exit_code == 0, shown.output
    assert (
        "augrc (x1000) under stratified, lower is better, coverage of all samples (without misclassified ID samples "
        "beside OOD samples): 4 methods, 21 blocks, 3 models" in shown.output
    )
    result = runner.invoke(main, ["compare", str(folder), "--metric", "augrc", "--test", "rank_z", "--json"])
    assert json.loads(result.output) == compare(world(), "augrc", test="rank_z").to_dict()
    averaged = runner.invoke(main, ["compare", str(folder), "--metric", "augrc", "--block", "run", "--json"])
    assert json.loads(averaged.output)["blocks"] == ["run0", "run1", "run2"]
    wrong = runner.invoke(main, ["compare", str(folder), "--metric", "nonsense"])
    assert wrong.exit_code != 0
    assert "no metric of these results 'nonsense'" in wrong.output
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "ranks.svg", tmp_path / "map.png"]
    command = ["compare", str(folder), "--metric", "augrc", "--figure", str(paths[0]), "--map", str(paths[1])]
    drawn = runner.invoke(main, command)
    assert drawn.exit_code == 0, drawn.output
    assert b"<svg" in paths[0].read_bytes()
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert "left out of the map: group net0 / iid: 4 methods cannot be compared over 2 blocks" in drawn.output
    result = runner.invoke(main, [*command, "--replace", "--json"])
    assert any(one["name"] == "net0 / iid" for one in json.loads(result.output)["map"]["dropped"])


def test_the_command_refuses_two_blocks_with_one_line(tmp_path):
    folder = Results.of(rows_of(np.array([[0.1, 0.2], [0.1, 0.3]]))).save(tmp_path / "results")
    figure = tmp_path / "ranks.svg"
    refused = CliRunner().invoke(main, ["compare", str(folder), "--metric", "aurc", "--figure", str(figure)])
    assert refused.exit_code == 1
    assert "needs at least 6" in refused.output
    assert len(refused.output.strip().splitlines()) == 1
    assert not figure.exists()
