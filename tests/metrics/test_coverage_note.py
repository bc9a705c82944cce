"""Whose coverage an area is taken over is what its record says, and every table says it."""

import numpy as np
import pytest

from twofold import metrics
from twofold.bench.results import Results

AREAS = [name for name in metrics.names() if metrics.info(name).coverage is not None]
WITH_ID = [name for name in AREAS if "is_id" in metrics.info(name).arrays]


def value(name, correct, conf, is_id):
    given = {"correct": correct, "conf": conf, "conf_id": conf, "conf_ood": conf, "is_id": is_id}
    record = metrics.info(name)
    return record.value(**{array: given[array] for array in record.arrays if array in given})


@pytest.mark.parametrize("name", WITH_ID)
def test_unknown_inputs_that_are_rejected_first_change_only_areas_over_all_samples(name):
    rng = np.random.default_rng(0)
    correct = rng.random(60) < 0.7
    conf = rng.normal(size=60) + correct
    alone = value(name, correct, conf, np.ones(60, bool))
    lowest = np.full(30, conf.min() - 1)
    more = value(
        name, np.r_[correct, np.zeros(30, bool)], np.r_[conf, lowest], np.r_[np.ones(60, bool), np.zeros(30, bool)]
    )
    if metrics.info(name).coverage == "id":
        assert more == pytest.approx(alone, abs=1e-12)
    else:
        assert abs(more - alone) > 1e-3


def test_every_area_under_a_risk_coverage_curve_says_it():
    named_so = {name for name in metrics.names() if "aurc" in name or "augrc" in name}
    assert named_so | {"auarc", "prr"} == set(AREAS)


def test_tables_say_it():
    rng = np.random.default_rng(1)
    is_id = rng.random(80) < 0.7
    correct = is_id & (rng.random(80) < 0.8)
    shown = str(metrics.evaluate(correct, rng.normal(size=80), is_id=is_id, conf_ood=rng.normal(size=80)))
    assert shown.splitlines()[-1] == (
        "aurc, eaurc, augrc: coverage of all samples; aurc_id, ds_aurc: coverage of ID samples"
    )
    assert "coverage" not in str(metrics.evaluate(correct, rng.normal(size=80), only=["auroc"]))
    rows = [{"score": s, "shift": "a", "metric": "ds_aurc", "value": 0.1, "protocol": "joint"} for s in ("a", "b")]
    assert "ds_aurc (x1000), lower is better, coverage of ID samples" in Results.of(rows).overview()
