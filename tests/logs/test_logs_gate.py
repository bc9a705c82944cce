"""Cards, alarms and verdicts over tables agree with those of arrays."""

import json
import os
from datetime import datetime, timedelta

import numpy as np
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

from click.testing import CliRunner
from log_sources import as_believed_file, as_source, random_rows

from twofold import Gate, logs
from twofold.cli import main
from twofold.errors import InvalidInput

ENGINES = ("parquet", "duckdb", "polars", "lazy", "pyarrow", "pandas", "dask")


@pytest.fixture(scope="module")
def gate():
    rows = random_rows(n=2000, seed=1)
    return Gate.fit_confidences(
        rows["correct"], rows["conf"], rows["conf_ood"], is_id=rows["is_id"], objective="coverage", coverage=0.7
    )


def logged(n=600, seed=2, drift_from=None):
    rows = random_rows(n=n, seed=seed)
    if drift_from is not None:
        rows["conf_ood"][drift_from:] -= 3.0
    start = datetime(2026, 1, 30, 12)
    rows["time"] = [start + timedelta(minutes=10 * place) for place in range(n)]
    return rows


def verdicts_of(gate, rows):
    return gate.decide_confidences(rows["conf"], rows["conf_ood"]).verdict


@pytest.mark.parametrize("engine", ENGINES)
def test_cards_agree_with_arrays(gate, engine, tmp_path):
    rows = logged()
    source = as_source(rows, engine, tmp_path / "rows")
    reference = gate.card_confidences(rows["correct"], rows["conf"], rows["conf_ood"], is_id=rows["is_id"])
    card = logs.card(gate, source)
    assert card.report.to_dict() == reference.to_dict()
    verdicts = verdicts_of(gate, rows)
    assert card.verdicts == {name: int((verdicts == name).sum()) for name in ("accept", "unsure", "unknown")}
    low, high = card.intervals["accept"]
    assert low < card.rates["accept"] < high
    cards = logs.card(gate, source, by="model")
    own = np.array(rows["model"]) == "m2"
    expected = gate.card_confidences(
        rows["correct"][own], rows["conf"][own], rows["conf_ood"][own], is_id=rows["is_id"][own]
    )
    assert cards["m2"].report.to_dict() == expected.to_dict()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_gate_accepts_nan(gate, engine, tmp_path):
    rows = logged(n=60)
    rows["conf"][:3] = np.nan
    rows["conf_ood"][2:6] = np.nan
    ranked = {name: np.where(np.isnan(rows[name]), -np.inf, rows[name]) for name in ("conf", "conf_ood")}
    expected = verdicts_of(gate, ranked)
    source = as_source(rows, engine, tmp_path / "rows")  # statistics of Parquet files leave NaN out
    found = logs.card(gate, source).verdicts
    assert found == {name: int((expected == name).sum()) for name in ("accept", "unsure", "unknown")}
    shown = repr(logs.card(gate, source))
    assert len(shown) < 200
    assert "60 rows" in shown


@pytest.mark.parametrize("kind", ["relation", "query", "structure", "narwhals"])
def test_no_gate_accepts_nan_that_statistics_of_files_leave_out(gate, kind, tmp_path):
    import duckdb
    import narwhals as nw

    rows = logged(n=60)
    rows["conf"][:3] = np.nan
    rows["conf_ood"][2:6] = np.nan
    rows["inside"] = [{"conf": value} for value in rows["conf"].tolist()]
    rows["row"] = np.arange(60)
    ranked = {name: np.where(np.isnan(rows[name]), -np.inf, rows[name]) for name in ("conf", "conf_ood")}
    expected = verdicts_of(gate, ranked)
    path = as_believed_file(rows, tmp_path / "rows.parquet")
    connection = duckdb.connect()
    source, conf = connection.read_parquet(path), "conf"
    if kind == "query":
        source = connection, f"SELECT * FROM '{path}'"
    if kind == "structure":
        conf = nw.col("inside").struct.field("conf")
    if kind == "narwhals":
        source = nw.from_native(source)
    counts = {name: int((expected == name).sum()) for name in ("accept", "unsure", "unknown")}
    assert logs.card(gate, source, conf_id=conf).verdicts == counts
    verdicts = nw.from_native(logs.apply(gate, source, conf_id=conf)).collect().sort("row")["verdict"]
    assert verdicts.to_list() == expected.tolist()
    logs.apply(gate, source, conf_id=conf, to=tmp_path / "verdicts.parquet")
    written = nw.read_parquet(str(tmp_path / "verdicts.parquet"), backend="pyarrow").sort("row")
    assert written["verdict"].to_list() == expected.tolist()
    windows = logs.watch(gate, source, conf_id=conf).windows
    found = {name: sum(getattr(window, name) for window in windows) for name in counts}
    assert found == counts


