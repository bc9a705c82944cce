r"""Sharpness-aware optimisers: wrappers around any torch optimiser whose step looks at the loss a little uphill.

``step(closure)`` calls the closure twice. The closure runs forward and backward, over one batch or over several small
ones whose gradients add up, and returns the loss; ``step`` clears the gradients before each call. Clip gradients at the
end of the closure. Learning rates and schedules belong to the wrapped optimiser, which makes the update from the
restored weights, so that weight decay acts there too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from twofold import _checks
from twofold._math import TINY
from twofold.errors import InvalidInput

Variant: TypeAlias = Literal["released", "original", "printed"]


@contextmanager
def restore_buffers(model: nn.Module) -> Iterator[None]:
    """Restore every buffer of a model on exit, so that passes inside do not move batch-norm statistics.

    Parameters
    ----------
    model : torch.nn.Module
        Model whose buffers are saved on entry and copied back on exit.

    Yields
    ------
    None
        Nothing; run the passes inside the ``with`` block.

    Notes
    -----
    This holds for anything a layer stores in buffers while it computes, for batch norm without momentum too, and after
    an error. The released SURE+ sets the momentum to 0 instead, which still counts the batch.

    Examples
    --------
    >>> layer = nn.BatchNorm1d(1)
    >>> with restore_buffers(layer):
    ...     _ = layer(torch.tensor([[1.0], [3.0]]))
    >>> float(layer.running_mean)
    0.0
    """
    copies = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, copy in copies:
                buffer.copy_(copy)


class RandomState:
    """Save the state of torch's random numbers, on the CPU and on a model's devices, to draw the same ones again.

    Parameters
    ----------
    model : torch.nn.Module
        Model whose CUDA devices are included.

    Notes
    -----
    Generators that the caller created, and those of NumPy and Python, are not included; the caller must repeat them.

    Examples
    --------
    >>> state = RandomState(nn.Linear(1, 1))
    >>> first = torch.rand(2)
    >>> with state.replay():
    ...     second = torch.rand(2)
    >>> torch.equal(first, second)
    True
    """

    def __init__(self, model: nn.Module) -> None:
        devices = {parameter.device for parameter in model.parameters()}
        cuda_numbers = sorted(device.index for device in devices if device.type == "cuda")
        self.cpu_state = torch.get_rng_state()
        self.cuda_states = {number: torch.cuda.get_rng_state(number) for number in cuda_numbers}

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Draw random numbers inside from the saved state; outside, the sequence continues as if nothing was drawn.

        Yields
        ------
        None
            Nothing; draw inside the ``with`` block.
        """
        with torch.random.fork_rng(devices=list(self.cuda_states)):
            torch.set_rng_state(self.cpu_state)
            for number, state in self.cuda_states.items():
                torch.cuda.set_rng_state(state, number)
            yield


