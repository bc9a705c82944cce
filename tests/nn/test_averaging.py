"""Averages of weights: closed forms; renewed batch-norm statistics: those of a full pass; resuming bit-equal."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.optim.swa_utils import update_bn  # noqa: E402

from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.ingredients.averaging import EMA, SWA, rebn  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """Two batch norms, dropout, a head."""

    def __init__(self, seed=0, dropout=0.5):
        super().__init__()
        torch.manual_seed(seed)
        self.norm0 = nn.BatchNorm2d(2)
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm1 = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return self.fc(self.drop(self.norm1(self.conv(self.norm0(x))).relu().mean(dim=(2, 3))))


def snapshots(count=12, seed=0):
    """Networks with random weights and statistics."""
    g = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        net = Net()
        with torch.no_grad():
            for t in [*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())]:
                t.copy_(torch.rand(t.shape, generator=g))
        net.norm0.num_batches_tracked.fill_(len(found))
        found.append(net)
    return found


def shares(decay, ramp, n):
    """Weight of the initial and of each later snapshot, from the definition."""
    d = [decay * (1 - math.exp(-k / ramp)) for k in range(1, n + 1)]
    return np.array([math.prod(d)] + [(1 - d[k]) * math.prod(d[k + 1 :]) for k in range(n)])


@pytest.mark.parametrize(("decay", "ramp"), [(0.9998, 2000.0), (0.9, 3.0), (0.0, 5.0)])
@pytest.mark.parametrize("released", [False, True])
def test_ema_is_its_closed_form(decay, ramp, released):
    start, nets = Net(), snapshots()
    ema = EMA(start, decay, ramp, released=released)
    for net in nets:
        ema.update(net)
    w = shares(decay, ramp, len(nets))
    assert w.sum() == pytest.approx(1.0)
    for name, value in ema.model.state_dict().items():
        states = [m.state_dict()[name].double() for m in [start, *nets]]
        blended = sum(float(a) * s for a, s in zip(w, states, strict=True))
        averaged = "running" not in name and "tracked" not in name
        if averaged or (released and "running" in name):
            assert value.numpy() == pytest.approx(blended.numpy(), rel=1e-5), name
        else:
            assert torch.equal(value, nets[-1].state_dict()[name]), name


def test_ema_without_ramp_has_its_decay_from_the_start():
    ema = EMA(Net(), 0.5, 0)
    assert ema.decay_at(1) == ema.decay_at(99) == 0.5
    start = ema.model.fc.bias.clone()
    other = snapshots(1)[0]
    ema.update(other)
    assert torch.allclose(ema.model.fc.bias, (start + other.fc.bias) / 2)


def test_ema_published_schedule():
    ema = EMA(Net())
    assert ema.decay_at(2000) == pytest.approx(0.9998 * (1 - 1 / math.e))
    assert ema.decay_at(10**6) == pytest.approx(0.9998)
    assert ema.decay_at(1) < 0.001


@pytest.mark.parametrize(("decay", "ramp", "steps"), [(0.9998, 2000.0, 50), (0.9, 3.0, 40), (0.5, 1.0, 0)])
def test_ema_window_is_the_effective_number(decay, ramp, steps):
    assert EMA(Net(), decay, ramp).window(steps) == pytest.approx(1 / (shares(decay, ramp, steps) ** 2).sum())


def test_ema_window_tends_to_that_of_a_constant_decay():
    assert EMA(Net(), 0.99, 0).window(5000) == pytest.approx(1.99 / 0.01)
    assert EMA(Net(), 0.0, 0).window(10) == 1.0


def test_ema_of_a_run_spans_the_same_share():
    full = EMA.of_run(Net(), 78_000)
    assert (full.decay, full.ramp) == (pytest.approx(0.9998), pytest.approx(2000))
    short = EMA.of_run(Net(), 780, released=True)
    assert (short.decay, short.ramp, short.released) == (pytest.approx(0.98), pytest.approx(20), True)
    assert short.window(780) / 780 == pytest.approx(full.window(78_000) / 78_000, rel=0.02)
    assert EMA.of_run(Net(), 3).decay == 0.0


def test_the_copy_is_independent_and_ready_to_evaluate():
    net = Net()
    for average in (EMA(net), SWA(net)):
        assert not average.model.training
        assert not any(p.requires_grad for p in average.model.parameters())
        before = average.model.fc.weight.clone()
        with torch.no_grad():
            net.fc.weight.add_(1.0)
        assert torch.equal(average.model.fc.weight, before)
    assert net.training
    assert net.fc.weight.requires_grad


def test_swa_is_the_mean():
    nets = snapshots()
    swa = SWA(Net())
    for net in nets:
        swa.update(net)
    assert swa.updates == 12
    for name, value in swa.model.named_parameters():
        mean = np.mean([m.get_parameter(name).detach().numpy() for m in nets], axis=0, dtype=np.float64)
        assert value.numpy() == pytest.approx(mean, rel=1e-6), name
    for name, value in swa.model.named_buffers():
        assert torch.equal(value, nets[-1].get_buffer(name)), name


def test_swa_is_that_of_torch():
    nets = snapshots(5)
    ours, theirs = SWA(Net()), torch.optim.swa_utils.AveragedModel(Net())
    for net in nets:
        ours.update(net)
        theirs.update_parameters(net)
    for name, value in ours.model.named_parameters():
        assert value.numpy() == pytest.approx(theirs.module.get_parameter(name).detach().numpy(), rel=1e-6), name


def test_tied_weights_stay_tied():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    ema = EMA(net, 0.5, 0)
    with torch.no_grad():
        net[0].weight.add_(1.0)
    before = ema.model[0].weight.clone()
    ema.update(net)
    assert ema.model[1].weight is ema.model[0].weight
    assert torch.allclose(ema.model[0].weight, before + 0.5)


@pytest.mark.parametrize(
    "make", [lambda: EMA(Net(), 0.9, 3), lambda: EMA(Net(), 0.9, 3, released=True), lambda: SWA(Net())]
)
def test_saved_and_loaded_it_goes_on_to_the_last_bit(make, tmp_path):
    nets = snapshots()
    one = make()
    for net in nets[:5]:
        one.update(net)
    torch.save(one.state_dict(), tmp_path / "a.pt")
    for net in nets[5:]:
        one.update(net)
    two = make()
    two.load_state_dict(torch.load(tmp_path / "a.pt", weights_only=True))
    assert two.updates == 5
    for net in nets[5:]:
        two.update(net)
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, two.model.state_dict()[name]), name


def test_a_saved_state_is_not_moved_by_later_updates():
    ema = EMA(Net(), 0.5, 0)
    state = ema.state_dict()
    kept = state["model"]["fc.weight"].clone()
    ema.update(snapshots(1)[0])
    assert torch.equal(state["model"]["fc.weight"], kept)


def test_another_network_is_told():
    ema = EMA(Net())
    with pytest.raises(InvalidInput, match="without wrappers"):
        ema.update(nn.ModuleDict({"module": Net()}))
    wide = Net()
    wide.fc = nn.Linear(3, 7)
    with pytest.raises(InvalidInput, match=r"fc\.weight differs"):
        ema.update(wide)
    with pytest.raises(InvalidInput, match=r"fc\.\w+ differs"):
        ema.load_state_dict(EMA(wide).state_dict())
    with pytest.raises(InvalidInput, match="no averaged model"):
        ema.load_state_dict({"updates": 3})
    assert ema.updates == 0
    with pytest.raises(InvalidInput, match="too coarse to average"):
        EMA(Net().to(torch.bfloat16))
    with pytest.raises(InvalidInput, match="decay must be in"):
        EMA(Net(), 1.0)
    with pytest.raises(InvalidInput, match="ramp must be in"):
        EMA(Net(), ramp=-1.0)
    with pytest.raises(InvalidInput, match="model must be a torch module"):
        SWA(None)


def rows(n=48, seed=3):
    g = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn((n, 2, 6, 6), generator=g) + torch.linspace(-1, 3, n)[:, None, None, None]


def used(net):
    """A network whose statistics are anything."""
    net.train()
    for seed in range(5):
        net(rows(seed=seed))
    return net


@pytest.mark.parametrize("sizes", [[12] * 4, [20, 20, 8], [48], [46, 2]])
def test_rebn_gives_the_statistics_of_a_full_pass(sizes):
    net, x = used(Net()), rows()
    batches = list(x.split(sizes))
    assert rebn(net, [(b, torch.zeros(len(b))) for b in batches]) == 2
    values = x.double().transpose(0, 1).flatten(1)
    assert net.norm0.running_mean.numpy() == pytest.approx(values.mean(dim=1).numpy(), rel=1e-5)
    assert net.norm0.running_var.numpy() == pytest.approx(values.var(dim=1).numpy(), rel=1e-5)
    entered = []
    with torch.no_grad():
        for b in batches:  # the second layer sees what the first normalised by this batch
            c = b.double()
            mean, var = c.mean(dim=(0, 2, 3), keepdim=True), c.var(dim=(0, 2, 3), keepdim=True, unbiased=False)
            n = (c - mean) / (var + 1e-5).sqrt()
            n = n * net.norm0.weight.view(1, -1, 1, 1) + net.norm0.bias.view(1, -1, 1, 1)
            entered.append(copy.deepcopy(net.conv).double()(n))
    values = torch.cat(entered).transpose(0, 1).flatten(1)
    assert net.norm1.running_mean.numpy() == pytest.approx(values.mean(dim=1).numpy(), rel=1e-4, abs=1e-6)
    assert net.norm1.running_var.numpy() == pytest.approx(values.var(dim=1).numpy(), rel=1e-4)
    assert net.norm0.num_batches_tracked == len(sizes)


def test_rebn_and_cumulative_averaging_have_equal_means_for_equal_batches():
    ours, theirs = used(Net(dropout=0.0)), used(Net(dropout=0.0))
    batches = list(rows().split(12))
    rebn(ours, batches)
    update_bn(batches, theirs)
    for a, b in ((ours.norm0, theirs.norm0), (ours.norm1, theirs.norm1)):
        assert a.running_mean.numpy() == pytest.approx(b.running_mean.numpy(), rel=1e-5, abs=1e-6)
    within = torch.stack([b.transpose(0, 1).flatten(1).var(dim=1) for b in batches]).mean(dim=0)
    assert theirs.norm0.running_var.numpy() == pytest.approx(within.numpy(), rel=1e-5)
    assert (ours.norm0.running_var > 1.05 * theirs.norm0.running_var).all()  # the batches differ, as rows() ramps


def test_rebn_touches_nothing_else():
    net = used(Net())
    net.norm1.momentum = None
    net.norm1.eval()
    weights = {k: v.clone() for k, v in net.named_parameters()}
    modes = {k: m.training for k, m in net.named_modules()}
    torch.manual_seed(1)
    rebn(net, rows().split(12))
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))  # dropout was off
    assert (net.norm0.momentum, net.norm1.momentum) == (0.1, None)
    assert modes == {k: m.training for k, m in net.named_modules()}
    assert all(torch.equal(v, weights[k]) for k, v in net.named_parameters())
    assert not net.norm0._forward_hooks
    assert all(p.grad is None for p in net.parameters())


def test_rebn_of_a_layer_used_twice_counts_both():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2, affine=False)
            self.idle = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(x[:, :2]), self.norm(x[:, 2:])

    x = torch.randn((30, 4), generator=torch.Generator().manual_seed(0)) + torch.tensor([0.0, 1.0, 5.0, 2.0])
    net = Twice()
    assert rebn(net, x.split(10)) == 1
    both = torch.cat([x[:, :2], x[:, 2:]])
    assert net.norm.running_mean.numpy() == pytest.approx(both.mean(dim=0).numpy(), rel=1e-5)
    assert net.norm.running_var.numpy() == pytest.approx(both.var(dim=0).numpy(), rel=1e-5)
    assert net.idle.running_var.tolist() == [1, 1]  # no value passed


def test_rebn_without_batch_norm_reads_nothing():
    def never():
        raise AssertionError("read")
        yield

    assert rebn(nn.Linear(2, 2), never()) == 0
    assert rebn(nn.BatchNorm1d(2, track_running_stats=False), never()) == 0


def test_an_averaged_network_is_normalised_again():
    nets = [used(Net(seed=s, dropout=0.0)) for s in range(2)]
    swa = SWA(nets[0])
    for net in nets:
        swa.update(net)
    rebn(swa.model, rows().split(24))
    swa.model.norm1.register_forward_hook(lambda m, given, out: setattr(m, "seen", out))
    with torch.no_grad():
        swa.model(rows())
    out = swa.model.norm1.seen.transpose(0, 1).flatten(1)
    assert out.mean(dim=1).numpy() == pytest.approx(np.zeros(3), abs=0.1)
    assert out.std(dim=1).numpy() == pytest.approx(np.ones(3), abs=0.15)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches is empty"),
        ([rows(12), "text"], "batch 1 must begin with a tensor of inputs, got str"),
        ([rows(12), rows(12) * float("nan")], "not finite"),
    ],
)
def test_rebn_after_bad_batches_the_model_is_as_before(batches, message):
    net = used(Net())
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(InvalidInput, match=message):
        rebn(net, batches)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert net.training
    assert net.norm0.momentum == 0.1


def test_rebn_of_a_single_row():
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with pytest.raises(InvalidInput, match="batch 1 has one row"):
        rebn(net, [torch.randn(4, 3), torch.randn(1, 3)])
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        rebn(net, [torch.randn(4, 3), torch.randn(4, 5)])
    assert net[1].running_mean.tolist() == [0, 0]
