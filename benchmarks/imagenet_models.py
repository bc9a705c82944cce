"""Compare fourteen real ImageNet classifiers: is the more accurate one also more reliable, and which differ significantly?

    TWOFOLD_DATA=... python benchmarks/imagenet_models.py [--save]        (half a minute of processor time)

Accuracy, AURC, E-AURC, AUGRC, AUROC of failures and ECE of the maximum softmax probability on the 50,000 validation
images. ``--save`` writes results/imagenet_models.csv and .md. The page is made of the computed numbers, and a sentence
that they do not bear out stops the script. The metrics are resampled in imagenet_study.py, the sentences are in
imagenet_sentences.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import script  # noqa: F401  ends with one line instead of a traceback

import twofold
from imagenet_metrics import FEWER, METRICS
from imagenet_page import COMMAND, write_page
from imagenet_study import RESAMPLES, Study, compute
from timing import RESULTS
from twofold.bench.results import Results

SAME = {
    "benchmark": "imagenet-val",
    "score": "msp",
    "shift": "test",
    "role": "test",
    "level": 0.95,
    "resamples": RESAMPLES,
    "n": 50_000,
    "n_id": 50_000,
    "n_ood": 0,
    "seed": 0,
    "tuned": "untuned",
    "version": twofold.__version__,
    "command": COMMAND,
}


def main() -> None:
    """Print the page, and with --save write it with its rows."""
    study = compute()
    page = write_page(study)
    print(page)
    if "--save" in sys.argv:
        rows = [*value_rows(study), *difference_rows(study), *agreement_rows(study)]
        Results.of(rows).to_csv(RESULTS / "imagenet_models.csv")
        (RESULTS / "imagenet_models.md").write_text(page, encoding="utf-8")


def value_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield every metric of every model."""
    for metric, intervals in study.interval.items():
        better = "lower" if metric in FEWER else "higher"
        for model, interval in zip(study.names, intervals, strict=True):
            yield {
                **SAME,
                "model": model,
                "protocol": "value",
                "metric": metric,
                "value": interval.value,
                "low": interval.low,
                "high": interval.high,
                "better": better,
            }


def difference_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the paired difference of each pair of neighbours."""
    for pair in study.neighbours():
        yield {
            **SAME,
            "model": f"{study.names[pair.worse]} - {study.names[pair.better]}",
            "protocol": "paired difference",
            "metric": "augrc",
            "reason": f"p = {pair.p:.4g}, after Holm {pair.adjusted_p:.4g}",
            "value": pair.difference,
            "low": pair.low,
            "high": pair.high,
            "better": "lower",
        }


def agreement_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the rank correlations of every pair of metrics."""
    for first, second in combinations(METRICS, 2):
        for name, correlation in zip(("kendall", "spearman"), study.correlate(first, second), strict=True):
            yield {
                **SAME,
                "model": "all",
                "protocol": f"{name} of rankings",
                "metric": f"{first}, {second}",
                **correlation._asdict(),
            }


if __name__ == "__main__":
    main()
