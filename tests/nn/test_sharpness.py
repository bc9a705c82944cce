"""SAM and F-SAM: each step against its definition by finite differences; batch norm, accumulation, resuming, errors."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.ingredients.sharpness import FSAM, SAM, RandomState, restore_buffers  # noqa: E402

LR = 0.1


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Bowl(nn.Module):
    """A quadratic of two parameters, one of them a matrix; batches shift its centre."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        self.idle = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, shift):
        w = torch.cat([self.a.flatten(), self.b])
        return bowl(w, shift)


CURVES = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5], dtype=torch.float64)


def bowl(w, shift):
    away = w - shift
    return 0.5 * (CURVES * away * away).sum() + 0.1 * (away[0] * away[1] + away[2] * away[4])


def numeric(function, w, h=1e-6):
    """Gradient by central differences."""
    return np.array([(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))])


def flat(model):
    return torch.cat([model.a.flatten(), model.b]).detach().numpy().copy()


def shifts(count=6):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(5, generator=g, dtype=torch.float64) for _ in range(count)]


def closure_of(model, shift):
    def closure():
        loss = model(shift)
        loss.backward()
        return loss

    return closure


def walk(optimiser, model, batches):
    path = []
    for shift in batches:
        optimiser.step(closure_of(model, shift))
        path.append(flat(model))
    return path


def by_definition(kind, rho, batches, *, sigma=1.0, momentum=0.8, gamma=0.5):
    """Plain gradient descent on each definition, gradients by differences of the loss."""
    w, mean, path = flat(Bowl()), None, []
    for shift in batches:

        def loss(v, shift=shift):
            return float(bowl(torch.from_numpy(v), shift))

        g = numeric(loss, w)
        d = g
        if kind == "released":
            d, mean = (g, g) if mean is None else (g - sigma * mean, momentum * mean + (1 - momentum) * g)
        elif kind == "original":
            mean = (1 - momentum) * g + (0 if mean is None else momentum * mean)
            d = g - sigma * mean
        up = rho * d / np.linalg.norm(d)
        if kind == "adaptive":
            up = rho * w**2 * g / np.linalg.norm(np.abs(w) * g)
        step = numeric(loss, w + up)
        if kind == "printed":
            step = gamma * g + (1 - gamma) * step
        w = w - LR * step
        path.append(w)
    return path


@pytest.mark.parametrize("kind", ["sam", "adaptive"])
def test_sam_follows_its_definition(kind):
    model = Bowl()
    sam = SAM(torch.optim.SGD(model.parameters(), lr=LR), model, rho=0.3, adaptive=kind == "adaptive")
    path = walk(sam, model, shifts())
    np.testing.assert_allclose(path, by_definition(kind, 0.3, shifts()), atol=1e-8)
    assert model.idle.tolist() == [1, 1, 1]
    assert model.idle.grad is None


@pytest.mark.parametrize("variant", ["released", "original", "printed"])
@pytest.mark.parametrize(("sigma", "momentum"), [(1.0, 0.8), (0.4, 0.6)])
def test_fsam_follows_its_definition(variant, sigma, momentum):
    model = Bowl()
    base = torch.optim.SGD(model.parameters(), lr=LR)
    fsam = FSAM(base, model, rho=0.3, sigma=sigma, momentum=momentum, variant=variant)
    path = walk(fsam, model, shifts())
    expected = by_definition(variant, 0.3, shifts(), sigma=sigma, momentum=momentum)
    np.testing.assert_allclose(path, expected, atol=1e-8)


def test_variants_meet_where_they_should():
    batches = shifts()

    def path(**options):
        model = Bowl()
        return walk(FSAM(torch.optim.SGD(model.parameters(), lr=LR), model, **options), model, batches)

    sam_model = Bowl()
    sam = walk(SAM(torch.optim.SGD(sam_model.parameters(), lr=LR), sam_model, rho=0.2), sam_model, batches)
    np.testing.assert_allclose(path()[0], sam[0], atol=1e-14)  # the first step is that of SAM
    np.testing.assert_allclose(path(variant="original")[0], sam[0], atol=1e-14)
    np.testing.assert_allclose(path(sigma=0.0), sam, atol=1e-14)  # and all are without the mean
    np.testing.assert_allclose(path(variant="printed", gamma=0.0), sam, atol=1e-14)
    plain = Bowl()
    sgd = torch.optim.SGD(plain.parameters(), lr=LR)
    for shift, point in zip(batches, path(variant="printed", gamma=1.0), strict=True):
        sgd.zero_grad()
        plain(shift).backward()
        sgd.step()
        np.testing.assert_allclose(point, flat(plain), atol=1e-14)
    # with sigma 1 text and code differ by how the mean starts only
    assert np.abs(np.subtract(path(), path(variant="original")))[1:].max() > 1e-4


