"""The live page: what it counts, whom it answers, and that nothing of a file becomes markup."""

import http.client
import json
import os
import re
import shutil
import threading
import time

import numpy as np
import pytest
from click.testing import CliRunner
from example import EVIL

from twofold import Gate, Outputs
from twofold.cli import main
from twofold.errors import InvalidInput
from twofold.gate import Monitor
from twofold.report.live_page import LiveServer, export_live_page, format_live_page
from twofold.report.watched import WatchedFolder

HEADER = "id,time,label,verdict,conf_id,conf_ood\n"


def lines(verdicts, start=0, name="x"):
    return "".join(f"{name}{start + i},12:00,3,{verdict},0.5,1.5\n" for i, verdict in enumerate(verdicts))


def watched_monitor():
    monitor = Monitor(low=(0.85, 0.0, 0.0), high=(0.95, 0.1, 0.1), false_alarms=0.01)
    for _ in range(5):
        monitor.update(["accept"] * 18 + ["unsure", "unknown"])
    return monitor


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "decisions"
    place.mkdir()
    watched_monitor().save(place / "monitor.json")
    (place / "log.csv").write_text(HEADER + lines(["accept", "unknown", "accept"]), encoding="utf-8")
    return place


def only(folder, name, **options):
    streams, problems = WatchedFolder(folder, **options).look()
    (found,) = [stream for stream in streams if stream.name == name]
    return found, problems


def test_monitors_and_logs_are_counted(folder):
    monitor, problems = only(folder, "monitor.json")
    assert (monitor.monitor.counts, monitor.has_promise, problems) == ((90, 5, 5), True, {})
    log, _ = only(folder, "log.csv")
    assert (log.monitor.counts, log.has_promise) == ((2, 0, 1), False)
    assert [row["id"] for row in log.recent] == ["x0", "x1", "x2"]


def test_only_whole_new_lines_are_read(folder):
    watched = WatchedFolder(folder / "log.csv")
    watched.look()
    with open(folder / "log.csv", "a", encoding="utf-8") as file:
        file.write(lines(["unsure"], start=3) + "x4,12:00,3,acc")
    (stream,), _ = watched.look()
    assert stream.monitor.counts == (2, 1, 1)
    with open(folder / "log.csv", "a", encoding="utf-8") as file:
        file.write("ept,0.5,1.5\n")
    assert watched.look()[0][0].monitor.counts == (3, 1, 1)
    (folder / "log.csv").write_text(HEADER + lines(["unsure"]), encoding="utf-8")  # begun again
    assert watched.look()[0][0].monitor.counts == (0, 1, 0)


def test_lines_of_json_and_bad_lines(tmp_path):
    good = [json.dumps({"id": i, "verdict": verdict}) for i, verdict in enumerate(["accept", "unknown"])]
    bad = ["{", "[]", '{"verdict": "maybe"}', "\xff", "[" * 5000, '{"verdict": "accept"' + " " * 70_000 + "}"]
    (tmp_path / "log.jsonl").write_text("\n".join([*good, "", *bad]) + "\n", encoding="latin-1")
    stream, _ = only(tmp_path, "log.jsonl")
    assert stream.monitor.counts == (1, 0, 1)
    assert stream.skipped == len(bad)


def test_a_log_is_compared_with_what_the_gate_promised(folder):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    outputs = Outputs(4 * np.eye(2)[labels] + rng.normal(size=(400, 2)), labels=labels)
    gate = Gate.fit(outputs, ood=None, objective="coverage", coverage=0.95)
    (folder / "log.csv").write_text(HEADER + lines(["unsure"] * 500), encoding="utf-8")
    stream, _ = only(folder, "log.csv", gate=gate)
    by_hand = gate.monitor()
    by_hand.update(["unsure"] * 500)
    assert stream.has_promise
    assert stream.monitor.alarm
    assert stream.monitor.log_e == pytest.approx(by_hand.log_e)


def test_files_of_strangers_are_named_and_not_followed(folder, tmp_path):
    (tmp_path / "secret.csv").write_text(HEADER + lines(["accept"], name="secret"), encoding="utf-8")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "odd.json").write_text("{}", encoding="utf-8")
    (folder / "huge.json").write_bytes(b" " * (1 << 23))
    os.mkfifo(folder / "pipe.csv")
    (folder / "damaged.parquet").write_bytes(b"PAR1")
    (folder / "link.parquet").symlink_to(folder / "damaged.parquet")
    os.mkfifo(folder / "pipe.parquet")
    streams, problems = WatchedFolder(folder).look()
    assert {stream.name for stream in streams} == {"monitor.json", "log.csv"}
    tables = {"damaged.parquet", "link.parquet", "pipe.parquet"}
    assert set(problems) == {"link.csv", "odd.json", "huge.json", "pipe.csv", *tables}
    assert "secret" not in format_live_page(WatchedFolder(folder), live=False)


