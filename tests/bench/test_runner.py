"""The runner: right numbers, nothing twice, nothing wrong after a kill or damage, reasons for what is missing."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import twofold
from twofold import Outputs, Run, metrics, scorer
from twofold.bench import runner
from twofold.bench.catalogue import load, loads
from twofold.bench.runner import run
from twofold.errors import InvalidInput, RunError
from twofold.outputs import Head

TOML = """
name = "tiny"
title = "Two OOD sets and two levels of corruption"
source = "made here"
classes = 3
protocols = ["joint", "fd_shifts", "stratified"]
"""
SETS = {
    "train": "train",
    "val": "val",
    "test": "test",
    "strangers": "ood_val",
    "close": "near",
    "closer": "near",
    "noise": "far",
    "fog/1": "shift",
    "fog/2": "shift",
}
BENCHMARK = loads(
    TOML + "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
)
KNN_TRIALS = (50, 100)  # of the declared values, those that 120 training rows allow
SCORES = ["msp", "energy", "knn", "mds"]


def outputs(name, role, rows=120, seed=0):
    rng = np.random.default_rng([seed, *name.encode()])
    head = Head(np.random.default_rng(seed).normal(size=(3, 5)), np.zeros(3))
    labels = rng.integers(0, 3, rows)
    known = role in ("train", "val", "test", "shift")
    features = rng.normal(size=(rows, 5)) + (1.5 * head.weight[labels] if known else 0.5)
    return Outputs(head.logits(features), labels if known else np.full(rows, -1), features, head)


def world(path, without=(), seed=0):
    made = Run.create(path, model="toy", seed=seed, recipe="basic")
    for name, role in SETS.items():
        if name not in without:
            made.add(name, outputs(name, role, seed=seed), role=role)
    return path


def judged(path, out, **options):
    reported = []
    given = {"scores": SCORES, "resamples": 20, "best": 2} | options
    results = run(
        BENCHMARK, [path], out, done=lambda label, count, total: reported.append((label, count, total)), **given
    )
    tasks = sum(total for _, count, total in reported if count == 0)
    return results, tasks


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runner")
    path = world(folder / "toy")
    results, tasks = judged(path, folder / "out")
    assert tasks > 0
    return folder, path, results


def value(results, **where):
    (row,) = [r for r in results.rows if all(r[key] == wanted for key, wanted in where.items())]
    return row


def test_values_are_those_of_the_library(made):
    _, path, results = made
    opened = Run.open(path)
    both = Outputs.concat([opened["test"], opened["close"]])
    msp, energy = scorer("msp").score(both), scorer("energy").score(both)
    row = value(results, score="msp", pair="energy", shift="close", protocol="joint", metric="ds_f1")
    assert row["value"] == metrics.ds_f1(both.correct, msp, energy, both.is_id).value
    assert (row["n"], row["n_id"], row["n_ood"]) == (240, 120, 120)
    row = value(results, score="energy", pair=None, shift="close", protocol="joint", metric="f1")
    assert row["value"] == metrics.f1(both.correct, energy, both.is_id).value
    kept = both.correct | ~both.is_id  # wrong answers on known sets are removed
    row = value(results, score="msp", pair=None, shift="close", protocol="fd_shifts", metric="aurc")
    assert row["value"] == pytest.approx(metrics.aurc(both.correct[kept], msp[kept]), abs=1e-12)
    assert row["low"] <= row["value"] <= row["high"]


def sirc_by_hand(train, test, s1, parts):
    """SIRC as its paper writes it, with norms and residuals of explicit projections."""
    x, h = np.asarray(train.features), np.asarray(test.features)
    p = np.exp(np.asarray(test.logits))
    p /= p.sum(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(x.T @ x)  # the head has no bias, so the origin is ViM's centre
    rest = vectors[:, np.argsort(values)[: x.shape[1] - x.shape[1] // 2]]
    second = {
        "norm": (np.abs(x).sum(axis=1), np.abs(h).sum(axis=1)),
        "residual": (-np.linalg.norm(x @ rest, axis=1), -np.linalg.norm(h @ rest, axis=1)),
    }
    product = 1.0 - p.max(axis=1) if s1 == "msp" else -(p * np.log(p)).sum(axis=1)
    for name in parts:
        known, judged_rows = second[name]
        a, b = known.mean() - 3 * known.std(), 1 / known.std()
        product = product * (1 + np.exp(-b * (judged_rows - a)))
    return -product


@pytest.mark.parametrize(
    ("spec", "s1", "parts"),
    [
        ("sirc(s1='entropy', s2='norm')", "entropy", ("norm",)),
        ("sirc(s1='msp', s2='residual')", "msp", ("residual",)),
        ("sirc(s1='entropy', s2=('norm', 'residual'))", "entropy", ("norm", "residual")),
    ],
)
def test_the_two_scores_of_sirc_are_settings_of_a_benchmark(spec, s1, parts, made, tmp_path):
    _, path, _ = made
    results, _ = judged(path, tmp_path, scores=["msp", spec], best=1)
    (name,) = {row["score"] for row in results.rows if row["score"].startswith("sirc")}
    assert scorer(name).spec == scorer(spec).spec
    opened = Run.open(path)
    both = Outputs.concat([opened["test"], opened["close"]])
    conf = sirc_by_hand(opened["train"], both, s1, parts)
    row = value(results, score=name, pair=None, shift="close", protocol="joint", metric="f1")
    assert row["value"] == pytest.approx(metrics.f1(both.correct, conf, both.is_id).value, abs=1e-12)
    kept = both.correct | ~both.is_id
    row = value(results, score=name, pair=None, shift="close", protocol="fd_shifts", metric="aurc")
    assert row["value"] == pytest.approx(metrics.aurc(both.correct[kept], conf[kept]), abs=1e-12)


def test_published_forms_stand_beside_the_exact_values(made, tmp_path):
    _, path, exact = made
    results, _ = judged(path, tmp_path, method="published", scores=["msp", "energy"])
    opened = Run.open(path)
    both = Outputs.concat([opened["test"], opened["close"]])
    msp, energy = twofold.probability(both), scorer("energy").score(both)  # the paper takes MSP as a probability
    here = {"score": "msp", "shift": "close", "protocol": "joint"}
    row = value(results, **here, pair="energy", metric="ds_aurc_published")
    assert row["value"] == metrics.ds_aurc(both.correct, msp, energy, both.is_id, method="published")
    assert (row["better"], row["low"], row["resamples"]) == ("lower", None, None)
    row = value(results, **here, pair=None, metric="f1_published")
    assert row["value"] == metrics.f1(both.correct, msp, both.is_id, method="published").value
    row = value(results, **here, pair=None, metric="aurc_id_published")
    assert row["value"] == metrics.aurc(both.correct, msp, is_id=both.is_id, coverage="id", estimator="published")
    same = {**here, "pair": "energy", "metric": "ds_f1"}
    assert value(results, **same)["value"] == value(exact, **same)["value"]
    sets = [
        value(results, **{**here, "shift": s}, pair="energy", metric="ds_f1_published") for s in ("close", "closer")
    ]
    near = value(results, **{**here, "shift": "near"}, pair="energy", metric="ds_f1_published")
    assert near["value"] == pytest.approx(np.mean([row["value"] for row in sets]))
    with pytest.raises(InvalidInput, match="method"):
        run(BENCHMARK, [path], tmp_path, method="grid")


def test_near_is_the_mean_of_its_sets_and_corruption_of_its_levels(made):
    results = made[2]
    for metric in ("f1", "aurc_id"):
        parts = [
            value(results, score="knn", pair=None, shift=s, protocol="joint", metric=metric)["value"]
            for s in ("close", "closer")
        ]
        near = value(results, score="knn", pair=None, shift="near", protocol="joint", metric=metric)
        assert near["value"] == pytest.approx(np.mean(parts))
    parts = [
        value(results, score="msp", shift=f"corruption/{k}", protocol="fd_shifts", metric="aurc")["value"]
        for k in (1, 2)
    ]
    mean = value(results, score="msp", shift="corruption", protocol="fd_shifts", metric="aurc")["value"]
    assert mean == pytest.approx(np.mean(parts))


def test_replicates_are_resamples_of_each_set(made):
    """A slow loop draws the rows of each set by its name and calls the metric on them."""
    from zlib import crc32

    _, path, results = made
    opened = Run.open(path)
    conf = {name: scorer("energy").score(opened[name]) for name in ("test", "close")}
    weights = {name: twofold.stats.draws(120, 20, seed=(0, crc32(name.encode()))) for name in conf}
    expected = []
    for i in range(20):
        rows = {name: np.repeat(np.arange(120), weights[name][i]) for name in conf}
        right = np.concatenate([opened["test"].correct[rows["test"]], np.zeros(120, bool)])
        inside = np.arange(240) < 120
        drawn = np.concatenate([conf[name][rows[name]] for name in ("test", "close")])
        expected.append(metrics.f1(right, drawn, inside).value)
    where = ("toy", "energy", None, "close", "joint", "f1")
    assert results.replicates[where] == pytest.approx(np.array(expected))


def test_settings_are_chosen_by_the_rule_of_the_protocol(made):
    _, path, results = made
    opened = Run.open(path)
    joint = value(results, score="knn", pair=None, shift="close", protocol="joint", metric="f1")
    shifts = value(results, score="knn", pair=None, shift="close", protocol="fd_shifts", metric="aurc")
    assert (joint["tuned"], shifts["tuned"]) == ("OOD-tuned", "ID-tuned")
    both = Outputs.concat([opened["val"], opened["strangers"]])
    trials = [scorer("knn", k=k).fit(opened["train"]) for k in KNN_TRIALS]
    best = max(trials, key=lambda one: metrics.auroc(both.is_id, one.score(both)))
    chosen = scorer(joint["chosen"]).fit(opened["train"])
    assert np.array_equal(chosen.score(both), best.score(both))
    tempered = value(results, score="msp", pair=None, shift="close", protocol="stratified", metric="aurc")
    assert tempered["chosen"].startswith("temperature")
    assert value(results, score="knn", shift="validation", protocol="fd_shifts")["metric"] == "aurc"


def test_projected_scores_are_judged_behind_the_temperature_of_the_validation_logits(tmp_path):
    path = world(tmp_path / "toy")
    results = run(BENCHMARK, [path], tmp_path / "out", scores=["msp", "project|msp"], protocols=["stratified"])
    opened = Run.open(path)
    val = opened["val"]

    def nll(t):
        z = val.logits / t
        z = z - z.max(axis=1, keepdims=True)
        return np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), val.labels])

    scales = np.linspace(0.05, 5, 4951)
    best = scales[np.argmin([nll(t) for t in scales])]
    row = value(results, score="project|msp", pair=None, shift="close", protocol="stratified", metric="augrc")
    assert row["chosen"].startswith("temperature|project")
    project = scorer(row["chosen"].removeprefix("temperature|")).fit(opened["train"], val=val)
    sets = [opened["test"], opened["close"]]
    logits = np.concatenate([project.steps[0].run(one)["logits"] for one in sets]) / best
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    conf = (prob / prob.sum(axis=1, keepdims=True)).max(axis=1)
    correct = np.concatenate([opened["test"].correct, np.zeros(len(opened["close"]), bool)])
    inside = np.concatenate([np.ones(len(opened["test"]), bool), np.zeros(len(opened["close"]), bool)])
    keep = correct | ~inside
    assert row["value"] == pytest.approx(metrics.augrc(correct[keep], conf[keep]), abs=2e-3)
    plain = scorer(row["chosen"].removeprefix("temperature|")).fit(opened["train"], val=val)
    unscaled = np.concatenate([plain.score(one) for one in sets])
    assert row["value"] != metrics.augrc(correct[keep], unscaled[keep])


def test_a_second_run_computes_nothing_and_gives_the_same(made):
    folder, path, results = made
    again, tasks = judged(path, folder / "out")
    assert tasks == 0
    assert again.to_dicts() == results.to_dicts()
    assert (folder / "out" / "results.csv").exists()


def test_a_new_score_costs_only_itself(made):
    folder, path, _ = made
    _, tasks = judged(path, folder / "out", scores=[*SCORES, "gini"])
    # its confidences by three rules, three single cells, and one pair under the one protocol that has pairs;
    # its pair may take a place among the best two
    assert 7 <= tasks <= 9
    _, tasks = judged(path, folder / "out", scores=[*SCORES, "gini"])
    assert tasks == 0


def test_changed_data_are_computed_again(made, tmp_path, monkeypatch):
    path = world(tmp_path / "toy")
    judged(path, tmp_path / "out")
    values, seen = runner.measure_views, set()

    def watched(views, *rest):
        seen.update(view.sets for view in views)
        return values(views, *rest)

    monkeypatch.setattr(runner, "measure_views", watched)
    Run.open(path).add("noise", outputs("other", "far"), role="far", replace=True)
    results, _ = judged(path, tmp_path / "out")
    assert seen
    assert all("noise" in sets for sets in seen)
    fresh, _ = judged(path, tmp_path / "other")
    assert [r["value"] for r in results.rows] == [r["value"] for r in fresh.rows]
    again, _ = judged(path, tmp_path / "out", seed=5)  # other resamples, the same values
    assert [r["value"] for r in again.rows] == [r["value"] for r in fresh.rows]
    assert [r["low"] for r in again.rows] != [r["low"] for r in fresh.rows]


def test_damaged_entries_are_computed_again(made, tmp_path):
    path = world(tmp_path / "toy")
    before, _ = judged(path, tmp_path / "out")
    files = sorted((tmp_path / "out" / "cells").iterdir())
    files[0].write_bytes(b"junk")
    content = bytearray(files[1].read_bytes())
    content[-3] ^= 1  # one bit of a number
    files[1].write_bytes(content)
    files[2].write_bytes(files[3].read_bytes()[:100])
    after, tasks = judged(path, tmp_path / "out")
    assert tasks > 0
    assert after.to_dicts() == before.to_dicts()


def test_what_is_missing_is_in_the_table_with_its_reason(tmp_path):
    path = world(tmp_path / "toy", without=("noise", "fog/2"))
    results, _ = judged(path, tmp_path / "out", scores=["msp", "mc_msp"], pairs=[("msp", "msp")])
    absent = [row["shift"] for row in results.rows if row["reason"] == "the run does not hold this data set"]
    assert absent == ["noise", "fog/2"]
    failed = [row for row in results.rows if row["score"] == "mc_msp"]
    assert {row["protocol"] for row in failed} == set(BENCHMARK.protocols)
    assert all("passes" in row["reason"] and np.isnan(row["value"]) for row in failed)
    with pytest.raises(InvalidInput, match="holds no data set of role test"):
        run(BENCHMARK, [world(tmp_path / "other", without=("test",))], tmp_path / "out")
    with pytest.raises(InvalidInput, match="given twice"):
        run(BENCHMARK, [path, path], tmp_path / "out")
    with pytest.raises(InvalidInput, match="has 3 classes, but digits has 7"):
        run(load("digits"), [path], tmp_path / "out")


def test_a_full_disk_leaves_nothing_wrong(tmp_path, monkeypatch):
    path = world(tmp_path / "toy")
    written = runner.Cache.write
    count = 0

    def full(self, name, entry):
        nonlocal count
        count += 1
        if count > 5:
            raise RunError("no space left")
        written(self, name, entry)

    monkeypatch.setattr(runner.Cache, "write", full)
    with pytest.raises(RunError, match="no space left"):
        judged(path, tmp_path / "out")
    assert not (tmp_path / "out" / "results.csv").exists()
    monkeypatch.undo()
    results, _ = judged(path, tmp_path / "out")
    fresh, _ = judged(path, tmp_path / "fresh")
    assert results.to_dicts() == fresh.to_dicts()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        judged(world(tmp_path / "toy"), tmp_path / "file")


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import test_runner as t
t.judged({path!r}, {out!r}, jobs={jobs}, engine={engine!r}, address={address!r})
"""


