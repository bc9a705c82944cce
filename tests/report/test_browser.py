"""The page in a real browser: Chromium, headless, driven by Selenium."""

import json
import shutil
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from example import samples, unpacked

from twofold.gate.thresholds import Costs
from twofold.metrics.operating_points import operating_point
from twofold.report import charts, report
from twofold.report.html import read_static

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"),
    "--force-prefers-reduced-motion",  # no smooth scrolling under a click
)
COSTS = Costs(1.0, 1.0, 0.2)  # those the page starts with


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    control = shutil.which("chromedriver")
    if browser is None or control is None:
        pytest.skip("there is no Chromium with its chromedriver here")
    options = Options()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(control))
    yield made
    made.quit()


@pytest.fixture
def open_page(driver, page):
    """The page, fresh, at a width."""

    def opened(width=1400, file=page):
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(file.as_uri())
        return driver

    yield opened
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.fixture(scope="module")
def pairs(page):
    text = page.read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start : text.index("</script>", start)])["explorer"]["pairs"]


def shown(driver, key):
    from selenium.webdriver.common.by import By

    return float(driver.find_element(By.ID, f"x-{key}").get_attribute("data-value"))


def put(driver, element, value):
    """Move a slider, choose an option or fill a field, as a hand would: with the event that follows."""
    driver.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))",
        element,
        str(value),
    )


def expected(run, pair, tau_id, tau_ood, share=None, costs=COSTS):
    """What the explorer must show, sample by sample."""
    correct, is_id, near, conf_id, conf_ood = samples(run, pair)
    taken = (conf_id >= tau_id) & (conf_ood >= tau_ood)
    ids, oods = int(is_id.sum()), int((~is_id).sum())
    weight = 1.0 if share is None else share / (1 - share) * ids / oods
    right, known, outside = (int((taken & kind).sum()) for kind in (correct, is_id, ~is_id))
    point = operating_point(right, known, weight * outside, ids)
    paid = 0.0
    for i in range(len(correct)):
        one = 1.0 if is_id[i] else weight
        if not taken[i]:
            paid += one * costs.reject
        elif not correct[i]:
            paid += one * (costs.wrong if is_id[i] else costs.ood)
    return {
        "true_accept": right,
        "false_accept_ood": outside,
        "false_accept_mistakes": known - right,
        "false_reject": int((correct & ~taken).sum()),
        "kind-near": int((taken & near).sum()),
        "kind-far": outside - int((taken & near).sum()),
        "f1": point["value"],
        **{name: point[name] for name in ("precision", "recall", "risk", "coverage")},
        "cost": paid / (ids + weight * oods),
    }


def check(driver, run, pair, **asked):
    tau_id, tau_ood = shown(driver, "id-tau"), shown(driver, "ood-tau")
    for key, value in expected(run, pair, tau_id, tau_ood, **asked).items():
        assert shown(driver, key) == pytest.approx(value, rel=1e-9, abs=1e-12), key
    return tau_id, tau_ood


def test_sliders_show_the_numbers_of_the_library(open_page, run, pairs):
    driver = open_page()
    tau_id, tau_ood, _ = unpacked(pairs[0])
    check(driver, run, pairs[0])
    rng = np.random.default_rng(0)
    for _ in range(10):
        i, j = int(rng.integers(len(tau_id))), int(rng.integers(len(tau_ood)))
        put(driver, "x-id", i)
        put(driver, "x-ood", j)
        assert check(driver, run, pairs[0]) == (tau_id[i], tau_ood[j])


def test_keys_move_a_slider_and_the_map(open_page, run, pairs):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    driver = open_page()
    tau_id, tau_ood, _ = unpacked(pairs[0])
    i, j = pairs[0]["start"]
    driver.find_element(By.ID, "x-id").send_keys(Keys.ARROW_RIGHT)
    assert check(driver, run, pairs[0]) == (tau_id[i + 1], tau_ood[j])
    driver.find_element(By.ID, "x-map").send_keys(Keys.ARROW_UP + Keys.ARROW_LEFT)
    assert check(driver, run, pairs[0]) == (tau_id[i + 2], tau_ood[j - 1])


def test_share_costs_and_pairs_change_the_numbers(open_page, run, pairs):
    driver = open_page()
    put(driver, "x-share", 5)
    put(driver, "x-wrong", 3)
    put(driver, "x-unknown", 7.5)
    put(driver, "x-reject", 0.25)
    asked = {"share": 0.05, "costs": Costs(3.0, 7.5, 0.25)}
    check(driver, run, pairs[0], **asked)
    put(driver, "x-pair", 1)
    check(driver, run, pairs[1], **asked)
    put(driver, "x-share", "")
    check(driver, run, pairs[1], costs=Costs(3.0, 7.5, 0.25))


