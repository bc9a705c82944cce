"""The published forms: the numbers of the released code, beside the exact ones and only when asked for."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid  # that of NumPy is called trapz before 2.0

from twofold import metrics
from twofold.errors import InvalidInput
from twofold.metrics.evaluate import add_published_forms

FORMS = {"f1": "f1_published", "aurc_id": "aurc_id_published", "ds_f1": "ds_f1_published"}
FORMS["ds_aurc"] = "ds_aurc_published"


def samples(n=60, seed=0):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.6
    is_id[:2] = True
    correct = is_id & (rng.random(n) < 0.7)
    conf = np.clip(0.4 * correct + 0.6 * rng.random(n), 0, 1)
    conf_ood = 3 * is_id + rng.normal(size=n)
    return correct, conf, conf_ood, is_id


def released(correct, conf_id, conf_ood, is_id):
    """DS-F1 and DS-AURC, one pair of thresholds after the other, as the description of the released code says."""
    scaled = (conf_ood - conf_ood.min()) / (conf_ood.max() - conf_ood.min() + 1e-12)
    inside = is_id.sum()
    steps = np.linspace(0, 1, 1001)
    first = np.unique(np.searchsorted(steps, np.float32(conf_id), side="right"))
    second = np.unique(np.searchsorted(steps, np.float32(scaled), side="right"))
    best, bins = 0.0, [[] for _ in range(100)]
    for i in {0, *first, 1000}:  # thresholds between these accept the same samples
        for j in {0, *second, 1000}:
            accepted = (np.float32(conf_id) >= steps[min(i, 1000)]) & (np.float32(scaled) >= steps[min(j, 1000)])
            right, known = (correct & accepted).sum(), (is_id & accepted).sum()
            best = max(best, 2 * right / (accepted.sum() + inside))
            place = math.floor(100 * known / inside + 1e-9)
            if place < 100:
                bins[place].append(1 - right / accepted.sum() if accepted.any() else 1.0)
    risks, later = [], 1.0
    for members in reversed(bins):
        later = min(members, default=later)
        risks.append(later)
    return best, trapezoid(risks[::-1], dx=0.01)


def test_they_are_those_of_the_released_code():
    for seed in range(3):
        correct, conf, conf_ood, is_id = samples(seed=seed)
        f1, area = released(correct, conf, conf_ood, is_id)
        assert metrics.ds_f1_published(correct, conf, conf_ood, is_id) == pytest.approx(f1, abs=1e-9)
        assert metrics.ds_aurc_published(correct, conf, conf_ood, is_id) == pytest.approx(area, abs=1e-6)


def test_each_metric_of_the_paper_has_one_and_no_other_metric():
    assert {name: metrics.published_form(name) for name in FORMS} == FORMS
    assert [name for name in metrics.names() if metrics.published_form(name)] == list(FORMS)
    assert not set(FORMS.values()) & set(metrics.names())
    for name, form in FORMS.items():
        assert metrics.is_published_form(form)
        assert not metrics.is_published_form(name)
        assert metrics.info(form).better == metrics.info(name).better
        assert metrics.info(form).coverage == metrics.info(name).coverage
        assert metrics.info(form).function is getattr(metrics, form)


def test_evaluate_puts_them_beside_the_exact_ones():
    correct, conf, conf_ood, is_id = samples()
    exact = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood)
    both = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, method="published")
    assert {name: both[name] for name in exact} == dict(exact)
    assert set(both) - set(exact) == set(FORMS.values())
    assert both["aurc_id_published"] == metrics.aurc(correct, conf, is_id=is_id, coverage="id", estimator="published")
    assert both["f1_published"] == metrics.f1(correct, conf, is_id, method="published").value
    assert add_published_forms(both) == list(dict.fromkeys(add_published_forms(exact)))
    with pytest.raises(InvalidInput, match="method"):
        metrics.evaluate(correct, conf, method="grid")


def test_scores_that_the_grid_cannot_hold_leave_them_undefined():
    correct, conf, conf_ood, is_id = samples()
    conf[3] = -math.inf
    both = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, method="published")
    assert math.isnan(both["ds_f1_published"])
    assert "finite" in both.reasons["ds_f1_published"]
    assert both["ds_f1"] > 0
    shared = metrics.evaluate(correct, conf_ood, is_id=is_id, ood_share=0.2, method="published")
    assert shared.reasons["f1_published"] == "f1_published has no form with ood_share"


def test_they_have_no_intervals():
    correct, conf, _, is_id = samples()
    table = metrics.intervals(correct, conf, is_id=is_id, only=["f1", "f1_published"], n=20)
    assert table["f1"].low <= table["f1"].value
    assert table["f1_published"].value == metrics.f1_published(correct, conf, is_id)
    assert math.isnan(table["f1_published"].low)
