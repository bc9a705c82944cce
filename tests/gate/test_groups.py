"""Rows in groups: the p-value on the edge of the null, promises counted over thousands of worlds, splits, warnings."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import norm

from twofold.errors import DependentRows, Infeasible, InvalidInput
from twofold.gate import Gate, grouped, guarantee
from twofold.gate.thresholds import ScoredSamples
from twofold.outputs import Outputs
from twofold.run import Run

RIGHT, WRONG, OUTSIDE = 0, 1, 2
RISK, DELTA = 0.15, 0.1


class Scenes:
    """Groups of rows that share their kind with probability ``same`` and a part ``rho`` of their noise.

    Each row by itself is drawn as in a world of independent rows, so the risk of a pair of thresholds is known. With
    ``easy``, groups of twice the size hold more correct labels: the risk is then that of rows, not of groups.
    """

    def __init__(self, sizes, same=0.9, rho=0.8, easy=False, share=0.2, good=0.9):
        self.sizes, self.same, self.rho, self.easy, self.share = np.array(sizes), same, rho, easy, share
        self.good = np.where(self.sizes == self.sizes.max(), 0.95, good) if easy else np.full(len(sizes), good)
        self.means = np.array([[1.8, 2.0], [0.0, 2.0], [0.0, 0.0]])

    def kinds(self, good):
        return np.array([(1 - self.share) * good, (1 - self.share) * (1 - good), self.share])

    def draw(self, rng, groups, share=None):
        which = rng.integers(len(self.sizes), size=groups)
        size = self.sizes[which]
        code = np.repeat(np.arange(groups), size)
        table = np.array([self.kinds(good) for good in self.good])
        edges = np.cumsum(table, axis=1)
        own = (rng.random(len(code))[:, None] > edges[which[code]]).sum(axis=1)
        common = (rng.random(groups)[:, None] > edges[which]).sum(axis=1)
        kind = np.where(rng.random(len(code)) < self.same, common[code], own)
        shared = rng.normal(size=(groups, 2))[code]
        noise = math.sqrt(self.rho) * shared + math.sqrt(1 - self.rho) * rng.normal(size=(len(code), 2))
        one, two = (self.means[kind] + noise).T
        return ScoredSamples(kind == RIGHT, kind != OUTSIDE, one, two, share, code)

    def true_risk(self, pair, share=None):
        """Of rows; ``share`` gives ID and OOD rows other weights than they have here."""
        rate = norm.sf(pair[0] - self.means[:, 0]) * norm.sf(pair[1] - self.means[:, 1])
        kinds = (self.sizes[:, None] * np.array([self.kinds(good) for good in self.good])).sum(axis=0)
        kinds = kinds / kinds.sum()
        if share is not None:
            kinds = np.append(kinds[:2] / kinds[:2].sum() * (1 - share), share)
        mass = kinds * rate
        return 1 - mass[RIGHT] / mass.sum()

    def coverage(self, pair):
        rate = norm.sf(pair[0] - self.means[:, 0]) * norm.sf(pair[1] - self.means[:, 1])
        kinds = self.kinds(self.good.mean())
        return kinds[:2] @ rate[:2] / kinds[:2].sum()


WORLDS = {
    "copies": (Scenes([5], same=1.0, rho=1.0), 300, None),
    "scenes": (Scenes([40], same=0.7, rho=0.5), 120, None),
    "sizes": (Scenes([1, 3, 10, 30]), 400, None),
    "easy": (Scenes([2, 20], easy=True, good=0.8), 200, None),
    "share": (Scenes([4, 8], same=0.5, rho=0.5), 250, 0.3),
}


def chosen(data, risk=RISK, delta=DELTA, by_group=True):
    groups = data.groups if by_group else None
    data = ScoredSamples(data.correct, data.is_id, data.conf_id, data.conf_ood, data.share, groups)
    learn, test = guarantee.split(data.is_id, data.share, groups)
    a, b = data[learn], data[test]
    return guarantee.walk(a, b, a.curve(), risk, delta)


def count(name, worlds, by_group=True, seed=0):
    """Broken promises, promises, and the mean coverage of these, over worlds of one kind."""
    world, groups, share = WORLDS[name]
    rng, broken, covered = np.random.default_rng(seed), 0, []
    for _ in range(worlds):
        pair = chosen(world.draw(rng, groups, share), by_group=by_group)
        if pair is not None:
            broken += world.true_risk(pair, share) > RISK
            covered.append(world.coverage(pair))
    return broken, len(covered), float(np.mean(covered)) if covered else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_promises_on_groups_are_broken_in_at_most_a_share_delta_of_worlds(name):
    """2,000 worlds of each kind; what happens without the groups is printed beside it."""
    worlds = 2000
    broken, found, covered = count(name, worlds)
    alone = count(name, 300, by_group=False)
    print(f"\n{name}: broken {broken} of {worlds}, promised {found}, coverage {covered:.3f}; as rows, of 300: {alone}")
    assert broken / worlds <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / worlds)
    assert found > 0.3 * worlds  # a promise never made is never broken


def test_rows_of_a_few_worlds_break_the_promise_that_groups_keep():
    rows, groups = (count("scenes", 24, by_group=by_group) for by_group in (False, True))
    assert rows[0] > 24 * DELTA + 3 * math.sqrt(0.09 * 24)
    assert groups[0] <= 24 * DELTA + 3 * math.sqrt(0.09 * 24)
    assert groups[1] >= 12


@pytest.mark.parametrize("name", ["copies", "sizes", "easy"])
def test_the_group_p_value_is_valid_on_the_edge_of_the_null(name):
    """A pair whose risk is just above what is tested: p is at most delta in at most a share delta of draws."""
    world, groups, share = WORLDS[name]
    pairs = np.array([[0.5, 0.5]])
    risk = world.true_risk(pairs[0], share) - 1e-9
    rng, draws, low = np.random.default_rng(1), 200, 0
    for _ in range(draws):
        learn, test = (world.draw(rng, n, share) for n in (groups // 3, groups))
        low += grouped.GroupTest(learn, test, pairs, risk, DELTA).p_values(slice(0, 1))[0] <= DELTA
    assert low / draws <= DELTA + 3 * math.sqrt(0.09 / draws)


def test_the_excess_of_a_group_is_that_of_a_loop():
    world, groups, _ = WORLDS["share"]
    data = world.draw(np.random.default_rng(0), groups, 0.3)
    pairs = np.array([[1.5, 1.5], [0.2, 1.0], [-np.inf, -np.inf]])
    first = grouped.first_accepting(data, pairs)
    inside, outside = int(data.is_id.sum()), int((~data.is_id).sum())
    weight = 0.3 / 0.7 * inside / outside
    for i, (a, b) in enumerate(pairs):
        want = np.zeros(groups)
        for row in range(len(data.correct)):
            if data.conf_id[row] >= a and data.conf_ood[row] >= b:
                failed = 0.0 if data.correct[row] else 1.0
                want[data.groups[row]] += (1.0 if data.is_id[row] else weight) * (failed - 0.1)
        assert grouped.excess(data, first <= i, 0.1) == pytest.approx(want)


@pytest.mark.parametrize("share", [None, 0.3])
def test_no_group_is_split(share):
    world, groups, _ = WORLDS["share"]
    data = world.draw(np.random.default_rng(0), groups, share)
    learn, test = guarantee.split(data.is_id, share, data.groups)
    assert not set(data.groups[learn]) & set(data.groups[test])
    assert sorted([*learn, *test]) == list(range(len(data.correct)))
    assert 0.2 < len(set(data.groups[learn])) / groups < 0.4


def test_groups_of_one_row_are_rows():
    data = Scenes([1]).draw(np.random.default_rng(0), 400)
    outputs = outputs_of(data)
    asked = {"objective": "risk", "risk": 0.15, "delta": 0.1}
    one = Gate.fit(outputs, "confidnet", "devries", **asked)
    two = Gate.fit(outputs, "confidnet", "devries", groups=np.arange(400), **asked)
    assert one.taus() == two.taus()
    assert (one.promise.groups, two.promise.groups) == (None, 400)


def outputs_of(data, **fields):
    """Outputs whose ``learned`` confidences are the two scores."""
    labels = np.where(data.is_id, np.where(data.correct, 0, 1), -1)
    logits = np.tile([1.0, 0.0], (len(labels), 1))
    return Outputs(logits, labels, learned={"confidnet": data.conf_id, "devries": data.conf_ood}, **fields)


@pytest.fixture(scope="module")
def scenes():
    return WORLDS["sizes"][0].draw(np.random.default_rng(3), 400)


ASKED = {"objective": "risk", "risk": 0.25, "delta": 0.1}


def test_groups_are_taken_from_the_call_the_outputs_or_the_run(scenes, tmp_path):
    names = np.array([f"scene {code}" for code in scenes.groups])
    plain, carrying = outputs_of(scenes), outputs_of(scenes, groups=names)
    want = Gate.fit(plain, "confidnet", "devries", groups=scenes.groups, **ASKED)
    assert want.taus() == chosen(scenes, risk=0.25)
    assert want.promise.groups == 400
    assert Gate.fit(carrying, "confidnet", "devries", **ASKED).taus() == want.taus()
    assert Gate.fit(carrying.replace(groups=None), "confidnet", "devries", **ASKED).taus() != want.taus()
    run = Run.create(tmp_path / "run", model="toy")
    run.add("val", carrying, role="val")
    assert Gate.fit(run, "confidnet", "devries", **ASKED).taus() == want.taus()
    want.save(tmp_path / "gate")
    again = Gate.load(tmp_path / "gate")
    assert again.promise == want.promise
    assert "400 independent groups" in str(again)
    assert "independent" in str(Gate.fit(plain, "confidnet", "devries", **ASKED))


def test_wrong_groups_are_clear_errors(scenes, tmp_path):
    outputs = outputs_of(scenes)
    with pytest.raises(InvalidInput, match="groups has 3"):
        Gate.fit(outputs, groups=[1, 2, 3])
    with pytest.raises(InvalidInput, match="groups must be integers or strings"):
        Gate.fit(outputs, groups=np.linspace(0, 1, len(outputs)))
    with pytest.raises(InvalidInput, match="at least 2 groups"):
        Gate.fit(outputs, "confidnet", "devries", groups=np.zeros(len(outputs), int), **ASKED)
    run = Run.create(tmp_path / "run", model="toy")
    run.add("val", outputs_of(scenes, groups=scenes.groups), role="val")
    run.add("far", outputs, role="ood_val")
    with pytest.raises(InvalidInput, match="far has no groups"):
        Gate.fit(run, "confidnet", "devries", **ASKED)


def test_few_groups_are_infeasible_however_many_rows():
    data = Scenes([500], same=1.0).draw(np.random.default_rng(0), 6)
    with pytest.raises(Infeasible, match="6 groups"):
        Gate.fit(outputs_of(data), "confidnet", "devries", groups=data.groups, objective="risk", risk=0.05, delta=0.1)


def test_copies_are_noticed():
    data = Scenes([1]).draw(np.random.default_rng(0), 300)
    outputs = outputs_of(data)
    copies = np.repeat(np.arange(300), 5)
    with pytest.warns(DependentRows, match=r"1200 of 1500 validation rows are exact copies"):
        gate = Gate.fit(outputs[copies], "confidnet", "devries", **ASKED)
    assert any("exact copies" in caution for caution in gate.promise.cautions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gate.fit(outputs[copies], "confidnet", "devries", groups=copies, **ASKED)
        Gate.fit(outputs, "confidnet", "devries", **ASKED)
        Gate.fit(outputs[copies], "confidnet", "devries")  # nothing is guaranteed
    across = np.arange(1500)
    with pytest.warns(DependentRows, match="of another group"):
        Gate.fit(outputs[copies], "confidnet", "devries", groups=across, **ASKED)


@pytest.mark.parametrize("share", [None, 0.3])
def test_a_report_card_on_groups_has_wider_intervals(share):
    world = Scenes([40], same=0.7, rho=0.5)
    rng = np.random.default_rng(5)
    gate = Gate.fit(outputs_of(world.draw(rng, 100)), "confidnet", "devries", ood_share=share)
    data = world.draw(rng, 100)
    rows, groups = gate.report_card(outputs_of(data)), gate.report_card(outputs_of(data, groups=data.groups))
    assert groups.risk == rows.risk
    assert (rows.groups, groups.groups) == (None, 100)
    for name in ("risk", "coverage"):
        one, two = getattr(rows, f"{name}_interval"), getattr(groups, f"{name}_interval")
        assert two[0] < one[0] < getattr(rows, name) < one[1] < two[1]
    assert "independent samples" in str(rows)
    assert "100 independent groups" in str(groups)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copies", "scenes", "sizes", "easy", "share"])
def test_intervals_of_groups_hold_the_true_risk(name):
    world, groups, share = WORLDS[name]
    rng, pair, missed, worlds = np.random.default_rng(2), (0.8, 0.8), 0, 500
    truth = world.true_risk(pair, share)
    for _ in range(worlds):
        data = world.draw(rng, groups, share)
        taken = (data.conf_id >= pair[0]) & (data.conf_ood >= pair[1])
        weight = grouped.row_weights(data)
        part, whole, size = (
            np.bincount(data.groups, v) for v in (weight * taken * ~data.correct, weight * taken, weight)
        )
        low, high = grouped.ratio_interval(part, whole, size, 0.05)
        missed += not low <= truth <= high
    print(name, missed / worlds)
    assert missed / worlds <= 0.05


def test_groups_are_split_by_their_kind_in_the_golden_ratio():
    """With a share: groups of ID rows alone, of OOD rows alone, and of both, also where one row decides."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(["id", "ood", "both"], size=60)
    rows = {"id": [True] * 3, "ood": [False] * 2, "both": [True, True, False]}
    is_id = np.array([row for kind in kinds for row in rows[kind]])
    groups = np.array([g for g, kind in enumerate(kinds) for _ in rows[kind]])
    learns = set()
    for kind in ("id", "ood", "both"):
        for i, g in enumerate(np.flatnonzero(kinds == kind)):
            if i == 0 or (0.5 + i * (math.sqrt(5) - 1) / 2) % 1 < 0.3:
                learns.add(int(g))
    learn, test = guarantee.split(is_id, 0.2, groups)
    assert {int(groups[row]) for row in learn} == learns
    assert sorted([*learn, *test]) == list(range(len(is_id)))
    assert not {int(groups[row]) for row in test} & learns