def test_a_click_on_the_map_chooses_its_pair(open_page, run, pairs):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    driver = open_page()
    tau_id, tau_ood, _ = unpacked(pairs[0])
    image = driver.find_element(By.CSS_SELECTOR, "#x-map image")
    for across, up in ((0.25, 0.25), (0.9, 0.6), (0.503, 0.1)):
        box = driver.execute_script("return arguments[0].getBoundingClientRect().toJSON()", image)
        dx, dy = round((across - 0.5) * box["width"]), round((0.5 - up) * box["height"])
        ActionChains(driver).move_to_element_with_offset(image, dx, dy).click().perform()
        found_id, found_ood = check(driver, run, pairs[0])
        assert abs(np.searchsorted(tau_id, found_id) - up * len(tau_id)) <= 2
        assert abs(np.searchsorted(tau_ood, found_ood) - across * len(tau_ood)) <= 2


def test_buttons_find_the_best_on_the_grid(open_page, run, pairs):
    from selenium.webdriver.common.by import By

    driver = open_page()
    tau_id, tau_ood, _ = unpacked(pairs[0])
    correct, is_id, _, conf_id, conf_ood = samples(run, pairs[0])
    f1, cost = [], []
    for a in tau_id:
        for b in tau_ood:
            taken = (conf_id >= a) & (conf_ood >= b)
            right, bad = (taken & correct).sum(), (taken & ~correct).sum()
            f1.append(2 * right / (right + bad + is_id.sum()))
            cost.append((bad + 0.2 * (~taken).sum()) / len(taken))
    driver.find_element(By.ID, "x-best").click()
    assert shown(driver, "f1") == pytest.approx(max(f1))
    driver.find_element(By.ID, "x-cheap").click()
    assert shown(driver, "cost") == pytest.approx(min(cost))
    driver.find_element(By.ID, "x-start").click()
    i, j = pairs[0]["start"]
    assert (shown(driver, "id-tau"), shown(driver, "ood-tau")) == (tau_id[i], tau_ood[j])


def test_copied_commands_give_the_numbers_shown(open_page, run, tmp_path, monkeypatch):
    import shlex

    from click.testing import CliRunner
    from selenium.webdriver.common.by import By

    from twofold.cli import main

    def invoked(element, *more):
        words = shlex.split(driver.find_element(By.ID, element).text)
        assert words[0] == "twofold"
        done = CliRunner().invoke(main, [*words[1:], *more])
        promised = any(one in words[3] for one in ("-coverage", "-risk"))  # which this small run may not keep
        assert done.exit_code in ((0, 1) if promised else (0,)), done.output
        return words, done

    monkeypatch.chdir(tmp_path)
    driver = open_page()
    every = sum(len(run[name]) for role in ("test", "near", "far") for name in run.names(role))
    unknown = every - len(run["test"])
    for expected_share in ("", 10):
        put(driver, "x-share", expected_share)
        share = unknown / every if expected_share == "" else 0.1
        for button in ("x-start", "x-best", "x-cheap"):
            driver.find_element(By.ID, button).click()
            folders = set()
            for goal in ("coverage", "cost", "f1", "risk", "given"):
                put(driver, "x-goal", goal)
                words, _ = invoked("x-command")
                assert words[1:3] == ["gate", "fit"]
                assert float(words[words.index("--ood-share") + 1]) == share
                assert words[-1] == "--replace"
                folders.add(words[words.index("--out") + 1])
                (card,) = json.loads(invoked("x-card", "--json")[1].stdout).values()
            assert len(folders) == 5  # none overwrites another's
            # the last gate has the very thresholds, so on the same data the very counts, coverage and risk
            for name in ("true_accept", "false_accept_ood", "false_accept_mistakes", "false_reject"):
                assert card[name] == shown(driver, name)
            for name in ("coverage", "risk", "f1"):
                assert card[name] == pytest.approx(shown(driver, name), rel=1e-9)
    driver.find_element(By.ID, "x-copy").click()
    assert driver.find_element(By.ID, "x-copy").text == "Copied"


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_overflows(open_page, width):
    driver = open_page(width)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    wide = driver.execute_script(
        "return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_the_page_on_results(open_page, results, tmp_path):
    driver = open_page(400, report(results, tmp_path / "results.html"))
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
    assert driver.execute_script("return [window.broken === undefined, twofold.explorer]") == [True, None]
    assert driver.execute_script("return document.querySelectorAll('figure .tools button').length") == 4 * 3


def test_long_names_of_rows_stay_inside_their_drawings(driver, tmp_path):
    names = ["react(percentile=90)|energy", "MMWW_mmww_MMWW_mmww_MMWW", "temperature|dice|klm_", "msp"]
    values = np.array([12.0, -3.0, 40.0, 5.0])
    groups = [(name, values) for name in names]
    rows, columns = ["a_class_of_22_letters!" for _ in names], ["another_name_of_a_class" for _ in names]
    drawings = [
        charts.bar_rows(dict(zip(names, values, strict=True)), "gain", "About"),
        charts.interval_rows(names, values, values - 1, values + 1, "value", "About"),
        charts.box_rows(groups, "value", "About"),
        charts.heat_map(np.eye(4), rows, columns, "About", names),
        charts.rank_rows(names, np.arange(1.0, 5.0), [names[:2]], names[:2], "About"),
        charts.member_map(names, columns, np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), "About"),
    ]
    file = tmp_path / "drawings.html"
    style = read_static("chart.css")
    file.write_text(f"<meta charset=utf-8><style>{style} :root {{--text: #000}}</style>{''.join(drawings)}", "utf-8")
    driver.get(file.as_uri())
    outside = driver.execute_script(
        "return [...document.querySelectorAll('svg text')].filter((text) => {"
        "const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();"
        "return box.left < frame.left || box.right > frame.right || box.top < frame.top })"
        ".map((text) => text.textContent)"
    )
    assert outside == []
    assert driver.execute_script("return document.querySelectorAll('svg text').length") > 40