def test_without_radius_it_is_the_wrapped_optimiser():
    model, plain = Bowl(), Bowl()
    sam = SAM(torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1), model, rho=0.0)
    base = torch.optim.AdamW(plain.parameters(), lr=LR, weight_decay=0.1)
    for shift in shifts():
        sam.step(closure_of(model, shift))
        base.zero_grad()
        plain(shift).backward()
        base.step()
    assert flat(model).tolist() == flat(plain).tolist()


class Net(nn.Module):
    """Convolution, batch norm, dropout and a linear head, in float64."""

    def __init__(self, dropout=0.0, momentum=0.1, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3, momentum=momentum)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(3, 4)
        self.double()

    def forward(self, x):
        return self.fc(self.drop(self.norm(self.conv(x)).relu().mean(dim=(2, 3))))


def images(n=12, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn((n, 1, 6, 6), generator=g, dtype=torch.float64), torch.randint(4, (n,), generator=g)


def network_closure(model, x, y, parts=1):
    def closure():
        total = torch.zeros(())
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            loss = nn.functional.cross_entropy(model(a), b) / parts
            loss.backward()
            total = total + loss.detach()
        return total

    return closure


def vector(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def network_loss(probe, w, x, y):
    with torch.no_grad():
        nn.utils.vector_to_parameters(torch.from_numpy(w), probe.parameters())
        return float(nn.functional.cross_entropy(probe(x), y))


@pytest.mark.parametrize("kind", ["sam", "fsam"])
def test_step_of_a_network_with_batch_norm_by_differences(kind):
    model = Net()
    base = torch.optim.SGD(model.parameters(), lr=LR, weight_decay=0.01)
    optimiser = SAM(base, model, rho=0.1) if kind == "sam" else FSAM(base, model, rho=0.1)
    mean = None
    for seed in range(3):
        x, y = images(seed=seed)
        w = vector(model)
        before, probe = copy.deepcopy(model), copy.deepcopy(model)

        def loss(v, probe=probe, x=x, y=y):
            return network_loss(probe, v, x, y)

        g = numeric(loss, w)
        d, mean = (g, g) if mean is None or kind == "sam" else (g - mean, 0.8 * mean + 0.2 * g)
        expected = w - LR * (numeric(loss, w + 0.1 * d / np.linalg.norm(d)) + 0.01 * w)
        value = optimiser.step(network_closure(model, x, y))
        assert value.item() == pytest.approx(loss(w))
        # of a bias before batch norm the true gradient is zero, and its differences are noise
        np.testing.assert_allclose(vector(model), expected, atol=2e-7)
        # running statistics are those of one plain pass at the weights before the step
        before(x)
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before.get_buffer(name)), name


@pytest.mark.parametrize("momentum", [0.1, None])
def test_restore_buffers(momentum):
    model = Net(momentum=momentum)
    model(images()[0])
    state = copy.deepcopy(model.state_dict())
    with restore_buffers(model):
        model(images(seed=1)[0])
        assert model.norm.num_batches_tracked == 2
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    broken = nn.Sequential(model, nn.Linear(9, 1).double())
    with pytest.raises(RuntimeError), restore_buffers(broken):
        broken(images(seed=1)[0])
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_accumulated_gradients_are_those_of_the_whole_batch():
    x, y = images()
    one, two = Net(), Net()
    one.norm, two.norm = nn.Identity(), nn.Identity()  # batch norm sees the small batches, as it must
    for model, parts in ((one, 1), (two, 3)):
        fsam = FSAM(torch.optim.SGD(model.parameters(), lr=LR), model, rho=0.1)
        for _ in range(3):
            fsam.step(network_closure(model, x, y, parts))
    np.testing.assert_allclose(vector(one), vector(two), atol=1e-12)


def test_a_closure_that_clears_gradients_itself_changes_nothing():
    x, y = images()
    one, two = Net(), Net()
    for model, clear in ((one, False), (two, True)):
        sam = SAM(torch.optim.SGD(model.parameters(), lr=LR), model)

        def closure(model=model, sam=sam, clear=clear):
            if clear:
                sam.zero_grad()
            return network_closure(model, x, y)()

        sam.step(closure)
    assert vector(one).tolist() == vector(two).tolist()


def test_repeat_draws_the_same_numbers_in_both_passes():
    for repeat in (True, False):
        model = Net(dropout=0.5)
        sam = SAM(torch.optim.SGD(model.parameters(), lr=LR), model, repeat=repeat)
        seen = []

        def closure(model=model, seen=seen):
            seen.append(torch.rand(3).tolist())
            return network_closure(model, *images())()

        torch.manual_seed(5)
        sam.step(closure)
        after = torch.rand(2).tolist()
        assert (seen[0] == seen[1]) is repeat
        torch.manual_seed(5)
        closure()
        assert (after == torch.rand(2).tolist()) is repeat  # as after one pass


def test_draws_again():
    model = Net()
    torch.manual_seed(1)
    stream = torch.rand(6, generator=torch.Generator().manual_seed(1)).split(2)
    draws = RandomState(model)
    assert torch.equal(torch.rand(2), stream[0])
    for _ in range(2):
        with draws.replay():
            assert torch.equal(torch.rand(2), stream[0])
            torch.rand(7)
    assert torch.equal(torch.rand(2), stream[1])
    with pytest.raises(KeyError), draws.replay():
        raise KeyError
    assert torch.equal(torch.rand(2), stream[2])


@pytest.mark.parametrize("make", ["sam", "released", "original", "printed"])
def test_saved_and_loaded_it_goes_on_to_the_last_bit(make, tmp_path):
    def built():
        model = Net(dropout=0.3)
        base = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=1e-3)
        return model, SAM(base, model) if make == "sam" else FSAM(base, model, variant=make)

    def train(model, optimiser, seeds):
        for seed in seeds:
            optimiser.step(network_closure(model, *images(seed=seed)))

    model, optimiser = built()
    torch.manual_seed(9)
    train(model, optimiser, range(3))
    torch.save({"m": model.state_dict(), "o": optimiser.state_dict(), "r": torch.get_rng_state()}, tmp_path / "c.pt")
    train(model, optimiser, range(3, 6))
    again, other = built()
    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    again.load_state_dict(saved["m"])
    other.load_state_dict(saved["o"])
    torch.set_rng_state(saved["r"])
    train(again, other, range(3, 6))
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_saved_state_is_not_moved_by_later_steps():
    model = Bowl()
    fsam = FSAM(torch.optim.SGD(model.parameters(), lr=LR), model)
    walk(fsam, model, shifts(2))
    state = fsam.state_dict()
    kept = state["means"][0].clone()
    walk(fsam, model, shifts(2))
    assert torch.equal(state["means"][0], kept)
    assert not torch.equal(fsam.means[0], kept)


