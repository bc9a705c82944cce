"""What ``tune`` tries: the published search grids, and values that each setting can take."""

import pytest

import twofold
from twofold.scores.chain import scorer
from twofold.scores.registry import step_names

# OpenOOD v1.5's automatic parameter search, and the norms of Cattelan & Silva (UAI 2024)
SHAPED = tuple(float(p) for p in range(65, 100, 5))
PUBLISHED = {
    "gen": {"gamma": (0.01, 0.1, 0.5, 1, 2, 5, 10), "top": (10, 50, 100, 200, 500, 1000)},
    "knn": {"k": (50, 100, 200, 500, 1000)},
    "vim": {"dim": (256, 1000)},
    "fdbd": {"center": (True, False)},
    "maxlogit_pnorm": {"p": tuple(range(9))},
    "react|energy": {"percentile": (85, 90, 95, 99)},
    "ash|energy": {"percentile": SHAPED},
    "scale|energy": {"percentile": SHAPED},
}
POSSIBLE = {
    "variance": lambda v: 0 < v < 1,
    "fraction": lambda v: 0 < v <= 1,
    "percentile": lambda v: 0 < v < 100,
    "low": lambda v: 0 < v < 100,
    "high": lambda v: 0 < v < 100,
}


def grids():
    for kind in ("score", "transform"):
        for name in step_names(kind=kind):
            for setting, values in twofold.scores.info(name).grid.items():
                yield name, setting, values


@pytest.mark.parametrize("spec", PUBLISHED)
def test_published_grids(spec):
    assert dict(scorer(spec).steps[0].info.grid) == PUBLISHED[spec]


@pytest.mark.parametrize(("name", "setting", "values"), list(grids()), ids=lambda x: x if isinstance(x, str) else "")
def test_values_are_different_possible_and_in_order(name, setting, values):
    assert len(set(values)) == len(values) > 1
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    assert numbers == sorted(numbers)
    assert all(map(POSSIBLE.get(setting, lambda v: v is not None), values))
