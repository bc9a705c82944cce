"""Losses of the recipes: against loops over rows, closed forms and torch's own distributions; gradients checked."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold import metrics  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.ingredients import losses as L  # noqa: E402

ESTIMATORS = ["empirical", "log", "sele", "self_excluded"]


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch(n=7, classes=5, seed=0, scale=2.0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    z = scale * torch.randn((n, classes), generator=g, dtype=torch.float64)
    return z.to(dtype), torch.randint(classes, (n,), generator=g)


def softmax(row):
    e = [math.exp(v - max(row)) for v in row]
    return [v / sum(e) for v in e]


def looped(z, one):
    """Mean over rows of a function of a row's probabilities and its number."""
    return float(np.mean([one(softmax(row), i) for i, row in enumerate(z.tolist())]))


def checked(function, *tensors):
    """Gradients against finite differences."""
    return torch.autograd.gradcheck(function, [t.detach().clone().requires_grad_() for t in tensors])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy(smoothing):
    z, y = batch()

    def one(p, i):
        target = [smoothing / 5 + (1 - smoothing) * (k == y[i]) for k in range(5)]
        return -sum(t * math.log(q) for t, q in zip(target, p, strict=True))

    assert L.cross_entropy(z, y, smoothing).item() == pytest.approx(looped(z, one))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, "rows", "scalar"])
def test_mixed_cross_entropy_is_that_of_the_mixed_label(share):
    z, y = batch()
    partners = y.roll(1)
    kappa = torch.linspace(0, 1, len(y), dtype=torch.float64)
    given = {"rows": kappa, "scalar": torch.tensor(0.25)}.get(share, share)
    each = kappa.tolist() if share == "rows" else [0.25 if share == "scalar" else share] * len(y)
    soft = torch.tensor(
        [[k * (c == a) + (1 - k) * (c == b) for c in range(5)] for k, a, b in zip(each, y, partners, strict=True)]
    )
    assert L.mixed_cross_entropy(z, y, partners, given).item() == pytest.approx(
        nn.functional.cross_entropy(z, soft.double()).item()
    )


def test_mixed_with_itself_is_plain_also_when_smoothed():
    z, y = batch()
    assert L.mixed_cross_entropy(z, y, y, 0.4, 0.1).item() == pytest.approx(L.cross_entropy(z, y, 0.1).item())


def test_jsd_is_entropy_of_the_mean_minus_mean_entropy():
    views = [batch(seed=s)[0] for s in range(3)]
    p = np.stack([[softmax(row) for row in v.tolist()] for v in views])

    def entropy(q):
        return -(q * np.log(q)).sum(axis=-1)

    expected = (entropy(p.mean(axis=0)) - entropy(p).mean(axis=0)).mean()
    assert L.jsd(*views).item() == pytest.approx(expected)
    assert L.jsd(views[0], views[0] + 3.0, views[0]).item() == pytest.approx(0.0, abs=1e-12)
    assert checked(L.jsd, *views)


def test_jsd_of_certain_and_contrary_views_stays_finite():
    z = torch.zeros(3, 1, 3)
    z[torch.arange(3), 0, torch.arange(3)] = 500.0
    z.requires_grad_()
    value = L.jsd(*z)
    value.backward()
    assert value.item() == pytest.approx(math.log(3), rel=1e-5)
    assert z.grad.isfinite().all()


def test_logit_norm_ignores_length_and_has_its_floor():
    z, y = batch()

    def one(_, i):
        row = z[i].tolist()
        length = math.sqrt(sum(v * v for v in row))
        return -math.log(softmax([v / length / 0.04 for v in row])[y[i]])

    assert L.logit_norm(z, y).item() == pytest.approx(looped(z, one), rel=1e-5)  # the floor of the length
    assert L.logit_norm(100 * z, y, 0.5).item() == pytest.approx(L.logit_norm(z, y, 0.5).item(), rel=1e-6)
    best = nn.functional.one_hot(y, 5).double() - 0.2
    floor = math.log(1 + 4 * math.exp(-math.sqrt(5 / 4) / 0.5))
    assert L.logit_norm(best, y, 0.5).item() == pytest.approx(floor, rel=1e-6)
    zero = torch.zeros(2, 5, requires_grad=True)
    L.logit_norm(zero, y[:2]).backward()
    assert zero.grad.isfinite().all()


