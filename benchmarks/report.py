"""The report: how long it takes, how large the page is, and how quickly a threshold moves in a browser.

    python benchmarks/report.py [--save]        (about two minutes; without Chromium and selenium, no browser rows)

The run has 60,000 test and unknown samples of 100 classes with 64 features and 10 scores; the large file has a million
confidences. A move is one change of both thresholds with all numbers and the map brought up to date.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from script import announce

import numpy as np

from timing import finish, row
from twofold.outputs import Head, Outputs
from twofold.report import report
from twofold.run import Run
from twofold.scores.candidates import USUAL

CLASSES, WIDTH = 100, 64
SETS = {"train": 10_000, "val": 2000, "test": 30_000, "near": 15_000, "far": 15_000, "ood_val": 1000}
MOVES = """
const start = performance.now();
for (let k = 0; k < 300; k++) { twofold.explorer.go(k % 200, (7 * k) % 200); document.body.offsetHeight; }
return (performance.now() - start) / 300;
"""
READY = "const [n] = performance.getEntriesByType('navigation'); return n.loadEventStart - n.startTime"


def run(folder):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(CLASSES, WIDTH)).astype(np.float32)
    head = Head(0.25 * means, np.zeros(CLASSES, np.float32))
    made = Run.create(folder, model="simulated")
    for role, rows in SETS.items():
        labels = rng.integers(0, CLASSES, rows)
        centre = means[labels] if role in ("train", "val", "test") else rng.normal(0.0, 0.6, (rows, WIDTH))
        features = (centre + rng.normal(0.0, 1.1, (rows, WIDTH))).astype(np.float32)
        truth = labels if role in ("train", "val", "test") else np.full(rows, -1)
        made.add(role, Outputs(head.logits(features).astype(np.float32), truth, features, head), role=role)
    return made


def million(path):
    rng = np.random.default_rng(0)
    n = 1_000_000
    inside = rng.random(n) < 0.6
    right = inside & (rng.random(n) < 0.9)
    conf, conf_ood = rng.normal(size=n) + right, rng.normal(size=n) + inside
    np.savez(path, correct=right, is_id=inside, conf=conf, conf_ood=conf_ood)
    return path


def browser():
    """Start Chromium; None where it, its driver or selenium is missing."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    control = shutil.which("chromedriver")
    if found is None or control is None:
        return None
    try:
        from selenium import webdriver
    except ImportError:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(control))


def seen(driver, case, page):
    """Measure the least time, of three visits, to a page that answers and of a move."""
    ready, move = [], []
    for _ in range(3):
        driver.get(page.as_uri())
        ready.append(driver.execute_script(READY) / 1000)
        move.append(driver.execute_script(MOVES))
    return [
        row(case, "page answers after", min(ready), "s", "<= 2"),
        row(case, "move of both thresholds", min(move), "ms", "<= 50"),
    ]


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        announce("simulating the samples, compiling kernels")
        made = run(place / "run")
        big = million(place / "big.npz")
        report(made, place / "warm.json", format="json", resamples=10)  # kernels are compiled once
        pages = {}
        for case, source in ((f"60k samples x {len(USUAL)} scores", made), ("1e6 samples", big)):
            announce(f"report of {case}")
            start = time.perf_counter()
            pages[case] = report(source, place / f"{len(pages)}.html")
            spent = time.perf_counter() - start
            rows.append(row(case, "time to write the report", spent, "s", "<= 20"))
            rows.append(row(case, "size of the page", pages[case].stat().st_size / 1e6, "MB", "<= 5"))
        driver = browser()
        if driver is not None:
            for case, page in pages.items():
                announce(f"moving thresholds in the browser, {case}")
                rows += seen(driver, case, page)
            driver.quit()
    finish("report", rows)


if __name__ == "__main__":
    main()
