r"""Averages of the weights along training, and batch-norm statistics that fit them.

Both averages hold a copy of the network, ready to be evaluated: :attr:`model`. Averaged weights see other activations
than those the running statistics were taken from, so a network with batch norm needs :func:`rebn` once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from twofold import _checks
from twofold.errors import InvalidInput

# SURE+ on CIFAR-100: 200 epochs of 50,000 // 128 steps
PUBLISHED_STEPS = 200 * 390


class _Average:
    """A second copy of a network, moved towards the trained one."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be a torch module, got {type(model).__name__}")
        coarse = {p.dtype for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)}
        if coarse:
            raise InvalidInput(
                f"weights in {coarse.pop()} are too coarse to average: small moves round to none; "
                "keep the weights in float32 and compute in half precision by autocast"
            )
        self.model = deepcopy(model).requires_grad_(False).eval()
        self.updates = 0

    def _pairs(self, model: nn.Module) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Parameters and buffers, ours and theirs."""
        found = []
        for ours, theirs in (
            (dict(self.model.named_parameters()), dict(model.named_parameters())),
            (dict(self.model.named_buffers()), dict(model.named_buffers())),
        ):
            odd = sorted(k for k in ours.keys() | theirs.keys() if k not in ours or k not in theirs)
            odd += [k for k in ours if k in theirs and ours[k].shape != theirs[k].shape]
            if odd:
                raise InvalidInput(
                    f"this is not the network being averaged: {odd[0]} differs; pass it without wrappers"
                )
            found.append([(ours[k], theirs[k].detach().to(ours[k].device)) for k in ours])
        return found[0], found[1]

    def state_dict(self) -> dict[str, Any]:
        """Averaged weights and the number of updates."""
        return {"updates": self.updates, "model": {k: v.clone() for k, v in self.model.state_dict().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved average, to the last bit."""
        weights, updates = state.get("model"), state.get("updates")
        if not isinstance(weights, Mapping) or not isinstance(updates, int):
            raise InvalidInput("the saved state has no averaged model and count of updates")
        own = self.model.state_dict()
        odd = sorted(own.keys() ^ weights.keys()) + [
            k for k in own if k in weights and own[k].shape != weights[k].shape
        ]
        if odd:
            raise InvalidInput(f"the saved average is of another network: {odd[0]} differs")
        self.model.load_state_dict(weights)
        self.updates = updates


class EMA(_Average):
    r"""Exponential moving average of the weights with a ramp, once a step.

    .. math:: \bar\theta \leftarrow d_n \bar\theta + (1 - d_n) \theta, \qquad d_n = d \, (1 - e^{-n / r})

    with n = 1, 2, ... updates; ``ramp`` 0 means the full decay from the start. The text of SURE+ leaves the decay open;
    its code has 0.9998 and 2000. The first :math:`d_n` is near 0, so the initial weights leave no trace.

    Buffers (batch-norm statistics) are copied, not averaged: :func:`rebn` replaces them at the end. ``released=True``
    blends those with fractions too, as the released SURE+ does, which never re-estimates them.
    """

    def __init__(
        self, model: nn.Module, decay: float = 0.9998, ramp: float = 2000.0, *, released: bool = False
    ) -> None:
        super().__init__(model)
        self.decay = _checks.number(decay, "decay", 0.0, 1.0, open_high=True)
        self.ramp = _checks.number(ramp, "ramp", 0.0, math.inf, open_high=True)
        self.released = released

    @classmethod
    def of_run(cls, model: nn.Module, steps: int, *, released: bool = False) -> Self:
        r"""An average that spans the published share of a run of this many steps.

        SURE+ trains for 78,000 steps: :math:`1 / (1 - d)` is 5000 of them, the ramp 2000. Both shrink with the run,
        so that a short run averages over something and forgets its beginning; at 78,000 steps this is the default.
        """
        share = _checks.whole(steps, "steps", 1) / PUBLISHED_STEPS
        return cls(model, 1.0 - min(1.0, 0.0002 / share), 2000.0 * share, released=released)

    def decay_at(self, update: int) -> float:
        """The decay of an update, counted from 1."""
        update = _checks.whole(update, "update", 1)
        return self.decay if self.ramp == 0 else self.decay * -math.expm1(-update / self.ramp)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the weights of a step in."""
        parameters, buffers = self._pairs(model)
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
        r"""Effective number of weights averaged after this many updates.

        .. math:: \Big( \sum_k w_k^2 \Big)^{-1}, \qquad w_k = (1 - d_k) \prod_{j > k} d_j

        with the initial weights as k = 0. A plain average of n has n; a constant decay tends to
        :math:`(1 + d) / (1 - d)`, about twice the often quoted :math:`1 / (1 - d)`, which is the mean age.
        """
        squares = 1.0
        for n in range(1, _checks.whole(steps, "steps", 0) + 1):
            d = self.decay_at(n)
            squares = d * d * squares + (1.0 - d) ** 2
        return 1.0 / squares


class SWA(_Average):
    r"""Stochastic weight averaging: the plain mean of the weights it was given.

    Izmailov et al., UAI 2018, arXiv:1803.05407.

    .. math:: \bar\theta \leftarrow \bar\theta + \frac{\theta - \bar\theta}{n}

    SURE and FMFP update once an epoch after 0.6 of the run, at a constant learning rate. Buffers are copied; use
    :func:`rebn` before evaluation. Before the first update the model is the one it was made from. ``updates`` is the
    effective number of weights averaged.
    """

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take a snapshot in."""
        parameters, buffers = self._pairs(model)
        self.updates += 1
        for ours, theirs in parameters:
            if self.updates == 1:
                ours.copy_(theirs)
            else:
                ours.add_((theirs - ours) / self.updates)
        for ours, theirs in buffers:
            ours.copy_(theirs)


