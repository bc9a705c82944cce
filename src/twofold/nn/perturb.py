"""Scores that need the network itself: inputs moved along a gradient, and feature maps without their leading part.

Each is a function of a classifier and a batch of normalised images that returns one value per row, or rows of values.
Extraction stores single values among the learned outputs and rows among the layers, and the scores of the same name
read them there. A step of ``epsilon`` is measured in pixels in [0, 1] where ``std`` is given: it is divided by the
channels' standard deviation that normalised the images. Where a gradient is zero its sign counts as +1, unless a class
says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.models import Classifier
from twofold.scores.chain import Chain
from twofold.scores.learned import odin_name
from twofold.scores.shaping import PERTURBED

Perturbation = Callable[[Classifier, Tensor], Tensor | Mapping[str, Tensor]]
"""Computes a value for each row of a batch, or several by name; of a tensor (N, K) extraction makes a layer."""

PRO_STEPS = {"msp": (0.003, 1), "entropy": (0.0014, 2), "gen": (1e-4, 3)}
"""Length and number of the steps of PRO for each score, as its authors chose them."""
GEN_GAMMA, GEN_TOP = 0.1, 100  # exponent and number of classes of the generalised entropy
RELUS = (nn.functional.relu, nn.functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)


def _move_images(
    images: Tensor,
    loss: Callable[[Tensor], Tensor],
    epsilon: float,
    std: Sequence[float],
    *,
    only_largest: bool = False,
) -> Tensor:
    """Move the images by epsilon against the sign of the gradient of a loss summed over rows."""
    length = _checks.number(epsilon, "epsilon", 0.0, math.inf, open_high=True)
    return images - length * _descent_direction(images, loss, std, only_largest=only_largest)


def _descent_direction(
    images: Tensor, loss: Callable[[Tensor], Tensor], std: Sequence[float], *, only_largest: bool = False
) -> Tensor:
    """Compute the sign of the gradient of a loss summed over rows, divided by the spread of each channel.

    With ``only_largest`` all entries but the one with the largest gradient are 0.
    """
    spreads = _channel_spreads(images, std)
    gradient = _input_gradient(images, loss)
    direction = torch.where(gradient >= 0, 1.0, -1.0) / spreads
    if not only_largest:
        return direction
    largest = gradient.abs().flatten(1).argmax(dim=1, keepdim=True)
    mask = torch.zeros_like(gradient).flatten(1).scatter(1, largest, 1.0)
    return direction * mask.view_as(gradient)


def _channel_spreads(images: Tensor, std: Sequence[float]) -> Tensor:
    """Return the standard deviations of the channels, checked, in a shape that divides images."""
    for spread in std:
        _checks.number(spread, "std", 0.0, math.inf, open_low=True, open_high=True)
    return torch.tensor(std, device=images.device, dtype=images.dtype).view(1, -1, 1, 1)


def _input_gradient(images: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute the gradient of a loss summed over rows by the images."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise InvalidInput("input perturbation needs a batch of images (N, C, H, W)")
    with torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x), x)
    return gradient


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
class IOdin:
    r"""Compute ODIN after a step that moves only the entry of the input with the largest gradient (iODIN).

    Parameters
    ----------
    temperature : float, default=1000.0
        Temperature, above 0.
    epsilon : float, default=0.0014
        Length of the step, in pixels in [0, 1].
    std : tuple of float, default=(1.0, 1.0, 1.0)
        Standard deviation of each channel that normalised the images.

    References
    ----------
    Regmi, ASCOOD, 2025.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> IOdin()(classifier, torch.zeros(4, 3, 2, 2)).shape
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
        loss = _odin_loss(classifier, temperature)
        moved = _move_images(images, loss, self.epsilon, self.std, only_largest=True)
        return _odin_value(classifier, moved, temperature)


@dataclass(frozen=True)
class Pro:
    r"""Compute the least confidence along a few steps of the input that lower it (PRO).

    .. math:: s = \min_{0 \le t \le T} S(x_t), \qquad x_{t+1} = x_t - \epsilon \, \mathrm{sign}(\nabla_x S(x_t))

    Parameters
    ----------
    of : {"msp", "entropy", "gen"}, default="msp"
        The score S: the log of the largest probability, the negative entropy, or the negative generalised entropy.
    epsilon : float, optional
        Length of a step, in units of the normalised images; by default that of the authors for this score.
    steps : int, optional
        Number T of steps; by default that of the authors for this score.

    Notes
    -----
    Steps for ``"msp"`` follow the gradient of the log-odds, which points the same way and does not vanish where the
    probability is 1 to float32. A gradient of 0 moves nothing.

    References
    ----------
    Chen et al., CVPR 2025, arXiv:2503.18784.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> sorted(Pro("gen")(classifier, torch.zeros(4, 3, 2, 2)))
    ['pro/gen']
    """

    of: str = "msp"
    epsilon: float | None = None
    steps: int | None = None

    def __call__(self, classifier: Classifier, images: Tensor) -> dict[str, Tensor]:
        """Compute the score of each image in a batch.

        Parameters
        ----------
        classifier : Classifier
            The network.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        dict of str to Tensor of shape (N,), float64
            The score as ``pro/msp``, ``pro/entropy`` or ``pro/gen``; higher is safer.

        Raises
        ------
        InvalidInput
            If ``of`` is unknown, a setting is out of range, or the images are not a tensor (N, C, H, W).
        """
        _checks.choice(self.of, "of", tuple(PRO_STEPS))
        epsilon, steps = PRO_STEPS[self.of]
        if self.epsilon is not None:
            epsilon = _checks.number(self.epsilon, "epsilon", 0.0, math.inf, open_high=True)
        if self.steps is not None:
            steps = _checks.whole(self.steps, "steps", 0)
        moved = images
        least = self._score(classifier, moved)
        for _ in range(steps):
            gradient = _input_gradient(moved, lambda x: _pro_slope(classifier(x).logits, self.of).sum())
            moved = moved - epsilon * gradient.sign()
            least = torch.minimum(least, self._score(classifier, moved))
        return {f"pro/{self.of}": least}

    def _score(self, classifier: Classifier, images: Tensor) -> Tensor:
        """Compute the score S of each image, without gradients."""
        with torch.no_grad():
            slope = _pro_slope(classifier(images).logits, self.of)
        return nn.functional.logsigmoid(slope) if self.of == "msp" else slope