class _Sharpness(ABC):
    """Run two passes and one update; subclasses define the direction uphill."""

    keep = 0.0  # share of the gradient at the weights themselves in the update

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, rho: float, repeat: bool) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidInput(f"optimizer must be a torch optimiser that steps without closure, got {optimizer!r:.60}")
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be the module being trained, got {type(model).__name__}")
        self.optimizer = optimizer
        self.model = model
        self.rho = _checks.number(rho, "rho", 0.0, math.inf, open_high=True)
        self.repeat = repeat

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the wrapped optimiser, as learning-rate schedules need them."""
        return self.optimizer.param_groups

    def zero_grad(self) -> None:
        """Clear the gradients of all parameters."""
        self.optimizer.zero_grad()

    def _parameters(self) -> list[Tensor]:
        parameters: list[Tensor] = []
        for group in self.optimizer.param_groups:
            parameters.extend(group["params"])
        return parameters

    @abstractmethod
    def _perturbation(self, parameters: list[Tensor]) -> list[Tensor | None]:
        """Return what to add to each parameter, computed from its gradient, or None where it has no gradient."""

    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Make one update from two passes.

        Parameters
        ----------
        closure : callable without arguments
            Runs forward and backward over one batch, or over several whose gradients add up, and returns the loss. It
            is called twice, with gradients cleared before each call.

        Returns
        -------
        Tensor
            The loss of the first pass, the one at the weights themselves.

        Raises
        ------
        InvalidInput
            If the closure left no gradient.
        """
        parameters = self._parameters()
        random_state = RandomState(self.model) if self.repeat else None
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        if all(parameter.grad is None for parameter in parameters):
            raise InvalidInput("the closure left no gradient; it must call backward() on the loss")
        first_gradients = self._keep_gradients(parameters)
        with self._move_uphill(parameters):
            self.zero_grad()
            replay = random_state.replay() if random_state is not None else nullcontext()
            with torch.enable_grad(), restore_buffers(self.model), replay:
                closure()
        self._blend_gradients(parameters, first_gradients)
        self.optimizer.step()
        return loss

    @torch.no_grad()
    def _keep_gradients(self, parameters: list[Tensor]) -> list[Tensor | None]:
        """Copy the share of the gradients at the weights themselves that the update takes, if it takes any."""
        kept: list[Tensor | None] = []
        for parameter in parameters:
            if parameter.grad is None or self.keep == 0:
                kept.append(None)
            else:
                kept.append(self.keep * parameter.grad)
        return kept

    @contextmanager
    def _move_uphill(self, parameters: list[Tensor]) -> Iterator[None]:
        """Add the perturbation to the weights, and restore them exactly on exit."""
        originals: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            moves = self._perturbation(parameters)
            for parameter, move in zip(parameters, moves, strict=True):
                if move is not None:
                    originals.append((parameter, parameter.clone()))
                    parameter.add_(move)
            del moves  # free the memory before the second pass
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, original in originals:
                    parameter.copy_(original)

    @torch.no_grad()
    def _blend_gradients(self, parameters: list[Tensor], first_gradients: list[Tensor | None]) -> None:
        """Add the kept share of the first gradients to the rest of the second ones."""
        for parameter, first in zip(parameters, first_gradients, strict=True):
            if first is None:
                continue
            if parameter.grad is not None:
                first.add_(parameter.grad, alpha=1.0 - self.keep)
            parameter.grad = first

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimiser and of this wrapper, to resume training from.

        Returns
        -------
        dict
            ``{"optimizer": state of the wrapped optimiser}``.
        """
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state saved by :meth:`state_dict`; training resumes bit for bit.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidInput
            If the state has no entry ``optimizer``.
        """
        if "optimizer" not in state:
            raise InvalidInput(f"the saved state has no 'optimizer', only {sorted(state)}")
        self.optimizer.load_state_dict(state["optimizer"])


def _norm(tensors: list[Tensor]) -> Tensor:
    """Compute the Euclidean norm over all elements, in at least float32, on the first tensor's device."""
    norms = []
    for tensor in tensors:
        dtype = torch.promote_types(tensor.dtype, torch.float32)
        norm = torch.linalg.vector_norm(tensor, dtype=dtype)
        norms.append(norm.to(tensors[0].device))
    return torch.linalg.vector_norm(torch.stack(norms))