def test_correctness_counts_and_targets_of_sure():
    record = L.Correctness(4)
    every = torch.arange(4)
    assert record.targets(every, 1).tolist() == [0, 0, 0, 0]
    answers = [[1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 1, 1]]
    for right in answers:
        record.update(every, torch.tensor(right).bool())
    counts = np.sum(answers, axis=0)  # 3, 1, 1, 3
    for epoch, m in ((4, 3), (5, 4)):
        expected = (counts - counts.min()) / (m - counts.min())
        assert record.targets(every, epoch).tolist() == pytest.approx(expected)
    assert record.targets(torch.tensor([3, 1]), 4).tolist() == pytest.approx([1.0, 0.0])


def test_correctness_where_m_is_one_in_the_first_two_epochs():
    record = L.Correctness(3)
    record.update(torch.tensor([0, 2]), torch.tensor([True, False]))
    for epoch in (1, 2):
        assert record.targets(torch.arange(3), epoch).tolist() == [1, 0, 0]


def test_correctness_where_all_are_right_has_no_order_and_no_nan():
    record = L.Correctness(3)
    for _ in range(2):
        record.update(torch.arange(3), torch.ones(3, dtype=torch.bool))
    assert record.targets(torch.arange(3), 3).tolist() == [0, 0, 0]
    assert record.targets(torch.arange(3), 1).tolist() == [0, 0, 0]


def test_correctness_over_the_whole_run_and_repeated_rows():
    record = L.Correctness(3, total=200)
    record.update(torch.tensor([1, 1, 2]), torch.tensor([True, True, False]))
    assert record.targets(torch.arange(3), 7).tolist() == pytest.approx([0, 0.01, 0])


def test_correctness_saves_and_goes_on():
    one = L.Correctness(5)
    one.update(torch.tensor([0, 4]), torch.tensor([True, True]))
    two = L.Correctness(5)
    two.load_state_dict(one.state_dict())
    one.update(torch.tensor([0]), torch.tensor([True]))
    assert two.counts.tolist() == [1, 0, 0, 0, 1]
    for state in ({}, {"counts": torch.zeros(4, dtype=torch.int64)}, {"counts": torch.zeros(5)}):
        with pytest.raises(InvalidInput, match="5 training rows"):
            two.load_state_dict(state)
    with pytest.raises(InvalidInput, match=r"in \[0, 5\), got 2 to 5"):
        two.update(torch.tensor([2, 5]), torch.tensor([True, True]))
    with pytest.raises(InvalidInput, match="boolean tensor of shape"):
        two.update(torch.tensor([2]), torch.tensor([1]))
    with pytest.raises(InvalidInput, match="index must be an integer tensor"):
        two.targets(torch.tensor([0.0]), 1)
    assert two.counts.tolist() == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("equal", ["ignore", "pull"])
def test_crl_against_a_loop_over_pairs(equal):
    g = torch.Generator().manual_seed(1)
    k = torch.rand(40, generator=g, dtype=torch.float64)
    c = torch.randint(4, (40,), generator=g) / 4.0
    total = 0.0
    for i in range(40):
        j = (i + 1) % 40
        margin, gap = abs(c[i] - c[j]).item(), (k[i] - k[j]).item()
        if c[i] > c[j]:
            total += max(0.0, margin - gap)
        elif c[i] < c[j]:
            total += max(0.0, margin + gap)
        elif equal == "pull":
            total += abs(gap)
    assert L.crl(k, c, equal=equal).item() == pytest.approx(total / 40)
    assert checked(lambda x: L.crl(x, c, equal=equal), k)


