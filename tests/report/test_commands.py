"""Every command of a page runs, twice, and gives the thresholds, the coverage and the risk that the page shows."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from example import world, write

from twofold import metrics
from twofold.cli import main
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.report import report
from twofold.run import Run
from twofold.scores.chain import scorer

SUMMARY = ("id", "ood", "tau_id", "tau_ood", "coverage", "risk", "ood_share", "commands")


def uneven(seed=0):
    """A run's sets, with 12 % unknown inputs in validation and 54 % in the test data."""
    sets = world(seed, rows=200, evil=False)
    sets["val", "val"] = sets["val", "val"][np.arange(150)]
    sets["other", "ood_val"] = sets["other", "ood_val"][np.arange(20)]
    sets["test", "test"] = sets["test", "test"][np.arange(340)]
    return sets


def only(sets, *roles):
    return {key: value for key, value in sets.items() if key[1] in roles}


def mixed(sets):
    """The far inputs as rows of the test set that are labelled -1."""
    parts = [sets.pop(key).replace(ids=None) for key in (("test", "test"), ("alien", "far"))]
    return sets | {("test", "test"): Outputs.concat(parts)}


RUNS = {
    "validation has another share of unknown inputs": lambda: uneven(),
    "no unknown inputs to choose on": lambda: only(uneven(), "train", "val", "test", "near", "far"),
    "no unknown inputs to judge": lambda: only(uneven(), "train", "val", "test", "ood_val"),
    "no unknown inputs at all": lambda: only(uneven(), "train", "val", "test"),
    "no test set": lambda: only(uneven(), "train", "val", "far", "ood_val"),
    "unknown rows in the test set": lambda: mixed(uneven()),
}


def read_page(page):
    """What a page embeds, and the commands that it shows."""
    text = page.read_text(encoding="utf-8")
    embedded = re.search(r'<script type="application/json" id="twofold-summary">(.*?)</script>', text, re.DOTALL)
    made = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    tables = {table["key"]: table for section in made["sections"] for table in section["tables"]}
    assert made["summary"] | {"commands": None} == json.loads(embedded[1]) | {"commands": None}
    return json.loads(embedded[1]), [row[0] for row in tables["commands"]["rows"]]


def invoked(command, *more):
    words = shlex.split(command)
    assert words[0] == "twofold"
    done = CliRunner().invoke(main, [*words[1:], *more])
    assert done.exit_code == 0, (command, done.output)
    return done


def checked(source, monkeypatch, folder, *options):
    """Write the report, run each of its commands twice in a new folder, and compare all that they give."""
    page = folder / "page.html"
    asked = ["report", str(source), "--resamples", "20", *options]
    for file in (page, page.with_suffix(".json")):
        assert CliRunner().invoke(main, [*asked, "-o", str(file)]).exit_code == 0
    summary, shown = read_page(page)
    assert tuple(summary) == SUMMARY
    assert [command.replace("report.html", "report.json") for command in summary["commands"]] == shown
    place = folder / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)
    gates, cards = [], []
    for command in summary["commands"] * 2:
        verb = " ".join(shlex.split(command)[1:3])
        done = invoked(command, *(["--json"] if verb == "gate card" else []))
        if verb == "gate fit":
            gates.append(Gate.load(shlex.split(command)[shlex.split(command).index("--out") + 1]))
        if verb == "gate card":
            cards.append(json.loads(done.stdout))
    assert (place / "report.html").read_bytes() == page.read_bytes()
    return summary, gates, cards


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
def test_commands_reproduce_the_page(make, tmp_path, monkeypatch):
    sets = make()
    run = Run.create(tmp_path / "a run", model="m")
    for (name, role), outputs in sets.items():
        run.add(name, outputs, role=role)
    summary, gates, cards = checked(run.path, monkeypatch, tmp_path)
    correct, is_id, conf = judged(run, summary)
    taken = np.all([conf[side] >= float(summary[f"tau_{side}"]) for side in conf], axis=0)
    assert summary["coverage"] == pytest.approx(taken[is_id].mean(), rel=1e-12)  # by hand
    assert summary["risk"] == pytest.approx((~correct[taken]).mean(), rel=1e-12)
    assert summary["ood_share"] == pytest.approx((~is_id).mean(), rel=1e-12)
    assert gates[0].taus() == (float(summary["tau_id"]), float(summary["tau_ood"]))
    (card,) = cards[0].values()
    assert card["samples"] == len(correct)
    assert card["coverage"] == pytest.approx(summary["coverage"], rel=1e-12)
    assert card["risk"] == pytest.approx(summary["risk"], rel=1e-9)
    assert card["kept"] == "no promise"


