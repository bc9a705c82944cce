"""Scores that need the network itself: inputs moved along a gradient, and feature maps without their leading part.

Each is a function of a classifier and a batch of normalised images that returns one value per row. Extraction stores
it among the learned outputs, and the scores of the same name read it there. A step of ``epsilon`` is measured in pixels
in [0, 1]: it is divided by the channels' standard deviation ``std`` that normalised the images. Where a gradient is
zero its sign counts as +1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.models import Classifier
from twofold.scores.chain import Chain
from twofold.scores.learned import odin_name

Perturbation = Callable[[Classifier, Tensor], Tensor | Mapping[str, Tensor]]
"""Computes a value for each row of a batch, or several by name."""


def _move_images(images: Tensor, loss: Callable[[Tensor], Tensor], epsilon: float, std: Sequence[float]) -> Tensor:
    """Move the images by epsilon against the sign of the gradient of a loss summed over rows."""
    length = _checks.number(epsilon, "epsilon", 0.0, math.inf, open_high=True)
    return images - length * _descent_direction(images, loss, std)


def _descent_direction(images: Tensor, loss: Callable[[Tensor], Tensor], std: Sequence[float]) -> Tensor:
    """Compute the sign of the gradient of a loss summed over rows, divided by the spread of each channel."""
    for spread in std:
        _checks.number(spread, "std", 0.0, math.inf, open_low=True, open_high=True)
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise InvalidInput("input perturbation needs a batch of images (N, C, H, W)")
    with torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x), x)
    sign = torch.where(gradient >= 0, 1.0, -1.0)
    spreads = torch.tensor(std, device=images.device, dtype=images.dtype).view(1, -1, 1, 1)
    return sign / spreads


def _odin_loss(classifier: Classifier, temperature: float) -> Callable[[Tensor], Tensor]:
    """Return the cross-entropy of the predicted class at a temperature, as a function of the images."""

    def loss(x: Tensor) -> Tensor:
        logits = classifier(x).logits
        return nn.functional.cross_entropy(logits / temperature, logits.argmax(dim=1), reduction="sum")

    return loss


def _odin_value(classifier: Classifier, images: Tensor, temperature: float) -> Tensor:
    """Compute temperature times the log of the largest softmax probability at that temperature."""
    with torch.no_grad():
        logits = classifier(images).logits.double()
    return logits.max(dim=1).values - temperature * torch.logsumexp(logits / temperature, dim=1)


@dataclass(frozen=True)
class Odin:
    r"""Compute the softmax at a high temperature after a step towards the predicted class (ODIN).

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}(\nabla_x \mathrm{CE}(z / T, \hat y)) / \sigma, \qquad
              s = \max_k \tilde z_k - T \log \sum_k e^{\tilde z_k / T}

    Parameters
    ----------
    temperature : float, default=1000.0
        Temperature T, above 0.
    epsilon : float, default=0.0014
        Length of the step, in pixels in [0, 1]; 0 leaves the images unchanged.
    std : tuple of float, default=(1.0, 1.0, 1.0)
        Standard deviation :math:`\sigma` of each channel that normalised the images.

    References
    ----------
    Liang et al., ICLR 2018.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> Odin()(classifier, torch.zeros(4, 3, 2, 2)).shape
    torch.Size([4])
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Compute the score of each image in a batch.

        Parameters
        ----------
        classifier : Classifier
            The network.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        Tensor of shape (N,), float64
            Score; higher is safer.

        Raises
        ------
        InvalidInput
            If the temperature or a standard deviation is not a finite number above 0, ``epsilon`` is not a finite
            number of at least 0, or the images are not a tensor (N, C, H, W).
        """
        temperature = _checks.number(self.temperature, "temperature", 0.0, math.inf, open_low=True, open_high=True)
        moved = _move_images(images, _odin_loss(classifier, temperature), self.epsilon, self.std)
        return _odin_value(classifier, moved, temperature)


@dataclass(frozen=True)
class OdinGrid:
    """Compute ODIN at every temperature and step of a grid.

    Each temperature takes one gradient, which all steps share; each step above 0 takes one further pass.

    Parameters
    ----------
    temperatures : tuple of float, default=(1.0, 10.0, 100.0, 1000.0)
        Temperatures, above 0; the default is the grid of ODIN, OpenOOD and the unknown-detection benchmark.
    epsilons : tuple of float, default=(0.0, 0.0014, 0.002, 0.0028)
        Lengths of the step, in pixels in [0, 1]: those that OpenOOD and the unknown-detection benchmark chose.
    std : tuple of float, default=(1.0, 1.0, 1.0)
        Standard deviation of each channel that normalised the images.

    Raises
    ------
    InvalidInput
        If a temperature is not a finite number above 0, a step is not a finite number of at least 0, or one of the two
        is empty.

    References
    ----------
    Liang et al., ICLR 2018.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> sorted(OdinGrid((1.0, 10.0), (0.0, 0.002))(classifier, torch.zeros(4, 3, 2, 2)))
    ['odin_t10_e0', 'odin_t10_e0.002', 'odin_t1_e0', 'odin_t1_e0.002']
    """

    temperatures: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    epsilons: tuple[float, ...] = (0.0, 0.0014, 0.002, 0.0028)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if not self.temperatures or not self.epsilons:
            raise InvalidInput("a grid of ODIN needs at least one temperature and one step")
        for temperature in self.temperatures:
            for epsilon in self.epsilons:
                odin_name(temperature, epsilon)  # checks both

    @classmethod
    def parse(cls, text: str, std: tuple[float, ...] = (1.0, 1.0, 1.0)) -> OdinGrid:
        """Read a grid from text.

        Parameters
        ----------
        text : str
            Temperatures, a colon and steps, each separated by commas.
        std : tuple of float, default=(1.0, 1.0, 1.0)
            Standard deviation of each channel that normalised the images.

        Returns
        -------
        OdinGrid
            The grid.

        Raises
        ------
        InvalidInput
            If the text has another form, or a value is out of range.

        Examples
        --------
        >>> OdinGrid.parse("1,10:0,0.002").epsilons
        (0.0, 0.002)
        """
        temperatures, _, epsilons = text.partition(":")
        try:
            values = [tuple(float(one) for one in part.split(",")) for part in (temperatures, epsilons)]
        except ValueError as error:
            raise InvalidInput(f"a grid of ODIN is TEMPERATURES:STEPS, as 1,10,100:0,0.002, got {text!r}") from error
        return cls(values[0], values[1], std)

    def __call__(self, classifier: Classifier, images: Tensor) -> dict[str, Tensor]:
        """Compute the scores of each image in a batch.

        Parameters
        ----------
        classifier : Classifier
            The network.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        dict of str to Tensor of shape (N,), float64
            Scores by the name of temperature and step; higher is safer.
        """
        values: dict[str, Tensor] = {}
        for temperature in self.temperatures:
            direction = _descent_direction(images, _odin_loss(classifier, temperature), self.std)
            for epsilon in self.epsilons:
                moved = images - epsilon * direction
                values[odin_name(temperature, epsilon)] = _odin_value(classifier, moved, temperature)
        return values


@dataclass(frozen=True)
class PerturbedMahalanobis:
    r"""Compute the Mahalanobis score after a step towards the nearest class.

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}(\nabla_x \tfrac12 \min_c M_c(x)) / \sigma, \qquad
              s = -\min_c M_c(\tilde x)

    Parameters
    ----------
    chain : Chain
        ``scorer("mds")`` fitted on the training outputs of this model.
    epsilon : float, default=0.0014
        Length of the step, in pixels in [0, 1]; 0 leaves the images unchanged.
    std : tuple of float, default=(1.0, 1.0, 1.0)
        Standard deviation :math:`\sigma` of each channel that normalised the images.

    References
    ----------
    Lee et al., NeurIPS 2018.

    Examples
    --------
    >>> import twofold
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> images = torch.rand(20, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    >>> found = classifier(images)
    >>> train = twofold.Outputs(found.logits, labels=torch.arange(20) % 2, features=found.features)
    >>> PerturbedMahalanobis(twofold.scorer("mds").fit(train))(classifier, images).shape
    torch.Size([20])
    """

    chain: Chain
    epsilon: float = 0.0014
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Compute the score of each image in a batch.

        Parameters
        ----------
        classifier : Classifier
            The network on whose outputs the chain was fitted.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        Tensor of shape (N,), float64
            Score; higher is safer.

        Raises
        ------
        InvalidInput
            If the chain is not a fitted ``mds``, ``epsilon`` is not a finite number of at least 0, a standard deviation
            is not a finite number above 0, or the images are not a tensor (N, C, H, W).
        """
        fitted = self.chain.steps[-1].learnt
        if self.chain.spec.split("(")[0] != "mds" or fitted is None:
            raise InvalidInput(f'PerturbedMahalanobis needs scorer("mds").fit(train), got {self.chain.spec}')
        whiten = torch.tensor(fitted.whiten, device=images.device)
        centres = torch.tensor(fitted.centres, device=images.device)
        centres = centres[~centres[:, 0].isnan()]  # a class without training rows has none

        def nearest_distance(x: Tensor) -> Tensor:
            whitened = classifier(x).features.double() @ whiten
            return torch.cdist(whitened, centres).square().min(dim=1).values

        moved = _move_images(images, lambda x: 0.5 * nearest_distance(x).sum(), self.epsilon, self.std)
        with torch.no_grad():
            return -nearest_distance(moved)


@dataclass(frozen=True)
class RankFeat:
    """Compute the energy of the mean logits after removing the leading singular triple of each layer's maps (RankFeat).

    Parameters
    ----------
    layers : tuple of str, default=("layer3", "layer4")
        Names of the layers, usually the last two stages. Each is changed in a separate pass, and the logits of the
        passes are averaged.

    Notes
    -----
    The triple is found by squaring the channels' Gram matrix eight times, which needs no random start.

    References
    ----------
    Song, Sebe and Wang, NeurIPS 2022.

    Examples
    --------
    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> RankFeat(("1",))(Classifier(network), torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5])
    """

    layers: tuple[str, ...] = ("layer3", "layer4")

    def __call__(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Compute the score of each image in a batch.

        Parameters
        ----------
        classifier : Classifier
            The network, which has modules of the names in ``layers``.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        Tensor of shape (N,), float64
            Score; higher is safer.

        Raises
        ------
        UnknownName
            If the model has no module of a name.
        InvalidInput
            If ``layers`` is empty.
        """
        modules = classifier.layers(list(self.layers))

        def remove_leading_part(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
            maps = output.flatten(2)
            leading = _leading_vectors(maps)
            return (maps - leading @ (leading.transpose(1, 2) @ maps)).reshape(output.shape)

        total = None
        with torch.no_grad():
            for module in modules.values():
                hook = module.register_forward_hook(remove_leading_part)
                try:
                    logits = classifier(images).logits.double()
                finally:
                    hook.remove()
                total = logits if total is None else total + logits
        if total is None:
            raise InvalidInput("RankFeat needs at least one layer")
        return torch.logsumexp(total / len(modules), dim=1)


def _leading_vectors(maps: Tensor, squarings: int = 8) -> Tensor:
    """Compute leading left singular vectors (N, channels, 1) from a high power of each Gram matrix."""
    gram = maps.double() @ maps.double().transpose(1, 2)
    for _ in range(squarings):
        gram = gram / torch.linalg.matrix_norm(gram, keepdim=True).clamp_min(1e-300)
        gram = gram @ gram
    lengths = torch.linalg.vector_norm(gram, dim=1)
    best = lengths.argmax(dim=1)
    columns = gram[torch.arange(len(gram)), :, best]  # the longest of each image
    vectors = columns / lengths.gather(1, best[:, None]).clamp_min(1e-300)
    return vectors[:, :, None].to(maps.dtype)
