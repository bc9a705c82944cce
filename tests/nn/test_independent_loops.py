"""Recipes against loops written from the papers, in plain PyTorch, on a smooth network without batch norm.

Taken from twofold: the order of the rows in an epoch, the draws of MixUp (share and partners), the images that PixMix
makes, flipped images, and the numbers of the outliers. Everything else is written here: losses, gradients uphill,
momentum, weight decay, schedules, Adam, averages of weights, CRL's counts, ConfidNet's stages and CIDER's prototypes. A
changed weight of a loss must show.
"""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.nn.data import Images  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.nn.ingredients.augment import flip  # noqa: E402
from twofold.nn.ingredients.fractals import Mixers  # noqa: E402
from twofold.nn.ingredients.mixing import mixup  # noqa: E402
from twofold.nn.ingredients.pixmix import pixmix  # noqa: E402
from twofold.nn.models.parts import ConfidenceBranch, FeatureNormHead, Network, PrototypeHead  # noqa: E402
from twofold.nn.recipes import recipe  # noqa: E402
from twofold.nn.training import Settings, train  # noqa: E402

ROWS, BATCH, EPOCHS, CLASSES, SIDE, SEED = 64, 16, 10, 4, 12, 3
STEPS = ROWS // BATCH * EPOCHS
LR, DECAY, MOMENTUM = 0.05, 5e-4, 0.9
TOLERANCE = 1e-5


def make_pixels(n, seed):
    rng = np.random.default_rng(seed)
    colours = np.random.default_rng(9).integers(30, 226, (CLASSES, 1, 1, 3))
    noise = 60 * rng.normal(size=(n, SIDE, SIDE, 3))
    return np.clip(colours[np.arange(n) % CLASSES] + noise, 0, 255).astype(np.uint8)


PIXELS = make_pixels(ROWS, seed=0)
LABELS = np.arange(ROWS) % CLASSES
OUTLIERS = make_pixels(40, seed=5)[:, ::-1]
MIXERS = Mixers(np.random.default_rng(1).integers(0, 256, (8, 14, 14, 3), dtype=np.uint8))


class Smooth(Network):
    """Two convolutions with tanh; the head is linear, a cosine times 8 as in SURE, T2FNorm's or CIDER's."""

    def __init__(self, *, cosine=False, branch=False, normed=False, prototypes=False):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2)
        self.second = nn.Conv2d(8, 16, 3, stride=2)
        self.linear = nn.Linear(16, CLASSES)
        if normed:
            self.linear = FeatureNormHead(16, CLASSES)
        if prototypes:
            self.linear = PrototypeHead(16, CLASSES)
        self.head_drop = nn.Identity()
        self.confidence = ConfidenceBranch("confidnet", 16) if branch else None
        self.cosine, self.abstain, self.width = cosine, False, 16

    def body(self, x):
        return torch.tanh(self.second(torch.tanh(self.first(x)))).mean(dim=(2, 3))

    def forward(self, x):
        features = self.encode(x)
        if not self.cosine:
            return self.linear(features)
        towards = features / features.norm(dim=1, keepdim=True)
        weight = self.linear.weight / self.linear.weight.norm(dim=1, keepdim=True)
        return 8.0 * towards @ weight.T


def make_network(**options):
    torch.manual_seed(SEED)
    return Smooth(**options)


def train_ours(text, folder, **options):
    """The weights that twofold ends with, by name."""
    model = make_network(**options)
    augment = ("flip",) if text.startswith("cider") else ()
    settings = Settings(epochs=EPOCHS, batch=BATCH, lr=LR, weight_decay=DECAY, augment=augment, seed=SEED)
    data = Images.of(PIXELS, LABELS, name="pictures")
    outliers = Images.of(np.ascontiguousarray(OUTLIERS), name="outliers") if text.startswith("oe") else None
    prepare = Prepare((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    found = train(
        recipe(text), model, data, folder, settings=settings, prepare=prepare, mixers=MIXERS, outliers=outliers
    )
    return {name: value.detach() for name, value in found.model.named_parameters()}


# The loops


def as_input(pixels):
    """Pixels from 0 to 255, or already in [0, 1], as the network takes them."""
    scaled = pixels / np.float32(255) if pixels.dtype == np.uint8 else pixels
    return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32)).permute(0, 3, 1, 2).sub(0.5).div(0.25)