def test_crl_is_the_margin_ranking_loss_of_its_authors():
    g = torch.Generator().manual_seed(2)
    k, c = torch.rand(30, generator=g), torch.randint(3, (30,), generator=g) / 3.0
    apart = c - c.roll(-1)
    sign = apart.sign()
    shifted = k.roll(-1) + apart.abs() / torch.where(sign == 0, 1.0, sign)
    assert L.crl(k, c).item() == pytest.approx(nn.MarginRankingLoss()(k, shifted, sign).item(), rel=1e-6)


def test_crl_of_one_row_and_of_a_perfect_order_is_zero():
    assert L.crl(torch.tensor([0.3]), torch.tensor([0.5])).item() == 0.0
    c = torch.tensor([0.0, 0.25, 1.0])
    assert L.crl(c, c).item() == 0.0


def dirichlet_kl(alpha):
    one = torch.distributions.Dirichlet(torch.ones_like(alpha))
    return torch.distributions.kl_divergence(torch.distributions.Dirichlet(alpha), one)


@pytest.mark.parametrize("evidence", ["exp", "relu", "softplus"])
@pytest.mark.parametrize("objective", ["log", "digamma", "mse"])
def test_edl(objective, evidence):
    z, y = batch(scale=3.0)
    z[0, 0], z[1, 1] = 15.0, -12.0  # beyond the clip
    parts = []
    for row, label in zip(z, y.tolist(), strict=True):
        alpha = (
            1
            + {
                "exp": row.clip(-10, 10).exp(),
                "relu": row.clip(min=0),
                "softplus": torch.log(1 + row.exp()),
            }[evidence]
        )
        s = alpha.sum()
        target = torch.eye(5, dtype=torch.float64)[label]
        p = alpha / s
        fit = {
            "log": (target * (s.log() - alpha.log())).sum(),
            "digamma": (target * (torch.digamma(s) - torch.digamma(alpha))).sum(),
            "mse": ((target - p) ** 2 + p * (1 - p) / (s + 1)).sum(),
        }[objective]
        parts.append(fit + 0.7 * dirichlet_kl((alpha - 1) * (1 - target) + 1))
    settings = {"weight": 0.7, "objective": objective, "evidence": evidence}
    assert L.edl(z, y, **settings).item() == pytest.approx(torch.stack(parts).mean().item())
    assert checked(lambda x: L.edl(x, y, **settings), batch()[0])


def test_edl_objectives_are_expectations_under_the_dirichlet():
    z, y = batch(n=1, classes=3, scale=1.0)
    alpha = z[0].exp() + 1
    draws = torch.distributions.Dirichlet(alpha)
    torch.manual_seed(0)
    p = draws.sample((200_000,))
    target = torch.eye(3, dtype=torch.float64)[y[0]]
    assert L.edl(z, y, weight=0, objective="digamma").item() == pytest.approx(-p[:, y[0]].log().mean().item(), rel=0.02)
    brier = (p - target).square().sum(dim=1).mean().item()
    assert L.edl(z, y, weight=0, objective="mse").item() == pytest.approx(brier, rel=0.02)
    assert L.edl(z, y, weight=0).item() == pytest.approx(-math.log(p[:, y[0]].mean()), rel=0.02)


def test_edl_in_float32_keeps_its_digits_at_the_clip():
    z, y = batch(n=8, classes=100, scale=20.0)
    exact = L.edl(z.clamp(-10, 10), y, weight=1.0).item()
    assert L.edl(z.float(), y, weight=1.0).item() == pytest.approx(exact, rel=1e-5)


def test_outlier_exposure_is_cross_entropy_to_uniform():
    z, _ = batch()
    uniform = torch.full_like(z, 1 / 5)
    assert L.outlier_exposure(z).item() == pytest.approx(nn.functional.cross_entropy(z, uniform).item())
    assert L.outlier_exposure(torch.full((2, 5), 9.0)).item() == pytest.approx(math.log(5))