def judged(run, summary):
    """All rows that the headline is on, under the judged pair, by hand."""
    names = [*(run.names("test") or run.names("val")), *run.names("near"), *run.names("far")]
    chains = {side: scorer(summary[side]) for side in ("id", "ood")}
    ready = {side: c if c.ready else c.fit(run["train"], val=run["val"]) for side, c in chains.items()}
    conf = {side: np.concatenate([chain.score(run[name]) for name in names]) for side, chain in ready.items()}
    known = [run[name].labels >= 0 for name in names]
    return np.concatenate([run[name].correct for name in names]), np.concatenate(known), conf


def test_the_share_decides_the_thresholds(tmp_path, monkeypatch):
    """Where validation holds fewer unknown inputs than the data shown, its own share gives another gate."""
    run = write(tmp_path / "run", uneven(), model="m")
    summary, gates, _ = checked(run.path, monkeypatch, tmp_path)
    assert gates[0].promise.ood_share == summary["ood_share"] == pytest.approx(400 / 740)
    plain = Gate.fit(run, summary["id"], summary["ood"])
    assert plain.taus() != gates[0].taus()
    data = Outputs.concat([run["val"].replace(ids=None), run["other"].replace(ids=None)])
    conf = [chain.score(data) for chain in (gates[0].id, gates[0].ood)]
    best = metrics.ds_f1(data.correct, *conf, data.is_id, ood_share=400 / 740)
    taken = (conf[0] >= gates[0].tau_id) & (conf[1] >= gates[0].tau_ood)
    assert (taken == ((conf[0] >= best.tau_id) & (conf[1] >= best.tau_ood))).all()


def test_one_score_alone(tmp_path, monkeypatch):
    run = write(tmp_path / "run", uneven(), model="m")
    summary, gates, cards = checked(run.path, monkeypatch, tmp_path, "--id", "msp", "--ood", "none")
    assert (summary["ood"], summary["tau_ood"]) == (None, None)
    assert gates[0].taus() == (summary["tau_id"], -np.inf)
    (card,) = cards[0].values()
    assert (card["coverage"], card["risk"]) == pytest.approx((summary["coverage"], summary["risk"]), rel=1e-9)


def test_both_gates_of_the_verdict_have_commands(tmp_path, monkeypatch):
    run = write(tmp_path / "run", uneven(), model="m")
    _, gates, cards = checked(run.path, monkeypatch, tmp_path, "--id", "msp", "--ood", "energy")
    assert [gate.ood is None for gate in gates[:2]] == [False, True]
    text = (tmp_path / "page.json").read_text(encoding="utf-8")
    for pooled in (cards[0], cards[2]):
        (card,) = pooled.values()
        assert f"accepts {100 * card['coverage']:.1f} % of known inputs; {100 * card['risk']:.1f} % of what it" in text


@pytest.mark.parametrize("unknown", [True, False])
def test_a_file_of_outputs(unknown, tmp_path, monkeypatch):
    sets = uneven()
    names = [("test", "test"), *([("alien", "far")] if unknown else [])]
    both = Outputs.concat([sets[name].replace(ids=None) for name in names])
    both.to_npz(tmp_path / "-outputs.npz")
    monkeypatch.chdir(tmp_path)
    summary, gates, cards = checked(tmp_path / "-outputs.npz", monkeypatch, tmp_path)
    assert gates[0].taus() == (summary["tau_id"], summary["tau_ood"])
    (card,) = cards[0].values()
    assert (card["coverage"], card["risk"]) == pytest.approx((summary["coverage"], summary["risk"]), rel=1e-9)