def test_parquet_files_are_read_whole_and_again_when_replaced(folder, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    verdicts = ["accept"] * 70 + ["odd", None] + ["unknown"] * 30
    ids = [f"row {number}" for number in range(len(verdicts))]
    table = pa.table({"id": ids, "verdict": verdicts, "conf_id": np.linspace(0, 1, len(verdicts)), "other": ids})
    parquet.write_table(table, folder / "log.parquet", row_group_size=40)
    parquet.write_table(table.select(["id"]), folder / "none.parquet")
    watched = WatchedFolder(folder)
    for _ in range(2):  # a second look counts nothing twice
        streams, problems = watched.look()
        (stream,) = [one for one in streams if one.name == "log.parquet"]
        assert tuple(stream.monitor.counts) == (70, 0, 30)
        assert stream.skipped == 2
        assert [row["id"] for row in stream.recent] == ids[-20:]
        assert set(stream.recent[0]) == {"id", "verdict", "conf_id"}
        assert "no column verdict" in problems["none.parquet"]
    parquet.write_table(table.slice(0, 10), folder / "log.parquet")
    (stream,) = [one for one in watched.look()[0] if one.name == "log.parquet"]
    assert tuple(stream.monitor.counts) == (10, 0, 0)
    monkeypatch.setattr("twofold.report.watched.MOST_ROWS", 5)
    assert "twofold logs watch" in WatchedFolder(folder).look()[1]["log.parquet"]


def test_the_page_escapes_everything_and_stands_alone(folder, tmp_path):
    text = HEADER + f'"{EVIL.replace(chr(34), chr(34) * 2)}",12:00,3,accept,0.5,1.5\n'
    (folder / "<b>.csv").write_text(text, encoding="utf-8")
    page = export_live_page(WatchedFolder(folder), tmp_path / "page.html").read_text(encoding="utf-8")
    assert EVIL not in page
    assert "<img" not in page
    assert "<b>.csv" not in page
    assert "&lt;b&gt;.csv" in page
    assert "fetch(" not in page
    assert "connect-src 'none'" in page
    assert "Served on this machine" not in page
    assert "This file stands alone" in page
    assert not re.search(r"https?://", page.replace("http://www.w3.org/2000/svg", ""))
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_rounds_long_numbers_and_explains_its_words(folder, tmp_path):
    row = "x0,12:00,3,accept,0.041087069254343451,1.5\nx1,12:00,0.12,accept,-2.5000004e-07,1.5\n"
    (folder / "log.csv").write_text(HEADER + row, encoding="utf-8")
    body = format_live_page(WatchedFolder(folder / "log.csv"), live=False)
    cells = re.findall(r'<td class="text"(?: title="([^"]*)")?>([^<]*)</td>', body)
    assert ("0.041087069254343451", "0.0410871") in cells
    assert ("-2.5000004e-07", "-2.5e-07") in cells
    assert ("", "0.12") in cells
    words = re.findall(r"<dt>(.*?)</dt>", body)
    assert words == ["accepted", "unsure", "unknown", "promised", "alarm statistic"]
    (tmp_path / "empty").mkdir()
    assert "<dt>" not in format_live_page(WatchedFolder(tmp_path / "empty"), live=False)


def test_a_statistic_that_is_cut_says_so(folder):
    monitor = watched_monitor()
    assert "drawn up to" not in format_live_page(WatchedFolder(folder), live=False)
    for _ in range(20):
        monitor.update(["unknown"] * 20)
    monitor.save(folder / "monitor.json")
    page = format_live_page(WatchedFolder(folder), live=False)
    assert "drawn up to 21.2" in page  # four times log(2 / 0.01)


@pytest.fixture
def server(folder):
    with LiveServer(WatchedFolder(folder)) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


def ask(server, path="/", host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_server_answers_its_own_address_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    answer, text = ask(server)
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert "monitor.json" in text
    assert "Served on this machine alone" in text
    for host in ("evil.example", "evil.example:80", "127.0.0.1:1", ""):
        answer, text = ask(server, host=host)
        assert answer.status == 403
        assert "monitor" not in text
    assert ask(server, host=f"localhost:{server.server_address[1]}")[0].status == 200
    for path in ("/../../etc/passwd", "/log.csv", "/body?x"):
        assert ask(server, path)[0].status == 404
    assert ask(server, method="POST")[0].status == 501


def test_a_port_in_use_is_one_line(server, folder):
    with pytest.raises(InvalidInput, match="choose another one"):
        LiveServer(WatchedFolder(folder), port=server.server_address[1])


def test_the_command(folder, tmp_path):
    done = CliRunner().invoke(main, ["watch", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["streams"]["monitor.json"]["counts"] == {"accept": 90, "unsure": 5, "unknown": 5}
    assert shown["streams"]["log.csv"]["alarm"] is None
    out = tmp_path / "page.html"
    assert CliRunner().invoke(main, ["watch", str(folder), "--export", str(out)]).exit_code == 0
    assert CliRunner().invoke(main, ["watch", str(folder), "--export", str(out)]).exit_code == 2
    assert CliRunner().invoke(main, ["watch", str(tmp_path / "none")]).exit_code == 2


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and its driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1000,1400"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


def test_new_decisions_appear_in_a_browser(browser, server, folder):
    browser.get(server.url)
    assert "log.csv" in browser.find_element("id", "main").text
    with open(folder / "log.csv", "a", encoding="utf-8") as file:
        file.write(f'"{EVIL.replace(chr(34), chr(34) * 2)}",13:37,3,unknown,0.5,1.5\n')
    deadline = time.monotonic() + 20
    while "13:37" not in browser.find_element("id", "main").text:
        assert time.monotonic() < deadline, "the page was not updated"
        time.sleep(0.2)
    assert browser.execute_script("return window.broken") is None
    assert browser.find_element("id", "status").text.startswith("Updated at")
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.find_element("id", "theme").click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1000