def test_cards_and_replays_are_small_and_escaped_in_notebooks(gate):
    rows = logged()
    rows["model"] = [f"<i>{name}" for name in rows["model"]]
    source = as_source(rows, "pyarrow", None)
    cards = logs.card(gate, source, by="model")
    assert repr(cards) == "LogCards(600 rows in 4 groups by model)"
    assert "&lt;i&gt;m1" in cards._repr_html_()
    assert "<i>" not in cards._repr_html_()
    assert "95 % interval" in cards["<i>m1"]._repr_html_()
    replay = logs.watch(gate, source, every="6h")
    assert repr(replay).startswith("Watch(600 verdicts in")
    assert "log e" in replay._repr_html_()


def test_a_card_without_labels_has_verdict_rates(gate):
    rows = logged()
    columns = {name: rows[name] for name in ("conf", "conf_ood")}
    card = logs.card(gate, as_source(columns, "pyarrow", None))
    assert card.report is None
    assert sum(card.verdicts.values()) == 600
    assert json.loads(json.dumps(card.to_dict()))["report"] is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("every", ["1d", "6h", "1mo"])
def test_a_replay_is_the_monitor_of_each_window(gate, engine, every, tmp_path):
    rows = logged(drift_from=300)
    replay = logs.watch(gate, as_source(rows, engine, tmp_path / "rows"), every=every)
    monitor = gate.monitor()
    verdicts = verdicts_of(gate, rows)
    keys = {
        "1d": lambda t: t.date(),
        "6h": lambda t: (t.date(), t.hour // 6),
        "1mo": lambda t: (t.year, t.month),
    }
    windows = np.array([str(keys[every](moment)) for moment in rows["time"]])
    expected = []
    for window in dict.fromkeys(windows.tolist()):
        alarm = monitor.update(verdicts[windows == window])
        expected.append((monitor.log_e, alarm))
    assert [(window.log_e, window.alarm) for window in replay.windows] == expected
    assert replay.alarm
    assert replay.monitor.counts == monitor.counts


def test_a_resumed_replay_counts_nothing_twice_and_misses_nothing(gate, tmp_path):
    rows = logged(drift_from=400)
    part = {name: values[:250] for name, values in rows.items()}
    whole = logs.watch(gate, as_source(rows, "pyarrow", None), every="6h")
    first = logs.watch(gate, as_source(part, "pyarrow", None), every="6h")
    first.save(tmp_path / "watch.json")
    second = logs.watch(gate, as_source(rows, "pyarrow", None), every="6h", resume=tmp_path / "watch.json")
    assert second.monitor.counts == whole.monitor.counts
    assert second.monitor.log_e == whole.monitor.log_e
    assert second.first_alarm == whole.first_alarm
    with pytest.raises(InvalidInput, match="windows of 6h"):
        logs.watch(gate, as_source(rows, "pyarrow", None), every="1d", resume=tmp_path / "watch.json")
    other = Gate.fit_confidences([1, 0, 1], [0.9, 0.1, 0.8], [0.9, 0.5, 0.4])
    with pytest.raises(InvalidInput, match="another gate"):
        logs.watch(other, as_source(rows, "pyarrow", None), every="6h", resume=tmp_path / "watch.json")
    text = (tmp_path / "watch.json").read_text()
    (tmp_path / "watch.json").write_text(text.replace("6h", "7h"))
    with pytest.raises(InvalidInput):
        logs.watch(gate, as_source(rows, "pyarrow", None), every="7h", resume=tmp_path / "watch.json")


def test_logged_verdicts_are_counted(gate):
    rows = logged()
    columns = {"time": rows["time"], "said": verdicts_of(gate, rows).tolist()}
    replay = logs.watch(gate, as_source(columns, "duckdb", None), verdict="said")
    assert replay.monitor.counts == logs.watch(gate, as_source(rows, "duckdb", None)).monitor.counts
    columns["said"][3] = "perhaps"
    with pytest.raises(InvalidInput, match="1 rows hold something else"):
        logs.watch(gate, as_source(columns, "duckdb", None), verdict="said")
    columns["time"][4] = None
    with pytest.raises(InvalidInput, match="time is null in 1 rows"):
        logs.watch(gate, as_source(columns, "duckdb", None), verdict="said")
    with pytest.raises(InvalidInput, match="time must hold times"):
        logs.watch(gate, as_source(rows, "duckdb", None), time="conf")
    with pytest.raises(InvalidInput, match="every must be"):
        logs.watch(gate, as_source(rows, "duckdb", None), every="fortnight")


def test_a_replay_is_drawn(gate):
    pytest.importorskip("matplotlib").use("agg")
    rows = logged(drift_from=300)
    axes = logs.watch(gate, as_source(rows, "pyarrow", None)).plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["accept", "unsure", "unknown", "alarm"]
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize("engine", ENGINES)
def test_verdicts_are_added(gate, engine, tmp_path):
    rows = logged()
    rows["conf"][:4] = [np.inf, -np.inf, gate.tau_id, np.nextafter(gate.tau_id, -np.inf)]
    rows["conf_ood"][:4] = [np.inf, np.inf, gate.tau_ood, np.inf]
    expected = verdicts_of(gate, rows)
    rows["conf"][4], rows["conf_ood"][5] = np.nan, np.nan
    expected[4] = "unsure" if rows["conf_ood"][4] >= gate.tau_ood else "unknown"
    expected[5] = "unknown"
    rows["row"] = np.arange(600)
    added = logs.apply(gate, as_source(rows, engine, tmp_path / "rows"))
    import narwhals as nw

    found = nw.from_native(added).lazy().collect().sort("row")
    assert found["verdict"].to_list() == expected.tolist()
    margin = found["margin_id"].to_numpy()[6:]
    assert margin == pytest.approx((rows["conf"] - gate.tau_id)[6:])
    with pytest.raises(InvalidInput, match="a column verdict already"):
        logs.apply(gate, added)


def test_one_score_and_missing_columns(gate):
    one = Gate.fit_confidences([1, 0, 1], [0.9, 0.1, 0.8])
    rows = logged()
    assert set(logs.apply(one, as_source(rows, "pyarrow", None))["verdict"].to_pylist()) <= {"accept", "unsure"}
    with pytest.raises(InvalidInput, match="one score"):
        logs.apply(one, as_source(rows, "pyarrow", None), conf_ood="conf_ood")
    with pytest.raises(InvalidInput, match="no column conf_ood"):
        logs.apply(gate, as_source({"conf": rows["conf"]}, "pyarrow", None))
    with pytest.raises(InvalidInput, match="must be a Gate"):
        logs.apply("gate", as_source(rows, "pyarrow", None))


# The command line


def run(*arguments):
    return CliRunner().invoke(main, ["logs", *map(str, arguments)])


def test_commands(gate, tmp_path):
    rows = logged(drift_from=300)
    pattern = as_source(rows, "parquet", tmp_path / "rows")
    gate.save(tmp_path / "gate")
    done = run("evaluate", pattern, "--by", "model,date(time)", "--metric", "aurc,f1", "--json")
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["by"] == ["model", "date(time)"]
    assert content["groups"][0]["group"] == ["m0", "2026-01-30"]
    text = run("evaluate", pattern, "--conf-ood", "conf_ood", "--intervals", "--resamples", 20)
    assert "ds_aurc_monotone" in text.stdout
    assert "exact value in" in run("evaluate", pattern, "--bins", 8).stdout
    card = run("card", tmp_path / "gate", pattern, "--by", "model", "--json")
    assert card.exit_code in (0, 1)
    assert json.loads(card.stdout)["by"] == ["model"]
    watch = run("watch", tmp_path / "gate", pattern, "--save", tmp_path / "w.json", "--plot", tmp_path / "w.png")
    assert watch.exit_code == 1, watch.stderr
    assert "alarm since the window of" in watch.stdout
    assert (tmp_path / "w.png").stat().st_size > 1000
    again = run("watch", tmp_path / "gate", pattern, "--resume", tmp_path / "w.json", "--json")
    assert json.loads(again.stdout)["alarm"] is True
    out = tmp_path / "verdicts.parquet"
    assert run("apply", tmp_path / "gate", pattern, "--out", out).exit_code == 0
    assert run("apply", tmp_path / "gate", pattern, "--out", out).exit_code == 2
    assert run("watch", tmp_path / "gate", out, "--verdict", "verdict").exit_code == 1
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["evaluate", "missing.parquet"], 3, "no Parquet, CSV or JSON-lines file matches"),
        (["evaluate", "ROWS", "--conf", "confi"], 2, "did you mean 'conf'"),
        (["evaluate", "ROWS", "--where", "drop table x"], 2, "no column 'drop'"),
        (["evaluate", "ROWS", "--memory", "much"], 3, "DuckDB does not start"),
        (["card", "nogate", "ROWS"], 3, "nogate"),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, tmp_path):
    pattern = as_source(logged(n=50), "parquet", tmp_path / "rows")
    done = run(*[pattern if argument == "ROWS" else argument for argument in arguments])
    assert done.exit_code == code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


