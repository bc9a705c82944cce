"""Groups of unknown sets: the row of the known test set, files that are read back, and roles of benchmarks."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from test_runner import SETS, TOML, world

from twofold.bench.blocks import join_metrics
from twofold.bench.catalogue import load, loads
from twofold.bench.clique_maps import clique_map
from twofold.bench.confidences import plan_chain
from twofold.bench.grouping import Grouping
from twofold.bench.pools import TABLE_3, projections
from twofold.bench.protocols import protocol
from twofold.bench.results import Results
from twofold.bench.strata import centroid, frechet, mmd
from twofold.cli import main
from twofold.errors import InvalidInput, RunError
from twofold.run import Run
from twofold.scores.chain import scorer


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(size=(30, 4)) + place for name, place in (("train", 2.0), ("test", 2.0))}
    for place, name in enumerate(("close", "closer", "noise")):
        made[name] = rng.normal(size=(20, 4)) + 1.5 - 2 * place
    return made, np.arange(30) % 3


def measured():
    made, labels = arrays()
    unknown = {name: made[name] for name in ("close", "closer", "noise")}
    return Grouping.measure("made", ("train", made["train"], labels), unknown, test=("test", made["test"]))


def test_the_known_row_is_the_test_set_against_the_training_set():
    made, labels = arrays()
    row = measured().known.to_dict()["test"]
    train, test = unit(made["train"]), unit(made["test"])
    assert row["frechet"] == pytest.approx(frechet(train, test), rel=1e-9)
    assert row["mmd"] == pytest.approx(mmd(train, test), rel=1e-6)
    assert row["centroid"] == pytest.approx(centroid(test, train, labels), rel=1e-9)
    assert [line[1] for line in measured().lines()] == ["ID", "near", "mid", "far"]


def test_groups_are_read_as_they_were_written(tmp_path):
    found = measured()
    found.save(tmp_path / "groups.json")
    again = Grouping.load(tmp_path / "groups.json")
    assert again.to_dict() == found.to_dict()
    assert again.lines() == found.lines()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [('"near"', '"nigh"', "checksum"), ('"made"', '"male"', "checksum"), ("{", "", "not complete JSON")],
)
def test_files_that_were_changed_are_rejected(tmp_path, old, new, message):
    measured().save(tmp_path / "groups.json")
    text = (tmp_path / "groups.json").read_text()
    (tmp_path / "groups.json").write_text(text.replace(old, new, 1))
    with pytest.raises(RunError, match=message):
        Grouping.load(tmp_path / "groups.json")


def test_files_with_other_content_are_rejected(tmp_path):
    from twofold._json import encode_json

    content = {"format": "twofold-strata", "version": 1, **measured().to_dict()}
    for change, message in [
        ({"groups": {"near": ["close"], "far": ["noise"]}}, "each data set"),
        ({"groups": {"close": ["near"]}}, "groups"),
        ({"distances": {"close": {"colour": 1.0}}}, "colour"),
        ({"distances": {"close": {"mmd": "1"}}}, "number"),
        ({"groups": 3}, "table"),
    ]:
        (tmp_path / "groups.json").write_bytes(encode_json({**content, **change}))
        with pytest.raises(RunError, match=message):
            Grouping.load(tmp_path / "groups.json")


def test_a_benchmark_takes_the_groups_as_roles():
    sets = "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
    benchmark = loads(TOML + sets)
    found = measured()
    changed = found.regroup(benchmark)
    for name, role in found.roles.items():
        assert changed.roles[name] == role
    assert changed.roles["train"] == "train"
    assert changed.name == benchmark.name
    short = Grouping(found.embeddings, "train", None, found.unknown, {"near": ("close",)})
    with pytest.raises(InvalidInput, match="is in no group"):
        short.regroup(benchmark)


def run(*words, status=0):
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == status, result.output
    return result


def test_from_embeddings_to_results_without_a_model(tmp_path):
    world(tmp_path / "toy")
    made, labels = arrays()
    np.savez(tmp_path / "mine.npz", labels=labels, **made)
    sets = "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
    (tmp_path / "mine.toml").write_text(TOML + sets)
    given = ["bench", "strata", "--benchmark", tmp_path / "mine.toml", "--embeddings", tmp_path / "mine.npz"]
    shown = run(*given, "--out", tmp_path / "groups.json")
    assert shown.stdout.splitlines()[2].split()[0] == "test"
    assert shown.stdout.splitlines()[2].split()[-1] == "ID"
    groups = json.loads(run(*given, "--json").stdout)["groups"]
    judged = run(
        *("bench", "run", tmp_path / "mine.toml", "--run", tmp_path / "toy", "--score", "msp"),
        *("--protocol", "stratified", "--resamples", 0, "--strata", tmp_path / "groups.json"),
        *("--out", tmp_path / "out", "--json"),
    )
    roles = {row["shift"]: row["role"] for row in json.loads(judged.stdout)}
    for group, members in groups.items():
        for name in members:
            assert roles[name] == group


def test_what_strata_need_is_one_usage_error(tmp_path):
    world(tmp_path / "toy")
    assert "one of the two" in run("bench", "strata", status=2).stderr
    assert "--embeddings" in run("bench", "strata", "--benchmark", "stratified-cifar10", status=2).stderr
    np.savez(tmp_path / "few.npz", train=np.eye(3), labels=[0, 1, 2], svhn=np.eye(3))
    failed = run(
        *("bench", "strata", "--benchmark", "stratified-cifar10", "--embeddings", tmp_path / "few.npz"), status=3
    )
    assert "at least three" in failed.stderr


# --- the pool of Table 3 --------------------------------------------------------------------------------------------


def test_the_pool_has_the_cells_of_the_table():
    filled = {row.title: len(row.columns) for row in TABLE_3}
    printed = dict.fromkeys(("CTM", "CTM(mean)", "Energy", "MSR", "MLS", "PE", "GEN", "REN", "GE", "PCE"), 5)
    printed |= dict.fromkeys(("Maha", "NNGuide", "fDBD", "pNML", "GradNorm"), 4)
    printed |= {"PCA Error": 3, "KPCA Error": 3, "VIM": 1, "NeCo": 1, "Residual": 1}
    assert filled == printed
    for spec in projections():
        scorer(spec)
    for name in ("stratified-cifar10", "stratified-tinyimagenet"):
        assert load(name).scores == projections()


def test_printed_forms_differ_from_ours_behind_a_projection_only_where_listed(tmp_path):
    opened = Run.open(world(tmp_path / "toy"))
    train, test = opened["train"], opened["test"]
    for row in TABLE_3:
        if row.title in ("MSR", "CTM(mean)", "fDBD"):
            for column in row.columns:
                ours = scorer(row.spec(column)).fit(train).score(test)
                printed = scorer(row.spec(column, "printed")).fit(train).score(test)
                same = np.allclose(ours, printed, rtol=1e-9)
                assert same or column in row.differs


def test_open_settings_are_searched_on_the_grid_of_the_protocol(tmp_path):
    from twofold.bench.confidences import _open_grid

    tuning = protocol("stratified").tuning
    grid = _open_grid(plan_chain("project(kind='class_pred')|gen(top=10)", tuning), tuning)
    assert set(grid) == {"project.variance", "gen.gamma"}
    assert all(0 < value < 1 for value in grid["gen.gamma"])
    plain = protocol("fd_shifts").tuning
    assert 10.0 in _open_grid(plan_chain("gen", plain), plain)["gen.gamma"]
    assert "neco.dim" in _open_grid(plan_chain("neco", tuning), tuning)
    assert _open_grid(plan_chain("vim(dim=4)", tuning), tuning) == {}


# --- cliques over several metrics -----------------------------------------------------------------------------------


def rows(metric, values):
    made = []
    for score, value in values.items():
        for place in range(4):
            made.append(
                {"score": score, "shift": f"s{place}", "role": "near", "metric": metric, "value": value + 0.01 * place}
            )
    return made


def test_blocks_of_two_metrics_are_counted_apart():
    both = Results.of([*rows("aurc", {"a": 0.2, "b": 0.1}), *rows("augrc", {"a": 0.3, "b": 0.4})])
    table = join_metrics(both, ("aurc", "augrc"), None)
    assert len(table.rows) == 8
    assert clique_map(both, ("aurc", "augrc")).blocks == (8,)
    assert clique_map(both, ("aurc", "augrc")).metric == "aurc and augrc"
    with pytest.raises(InvalidInput, match="different directions"):
        join_metrics(Results.of([*rows("aurc", {"a": 0.2}), *rows("auroc", {"a": 0.9})]), ("aurc", "auroc"), None)
    with pytest.raises(InvalidInput, match="each named once"):
        join_metrics(both, ("aurc", "aurc"), None)
