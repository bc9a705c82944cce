"""What extraction computes with inputs of its own: AdaSCALE, iODIN, PRO and the extremes of ReLUs, against loops."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from click.testing import CliRunner  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.models import Classifier  # noqa: E402
from twofold.nn.perturb import PRO_STEPS, Extremes, IOdin, PerturbedFeatures, Pro  # noqa: E402
from twofold.run import Run  # noqa: E402
from twofold.scores.chain import scorer  # noqa: E402


class Small(nn.Module):
    """A network whose ReLUs are a function, a module used twice, and a method."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)
        self.relu, self.fc = nn.ReLU(inplace=True), nn.Linear(5, 4)

    def forward(self, x):
        x = functional.relu(self.first(x))
        x = self.relu(self.second(x))
        x = self.relu(x - 0.1)
        return self.fc((x + 0.05).relu().mean(dim=(2, 3)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Small().double().eval()


@pytest.fixture
def images():
    return torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(1)).double()


def gradient_of(function, image):
    x = image.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(x), x)
    return found


def features_of(network, image):
    seen = []
    hook = network.fc.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    with torch.no_grad():
        network(image)
    hook.remove()
    return seen[0][0]


def test_perturbed_features_against_a_loop(network, images):
    got = PerturbedFeatures(share=0.1, epsilon=0.3)(Classifier(network, example=images[:2]), images)
    for image, found in zip(images, got["penultimate/perturbed"], strict=True):
        gradient = gradient_of(lambda x: network(x).max(), image[None])[0]
        moved = image.clone().flatten()
        order = gradient.abs().flatten().argsort(stable=True)
        for i in order[: int(0.1 * moved.numel())]:
            moved[i] += 0.3 * gradient.flatten()[i].sign()
        assert found.numpy() == pytest.approx(features_of(network, moved.view(1, 3, 6, 6)).numpy(), abs=1e-12)


def test_iodin_moves_one_entry(network, images):
    std = (0.2, 0.25, 0.3)
    got = IOdin(temperature=10.0, epsilon=0.05, std=std)(Classifier(network, example=images[:2]), images)
    for image, value in zip(images, got, strict=True):
        target = network(image[None]).argmax(dim=1)
        gradient = gradient_of(lambda x, y=target: functional.cross_entropy(network(x) / 10.0, y), image[None])[0]
        channel, row, column = np.unravel_index(int(gradient.abs().argmax()), gradient.shape)
        moved = image.clone()
        moved[channel, row, column] -= 0.05 / std[channel] * gradient[channel, row, column].sign()
        with torch.no_grad():
            log_p = torch.log_softmax(network(moved[None]) / 10.0, dim=1)
        assert float(value) == pytest.approx(10.0 * float(log_p.max()), abs=1e-9)


def confidence(network, image, of):
    p = torch.softmax(network(image[None]), dim=1)[0]
    if of == "msp":
        return p.max().log()
    if of == "entropy":
        return (p * p.log()).sum()
    return -((p * (1 - p)) ** 0.1).sum()


@pytest.mark.parametrize("of", ["msp", "entropy", "gen"])
@pytest.mark.parametrize(("epsilon", "steps"), [(None, None), (0.05, 3), (0.05, 0)])
def test_pro_against_a_loop(network, images, of, epsilon, steps):
    got = Pro(of, epsilon, steps)(Classifier(network, example=images[:2]), images)[f"pro/{of}"]
    length, count = PRO_STEPS[of]
    length, count = epsilon or length, count if steps is None else steps
    for image, value in zip(images, got, strict=True):
        moved, least = image, float(confidence(network, image, of).detach())
        for _ in range(count):
            moved = moved - length * gradient_of(lambda x: confidence(network, x, of), moved).sign()
            least = min(least, float(confidence(network, moved, of).detach()))
        assert float(value) == pytest.approx(least, abs=1e-9)


def test_pro_moves_where_the_probability_is_one_to_float32(images):
    network = nn.Sequential(nn.Flatten(), nn.Linear(108, 2)).eval()
    with torch.no_grad():
        network[1].bias += torch.tensor([60.0, -60.0])
    classifier, x = Classifier(network, example=images[:2].float()), images.float()
    still, moved = (Pro("msp", 0.1, steps)(classifier, x)["pro/msp"] for steps in (0, 1))
    assert (moved < still).all()


def test_extremes_are_those_of_the_inputs_of_all_relus(network, images):
    got = Extremes()(Classifier(network, example=images[:2]), images)
    with torch.no_grad():
        first = network.first(images)
        second = network.second(first.clamp(min=0))
        third = second.clamp(min=0) - 0.1
        fourth = third.clamp(min=0) + 0.05
    assert len(got) == 8
    for i, values in enumerate([first, second, third, fourth], start=1):
        assert got[f"relu{i:03d}/max"][:, 0].numpy() == pytest.approx(values.amax(dim=(1, 2, 3)).numpy())
        assert got[f"relu{i:03d}/min"][:, 0].numpy() == pytest.approx(values.amin(dim=(1, 2, 3)).numpy())
    with pytest.raises(InvalidInput, match="runs no ReLU"):
        Extremes()(Classifier(nn.Sequential(nn.Flatten(), nn.Linear(108, 2)).double()), images)


def test_the_command_records_what_the_scores_read(tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "test.npz"
    np.savez(file, images=rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8), labels=np.arange(12) % 4)
    command = ["extract", "resnet20_cifar", "--classes", "4", "--data", f"npz:{file}", "--role", "test"]
    options = ["--iodin", "0.0014", "--pro", "msp,gen", "--adascale", "--extremes"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "run"), *options])
    assert done.exit_code == 0, done.output
    found = Run.open(tmp_path / "run")["test"]
    assert found.layers["penultimate/perturbed"].shape == found.features.shape
    assert found.layers["relu001/max"].shape == (12, 1)
    assert {"iodin", "pro/msp", "pro/gen"} <= set(found.learned)
    for spec in ("combood(k=3)", "adascale|energy", "iodin", "pro", "pro(of='gen')"):
        assert np.isfinite(scorer(spec).fit(found).score(found)).all(), spec
    refused = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "other"), "--pro", "energy"])
    assert refused.exit_code != 0
    assert "entropy" in refused.output