COMMANDS = {
    "evaluate": ["evaluate", "TABLE"],
    "counted": ["evaluate", "TABLE", "--bins", "64"],
    "card": ["card", "GATE", "TABLE"],
    "watch": ["watch", "GATE", "TABLE"],
    "apply": ["apply", "GATE", "TABLE", "--out", "OUT"],
}


def broken_table(kind, folder):
    """Write a file that is broken in one way, and return it with what the error must say."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table({name: pa.array(values) for name, values in logged(n=60).items()})
    path = folder / f"{kind}.csv"
    pyarrow.csv.write_csv(table, path)
    lines = path.read_text().splitlines()
    if kind == "empty":
        lines = []
    if kind == "long":
        lines[30] += ",1,2"
    if kind == "short":
        lines[30] = "true,0.5"
    if kind == "quote":
        lines[30] = '"' + lines[30]
    if kind == "grown":  # DuckDB alone takes the second head for the first, and leaves out the rows before it
        lines = [line.rpartition(",")[0] for line in lines[:20]] + lines
    path.write_text("".join(f"{line}\n" for line in lines))
    if kind == "array":
        path = folder / "array.json"
        path.write_text('[{"conf": 0.5, "correct": true}]')
        return path, "does not hold JSON lines"
    if kind == "truncated":
        path = folder / "truncated.parquet"
        pyarrow.parquet.write_table(table, path)
        path.write_bytes(path.read_bytes()[:-100])
        return path, "cannot be read"
    return path, "is empty" if kind == "empty" else "cannot be split into columns"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["empty", "long", "short", "quote", "grown", "array", "truncated"])
def test_broken_files_are_one_error_and_leave_nothing(gate, kind, command, tmp_path):
    path, message = broken_table(kind, tmp_path)
    gate.save(tmp_path / "gate")
    before = sorted(tmp_path.iterdir())
    words = {"TABLE": path, "GATE": tmp_path / "gate", "OUT": tmp_path / "out.parquet"}
    done = run(*[words.get(word, word) for word in COMMANDS[command]])
    assert done.exit_code == 3, done.output
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_broken_csv_file_beside_whole_ones_is_an_error(gate, tmp_path):
    head = "correct,conf,conf_ood,msp,raw|msp\n"
    whole = head + "1,0.5,0.5,1,1\n" * 50
    (tmp_path / "0.csv").write_text(whole)
    assert logs.evaluate(tmp_path).n == 50  # names of columns may hold a delimiter of other files
    (tmp_path / "1.csv").write_text(head + "1,0.5,0.5,1,1\n" * 20 + "1,0.5\n" + "1,0.5,0.5,1,1\n" * 20)
    with pytest.raises(InvalidInput, match="cannot be split into columns"):
        logs.card(gate, tmp_path)


def test_no_row_of_a_csv_file_is_taken_for_a_comment(gate, tmp_path):
    path = tmp_path / "rows.csv"
    lines = ["id,correct,conf,conf_ood"]
    for place in range(500):
        lines.append("# 3,1,0.5,0.5" if place % 7 else f"a{place},1,0.5,0.5")
    path.write_text("\n".join(lines))
    assert logs.evaluate(path).n == 500
    assert sum(logs.card(gate, path).verdicts.values()) == 500


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate", "TABLE", "--by", "nested"], "--by must name columns of texts, numbers, dates or booleans"),
        (["evaluate", "TABLE", "--by", "nested", "--bins", "64"], "--by must name columns of texts"),
        (["card", "GATE", "TABLE", "--by", "nested"], "--by must name columns of texts"),
        (["evaluate", "TABLE", "--where", "1"], "--where must be true or false in each row, got Int"),
        (["evaluate", "TABLE", "--where", "conf"], "--where must be true or false in each row, got Float64"),
        (["evaluate", "TABLE", "--where", "true"], "where must differ by row"),
        (["card", "GATE", "TABLE", "--where", "model > 1"], "the table cannot be read"),
        (["card", "GATE", "TABLE", "--conf-id", "model"], "--conf-id must hold numbers, got String"),
        (["watch", "GATE", "TABLE", "--conf-ood", "model"], "--conf-ood must hold numbers, got String"),
        (["apply", "GATE", "TABLE", "--conf-id", "nested", "--out", "OUT"], "--conf-id must hold numbers, got List"),
        (["apply", "GATE", "TABLE", "--out", "TABLE", "--replace"], "is one of the files that are read"),
        (["watch", "GATE", "TABLE", "--plot", "PLOT"], "must end in .png, .svg, .pdf"),
    ],
)
def test_unfit_columns_and_targets_are_one_error(gate, command, message, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    rows = logged(n=60)
    rows["nested"] = [[value] for value in rows["conf"].tolist()]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.table({name: pa.array(values) for name, values in rows.items()}), path)
    content = path.read_bytes()
    gate.save(tmp_path / "gate")
    before = sorted(tmp_path.iterdir())
    words = {"TABLE": path, "GATE": tmp_path / "gate", "OUT": tmp_path / "out.parquet", "PLOT": tmp_path / "a.xyz"}
    done = run(*[words.get(word, word) for word in command])
    assert done.exit_code == 3, done.output
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert path.read_bytes() == content


def test_a_table_that_changes_while_verdicts_are_written_leaves_no_file(gate, tmp_path, monkeypatch):
    from twofold.logs.tables import LogTable

    pattern = as_source(logged(n=60), "parquet", tmp_path / "rows")
    original = LogTable.check_unchanged

    def change_first(table):
        (tmp_path / "rows" / "0.parquet").touch()
        original(table)

    monkeypatch.setattr(LogTable, "check_unchanged", change_first)
    with pytest.raises(InvalidInput, match="changed while it was read"):
        logs.apply(gate, pattern, to=tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_what_a_killed_process_left_is_removed(gate, tmp_path):
    import subprocess
    import sys

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".out.parquet.{ended.pid}.part"
    in_use = tmp_path / f".out.parquet.{os.getppid()}.part"
    for path in (left, in_use):
        path.touch()
    logs.apply(gate, as_source(logged(n=60), "pyarrow", None), to=tmp_path / "out.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == [in_use.name, "out.parquet"]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_query_of_duckdb_is_an_interrupt(gate, tmp_path):
    import signal
    import threading

    import duckdb

    query = "SELECT sqrt(a.range * b.range) AS conf, conf AS conf_ood FROM range(100000) a, range(100000) b"
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        logs.card(gate, (duckdb.connect(), query))
    timer.join()


def test_decisions_of_a_gate_are_a_log(tmp_path):
    from twofold import Outputs

    rng = np.random.default_rng(0)
    labels = np.append(rng.integers(0, 3, 200), [-1] * 40)
    logits = rng.normal(size=(240, 3)) + 3 * np.eye(4)[labels][:, :3]
    gate = Gate.fit(Outputs(logits, labels))
    table = gate.decide(Outputs(logits)).to_arrow(label=labels, time=datetime(2026, 1, 1), model="m")
    assert table.column_names[:6] == ["id", "time", "model", "label", "prediction", "conf_id"]
    card = logs.card(gate, table)
    assert card.report.to_dict() == gate.report_card(Outputs(logits, labels)).to_dict()
    result = logs.evaluate(table, conf_ood="conf_ood")
    assert (result.n_id, result.n_ood) == (200, 40)
    with pytest.raises(InvalidInput, match="time has 1 rows but there are 240"):
        gate.decide(Outputs(logits)).to_arrow(time=[datetime(2026, 1, 1)])
    np.savez(tmp_path / "live.npz", logits=logits, labels=labels)
    gate.save(tmp_path / "gate")
    command = ["gate", "apply", tmp_path / "gate", tmp_path / "live.npz", "--parquet", tmp_path / "v.parquet"]
    done = CliRunner().invoke(main, [str(word) for word in command])
    assert done.exit_code == 0, done.stderr
    assert logs.evaluate(tmp_path / "v.parquet", conf_ood="conf_ood").to_dict() == result.to_dict()
