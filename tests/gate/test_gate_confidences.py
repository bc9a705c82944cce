"""Gates of plain confidences: thresholds against brute force, cards, files, and every way they are refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.cli import main
from twofold.errors import Infeasible, InvalidInput, UnfitData
from twofold.gate import Gate
from twofold.outputs import Outputs


def answers(n=200, seed=0, two=False):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.8
    correct = is_id & (rng.random(n) < 0.7)
    conf = np.round(rng.normal(size=n) + 1.5 * correct, 1)  # with ties, as judges give them
    return correct, conf, np.round(rng.normal(size=n) + 2 * is_id, 1) if two else None, is_id


@pytest.mark.parametrize("seed", range(6))
def test_the_risk_is_met_at_the_largest_coverage_of_all_thresholds(seed):
    correct, conf, _, _ = answers(60, seed)
    best = 0.0
    for tau in set(conf):
        taken = [i for i in range(len(conf)) if conf[i] >= tau]
        if sum(not correct[i] for i in taken) / len(taken) <= 0.2:
            best = max(best, len(taken) / len(conf))
    try:
        gate = Gate.fit_confidences(correct, conf, objective="risk", risk=0.2)
    except Infeasible:
        assert best == 0.0
    else:
        assert gate.promise.seen_coverage == pytest.approx(best)
        assert gate.promise.seen_risk <= 0.2


@pytest.mark.parametrize("objective", [{"objective": "f1"}, {"objective": "coverage", "coverage": 0.6}])
def test_two_confidences_choose_what_a_gate_of_two_scores_chooses(objective):
    """Log-odds of two classes as the ID score and the sum of exponentials as the OOD score, computed here."""
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1, -1], 60)
    logits = rng.normal(size=(180, 2)) + 3 * np.eye(3, 2)[labels]
    odds = np.abs(logits[:, 0] - logits[:, 1])
    energy = np.log(np.exp(logits).sum(axis=1))
    correct, is_id = logits.argmax(axis=1) == labels, labels >= 0
    own = Gate.fit_confidences(correct, odds, energy, is_id=is_id, **objective)
    usual = Gate.fit(Outputs(logits, labels), "msp", "energy", **objective)
    assert own.taus() == pytest.approx(tuple(usual.taus()))
    assert own.decide_confidences(odds, energy).verdict.tolist() == usual.decide(Outputs(logits)).verdict.tolist()
    assert usual.decide_confidences(odds, energy).verdict.tolist() == usual.decide(Outputs(logits)).verdict.tolist()
    card = own.card_confidences(correct, odds, energy, is_id=is_id)
    assert card == usual.report_card(Outputs(logits, labels))


def test_verdicts_by_hand():
    gate = Gate.fit_confidences(
        [True, False], [0.9, 0.1], [5.0, 1.0], is_id=[True, False], objective="given", thresholds=(0.5, 2.0)
    )
    decision = gate.decide_confidences([0.9, 0.4, 0.9, 0.5], [3.0, 3.0, 1.0, 2.0])
    assert decision.verdict.tolist() == ["accept", "unsure", "unknown", "accept"]
    assert decision.margin_id.tolist() == pytest.approx([0.4, -0.1, 0.4, 0.0])
    assert len(decision) == 4


def test_equal_confidences_are_not_called_copies():
    gate = Gate.fit_confidences(
        [True] * 90 + [False] * 10, [0.9] * 90 + [0.1] * 10, objective="risk", risk=0.1, delta=0.1
    )
    assert gate.promise.guaranteed
    assert not any("copies" in caution for caution in gate.promise.cautions)


def test_groups_are_counted():
    correct, conf, _, _ = answers(400, 1)
    gate = Gate.fit_confidences(correct, conf, objective="risk", risk=0.4, delta=0.2, groups=np.arange(400) // 4)
    assert gate.promise.groups == 100


def test_save_load_and_monitor(tmp_path):
    correct, conf, second, is_id = answers(300, 2, two=True)
    gate = Gate.fit_confidences(correct, conf, second, is_id=is_id)
    gate.save(tmp_path / "gate")
    again = Gate.load(tmp_path / "gate")
    assert again.taus() == gate.taus()
    assert again.to_dict() == gate.to_dict()
    live = again.decide_confidences(conf, second)
    assert live.verdict.tolist() == gate.decide_confidences(conf, second).verdict.tolist()
    monitor = again.monitor()
    assert monitor.update(live) is False
    assert monitor.update(["unknown"] * 400) is True


def test_the_digest_follows_the_confidences():
    one = Gate.fit_confidences([True, False], [0.9, 0.1])
    other = Gate.fit_confidences([True, False], [0.9, 0.2])
    assert one.data["validation"] != other.data["validation"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([True, False], [0.5, np.nan]), InvalidInput, "conf_id has NaN in row 1"),
        (([True, False], [0.5]), InvalidInput, "rows"),
        (([0.3, 0.9], [0.5, 0.6]), InvalidInput, "correct"),
        (([True, False], [0.5, 0.6], [1.0]), InvalidInput, "rows"),
        (([], []), InvalidInput, "correct|conf_id"),
    ],
)
def test_bad_arrays_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Gate.fit_confidences(*arguments)


def test_bad_requests_are_refused():
    with pytest.raises(UnfitData, match="at least one ID"):
        Gate.fit_confidences([False], [0.1], is_id=[False])
    with pytest.raises(InvalidInput, match="correct must be False on OOD"):
        Gate.fit_confidences([True, True], [0.1, 0.2], is_id=[True, False])
    with pytest.raises(InvalidInput, match="needs risk="):
        Gate.fit_confidences([True, False], [0.9, 0.1], objective="risk")
    one = Gate.fit_confidences([True, False], [0.9, 0.1])
    two = Gate.fit_confidences([True, False], [0.9, 0.1], [0.9, 0.1])
    with pytest.raises(InvalidInput, match="leave conf_ood out"):
        one.decide_confidences([0.5], [0.5])
    with pytest.raises(InvalidInput, match="pass conf_ood="):
        two.decide_confidences([0.5])
    with pytest.raises(InvalidInput, match="pass conf_ood="):
        two.card_confidences([True], [0.5])
    with pytest.raises(InvalidInput, match="needs learned"):
        one.decide(Outputs([[1.0, 0.0]]))


# The command line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    correct, conf, second, is_id = answers(300, 4, two=True)
    lines = ["id,score,second,right,inside"]
    for i in range(300):
        lines.append(f"q{i},{conf[i]},{second[i]},{str(bool(correct[i])).lower()},{int(is_id[i])}")
    (tmp_path / "answers.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, arguments)


COLUMNS = ["--column", "conf=score", "--column", "correct=right"]
BOTH = [*COLUMNS, "--column", "conf_ood=second", "--column", "is_id=inside"]


def test_a_csv_file_fits_applies_and_judges_a_gate(folder):
    fitted = run("gate", "fit", "answers.csv", *BOTH, "--out", "gate", "--json")
    assert fitted.exit_code == 0, fitted.output
    correct, conf, second, is_id = answers(300, 4, two=True)
    own = Gate.fit_confidences(correct, conf, second, is_id=is_id)
    assert Gate.load("gate").to_dict() == own.to_dict()
    applied = run("gate", "apply", "gate", "answers.csv", *BOTH, "--json")
    records = json.loads(applied.stdout)
    assert [record["verdict"] for record in records] == own.decide_confidences(conf, second).verdict.tolist()
    assert (records[7]["input"], records[7]["label"]) == ("q7", None)
    judged = run("gate", "card", "gate", "answers.csv", *BOTH, "--json")
    card = json.loads(judged.stdout)["answers"]
    assert card["risk"] == own.card_confidences(correct, conf, second, is_id=is_id).risk


def test_evaluate_reads_the_same_file(folder):
    done = run("evaluate", "answers.csv", *COLUMNS, "--metric", "aurc", "--json")
    correct, conf, _, _ = answers(300, 4, two=True)
    total = 0.0
    for tau in conf:  # the mean over samples of the risk at their threshold
        taken = conf >= tau
        total += (taken & ~correct).sum() / taken.sum()
    assert json.loads(done.stdout)["metrics"]["aurc"] == pytest.approx(total / 300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gate", "fit", "answers.csv", "--out", "g"], "has no column 'correct'; name the one"),
        (
            ["gate", "fit", "answers.csv", "--column", "conf=sorce", "--out", "g"],
            "no column 'sorce'; its columns are id",
        ),
        (["gate", "fit", "answers.csv", "--column", "confidence=score", "--out", "g"], "with a field of correct, conf"),
        (["gate", "fit", "answers.csv", *COLUMNS, "--ood", "energy", "--out", "g"], "leave --ood out"),
        (
            ["gate", "fit", "answers.csv", *COLUMNS[:2], "--column", "correct=score", "--out", "g"],
            "must be true or false",
        ),
        (["gate", "fit", "answers.csv", "--column", "conf=right", *COLUMNS[2:], "--out", "g"], "must be a number, got"),
        (["evaluate", "answers.csv", *COLUMNS, "--id", "msp"], "holds no logits"),
    ],
)
def test_mistakes_on_the_command_line(folder, arguments, message):
    done = run(*arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no column"),
        ("correct,conf\n", "has no rows"),
        ("correct,conf\n1,0.5,3\n", "line 2: 3 cells but 2 columns"),
        ("correct,conf,conf\n1,0.5,0.4\n", "names a column twice"),
        ("correct,conf\n1,nan\n", "conf_id has NaN in row 0"),
        (b"\xff\xfe\x00", "not a CSV file"),
    ],
)
def test_damaged_files_are_refused(folder, content, message):
    if isinstance(content, str):
        content = content.encode()
    (folder / "bad.csv").write_bytes(content)
    done = run("gate", "fit", "bad.csv", "--out", "g")
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_columns_need_a_csv_file(folder):
    np.savez("scores.npz", correct=[True, False], conf=[0.9, 0.1])
    done = run("evaluate", "scores.npz", "--column", "conf=conf")
    assert done.exit_code == 2
    assert "none is read" in done.output