def test_killed_and_run_again_ends_with_the_same(made, tmp_path):
    path = world(tmp_path / "toy")
    code = SCRIPT.format(
        here=os.path.dirname(__file__), path=str(path), out=str(tmp_path / "out"), jobs=1, engine="local", address=None
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    cells = tmp_path / "out" / "cells"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not cells.exists() or len(list(cells.glob("*.safetensors"))) < 4):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(cells.glob("*.safetensors")))
    assert done >= 4
    results, tasks = judged(path, tmp_path / "out")
    fresh, whole = judged(path, tmp_path / "fresh")
    assert tasks < whole
    assert results.to_dicts() == fresh.to_dicts()


def test_several_processes_give_the_same(made, tmp_path):
    pytest.importorskip("joblib", reason="joblib is not installed")
    _, path, results = made
    again, _ = judged(path, tmp_path / "out", jobs=2)
    assert again.to_dicts() == results.to_dicts()


def run_and_lose_a_worker(path, out, pid, **options):
    """Run the benchmark on a cluster, kill a worker in the middle, and return the results."""
    killed = []

    def done(label, count, total):
        if count == 2 and "values" in label and not killed:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    results = run(BENCHMARK, [path], out, scores=SCORES, resamples=20, best=2, done=done, **options)
    assert killed
    return results


def check_nothing_lost_nothing_twice(again, results):
    assert again.to_dicts() == results.to_dicts()
    keys = [(r["score"], r["pair"], r["shift"], r["protocol"], r["metric"]) for r in again.rows]
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker(made, tmp_path):
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    _, path, results = made
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        address = cluster.scheduler_address
        client.wait_for_workers(2)
        pid = next(iter(client.run(os.getpid).values()))
        again = run_and_lose_a_worker(path, tmp_path / "out", pid, engine="dask", address=address)
    check_nothing_lost_nothing_twice(again, results)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_a_ray_cluster_that_loses_a_worker(made, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    _, path, results = made
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        pid = ray.get(ray.remote(lambda: os.getpid()).remote())  # a worker that takes tasks of the benchmark too
        again = run_and_lose_a_worker(path, tmp_path / "out", pid, engine="ray")
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        ray.shutdown()
    check_nothing_lost_nothing_twice(again, results)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_ray_starts_its_own_cluster(made, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    _, path, results = made
    again, _ = judged(path, tmp_path / "out", jobs=2, engine="ray")
    ray.shutdown()
    assert again.to_dicts() == results.to_dicts()