class SAM(_Sharpness):
    r"""Optimise with sharpness-aware minimisation.

    .. math:: \epsilon = \rho \frac{g}{\lVert g \rVert_2 + 10^{-12}}, \qquad g = \nabla L(\theta), \qquad
              \theta \leftarrow \mathrm{optimizer}(\theta, \nabla L(\theta + \epsilon))

    with one norm over all parameters.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimiser that makes the update; any but LBFGS.
    model : torch.nn.Module
        The network being trained. Only the first pass moves its batch-norm statistics.
    rho : float, default=0.05
        Length :math:`\rho` of the step uphill, 0 or more.
    adaptive : bool, default=False
        Whether the step is scaled by the weights (ASAM): :math:`\epsilon = \rho\,T^2 g / \lVert T g \rVert_2` with
        :math:`T = |\theta|`. Its rho is about ten times larger.
    repeat : bool, default=True
        Whether the second pass draws torch's random numbers of the first pass again. The released SURE+ mixes again
        there.

    Raises
    ------
    InvalidInput
        If ``optimizer`` or ``model`` has the wrong type, or ``rho`` is out of range.

    Notes
    -----
    rho is 0.05 in the paper and in SURE; the released SURE+ fixes 0.2, and its flag does not reach the optimiser.
    The authors of ASAM add 0.01 to T and leave biases alone; common code, and this, does neither.

    References
    ----------
    Foret et al., ICLR 2021, arXiv:2010.01412. ASAM: Kwon et al., ICML 2021, arXiv:2102.11600.

    Examples
    --------
    >>> model = nn.Linear(2, 1)
    >>> _ = nn.init.ones_(model.weight)
    >>> optimiser = SAM(torch.optim.SGD(model.parameters(), lr=0.1), model)
    >>> def closure():
    ...     loss = model(torch.ones(4, 2)).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> first = optimiser.step(closure)
    >>> bool(closure() < first)
    True
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        rho: float = 0.05,
        adaptive: bool = False,
        repeat: bool = True,
    ) -> None:
        super().__init__(optimizer, model, rho, repeat)
        self.adaptive = adaptive

    def _perturbation(self, parameters: list[Tensor]) -> list[Tensor | None]:
        if not self.adaptive:
            return _scale_to_length([parameter.grad for parameter in parameters], self.rho)
        length = _norm([p.abs() * p.grad for p in parameters if p.grad is not None])
        scale = self.rho / (length + TINY)
        moves: list[Tensor | None] = []
        for parameter in parameters:
            if parameter.grad is None:
                moves.append(None)
            else:
                moves.append(parameter.square() * parameter.grad * scale.to(parameter))
        return moves


def _scale_to_length(directions: list[Tensor | None], rho: float) -> list[Tensor | None]:
    """Scale the direction to length rho, over all parameters together."""
    length = _norm([direction for direction in directions if direction is not None])
    scale = rho / (length + TINY)
    return [None if direction is None else direction * scale.to(direction) for direction in directions]


class FSAM(_Sharpness):
    r"""Optimise with Friendly SAM, which steps uphill along the part of the gradient that is specific to the batch.

    .. math:: d_t = g_t - \sigma\,m, \qquad \epsilon_t = \rho \frac{d_t}{\lVert d_t \rVert_2 + 10^{-12}}, \qquad
              m_t = \lambda\,m_{t-1} + (1 - \lambda)\,g_t

    and the update of :class:`SAM`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimiser that makes the update; any but LBFGS.
    model : torch.nn.Module
        The network being trained. Only the first pass moves its batch-norm statistics.
    rho : float, default=0.2
        Length :math:`\rho` of the step uphill, 0 or more.
    sigma : float, default=1.0
        Share :math:`\sigma` of the running mean that is removed from the gradient, 0 or more.
    momentum : float, default=0.8
        Decay :math:`\lambda` of the running mean of gradients, from 0 to below 1.
    variant : {"released", "original", "printed"}, default="released"
        Which of the texts and codes that carry this name to follow; see Notes.
    gamma : float, default=0.5
        Share of the gradient at the weights themselves in the update, from 0 to 1; used by ``variant="printed"`` only.
    repeat : bool, default=True
        Whether the second pass draws torch's random numbers of the first pass again.

    Attributes
    ----------
    means : dict from int to Tensor
        Running mean of the gradient of each parameter, by its position among the parameters.

    Raises
    ------
    InvalidInput
        If ``optimizer`` or ``model`` has the wrong type, or a setting is out of range.

    Notes
    -----
    The texts and codes that carry this name differ:

    - ``variant="released"``, the code of F-SAM and of SURE+: m is the mean of earlier gradients,
      :math:`m_{t-1}`; the first step has :math:`d_0 = g_0`, and :math:`m_0 = g_0`.
    - ``"original"``, the paper's text: m is :math:`m_t`, the present gradient included, and starts from zero. With
      sigma = 1, :math:`d_t = \lambda (g_t - m_{t-1})`, so that only the start differs from the code.
    - ``"printed"``, the text of SURE+: no mean at all, :math:`d_t = g_t`, and the update follows
      :math:`\gamma \nabla L(\theta) + (1 - \gamma) \nabla L(\theta + \epsilon)`. The text does not state ``gamma``; 0.5
      is our choice.

    sigma = 1, lambda = 0.8 and rho = 0.2 are SURE+'s; the code of F-SAM has lambda = 0.9 and rho = 0.05 by default.

    References
    ----------
    Li et al., CVPR 2024, arXiv:2403.12350.

    Examples
    --------
    >>> model = nn.Linear(2, 1)
    >>> optimiser = FSAM(torch.optim.SGD(model.parameters(), lr=0.1), model)
    >>> def closure():
    ...     loss = model(torch.ones(4, 2)).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimiser.step(closure)
    >>> sorted(optimiser.state_dict())
    ['means', 'optimizer']
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        rho: float = 0.2,
        sigma: float = 1.0,
        momentum: float = 0.8,
        variant: Variant = "released",
        gamma: float = 0.5,
        repeat: bool = True,
    ) -> None:
        super().__init__(optimizer, model, rho, repeat)
        self.variant = _checks.choice(variant, "variant", get_args(Variant))
        self.sigma = _checks.number(sigma, "sigma", 0.0, math.inf, open_high=True)
        self.momentum = _checks.number(momentum, "momentum", 0.0, 1.0, open_high=True)
        if variant == "printed":
            self.keep = _checks.number(gamma, "gamma", 0.0, 1.0)
        self.means: dict[int, Tensor] = {}  # by position among the parameters

    def _perturbation(self, parameters: list[Tensor]) -> list[Tensor | None]:
        directions: list[Tensor | None] = []
        for number, parameter in enumerate(parameters):
            if parameter.grad is None or self.variant == "printed":
                directions.append(parameter.grad)
            else:
                directions.append(self._remove_mean(number, parameter.grad))
        return _scale_to_length(directions, self.rho)

    def _remove_mean(self, number: int, gradient: Tensor) -> Tensor:
        """Return the gradient of a parameter without its running mean, and update that mean with the gradient."""
        if self.variant == "original":
            if number in self.means:
                self._update_mean(number, gradient)
            else:
                self.means[number] = gradient * (1.0 - self.momentum)
            return gradient - self.sigma * self.means[number]
        if number not in self.means:
            self.means[number] = gradient.clone()
            return gradient
        specific = gradient - self.sigma * self.means[number]
        self._update_mean(number, gradient)
        return specific

    def _update_mean(self, number: int, gradient: Tensor) -> None:
        self.means[number].mul_(self.momentum).add_(gradient, alpha=1.0 - self.momentum)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimiser and the running means of the gradients.

        Returns
        -------
        dict
            ``optimizer``, the state of the wrapped optimiser, and ``means``, a dict from the position of a parameter to
            the running mean of its gradient. Means are copies.
        """
        means = {number: mean.clone() for number, mean in self.means.items()}
        return {**super().state_dict(), "means": means}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state saved by :meth:`state_dict`; training resumes bit for bit.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidInput
            If the state has no running means or no entry ``optimizer``, or a mean does not fit a parameter of this
            model.
        """
        parameters = self._parameters()
        means = state.get("means")
        if not isinstance(means, Mapping):
            raise InvalidInput("the saved state has no running means of gradients; it is not of F-SAM")
        loaded = {}
        for key, mean in means.items():
            number = int(key)  # files have text as keys
            if number >= len(parameters) or mean.shape != parameters[number].shape:
                raise InvalidInput(f"the saved mean {key} of shape {tuple(mean.shape)} fits no parameter of this model")
            loaded[number] = mean.detach().clone().to(parameters[number])
        super().load_state_dict(state)
        self.means = loaded