def _pro_slope(logits: Tensor, of: str) -> Tensor:
    """Compute what PRO lowers: the log-odds of the largest probability, or a negative entropy, in float64."""
    log_p = logits.double().log_softmax(dim=1)
    if of == "entropy":
        return (log_p.exp() * log_p).sum(dim=1)
    is_top = nn.functional.one_hot(log_p.argmax(dim=1), log_p.shape[1]).bool()
    others = log_p.masked_fill(is_top, -math.inf)
    log_miss = others.logsumexp(dim=1)
    if of == "msp":
        return log_p.amax(dim=1) - log_miss
    log_rest = torch.where(is_top, log_miss[:, None], torch.log1p(-others.exp()))
    terms = torch.exp(GEN_GAMMA * (log_p + log_rest))
    chosen = log_p.topk(min(GEN_TOP, log_p.shape[1]), dim=1).indices
    return -terms.gather(1, chosen).sum(dim=1)


@dataclass(frozen=True)
class PerturbedFeatures:
    r"""Compute the features of inputs whose least important entries are moved, for AdaSCALE.

    .. math:: x' = x + \epsilon \, \mathrm{sign}(g) \odot m, \qquad g = \nabla_x z_{\hat y}

    with m the mask of the entries with the smallest :math:`|g|`.

    Parameters
    ----------
    share : float, default=0.05
        Share of the entries that are moved, in [0, 1].
    epsilon : float, default=0.5
        Length of the step, in units of the normalised images; they are not clipped.

    Notes
    -----
    Entries without gradient are among the smallest, and are not moved.

    References
    ----------
    Regmi, 2025, arXiv:2503.08023.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> PerturbedFeatures()(classifier, torch.ones(4, 3, 2, 2))["penultimate/perturbed"].shape
    torch.Size([4, 12])
    """

    share: float = 0.05
    epsilon: float = 0.5

    def __call__(self, classifier: Classifier, images: Tensor) -> dict[str, Tensor]:
        """Compute the features of a batch of perturbed images.

        Parameters
        ----------
        classifier : Classifier
            The network.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        dict of str to Tensor of shape (N, D)
            The features as ``penultimate/perturbed``.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or the images are not a tensor (N, C, H, W).
        """
        share = _checks.number(self.share, "share", 0.0, 1.0)
        length = _checks.number(self.epsilon, "epsilon", 0.0, math.inf, open_high=True)
        gradient = _input_gradient(images, lambda x: classifier(x).logits.amax(dim=1).sum())
        size = gradient.flatten(1).abs()
        smallest = size.topk(int(share * size.shape[1]), dim=1, largest=False).indices
        mask = torch.zeros_like(size).scatter(1, smallest, 1.0).view_as(gradient)
        with torch.no_grad():
            moved = classifier(images + length * gradient.sign() * mask).features
        return {PERTURBED: moved}


class _ReluInputs(TorchFunctionMode):
    """Note the largest and smallest input of every ReLU, whether a module or a function, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.extremes: dict[str, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the input of a ReLU before it runs."""
        if func in RELUS and args:
            values = args[0].detach().flatten(1)
            name = f"relu{len(self.extremes) // 2 + 1:03d}"
            self.extremes[f"{name}/max"] = values.amax(dim=1, keepdim=True)
            self.extremes[f"{name}/min"] = values.amin(dim=1, keepdim=True)
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Extremes:
    """Compute the largest and smallest input of every ReLU, for CombOOD.

    References
    ----------
    Rajasekaran et al., SDM 2024.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)))
    >>> sorted(Extremes()(classifier, torch.ones(4, 3, 2, 2)))
    ['relu001/max', 'relu001/min']
    """

    def __call__(self, classifier: Classifier, images: Tensor) -> dict[str, Tensor]:
        """Compute the extremes of a batch.

        Parameters
        ----------
        classifier : Classifier
            The network.
        images : Tensor of shape (N, C, H, W), float
            Normalised images.

        Returns
        -------
        dict of str to Tensor of shape (N, 1)
            ``reluNNN/max`` and ``reluNNN/min`` of each ReLU, in the order in which they run.

        Raises
        ------
        InvalidInput
            If the network has no ReLU.
        """
        with torch.no_grad(), _ReluInputs() as seen:
            classifier(images)
        if not seen.extremes:
            raise InvalidInput("the network runs no ReLU, whose inputs --extremes records; leave it out")
        return seen.extremes


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
