"""The verbs of benchmarks as a person types them, on the embedded digits and a small made world."""

import json

import pytest
from click.testing import CliRunner
from test_runner import SETS, TOML, world

from twofold.bench.catalogue import names
from twofold.bench.results import Results
from twofold.cli import main


def run(*args, status=0):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A user's benchmark, a run for it, and its results."""
    folder = tmp_path_factory.mktemp("bench")
    sets = "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
    (folder / "tiny.toml").write_text(TOML + sets)
    world(folder / "toy")
    scores = [word for score in ("msp", "energy", "mds") for word in ("--score", score)]
    given = ["bench", "run", folder / "tiny.toml", "--run", folder / "toy", "--out", folder / "out", "--resamples", 10]
    shown = run(*given, *scores)
    assert "msp" in shown.stdout
    return folder


def test_list_names_every_benchmark():
    assert [row["name"] for row in json.loads(run("bench", "list", "--json").stdout)] == list(names())
    assert all(name in run("bench", "list").stdout for name in names())


def test_show_says_what_is_missing_and_where_to_get_it(tmp_path):
    pytest.importorskip("torch", reason="data sets are opened with torch installed")
    printed = json.loads(run("bench", "show", "openood-cifar10", "--root", tmp_path, "--json").stdout)
    assert all(one["missing"] and one["get"] for one in printed["sets"] if one["role"] != "train")
    text = run("bench", "show", "openood-cifar10", "--root", tmp_path).stdout
    assert "missing" in text
    assert "get it from" in text


def test_run_writes_what_it_prints(place):
    opened = Results.open(place / "out")
    assert {row["score"] for row in opened.rows} == {"msp", "energy", "mds"}
    given = ["bench", "run", place / "tiny.toml", "--run", place / "toy", "--out", place / "two", "--resamples", 10]
    printed = json.loads(run(*given, "--score", "msp", "--score", "energy", "--pair", "msp + energy", "--json").stdout)
    assert {row["pair"] for row in printed} == {None, "energy"}


def test_bad_words_are_one_line(place):
    given = ["bench", "run", place / "tiny.toml", "--run", place / "toy", "--out", place / "out"]
    for words, status, message in [
        ((*given, "--pair", "msp"), 2, "two scores"),
        ((*given, "--score", "mps"), 2, "did you mean"),
        (("bench", "show", "cifar11-real"), 2, "did you mean"),
        ((*given[:3], "--run", place / "nowhere", "--out", place / "out"), 3, "nowhere"),
        (("bench", "check", place / "nowhere"), 3, "nowhere"),
        (("bench", "check", place / "out"), 3, "published counterpart"),
    ]:
        result = run(*words, status=status)
        assert message in result.stderr
        assert "Traceback" not in result.output


def test_compare_ranks_the_scores(place):
    printed = json.loads(run("compare", place / "out", "--metric", "aurc", "--protocol", "fd_shifts", "--json").stdout)
    assert {one["name"] for one in printed["methods"]} == {"msp", "energy", "mds"}
    assert sum(one["mean_rank"] for one in printed["methods"]) == pytest.approx(6.0)


def test_strata_group_the_unknown_sets(place):
    printed = json.loads(run("bench", "strata", place / "toy", "--json").stdout)
    assert sorted(name for group in printed["groups"].values() for name in group) == ["close", "closer", "noise"]
    assert "own features" in run("bench", "strata", place / "toy").stdout


def test_build_says_why_a_class_is_left_out(tmp_path):
    from test_wordnet import write

    ids = write(tmp_path / "wordnet")
    (tmp_path / "id.txt").write_text(ids["opener"])
    (tmp_path / "pool.txt").write_text("\n".join(ids[n] for n in ("opener", "plunger", "mower", "shirt")))
    given = ["bench", "build", tmp_path / "wordnet", "--known", tmp_path / "id.txt", "--pool", tmp_path / "pool.txt"]
    printed = json.loads(run(*given, "--near-count", 1, "--json").stdout)
    assert printed["near"] == [ids["plunger"]]  # under the direct parent of opener
    lines = [line.split("\t") for line in run(*given, "--near-count", 1).stdout.splitlines()]
    assert ["near", ids["plunger"]] in lines
    assert ["removed", ids["opener"], "is an ID class"] in lines


def test_missing_embeddings_are_a_usage_error(place):
    failed = CliRunner().invoke(main, ["bench", "strata", str(place / "toy"), "--embeddings", "nowhere.npz"])
    assert failed.exit_code == 2
    assert "nowhere.npz" in failed.output
    assert "Traceback" not in failed.output
