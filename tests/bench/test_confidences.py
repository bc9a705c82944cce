"""Confidences of a benchmark: how protocols change a score before it is fitted."""

import pytest

from twofold import scorer
from twofold.bench.confidences import plan_chain
from twofold.bench.protocols import Tuning


@pytest.mark.parametrize(
    ("spec", "scaled"),
    [
        ("msp", True),
        ("project|msp", True),
        ("react|energy", True),
        ("vim", True),  # features and logits
        ("cosine_weight", True),  # the head
        ("nci", True),  # learns from the head
        ('sum(of=("knn","nci"))', True),
        ("knn", False),
        ("mds", False),  # counts the classes by the logits, and reads them no further
        ("temperature|msp", False),  # has one of its own
        ("react|temperature|energy", False),
        ("average|msp", False),  # several passes
        ("mc_entropy", False),
    ],
)
def test_a_fitted_temperature_stands_in_front_of_all_that_reads_logits_or_head(spec, scaled):
    plain, tempered = Tuning("augrc", ("val",)), Tuning("augrc", ("val",), temperature=True)
    assert plan_chain(spec, plain).spec == scorer(spec).spec
    found = plan_chain(spec, tempered).spec
    assert found == (f"temperature|{scorer(spec).spec}" if scaled else scorer(spec).spec)
