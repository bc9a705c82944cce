"""Averages of the weights along training, and batch-norm statistics that fit them.

Both averages hold a copy of the network, ready to be evaluated, in their attribute ``model``. Averaged weights see
other activations than those the running statistics were taken from, so a network with batch norm needs :func:`rebn`
once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from twofold import _checks
from twofold.errors import InvalidInput

Batch: TypeAlias = Tensor | Sequence[Any]  # inputs, or a sequence with them first

# SURE+ on CIFAR-100: 200 epochs of 50,000 // 128 steps
PUBLISHED_STEPS = 200 * 390


class _Average:
    """Hold a second copy of a network and move it towards the trained one."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be a torch module, got {type(model).__name__}")
        for parameter in model.parameters():
            if parameter.dtype in (torch.float16, torch.bfloat16):
                raise InvalidInput(
                    f"weights in {parameter.dtype} are too coarse to average: small moves round to none; "
                    "keep the weights in float32 and compute in half precision by autocast"
                )
        self.model = deepcopy(model).requires_grad_(False).eval()
        self.updates = 0

    def _pair_parameters(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Pair the averaged parameters with those of the trained network."""
        return _pair_tensors(dict(self.model.named_parameters()), dict(model.named_parameters()))

    def _pair_buffers(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Pair the averaged buffers with those of the trained network."""
        return _pair_tensors(dict(self.model.named_buffers()), dict(model.named_buffers()))

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights and the number of updates, to resume training from.

        Returns
        -------
        dict
            ``updates``, an int, and ``model``, the state dictionary of the averaged network. Tensors are copies.
        """
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return {"updates": self.updates, "model": weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore an average saved by :meth:`state_dict`; training resumes bit for bit.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidInput
            If the state has no averaged model or count of updates, or is that of another network.
        """
        weights = state.get("model")
        updates = state.get("updates")
        if not isinstance(weights, Mapping) or not isinstance(updates, int):
            raise InvalidInput("the saved state has no averaged model and count of updates")
        difference = _find_difference(self.model.state_dict(), weights)
        if difference is not None:
            raise InvalidInput(f"the saved average is of another network: {difference} differs")
        self.model.load_state_dict(weights)
        self.updates = updates


def _find_difference(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> str | None:
    """Return the first name that only one side has, or that has another shape on the other side."""
    for name in sorted(ours.keys() ^ theirs.keys()):
        return name
    for name in ours:
        if ours[name].shape != theirs[name].shape:
            return name
    return None


def _pair_tensors(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Pair the tensors of the average with those of the trained network, moved to the device of the average."""
    difference = _find_difference(ours, theirs)
    if difference is not None:
        raise InvalidInput(f"this is not the network being averaged: {difference} differs; pass it without wrappers")
    return [(tensor, theirs[name].detach().to(tensor.device)) for name, tensor in ours.items()]


class EMA(_Average):
    r"""Average the weights exponentially, with a ramp, once a step.

    .. math:: \bar\theta \leftarrow d_n \bar\theta + (1 - d_n) \theta, \qquad d_n = d \, (1 - e^{-n / r})

    with n = 1, 2, ... updates. The first :math:`d_n` is near 0, so the initial weights leave no trace.

    Parameters
    ----------
    model : torch.nn.Module
        Network to average, with weights in float32 or better. It is copied.
    decay : float, default=0.9998
        Decay d after the ramp, from 0 to below 1. Lower it for short runs, or use :meth:`of_run`.
    ramp : float, default=2000.0
        Number of updates r over which the decay rises; 0 applies the full decay from the start.
    released : bool, default=False
        Whether floating-point buffers are averaged too, as in the released SURE+, which never re-estimates them. By
        default buffers (batch-norm statistics) are copied, and :func:`rebn` replaces them at the end.

    Attributes
    ----------
    model : torch.nn.Module
        The averaged network, in evaluation mode and without gradients.
    updates : int
        Number of updates so far.

    Raises
    ------
    InvalidInput
        If ``model`` is not a module or has weights in half precision, or a setting is out of range.

    Notes
    -----
    The text of SURE+ leaves the decay open; its code has 0.9998 and 2000.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> average = EMA(model, decay=0.5, ramp=0)
    >>> before = model.weight.detach().clone()
    >>> with torch.no_grad():
    ...     _ = model.weight.add_(1.0)
    >>> average.update(model)
    >>> round(float(average.model.weight - before), 4)
    0.5
    """

    def __init__(
        self, model: nn.Module, decay: float = 0.9998, ramp: float = 2000.0, *, released: bool = False
    ) -> None:
        super().__init__(model)
        self.decay = _checks.number(decay, "decay", 0.0, 1.0, open_high=True)
        self.ramp = _checks.number(ramp, "ramp", 0.0, math.inf, open_high=True)
        self.released = released

    @classmethod
    def of_run(
        cls,
        model: nn.Module,
        steps: int,
        *,
        decay: float | None = None,
        ramp: float | None = None,
        released: bool = False,
    ) -> Self:
        """Build an average that spans the published share of a run.

        SURE+ trains for 78,000 steps: :math:`1 / (1 - d)` is 5000 of them, the ramp 2000. Both shrink with the run, so
        that a short run averages over something and forgets its beginning. At 78,000 steps this is the default.

        Parameters
        ----------
        model : torch.nn.Module
            Network to average.
        steps : int
            Number of training steps of the whole run, at least 1.
        decay : float, optional
            Decay after the ramp, instead of that of the run's length.
        ramp : float, optional
            Number of updates over which the decay rises, instead of that of the run's length.
        released : bool, default=False
            Whether floating-point buffers are averaged too; see :class:`EMA`.

        Returns
        -------
        EMA
            The average, before its first update.

        Raises
        ------
        InvalidInput
            If ``steps`` is not a whole number of at least 1, or ``model`` cannot be averaged.

        Examples
        --------
        >>> average = EMA.of_run(nn.Linear(1, 1), 7800)
        >>> round(average.decay, 6), average.ramp
        (0.998, 200.0)
        """
        share = _checks.whole(steps, "steps", 1) / PUBLISHED_STEPS
        if decay is None:
            decay = 1.0 - min(1.0, 0.0002 / share)
        if ramp is None:
            ramp = 2000.0 * share
        return cls(model, decay, ramp=ramp, released=released)

    def decay_at(self, update: int) -> float:
        r"""Return the decay of one update.

        Parameters
        ----------
        update : int
            Number of the update, counted from 1.

        Returns
        -------
        float
            :math:`d_n = d \, (1 - e^{-n / r})`, or d without a ramp.

        Raises
        ------
        InvalidInput
            If ``update`` is not a whole number of at least 1.
        """
        update = _checks.whole(update, "update", 1)
        if self.ramp == 0:
            return self.decay
        return self.decay * -math.expm1(-update / self.ramp)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the weights after a training step to the average.

        Parameters
        ----------
        model : torch.nn.Module
            The network being trained, without wrappers.

        Raises
        ------
        InvalidInput
            If its parameters or buffers have other names or shapes than those averaged.
        """
        parameters = self._pair_parameters(model)
        buffers = self._pair_buffers(model)
        self.updates += 1
        share = 1.0 - self.decay_at(self.updates)
        for ours, theirs in parameters:
            ours.lerp_(theirs, share)
        for ours, theirs in buffers:
            if self.released and ours.is_floating_point():
                ours.lerp_(theirs, share)
            else:
                ours.copy_(theirs)

    def window(self, steps: int) -> float:
        r"""Compute the effective number of weights averaged after a number of updates.

        .. math:: \Big( \sum_k w_k^2 \Big)^{-1}, \qquad w_k = (1 - d_k) \prod_{j > k} d_j

        with the initial weights as k = 0.

        Parameters
        ----------
        steps : int
            Number of updates, 0 or more.

        Returns
        -------
        float
            Effective number of weights, at least 1.

        Raises
        ------
        InvalidInput
            If ``steps`` is not a whole number of at least 0.

        Notes
        -----
        A plain average of n has n. A constant decay tends to :math:`(1 + d) / (1 - d)`, about twice the often quoted
        :math:`1 / (1 - d)`, which is the mean age.

        Examples
        --------
        >>> round(EMA(nn.Linear(1, 1), decay=0.9, ramp=0).window(1000), 4)
        19.0
        """
        sum_of_squares = 1.0
        for n in range(1, _checks.whole(steps, "steps", 0) + 1):
            decay = self.decay_at(n)
            sum_of_squares = decay * decay * sum_of_squares + (1.0 - decay) ** 2
        return 1.0 / sum_of_squares


class SWA(_Average):
    r"""Average snapshots of the weights with equal weight (stochastic weight averaging).

    .. math:: \bar\theta \leftarrow \bar\theta + \frac{\theta - \bar\theta}{n}

    Parameters
    ----------
    model : torch.nn.Module
        Network to average, with weights in float32 or better. It is copied.

    Attributes
    ----------
    model : torch.nn.Module
        The averaged network, in evaluation mode and without gradients. Before the first update it has the weights it
        was made from.
    updates : int
        Number of updates so far, which is the effective number of weights averaged.

    Raises
    ------
    InvalidInput
        If ``model`` is not a module or has weights in half precision.

    Notes
    -----
    SURE and FMFP update once an epoch after 0.6 of the run, at a constant learning rate. Buffers are copied; use
    :func:`rebn` before evaluation.

    References
    ----------
    Izmailov et al., UAI 2018, arXiv:1803.05407.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> average = SWA(model)
    >>> for value in (1.0, 2.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     average.update(model)
    >>> float(average.model.weight)
    1.5
    """

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add a snapshot of the weights to the average.

        Parameters
        ----------
        model : torch.nn.Module
            The network being trained, without wrappers.

        Raises
        ------
        InvalidInput
            If its parameters or buffers have other names or shapes than those averaged.
        """
        parameters = self._pair_parameters(model)
        buffers = self._pair_buffers(model)
        self.updates += 1
        for ours, theirs in parameters:
            if self.updates == 1:
                ours.copy_(theirs)
            else:
                ours.add_((theirs - ours) / self.updates)
        for ours, theirs in buffers:
            ours.copy_(theirs)


class _Moments:
    """Collect mean and squared deviations of what enters one batch norm, merged batch by batch in float64."""

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer = layer
        self.count = 0
        self.mean = torch.zeros(())
        self.squares = torch.zeros(())  # sum of squared deviations from the mean

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        """Merge a batch after a pass at momentum 1, where the running statistics are those of this batch alone."""
        assert self.layer.running_mean is not None
        assert self.layer.running_var is not None
        count = inputs[0].numel() // inputs[0].shape[1]
        mean = self.layer.running_mean.cpu().double()
        variance = self.layer.running_var.cpu().double()
        total = self.count + count
        difference = mean - self.mean
        self.squares = self.squares + variance * (count - 1) + difference.square() * (self.count * count / total)
        self.mean = self.mean + difference * (count / total)
        self.count = total

    def is_finite(self) -> bool:
        return bool((self.mean + self.squares).isfinite().all())

    def store(self, batches: int) -> None:
        """Write the collected statistics into the layer."""
        assert self.layer.running_mean is not None
        assert self.layer.running_var is not None
        self.layer.running_mean.copy_(self.mean)
        self.layer.running_var.copy_(self.squares / (self.count - 1))
        if self.layer.num_batches_tracked is not None:
            self.layer.num_batches_tracked.fill_(batches)


@contextmanager
def _batch_statistics_mode(model: nn.Module, layers: Sequence[_BatchNorm]) -> Iterator[None]:
    """Let batch norms normalise by their batch and hold its statistics alone, and all other layers evaluate.

    Modes and momenta are restored on exit; running statistics are restored after an error.
    """
    modes = [(module, module.training) for module in model.modules()]
    momenta = [(layer, layer.momentum) for layer in layers]
    buffers = [(buffer, buffer.clone()) for layer in layers for buffer in layer.buffers(recurse=False)]
    try:
        model.eval()
        for layer in layers:
            layer.training = True
            layer.momentum = 1.0
        yield
    except BaseException:
        for buffer, before in buffers:
            buffer.copy_(before)
        raise
    finally:
        for layer, momentum in momenta:
            layer.momentum = momentum
        for module, mode in modes:
            module.training = mode


def rebn(model: nn.Module, batches: Iterable[Batch], *, skip: Collection[str] = ()) -> int:
    r"""Replace the running statistics of every batch norm by those of one pass over the batches.

    Each layer gets the mean and the unbiased variance of all values that entered it, every row counting the same:

    .. math:: \mu = \frac1n \sum_b n_b \mu_b, \qquad
              \sigma^2 = \frac{1}{n - 1} \sum_b \big[ (n_b - 1) s_b^2 + n_b (\mu_b - \mu)^2 \big]

    while layers before it normalise by their own batch, as in training.

    Parameters
    ----------
    model : torch.nn.Module
        Network whose statistics are replaced in place, usually an averaged one.
    batches : iterable of Tensor, or of tuples or lists that begin with one
        Inputs, moved to the device of the model. They should be training images under training augmentation.
    skip : collection of str, default=()
        Names of batch norms that keep their statistics and use them during the pass: those of frozen layers.

    Returns
    -------
    int
        Number of layers that were updated. Without batch norm it is 0 and nothing is read.

    Raises
    ------
    InvalidInput
        If there are no batches, a batch does not begin with a tensor or has one value per channel, or activations are
        not finite. After an error the model is as before.

    Notes
    -----
    torch's cumulative averaging (momentum None; the code of SURE+ at submission, the usual helper for SWA) takes the
    mean of :math:`\mu_b` and of :math:`s_b^2`: the same means for batches of equal size, variances short of the spread
    between batches, and a small last batch that counts as much as a full one.

    Dropout and other layers that act in training only are switched off during the pass, as in deployment. The SURE+
    paper does this once after the last epoch; the release never does. In distributed training each process sees its own
    batches only: run this in one process and share the buffers.

    Examples
    --------
    >>> model = nn.BatchNorm1d(1)
    >>> rebn(model, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    1
    >>> float(model.running_mean), round(float(model.running_var), 4)
    (4.0, 6.6667)
    """
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None and name not in skip:
            layers.append(module)
    if not layers:
        return 0
    moments = [_Moments(layer) for layer in layers]
    hooks = [collected.layer.register_forward_hook(collected) for collected in moments]
    try:
        with _batch_statistics_mode(model, layers):
            seen = _run_batches(model, batches)
            for collected in moments:
                if collected.count and not collected.is_finite():
                    raise InvalidInput("activations are not finite; the weights or the batches hold NaN or infinity")
    finally:
        for hook in hooks:
            hook.remove()
    updated = [collected for collected in moments if collected.count]
    for collected in updated:
        collected.store(seen)
    return len(updated)


@torch.no_grad()
def _run_batches(model: nn.Module, batches: Iterable[Batch]) -> int:
    """Run a model over batches of inputs and return their number."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    seen = 0
    for batch in batches:
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(inputs, Tensor):
            raise InvalidInput(f"batch {seen} must begin with a tensor of inputs, got {type(inputs).__name__}")
        try:
            model(inputs.to(device))
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise InvalidInput(f"batch {seen} has one row, which has no variance; drop it") from error
        seen += 1
    if seen == 0:
        raise InvalidInput("batches is empty; statistics need at least one batch")
    return seen