def batches(epochs=EPOCHS):
    """Epoch, number of the step and rows of every step."""
    for epoch in range(epochs):
        order = np.random.default_rng((SEED, epoch)).permutation(ROWS)
        for i in range(ROWS // BATCH):
            yield epoch, epoch * (ROWS // BATCH) + i, order[i * BATCH : (i + 1) * BATCH]


def cross_entropy(logits, labels):
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    return -p[torch.arange(len(labels)), labels].log().mean()


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


def cosine_rate(step, steps=STEPS, lr=LR):
    return lr * (1 + math.cos(math.pi * step / steps)) / 2


class Momentum:
    """Stochastic gradient descent with momentum and coupled weight decay."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, found, lr):
        for p, v, g in zip(self.parameters, self.velocity, found, strict=True):
            if g is None:
                continue
            v.mul_(MOMENTUM).add_(g + DECAY * p)
            p.sub_(lr * v)


class Adam:
    """Adam without weight decay, from its paper."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.count = 0

    @torch.no_grad()
    def step(self, found, lr):
        self.count += 1
        for p, m, v, g in zip(self.parameters, self.first, self.second, found, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            unbiased = v / (1 - 0.999**self.count)
            p.sub_(lr * (m / (1 - 0.9**self.count)) / (unbiased.sqrt() + 1e-8))


@torch.no_grad()
def move(model, direction, length):
    """Move the weights along a direction by a length, and return what was added."""
    norm = math.sqrt(sum(float(d.double().square().sum()) for d in direction))
    moves = [d * (length / (norm + 1e-12)) for d in direction]
    for p, m in zip(model.parameters(), moves, strict=True):
        p.add_(m)
    return moves


@torch.no_grad()
def move_back(model, kept):
    for p, value in zip(model.parameters(), kept, strict=True):
        p.copy_(value)


def mixed_batch(x, y, number, epoch):
    draw = mixup(torch.zeros(BATCH, 1), torch.arange(BATCH), 10.0, seed=SEED, epoch=epoch, step=number)
    partners = draw.partners
    return draw.share * x + (1 - draw.share) * x[partners], y[partners], draw.share


def regmixup_loss(model, x, y, number, epoch):
    images, partners, share = mixed_batch(x, y, number, epoch)
    logits = model(images)
    return share * cross_entropy(logits, y) + (1 - share) * cross_entropy(logits, partners)


def loop_sure_plus(weight):
    """F-SAM on clean, mixed and textured images, then the exponential average; ``weight`` is that of MixUp."""
    model = make_network()
    descent, mean = Momentum(model), None
    average = [p.detach().clone() for p in model.parameters()]
    for epoch, number, rows in batches():
        x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
        textured = as_input(pixmix(PIXELS[rows], MIXERS, rows, seed=SEED, epoch=epoch))

        def loss(x=x, y=y, textured=textured, number=number, epoch=epoch):
            mixed = regmixup_loss(model, x, y, number, epoch)
            return cross_entropy(model(x), y) + weight * mixed + cross_entropy(model(textured), y)

        found = gradients(model, loss())
        if mean is None:
            uphill, mean = found, [g.clone() for g in found]
        else:
            uphill = [g - 1.0 * m for g, m in zip(found, mean, strict=True)]
            mean = [0.8 * m + 0.2 * g for g, m in zip(found, mean, strict=True)]
        kept = [p.detach().clone() for p in model.parameters()]
        move(model, uphill, 0.2)
        found = gradients(model, loss())
        move_back(model, kept)
        descent.step(found, cosine_rate(number))
        decay = 0.9 * (1 - math.exp(-(number + 1) / 5.0))
        average = [decay * a + (1 - decay) * p.detach() for a, p in zip(average, model.parameters(), strict=True)]
    return name_weights(model, average)


class Counts:
    """How often each row was right, and CRL's target from it."""

    def __init__(self):
        self.counts = np.zeros(ROWS)

    def target(self, rows, epoch, total):
        if total is not None:
            return self.counts[rows] / total
        low, seen = self.counts.min(), max(1, epoch)  # epochs from 0 here: one less than the paper's number
        if seen <= low:
            return np.zeros(len(rows))
        return (self.counts[rows] - low) / (seen - low)


def crl_loss(logits, target, *, pull):
    p = torch.softmax(logits, dim=1).max(dim=1).values
    total = 0.0
    for i in range(len(p)):
        j = (i + 1) % len(p)
        gap = float(target[i] - target[j])
        if gap > 0:
            total = total + torch.clamp(gap - (p[i] - p[j]), min=0)
        elif gap < 0:
            total = total + torch.clamp(-gap + (p[i] - p[j]), min=0)
        elif pull:
            total = total + (p[i] - p[j]).abs()
    return total / len(p)


def swa_rate(step):
    start = 0.6 * STEPS
    if step < start:
        return cosine_rate(step)
    reached = cosine_rate(int(start))
    done = min(1.0, (step - start) / max(1, STEPS // 20))
    return reached + (LR - reached) * (1 - math.cos(math.pi * done)) / 2


def loop_sure(weight):
    """SAM on clean and mixed images and CRL with a cosine head, then the plain average of the last epochs."""
    model = make_network(cosine=True)
    descent, record = Momentum(model), Counts()
    snapshots = []
    for epoch, number, rows in batches():
        x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
        target = record.target(rows, epoch, total=None)

        def loss(x=x, y=y, target=target, number=number, epoch=epoch):
            logits = model(x)
            ranking = crl_loss(logits, target, pull=False)
            mixed = regmixup_loss(model, x, y, number, epoch)
            return cross_entropy(logits, y) + mixed + weight * ranking

        right = (model(x).argmax(dim=1) == y).numpy()
        kept = [p.detach().clone() for p in model.parameters()]
        found = [torch.zeros_like(p) if g is None else g for p, g in zip(kept, gradients(model, loss()), strict=True)]
        move(model, found, 0.2)
        found = gradients(model, loss())
        move_back(model, kept)
        descent.step(found, swa_rate(number))
        record.counts[rows] += right
        if (number + 1) % (ROWS // BATCH) == 0 and epoch + 1 > 0.6 * EPOCHS:
            snapshots.append([p.detach().clone() for p in model.parameters()])
    return name_weights(model, [sum(values) / len(snapshots) for values in zip(*snapshots, strict=True)])


def loop_crl(weight, *, total=None, pull=False):
    model = make_network()
    descent, record = Momentum(model), Counts()
    for epoch, number, rows in batches():
        x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
        logits = model(x)
        ranking = crl_loss(logits, record.target(rows, epoch, total), pull=pull)
        descent.step(gradients(model, cross_entropy(logits, y) + weight * ranking), cosine_rate(number))
        record.counts[rows] += (logits.argmax(dim=1) == y).numpy()
    return name_weights(model)


def edl_loss(logits, labels, weight, objective, evidence):
    alpha = 1 + {"exp": torch.exp, "softplus": lambda z: torch.log(1 + torch.exp(z))}[evidence](logits)
    wanted = torch.eye(CLASSES)[labels]
    strength = alpha.sum(dim=1, keepdim=True)
    mean = alpha / strength
    fit = {
        "log": wanted * (strength.log() - alpha.log()),
        "digamma": wanted * (torch.digamma(strength) - torch.digamma(alpha)),
        "mse": (wanted - mean) ** 2 + mean * (1 - mean) / (strength + 1),
    }[objective].sum(dim=1)
    wrong = torch.distributions.Dirichlet((wanted + (1 - wanted) * alpha).double())
    flat = torch.distributions.Dirichlet(torch.ones(CLASSES, dtype=torch.float64))
    return (fit + weight * torch.distributions.kl_divergence(wrong, flat)).mean()


def loop_edl(weight, *, objective="log", evidence="exp", annealing=0):
    model = make_network()
    descent = Momentum(model)
    for epoch, number, rows in batches():
        x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
        reached = weight * min(1, epoch / annealing) if annealing else weight
        loss = edl_loss(model(x), y, reached, objective, evidence)
        descent.step(gradients(model, loss), cosine_rate(number))
    return name_weights(model)


def loop_oe(weight):
    """Cross-entropy, and half of that between the predictions on twice as many outliers and the uniform one."""
    model = make_network()
    descent = Momentum(model)
    for _, number, rows in batches():
        x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
        drawn = np.random.default_rng((SEED, 1, number)).choice(len(OUTLIERS), 2 * BATCH, replace=True)
        outside = model(as_input(OUTLIERS[drawn]))
        uniform = (torch.log(outside.exp().sum(dim=1)) - outside.mean(dim=1)).mean()
        descent.step(gradients(model, cross_entropy(model(x), y) + weight * uniform), cosine_rate(number))
    return name_weights(model)


def loop_confidnet(weight):
    """The classifier; its branch alone; the branch with a copy of the encoder. ``weight`` scales the squared error."""
    model = make_network(branch=True)
    descent = Momentum(model)
    for _, number, rows in batches():
        loss = cross_entropy(model(as_input(PIXELS[rows])), torch.from_numpy(LABELS[rows]))
        descent.step(gradients(model, loss), cosine_rate(number))
    own = Smooth()
    own.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("confidence.")})
    branch = model.confidence.layers
    for epochs, modules, encode in (
        (8, [branch], model.encode),
        (2, [branch, own.first, own.second], own.encode),
    ):
        ascent = Adam(p for module in modules for p in module.parameters())
        steps = epochs * ROWS // BATCH
        for _, number, rows in batches(epochs):
            x, y = as_input(PIXELS[rows]), torch.from_numpy(LABELS[rows])
            with torch.no_grad():
                truth = torch.softmax(model(x), dim=1)[torch.arange(BATCH), y]
            said = 1 / (1 + torch.exp(-branch(encode(x))[:, 0]))
            loss = weight * ((said - truth) ** 2).mean()
            found = torch.autograd.grad(loss, ascent.parameters)
            ascent.step(found, cosine_rate(number, steps, lr=1e-3))
    weights = name_weights(model)
    for name in ("first", "second"):
        for key, value in getattr(own, name).named_parameters():
            weights[f"confidence.encoder.{name}.{key}"] = value.detach()
    return weights


def loop_t2fnorm(weight):
    """Cross-entropy of a linear layer on features of length ten; ``weight`` scales the loss."""
    model = make_network(normed=True)
    head = model.linear
    descent = Momentum(model)
    for _, number, rows in batches():
        h = model.body(as_input(PIXELS[rows]))
        logits = 10.0 * h / h.norm(dim=1, keepdim=True) @ head.weight.T + head.bias
        loss = weight * cross_entropy(logits, torch.from_numpy(LABELS[rows]))
        descent.step(gradients(model, loss), cosine_rate(number))
    return name_weights(model)


def project(model, images):
    first, _, last = model.linear.projection
    hidden = torch.clamp(model.body(images) @ first.weight.T + first.bias, min=0)
    u = hidden @ last.weight.T + last.bias
    return u / u.norm(dim=1, keepdim=True)


def loop_cider(weight):
    """Compactness and dispersion of two flipped views; each row moves the prototype of its class."""
    model = make_network(prototypes=True)
    descent = Momentum(model)
    with torch.no_grad():
        units = project(model, as_input(flip(PIXELS, np.arange(ROWS), seed=SEED, epoch=EPOCHS)))
        prototypes = [units[c == LABELS].mean(dim=0) for c in range(CLASSES)]
        prototypes = [m / m.norm() for m in prototypes]
    for epoch, number, rows in batches():
        one = flip(PIXELS[rows], rows, seed=SEED, epoch=epoch)
        two = flip(PIXELS[rows], rows, seed=SEED, epoch=epoch + 2**32)
        units = torch.cat([project(model, as_input(one)), project(model, as_input(two))])
        labels = [*LABELS[rows], *LABELS[rows]]
        moved = list(prototypes)
        for u, y in zip(units, labels, strict=True):
            mixed = 0.95 * moved[y] + 0.05 * u
            moved[y] = mixed / mixed.norm()
        prototypes = [m.detach() for m in moved]
        apart = 0.0
        for i, m in enumerate(moved):
            others = [torch.exp(m @ other / 0.1) for j, other in enumerate(moved) if j != i]
            apart = apart + torch.log(sum(others) / (CLASSES - 1)) / CLASSES
        near = cross_entropy(units @ torch.stack(prototypes).T / 0.1, torch.tensor(labels))
        loss = weight * (0.1 / 0.07) * near + apart
        descent.step(gradients(model, loss), cosine_rate(number))
    return name_weights(model)


def name_weights(model, values=None):
    values = values or [p.detach() for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, copy.deepcopy(values), strict=True))


def difference(ours, theirs):
    assert set(theirs) == set(ours)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


EDL = "edl(weight=0.1, objective='digamma', evidence='softplus', annealing=4)"
CASES = {
    "sure_plus(decay=0.9, ramp=5)": (loop_sure_plus, 1.0, {}, {}),
    "sure": (loop_sure, 1.0, {}, {"cosine": True}),
    "crl": (loop_crl, 1.0, {}, {}),
    "crl(total='run', equal='pull')": (loop_crl, 1.0, {"total": EPOCHS, "pull": True}, {}),
    "edl(weight=0.1)": (loop_edl, 0.1, {}, {}),
    EDL: (loop_edl, 0.1, {"objective": "digamma", "evidence": "softplus", "annealing": 4}, {}),
    "edl(weight=0.1, objective='mse')": (loop_edl, 0.1, {"objective": "mse"}, {}),
    "t2fnorm": (loop_t2fnorm, 1.0, {}, {"normed": True}),
    "cider": (loop_cider, 2.0, {}, {"prototypes": True}),
    "oe": (loop_oe, 0.5, {}, {}),
    "confidnet(branch_lr=1e-3, encoder_epochs=0.2, encoder_lr=1e-3)": (loop_confidnet, 1.0, {}, {"branch": True}),
}


@pytest.mark.parametrize("text", CASES)
def test_weights_are_those_of_an_independent_loop(text, tmp_path):
    loop, weight, settings, options = CASES[text]
    ours = train_ours(text, tmp_path, **options)
    assert difference(ours, loop(weight, **settings)) < TOLERANCE
    start = dict(make_network(**options).named_parameters())
    moved = {name: value.detach() for name, value in start.items()}
    assert max(float((ours[name] - value).abs().max()) for name, value in moved.items()) > 1e-2
    assert difference(ours, loop(0.95 * weight, **settings)) > TOLERANCE  # a changed weight of a loss shows
