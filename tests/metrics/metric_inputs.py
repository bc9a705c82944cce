"""Random inputs that several tests of metrics draw."""

import numpy as np
from hypothesis import strategies as st


def judged(n, seed, levels, error=0.4):
    """(correct, conf, loss): failures, tied scores, and real-valued losses."""
    rng = np.random.default_rng(seed)
    return rng.random(n) > error, rng.integers(0, levels, n) / levels, rng.random(n)


def mixed(n, seed, levels=6):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.6
    is_id[:2] = True, False
    correct = is_id & (rng.random(n) < 0.7)
    return correct, rng.integers(0, levels, n) / levels, is_id, rng.random(n)


@st.composite
def classified(draw, spread=30):
    """A few labels with logits; whole logits make ties."""
    n, c = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-spread, spread, allow_subnormal=False))
    logits = draw(st.lists(st.lists(value, min_size=c, max_size=c), min_size=n, max_size=n))
    return np.array(draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))), np.array(logits)


def pair(n, seed, levels=5, ood=0.4):
    """(correct, conf_id, conf_ood, is_id): heavily tied scores of some use, at least one ID sample."""
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) > ood
    is_id[0] = True
    correct = is_id & (rng.random(n) < 0.65)
    conf_id = rng.integers(0, levels, n) + rng.integers(0, 2, n) * correct
    conf_ood = rng.integers(0, levels, n) + rng.integers(0, 2, n) * is_id
    return correct, conf_id / 4, conf_ood / 4, is_id
