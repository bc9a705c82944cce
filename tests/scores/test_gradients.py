"""Closed forms of gradients against automatic differentiation, and GROOD against a loop."""

import numpy as np
import pytest
from score_worlds import arrays, softmax, world

from twofold.errors import InvalidInput
from twofold.scores.chain import scorer

TRAIN, TEST = world(), world(25, seed=1)


def head_gradients(outputs, loss):
    """Gradient of a loss of the logits by weight and bias, for each row, by autograd."""
    torch = pytest.importorskip("torch")
    found = []
    for h in arrays(outputs)[0]:
        weight = torch.tensor(np.asarray(outputs.head.weight), requires_grad=True)
        bias = torch.tensor(np.asarray(outputs.head.bias), requires_grad=True)
        value = loss(torch, weight @ torch.tensor(h) + bias)
        found.append([part.numpy() for part in torch.autograd.grad(value, (weight, bias))])
    return found


def test_graduncertainty_is_the_norm_of_autograd():
    got = scorer("graduncertainty").score(TEST)
    gradients = head_gradients(TEST, lambda torch, z: -torch.log_softmax(z, dim=0).sum())
    for value, (weight, bias) in zip(got, gradients, strict=True):
        assert value == pytest.approx((weight**2).sum() + (bias**2).sum(), rel=1e-10)


@pytest.mark.parametrize("variance", [0.5, 0.97, 1.0])
def test_gradorth_is_the_projected_gradient_of_autograd(variance):
    got = scorer(f"gradorth(variance={variance})").fit(TRAIN).score(TEST)
    _, singular, right = np.linalg.svd(arrays(TRAIN)[0])
    shares = np.cumsum(singular**2) / (singular**2).sum()
    count = 1 + sum(share < variance - 1e-12 for share in shares)
    basis = right[:count].T
    gradients = head_gradients(TEST, lambda torch, z: -torch.log_softmax(z, dim=0).mean())
    for value, (weight, _) in zip(got, gradients, strict=True):
        assert value == pytest.approx(np.linalg.norm(weight @ basis @ basis.T), rel=1e-9)


def prototypes():
    h, _, labels, _ = arrays(TRAIN)
    return np.stack([h[labels == c].mean(axis=0) for c in range(4)])


def outlier_gradient(h, classes, outlier):
    distances = [np.linalg.norm(h - row) for row in [*classes, outlier]]
    return softmax(-np.array(distances))[-1] * (h - outlier) / distances[-1]


@pytest.mark.parametrize("outlier", ["mean", np.linspace(0.0, 1.0, 7)], ids=["mean", "vector"])
def test_grood_against_a_loop(outlier):
    got = scorer("grood", prototype=outlier).fit(TRAIN).score(TEST)
    classes = prototypes()
    point = classes.mean(axis=0) if isinstance(outlier, str) else outlier
    h, _, labels, predicted = arrays(TRAIN)
    bank = [outlier_gradient(row, classes, point) for row in h[labels == predicted]]
    for value, row in zip(got, arrays(TEST)[0], strict=True):
        own = outlier_gradient(row, classes, point)
        assert value == pytest.approx(-min(((own - other) ** 2).sum() for other in bank), rel=1e-9)


def test_gradient_of_grood_is_that_of_autograd_whatever_is_predicted():
    torch = pytest.importorskip("torch")
    classes = prototypes()
    for i, row in enumerate(arrays(TEST)[0][:8]):
        outlier = torch.tensor(classes.mean(axis=0), requires_grad=True)
        points = [*torch.tensor(classes), outlier]
        scores = torch.stack([-torch.linalg.vector_norm(torch.tensor(row) - point) for point in points])
        loss = -torch.log_softmax(scores, dim=0)[i % 4]
        (gradient,) = torch.autograd.grad(loss, outlier)
        assert outlier_gradient(row, classes, classes.mean(axis=0)) == pytest.approx(gradient.numpy(), rel=1e-9)


def test_grood_needs_correct_rows_and_a_fitting_prototype():
    wrong = TRAIN.replace(predictions=(np.asarray(TRAIN.labels) + 1) % 4)
    with pytest.raises(InvalidInput, match="correctly classified"):
        scorer("grood").fit(wrong)
    with pytest.raises(InvalidInput, match="prototype has 2 values"):
        scorer("grood", prototype=np.ones(2)).fit(TRAIN)
    with pytest.raises(InvalidInput, match="prototype"):
        scorer("grood(prototype='median')").fit(TRAIN)