def test_tables_are_sorted_by_their_heads(open_page, run):
    from selenium.webdriver.common.by import By

    driver = open_page()
    cells = "[data-table='overconfident'] tbody tr td:last-child"
    head = driver.find_element(By.CSS_SELECTOR, "[data-table='overconfident'] thead th:last-child button")
    for direction in (1, -1):
        head.click()
        values = [float(cell.get_attribute("data-value")) for cell in driver.find_elements(By.CSS_SELECTOR, cells)]
        assert values == sorted(values, key=lambda x: direction * x)
        assert len(values) == 12


def test_no_text_of_the_run_ran_and_nothing_was_fetched(open_page):
    driver = open_page()
    assert driver.execute_script("return window.broken === undefined")
    fetched = driver.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []
    assert driver.execute_script("return document.querySelectorAll('script').length") == 3


def test_light_and_dark(open_page):
    from selenium.webdriver.common.by import By

    driver = open_page()
    colour = "return getComputedStyle(document.body).backgroundColor"
    button = driver.find_element(By.ID, "theme")
    light = driver.execute_script(colour)
    button.click()
    dark = driver.execute_script(colour)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    button.click()
    assert driver.execute_script(colour) == light


def test_figures_and_tables_can_be_saved(open_page, pairs, tmp_path):
    from selenium.webdriver.common.by import By

    driver = open_page()
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    driver.execute_script(
        "const cells = document.querySelector('[data-table=joint]').tBodies[0].rows[0].cells;"
        "for (const [text, i] of [['=1+1', 0], ['-2.5', 1]])"
        "{ cells[i].textContent = text; delete cells[i].dataset.value; }"
    )
    wanted = ["risk-coverage.svg", "risk-coverage.png", "risk-coverage.csv", "surface.svg", "surface.png", "joint.csv"]
    for name in wanted:
        key, form = name.rsplit(".", 1)
        where = f"[data-figure='{key}'] .tools button" if key != "joint" else "[data-table='joint'] .tools button"
        buttons = {b.text.lower(): b for b in driver.find_elements(By.CSS_SELECTOR, where)}
        driver.execute_script("arguments[0].click()", buttons[form])
        for _ in range(100):
            if (tmp_path / name).exists():
                break
            time.sleep(0.05)
    drawn = ElementTree.parse(tmp_path / "risk-coverage.svg").getroot()
    assert drawn.tag.endswith("svg")
    assert "--k0" in "".join(drawn.itertext())  # its colours came along
    for name in ("risk-coverage.png", "surface.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    lines = (tmp_path / "risk-coverage.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "curve,coverage,risk"
    assert len(lines) > 100
    head, first = (tmp_path / "joint.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert head.startswith("unknown inputs,scores,accuracy %")
    assert first.startswith("'=1+1,-2.5,")  # no formula in a spreadsheet; a number stays one


def test_a_move_takes_a_few_milliseconds(open_page):
    driver = open_page()
    spent = driver.execute_script(
        "const start = performance.now(); const { explorer } = twofold;"
        "for (let k = 0; k < 200; k++) { explorer.go(k % 190, (7 * k) % 190); document.body.offsetHeight; }"
        "return (performance.now() - start) / 200"
    )
    assert spent < 50