def test_a_closure_that_fails_leaves_the_weights_where_they_were():
    model = Net()
    sam = SAM(torch.optim.SGD(model.parameters(), lr=LR), model)
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return network_closure(model, *images())()

    before = vector(model)
    with pytest.raises(KeyboardInterrupt):
        sam.step(closure)
    assert vector(model).tolist() == before.tolist()
    assert model.norm.num_batches_tracked == 1


def test_a_schedule_on_the_wrapped_optimiser_acts():
    model = Bowl()
    base = torch.optim.SGD(model.parameters(), lr=LR)
    sam = SAM(base, model)
    schedule = torch.optim.lr_scheduler.StepLR(base, 1, 0.0)
    sam.step(closure_of(model, shifts()[0]))
    schedule.step()
    before = flat(model)
    sam.step(closure_of(model, shifts()[1]))
    assert flat(model).tolist() == before.tolist()
    assert sam.param_groups[0]["lr"] == 0.0


def test_zero_gradient_moves_nothing():
    model = Bowl()
    centre = torch.from_numpy(flat(model))
    sam = SAM(torch.optim.SGD(model.parameters(), lr=LR), model)
    sam.step(closure_of(model, centre))
    assert flat(model).tolist() == centre.tolist()


def test_it_lowers_a_loss():
    for make in (SAM, FSAM):
        model = Net()
        optimiser = make(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, rho=0.05)
        closure = network_closure(model, *images())
        values = [optimiser.step(closure).item() for _ in range(40)]
        assert values[-1] < 0.6 * values[0]


def test_bad_input_is_told():
    model = Bowl()
    base = torch.optim.SGD(model.parameters(), lr=LR)
    with pytest.raises(InvalidInput, match="rho must be in"):
        SAM(base, model, rho=-1.0)
    with pytest.raises(InvalidInput, match="optimizer must be a torch optimiser"):
        SAM(model.parameters(), model)
    with pytest.raises(InvalidInput, match="optimizer must be a torch optimiser"):
        SAM(torch.optim.LBFGS(model.parameters()), model)
    with pytest.raises(InvalidInput, match="model must be the module"):
        SAM(base, None)
    with pytest.raises(InvalidInput, match="did you mean 'printed'"):
        FSAM(base, model, variant="print")
    with pytest.raises(InvalidInput, match="momentum must be in"):
        FSAM(base, model, momentum=1.0)
    with pytest.raises(InvalidInput, match="must call backward"):
        SAM(base, model).step(lambda: model(shifts()[0]))
    with pytest.raises(InvalidInput, match="no 'optimizer'"):
        SAM(base, model).load_state_dict({})
    with pytest.raises(InvalidInput, match="not of F-SAM"):
        FSAM(base, model).load_state_dict(SAM(base, model).state_dict())
    with pytest.raises(InvalidInput, match="fits no parameter"):
        FSAM(base, model).load_state_dict({"optimizer": base.state_dict(), "means": {0: torch.ones(9)}})