def test_energy_margin_against_a_loop():
    inside, outside = batch(scale=4.0)[0], batch(n=9, seed=1, scale=4.0)[0]

    def energy(row):
        return -math.log(sum(math.exp(v) for v in row))

    low, high = -8.0, -4.0
    first = np.mean([max(0.0, energy(r) - low) ** 2 for r in inside.tolist()])
    second = np.mean([max(0.0, high - energy(r)) ** 2 for r in outside.tolist()])
    assert L.energy_margin(inside, outside, low, high).item() == pytest.approx(first + second)
    assert first > 0
    assert second > 0
    with pytest.raises(InvalidInput, match="m_in must lie below m_out"):
        L.energy_margin(inside, outside, -3.0, -27.0)


@pytest.mark.parametrize("reward", [1.5, 2.2, 20.0])
def test_gambler(reward):
    z, y = batch(classes=6)
    y = y.clamp(max=4)
    assert L.gambler(z, y, reward).item() == pytest.approx(looped(z, lambda p, i: -math.log(p[y[i]] + p[5] / reward)))
    other = looped(z, lambda p, i: -math.log(reward * p[y[i]] + p[5]))  # the other way of writing it
    assert L.gambler(z, y, reward).item() == pytest.approx(other + math.log(reward))
    assert checked(lambda x: L.gambler(x, y, reward), z)


def test_gambler_with_a_label_on_the_reserve_or_no_reward():
    z, _ = batch(classes=6)
    with pytest.raises(InvalidInput, match=r"labels must be in \[0, 5\), got 5"):
        L.gambler(z, torch.full((7,), 5), 2.2)
    with pytest.raises(InvalidInput, match="reward"):
        L.gambler(z, torch.zeros(7, dtype=torch.int64), 1.0)


def test_devries():
    z, y = batch()
    c = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    b = torch.tensor([1, 0, 1, 0, 1, 1, 0])

    def one(p, i):
        used = b[i].item() * c[i].item() + (1 - b[i].item())
        mixed = [used * q + (1 - used) * (k == y[i].item()) for k, q in enumerate(p)]
        return -math.log(mixed[y[i]]) - 0.1 * math.log(c[i])

    assert L.devries(z, c, y, b, 0.1).item() == pytest.approx(looped(z, one))
    assert L.devries(z, c, y, b.bool(), 0.1).item() == L.devries(z, c, y, b, 0.1).item()
    assert checked(lambda x, k: L.devries(x, k, y, b, 0.1), z, c)
    assert L.devries(z, c, y, torch.zeros(7), 0.0).item() == pytest.approx(L.cross_entropy(z, y).item())


