r"""Scores that need the network itself: inputs moved along a gradient, and feature maps without their leading part.

Each is a function of a classifier and a batch of normalised images that gives one value a row; extraction stores it
among the learned outputs, and the scores of the same name read it there. A step of ``epsilon`` is measured in pixels in
[0, 1]: it is divided by the channels' standard deviation ``std`` that normalised the images. Where a gradient is zero
its sign counts as +1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.models import Classifier
from twofold.steps import Chain

Perturbation = Callable[[Classifier, Tensor], Tensor]


def _stepped(images: Tensor, loss: Callable[[Tensor], Tensor], epsilon: float, std: Sequence[float]) -> Tensor:
    """The images, moved by epsilon against the sign of the gradient of a loss summed over rows."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise InvalidInput("input perturbation needs a batch of images (N, C, H, W)")
    with torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x), x)
    sign = torch.where(gradient >= 0, 1.0, -1.0)
    return images - epsilon * sign / torch.tensor(std, device=images.device, dtype=images.dtype).view(1, -1, 1, 1)


@dataclass(frozen=True)
class Odin:
    r"""Softmax at a high temperature after a step towards the predicted class (Liang et al., ICLR 2018).

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}(\nabla_x \mathrm{CE}(z / T, \hat y)) / \sigma, \qquad
              s = \max_k \tilde z_k - T \log \sum_k e^{\tilde z_k / T}
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Values of a batch."""
        t = _checks.number(self.temperature, "temperature", 0.0, float("inf"), open_low=True, open_high=True)
        chosen = None

        def loss(x: Tensor) -> Tensor:
            nonlocal chosen
            z = classifier(x).logits
            chosen = z.argmax(dim=1) if chosen is None else chosen
            return nn.functional.cross_entropy(z / t, chosen, reduction="sum")

        moved = _stepped(images, loss, self.epsilon, self.std)
        with torch.no_grad():
            z = classifier(moved).logits.double()
        return z.max(dim=1).values - t * torch.logsumexp(z / t, dim=1)


@dataclass(frozen=True)
class Mahalanobis:
    r"""Mahalanobis score after a step towards the nearest class (Lee et al., NeurIPS 2018).

    ``chain`` is ``scorer("mds")`` fitted on the training outputs of this model.

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}(\nabla_x \tfrac12 \min_c M_c(x)) / \sigma, \qquad
              s = -\min_c M_c(\tilde x)
    """

    chain: Chain
    epsilon: float = 0.0014
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Values of a batch."""
        fitted = self.chain.steps[-1].learnt
        if self.chain.spec.split("(")[0] != "mds" or fitted is None:
            raise InvalidInput(f'Mahalanobis needs scorer("mds").fit(train), got {self.chain.spec}')
        whiten = torch.tensor(fitted.whiten, device=images.device)
        centres = torch.tensor(fitted.centres, device=images.device)
        centres = centres[~centres[:, 0].isnan()]

        def nearest(x: Tensor) -> Tensor:
            h = classifier(x).features.double() @ whiten
            return torch.cdist(h, centres).square().min(dim=1).values

        moved = _stepped(images, lambda x: 0.5 * nearest(x).sum(), self.epsilon, self.std)
        with torch.no_grad():
            return -nearest(moved)


@dataclass(frozen=True)
class RankFeat:
    """Energy of the mean logits after the leading singular triple of each named layer's maps is taken away.

    Song, Sebe, Wang, NeurIPS 2022. ``layers`` are usually the last two stages; each is changed in a pass of its own.
    The triple is found by squaring the channels' Gram matrix eight times, which needs no random start.
    """

    layers: tuple[str, ...] = ("layer3", "layer4")

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Values of a batch."""
        modules = classifier.layers(list(self.layers))

        def deflate(module: nn.Module, given: object, result: Tensor) -> Tensor:
            maps = result.flatten(2)
            u = _leading(maps)
            return (maps - u @ (u.transpose(1, 2) @ maps)).reshape(result.shape)

        total = None
        with torch.no_grad():
            for module in modules.values():
                hook = module.register_forward_hook(deflate)
                try:
                    z = classifier(images).logits.double()
                finally:
                    hook.remove()
                total = z if total is None else total + z
        if total is None:
            raise InvalidInput("RankFeat needs at least one layer")
        return torch.logsumexp(total / len(modules), dim=1)


def _leading(maps: Tensor, squarings: int = 8) -> Tensor:
    """Leading left singular vectors (N, channels, 1): a high power of each Gram matrix has nothing else left."""
    gram = maps.double() @ maps.double().transpose(1, 2)
    for _ in range(squarings):
        gram = gram / torch.linalg.matrix_norm(gram, keepdim=True).clamp_min(1e-300)
        gram = gram @ gram
    lengths = torch.linalg.vector_norm(gram, dim=1)
    best = lengths.argmax(dim=1)
    u = gram[torch.arange(len(gram)), :, best] / lengths.gather(1, best[:, None]).clamp_min(1e-300)
    return u[:, :, None].to(maps.dtype)