class _Moments:
    """Mean and squared deviations of what enters one batch norm, merged batch by batch in float64."""

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer = layer
        self.n, self.mean, self.squares = 0, torch.zeros(()), torch.zeros(())

    def __call__(self, module: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        """After a pass at momentum 1, where the running statistics are those of this batch alone."""
        assert self.layer.running_mean is not None
        assert self.layer.running_var is not None
        n = given[0].numel() // given[0].shape[1]
        mean, variance = self.layer.running_mean.cpu().double(), self.layer.running_var.cpu().double()
        total, apart = self.n + n, mean - self.mean
        self.squares = self.squares + variance * (n - 1) + apart.square() * (self.n * n / total)
        self.mean = self.mean + apart * (n / total)
        self.n = total


def rebn(model: nn.Module, batches: Iterable[Any]) -> int:
    r"""Replace the running statistics of every batch norm by those of one pass over given batches.

    Each layer gets the mean and the unbiased variance of all values that entered it, every row counting the same:

    .. math:: \mu = \frac1n \sum_b n_b \mu_b, \qquad
              \sigma^2 = \frac{1}{n - 1} \sum_b \big[ (n_b - 1) s_b^2 + n_b (\mu_b - \mu)^2 \big]

    while layers before it normalise by their own batch, as in training. torch's cumulative averaging (momentum None;
    the code of SURE+ at submission, the usual helper for SWA) takes the mean of :math:`\mu_b` and of :math:`s_b^2`:
    the same means for batches of equal size, variances short of the spread between batches, and a small last batch that
    counts as much as a full one.

    ``batches`` are inputs, or tuples and lists that begin with them; they should be training images under training
    augmentation. Dropout and the like are off, as they are in use. The paper does this once after the last epoch; the
    release never. Returns how many layers were renewed; without batch norm nothing is read. After an error the model is
    as before. Each process of several sees its own batches only: renew in one and share the buffers.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not layers:
        return 0
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = [(m, m.training) for m in model.modules()]
    momenta = [layer.momentum for layer in layers]
    kept = [{name: b.clone() for name, b in layer.named_buffers(recurse=False)} for layer in layers]
    moments = [_Moments(layer) for layer in layers]
    hooks = [layer.register_forward_hook(m) for layer, m in zip(layers, moments, strict=True)]
    seen = 0
    try:
        model.eval()
        for layer in layers:
            layer.training, layer.momentum = True, 1.0
        with torch.no_grad():
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
        if not seen:
            raise InvalidInput("batches is empty; statistics need at least one batch")
        for m in moments:
            if m.n and not bool((m.mean + m.squares).isfinite().all()):
                raise InvalidInput("activations are not finite; the weights or the batches hold NaN or infinity")
    except BaseException:
        for layer, before in zip(layers, kept, strict=True):
            for name, buffer in layer.named_buffers(recurse=False):
                buffer.copy_(before[name])
        raise
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes:
            module.training = mode
    renewed = 0
    for layer, m in zip(layers, moments, strict=True):
        if not m.n:
            continue
        renewed += 1
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.running_mean.copy_(m.mean)
        layer.running_var.copy_(m.squares / (m.n - 1))
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.fill_(seen)
    return renewed