def test_commands_of_results_run(results, tmp_path, monkeypatch):
    page = report(results, tmp_path / "r.json", format="json")
    tables = {t["key"]: t for s in json.loads(page.read_text(encoding="utf-8"))["sections"] for t in s["tables"]}
    monkeypatch.chdir(tmp_path)
    commands = [row[0] for row in tables["commands"]["rows"]]
    assert len(commands) == 2  # nothing of these results was ever published
    for command in commands:
        invoked(command)


def test_scores_of_a_plugin_are_imported_by_the_commands(tmp_path):
    code = """
import numpy as np
import twofold

@twofold.register_score("second_logit", paper="a test")
def second_logit(logits):
    return -np.sort(logits, axis=1)[:, -2]
"""
    (tmp_path / "own_scores.py").write_text(code)
    write(tmp_path / "run", uneven(), model="m")
    asked = ("--plugin", "own_scores", "--id", "second_logit", "--ood", "energy", "--resamples", "10")
    separate("report", "run", *asked, "-o", "page.json", folder=tmp_path)
    commands = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))["summary"]["commands"]
    own = [command for command in commands if "msp" not in command and "verify" not in command]
    assert len(own) == 4
    for command in own:
        assert "--plugin own_scores" in command
        separate(*shlex.split(command)[1:], folder=tmp_path)


def separate(*words, folder):
    """Run the command in a process of its own, which keeps no score of a plugin."""
    command = [sys.executable, "-m", "twofold.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


def test_a_page_stays_unless_told(tmp_path):
    np.savez(tmp_path / "c.npz", correct=[True, False, True, True], conf=[0.9, 0.2, 0.8, 0.7])
    (tmp_path / "r.html").write_text("mine")
    asked = ["report", str(tmp_path / "c.npz"), "-o", str(tmp_path / "r.html"), "--resamples", "10"]
    refused = CliRunner().invoke(main, asked)
    assert refused.exit_code == 2
    assert "pass --replace to overwrite it" in refused.stderr
    assert (tmp_path / "r.html").read_text() == "mine"
    assert CliRunner().invoke(main, [*asked, "--replace"]).exit_code == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_demo_and_report_choose_the_same_pair(tmp_path):
    """One rule for both, and each says how many pairs it tried."""
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "run"), "--resamples", "10"])
    assert done.exit_code == 0, done.output
    tried, best = re.search(r"best 3 of (\d+) pairs.*?\n\* (.*?)  ", done.stdout, re.DOTALL).groups()
    page = report(tmp_path / "run", tmp_path / "r.json", format="json", resamples=10)
    made = json.loads(page.read_text(encoding="utf-8"))
    assert f"{made['summary']['id']} + {made['summary']['ood']}" == best
    assert f"best of {tried} pairs by DS-F1 on validation data" in " ".join(made["sections"][0]["text"])
    scores = [scorer(name) for name in ("msp", "energy", "mls", "entropy", "gen", "knn", "mds", "vim", "neco", "fdbd")]
    assert int(tried) == len(scores) * (len(scores) + 1) // 2
    assert best == slow_best(Run.open(tmp_path / "run"), [chain.spec for chain in scores])


def slow_best(run, specs):
    """The best pair by DS-F1 on validation data, each pair tried both ways round."""
    data = Outputs.concat([run["val"], run["ood_val"]])
    chains = {spec: scorer(spec) for spec in specs}
    fitted = {spec: c if c.ready else c.fit(run["train"], val=run["val"]) for spec, c in chains.items()}
    conf = {spec: chain.score(data) for spec, chain in fitted.items()}
    found = {}
    for one in specs:
        for other in specs:
            found[one, other] = metrics.ds_f1(data.correct, conf[one], conf[other], data.is_id).value
    top = max(found.values())
    known = data.is_id
    area = {spec: metrics.aurc(data.correct[known], conf[spec][known]) for spec in specs}
    best = [pair for pair, value in found.items() if value == top and area[pair[0]] <= area[pair[1]]]
    return " + ".join(best[0])