def test_devries_at_the_ends_of_confidence():
    z = torch.tensor([[200.0, 0.0], [200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    c = torch.tensor([1.0, 0.0, 0.0], requires_grad=True)
    value = L.devries(z, c, torch.tensor([1, 1, 0]), torch.tensor([True, True, False]), 1.0)
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()
    assert c.grad.isfinite().all()


def test_budget_moves_by_its_rule_and_is_saved():
    budget = L.Budget(0.3)
    assert budget.weight == 0.1
    budget.update(torch.full((4,), math.exp(-0.2)))
    assert budget.weight == pytest.approx(0.1 / 1.01)
    budget.update(torch.full((4,), math.exp(-0.4)))
    assert budget.weight == pytest.approx(0.1 / 1.01 / 0.99)
    other = L.Budget(0.3)
    other.load_state_dict(budget.state_dict())
    assert other.weight == budget.weight
    with pytest.raises(InvalidInput, match="saved weight"):
        other.load_state_dict({})


def test_confidnet_and_that_the_classifier_stays_out():
    z, y = batch()
    c = torch.rand(7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert L.confidnet(c, z, y).item() == pytest.approx(looped(z, lambda p, i: (c[i].item() - p[y[i]]) ** 2))
    z.requires_grad_()
    c.requires_grad_()
    L.confidnet(c, z, y).backward()
    assert z.grad is None
    assert c.grad.abs().sum() > 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n", [2, 5, 80, 128])
def test_aurc_weights_by_rank_with_mean_one(estimator, n):
    g = torch.Generator().manual_seed(n)
    loss = torch.rand(n, generator=g, dtype=torch.float64, requires_grad=True)
    conf = torch.randn(n, generator=g, dtype=torch.float64, requires_grad=True)
    weight = metrics.aurc_weights(n, estimator)
    rank = [sum(other <= own for other in conf.tolist()) for own in conf.tolist()]
    each = np.array([weight[r - 1] for r in rank]) / weight.mean()
    value = L.aurc(loss, conf, estimator)
    assert value.item() == pytest.approx(np.mean(each * loss.detach().numpy()))
    value.backward()
    assert loss.grad.numpy() == pytest.approx(each / n)
    assert loss.grad.sum().item() == pytest.approx(1.0)
    assert conf.grad is None


def test_aurc_empirical_is_the_metric():
    g = torch.Generator().manual_seed(0)
    loss, conf = torch.rand(50, generator=g, dtype=torch.float64), torch.rand(50, generator=g, dtype=torch.float64)
    order = np.argsort(-conf.numpy())
    risks = [loss.numpy()[order[:k]].mean() for k in range(1, 51)]
    assert L.aurc(loss, conf).item() == pytest.approx(np.mean(risks))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_aurc_of_ties_is_the_mean_over_their_orders(estimator):
    from itertools import permutations

    conf = torch.tensor([0.5, 0.9, 0.5, 0.5, 0.1])
    loss = torch.tensor([1.0, 0.2, 0.7, 0.3, 2.0], dtype=torch.float64)
    weight = metrics.aurc_weights(5, estimator)
    values = []
    for a, b, c in permutations([0, 2, 3]):
        values.append((weight * loss.numpy()[[4, a, b, c, 1]]).mean() / weight.mean())
    assert L.aurc(loss, conf, estimator).item() == pytest.approx(np.mean(values))
    same = torch.ones(5)
    assert L.aurc(loss, same, estimator).item() == pytest.approx(loss.mean().item())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_aurc_of_one_row_is_its_loss(estimator):
    assert L.aurc(torch.tensor([0.7]), torch.tensor([3.0]), estimator).item() == pytest.approx(0.7)


def every_loss(z, y):
    n = len(z)
    c = z.softmax(dim=1).amax(dim=1)
    return {
        "cross_entropy": L.cross_entropy(z, y),
        "mixed": L.mixed_cross_entropy(z, y, y.roll(1), 0.3),
        "jsd": L.jsd(z, z.roll(1, 0), z.flip(0)),
        "logit_norm": L.logit_norm(z, y),
        "crl": L.crl(c, torch.arange(n, device=z.device) / n),
        "edl": L.edl(z, y, weight=0.1),
        "oe": L.outlier_exposure(z),
        "energy": L.energy_margin(z, z.flip(0), -27.0, -3.0),
        "gambler": L.gambler(z, y.clamp(max=z.shape[1] - 2), 2.2),
        "devries": L.devries(z, c, y, torch.arange(n) % 2 == 0, 0.1),
        "aurc": L.aurc(nn.functional.cross_entropy(z.float(), y, reduction="none"), c),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 80.0])
def test_every_loss_is_finite_and_has_a_finite_gradient(dtype, scale):
    values = batch(n=16, scale=scale, dtype=dtype)
    for name in every_loss(*values):
        z = values[0].clone().requires_grad_()
        loss = every_loss(z, values[1])[name]
        assert loss.ndim == 0, name
        assert loss.dtype == torch.float32, name
        loss.backward()
        assert loss.isfinite(), name
        assert z.grad.isfinite().all(), name


def test_every_loss_in_float32_is_that_in_float64():
    z, y = batch(n=16, scale=5.0)
    z = z.float().double()
    exact, coarse = every_loss(z, y), every_loss(z.float(), y)
    for name, value in exact.items():
        assert coarse[name].item() == pytest.approx(value.item(), rel=2e-5, abs=1e-6), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, y: L.cross_entropy(z[0], y), r"logits must be a float tensor \(N, K\), got torch.float64 of shape"),
        (lambda z, y: L.cross_entropy(z.numpy(), y), "got ndarray"),
        (lambda z, y: L.cross_entropy(z.long(), y), "got torch.int64"),
        (lambda z, y: L.cross_entropy(z[:0], y[:0]), "logits is empty"),
        (lambda z, y: L.cross_entropy(z, y[:3]), r"shape \(7,\) as the logits have rows, got \(3,\)"),
        (lambda z, y: L.cross_entropy(z, y + 5), r"labels must be in \[0, 5\)"),
        (lambda z, y: L.cross_entropy(z, y.double()), "labels must be an integer tensor"),
        (lambda z, y: L.cross_entropy(z, y, 1.5), "smoothing must be in"),
        (lambda z, y: L.mixed_cross_entropy(z, y, y - 9, 0.5), "partners must be in"),
        (lambda z, y: L.mixed_cross_entropy(z, y, y, 1.5), "share must be in"),
        (lambda z, y: L.mixed_cross_entropy(z, y, y, torch.ones(3)), "share must be a tensor of shape"),
        (lambda z, y: L.jsd(z, z, z[:3]), "three views must have one shape"),
        (lambda z, y: L.logit_norm(z, y, 0.0), "temperature must be in"),
        (lambda z, y: L.crl(z[:, 0], z[:3, 0]), "target must be a tensor"),
        (lambda z, y: L.crl(z[:, 0], z[:, 0], equal="pul"), "did you mean 'pull'"),
        (lambda z, y: L.edl(z, y, weight=-1), "weight must be in"),
        (lambda z, y: L.edl(z, y, weight=1, objective="logs"), "did you mean 'log'"),
        (lambda z, y: L.edl(z, y, weight=1, evidence="rely"), "did you mean 'relu'"),
        (lambda z, y: L.devries(z, z, y, y, 0.1), "confidence must be a tensor"),
        (lambda z, y: L.devries(z, z[:, 0], y, y[:2], 0.1), "hint_mask must be a tensor"),
        (lambda z, y: L.confidnet(z[:2, 0], z, y), "confidence must be a tensor"),
        (lambda z, y: L.aurc(z.mean(), z[:, 0]), "one loss for each row, not their mean"),
        (lambda z, y: L.aurc(z[:, 0], z[:3, 0]), "confidence must be a tensor"),
        (lambda z, y: L.aurc(z[:, 0], z[:, 0], "seles"), "did you mean 'sele'"),
        (lambda z, y: L.Correctness(0), "rows must be a whole number of at least 1"),
        (lambda z, y: L.Budget(0), "budget must be in"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InvalidInput, match=message):
        call(*batch())


@pytest.mark.parametrize("weight", [float("inf"), 0.0, -1.0, float("nan"), None, "0.1"])
def test_a_saved_budget_weight_must_be_finite_and_above_zero(weight):
    budget = L.Budget()
    with pytest.raises(InvalidInput, match="the saved weight"):
        budget.load_state_dict({"weight": weight})
    assert budget.weight == 0.1


@pytest.mark.parametrize("confidence", [torch.tensor(0.5), torch.ones(2, 2), 0.5, [0.5]])
def test_a_budget_takes_one_confidence_for_each_row(confidence):
    with pytest.raises(InvalidInput, match=r"confidence must be a tensor of shape \(N,\)"):
        L.Budget().update(confidence)


@pytest.mark.parametrize("share", [[-0.1, 0.5], [0.5, 1.5], [float("nan"), 0.5], 1.01, -0.01])
def test_shares_of_mixed_images_lie_between_zero_and_one(share):
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(InvalidInput, match=r"share must be in \[0, 1\]"):
        L.mixed_cross_entropy(logits, labels, labels.flip(0), torch.tensor(share))
