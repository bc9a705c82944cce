"""Losses of the recipes, as pure functions of tensors: the mean over rows, differentiable, no loop over rows.

Notation: z logits, p their softmax, y the label, K classes, N rows. Logits in half precision are computed in float32.
A recipe multiplies each term by its own weight; no weight is hidden in this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from twofold import _checks
from twofold._math import TINY
from twofold.errors import InvalidInput
from twofold.metrics import aurc_weights

AurcEstimator: TypeAlias = Literal["empirical", "log", "sele", "self_excluded"]
Objective: TypeAlias = Literal["log", "digamma", "mse"]
Evidence: TypeAlias = Literal["exp", "relu", "softplus"]


def _check_logits(value: Tensor, name: str = "logits") -> Tensor:
    """Check logits (N, K) and return them in at least float32."""
    if not isinstance(value, Tensor) or value.ndim != 2 or not value.is_floating_point():
        raise InvalidInput(f"{name} must be a float tensor (N, K), got {_describe(value)}")
    if value.numel() == 0:
        raise InvalidInput(f"{name} is empty (shape {tuple(value.shape)}); at least one row and one class are needed")
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _check_labels(value: Tensor, logits: Tensor, name: str = "labels", *, classes: int | None = None) -> Tensor:
    """Check labels (N,) and return them as int64; their range is checked on the CPU only, where it costs no wait."""
    if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype == torch.bool:
        raise InvalidInput(f"{name} must be an integer tensor (N,), got {_describe(value)}")
    if value.shape != logits.shape[:1]:
        raise InvalidInput(f"{name} must have shape ({len(logits)},) as the logits have rows, got {tuple(value.shape)}")
    if value.device.type == "cpu":
        classes = logits.shape[1] if classes is None else classes
        is_outside = (value < 0) | (value >= classes)
        if is_outside.any():
            row = int(is_outside.int().argmax())
            raise InvalidInput(f"{name} must be in [0, {classes}), got {int(value[row])} in row {row}")
    return value.long()


def _check_rows(value: Tensor, name: str, rows: int | None = None) -> Tensor:
    """Check a tensor with one number per row and return it in at least float32."""
    if rows is None:
        if not isinstance(value, Tensor) or value.ndim != 1:
            raise InvalidInput(f"{name} must be a tensor of shape (N,), got {_describe(value)}")
    elif not isinstance(value, Tensor) or value.shape != (rows,):
        raise InvalidInput(f"{name} must be a tensor of shape ({rows},), got {_describe(value)}")
    return value if value.dtype == torch.float64 else value.float()


def _describe(value: object) -> str:
    """Describe an argument for an error message."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def _pick(table: Tensor, labels: Tensor) -> Tensor:
    """Pick the column of each row's label."""
    return table.gather(1, labels[:, None])[:, 0]


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    r"""Compute the cross-entropy, optionally with label smoothing.

    .. math:: L = \frac1N \sum_i \Big[ -(1 - s) \log p_{i, y_i} - \frac{s}{K} \sum_k \log p_{i,k} \Big]

    Parameters
    ----------
    logits : Tensor of shape (N, K), float
        Class logits, at least one row.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.
    smoothing : float, default=0.0
        Share s of the target that is spread over all K classes, from 0 to 1.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    The smoothed share goes to all K classes, the labelled one among them; some papers leave that class out.

    References
    ----------
    Szegedy et al., CVPR 2016 (label smoothing).

    Examples
    --------
    >>> round(float(cross_entropy(torch.zeros(1, 2), torch.tensor([0]))), 4)
    0.6931
    """
    smoothing = _checks.number(smoothing, "smoothing", 0.0, 1.0)
    z = _check_logits(logits)
    return F.cross_entropy(z, _check_labels(labels, z), label_smoothing=smoothing)


def mixed_cross_entropy(
    logits: Tensor, labels: Tensor, partners: Tensor, share: float | Tensor, smoothing: float = 0.0
) -> Tensor:
    r"""Compute the cross-entropy of mixed inputs, as in mixup, CutMix and RegMixup.

    .. math:: L = \kappa \, \mathrm{CE}(z, y) + (1 - \kappa) \, \mathrm{CE}(z, y')

    Parameters
    ----------
    logits : Tensor of shape (N, K), float
        Class logits of the mixed inputs.
    labels : Tensor of shape (N,), int
        Labels y of the inputs' own images.
    partners : Tensor of shape (N,), int
        Labels y' of the images mixed in.
    share : float or Tensor of shape () or (N,)
        Part :math:`\kappa` of the own image, from 0 to 1, one number or one for each row. The range of a tensor is
        checked on the CPU only, where it costs no wait.
    smoothing : float, default=0.0
        Share s of the target that is spread over all K classes, from 0 to 1.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The ranges of tensors are checked on the CPU only.

    Notes
    -----
    RegMixup adds this to the cross-entropy of the clean batch with weight 1 (SURE+, both in print and in code). OpenOOD
    takes the mean over both batches, which is half of that sum.

    References
    ----------
    Pinto et al., NeurIPS 2022, arXiv:2206.14502.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0]])
    >>> round(float(mixed_cross_entropy(logits, torch.tensor([0]), torch.tensor([1]), 0.75)), 4)
    0.6269
    """
    smoothing = _checks.number(smoothing, "smoothing", 0.0, 1.0)
    z = _check_logits(logits)
    own = F.cross_entropy(z, _check_labels(labels, z), label_smoothing=smoothing, reduction="none")
    other = F.cross_entropy(z, _check_labels(partners, z, "partners"), label_smoothing=smoothing, reduction="none")
    kappa = _check_share(share, z)
    return (kappa * own + (1.0 - kappa) * other).mean()


def _check_share(share: float | Tensor, logits: Tensor) -> Tensor:
    """Check the share of the own image, one number or one for each row, and return it on the device of the logits."""
    if not isinstance(share, Tensor):
        return logits.new_tensor(_checks.number(share, "share", 0.0, 1.0))
    if share.device.type == "cpu" and not bool(((share >= 0) & (share <= 1)).all()):  # NaN is in no range
        raise InvalidInput(f"share must be in [0, 1], got {float(share.min()):g} to {float(share.max()):g}")
    if share.ndim == 0:
        return share.to(logits)
    return _check_rows(share.to(logits.device), "share", len(logits))


def jsd(logits_clean: Tensor, logits_a: Tensor, logits_b: Tensor) -> Tensor:
    r"""Compute the divergence among three views of the same images, AugMix's consistency term.

    .. math:: L = \tfrac13 \sum_{v} \mathrm{KL}(p_v \Vert m), \qquad
              m = \max\big(\tfrac13 (p_{clean} + p_a + p_b), 10^{-7}\big)

    Parameters
    ----------
    logits_clean : Tensor of shape (N, K), float
        Logits of the clean images.
    logits_a : Tensor of shape (N, K), float
        Logits of the first augmented view.
    logits_b : Tensor of shape (N, K), float
        Logits of the second augmented view.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If a view is not a non-empty float tensor (N, K), or the shapes differ.

    Notes
    -----
    This is the generalised Jensen-Shannon divergence but for the floor of the mixture. The authors add 12 times this to
    the cross-entropy of the clean view. The unknown-detection benchmark states in print that the term is off, while its
    code has it on.

    References
    ----------
    Hendrycks et al., ICLR 2020, arXiv:1912.02781.

    Examples
    --------
    >>> view = torch.zeros(2, 3)
    >>> float(jsd(view, view, view)) < 1e-6
    True
    """
    views = [
        _check_logits(logits_clean, "logits_clean"),
        _check_logits(logits_a, "logits_a"),
        _check_logits(logits_b, "logits_b"),
    ]
    shapes = [tuple(view.shape) for view in views]
    if len(set(shapes)) > 1:
        raise InvalidInput(f"the three views must have one shape, got {shapes}")
    logs = F.log_softmax(torch.stack(views), dim=2)
    p = logs.exp()
    mixture = p.mean(dim=0).clamp(min=1e-7).log()
    return (p * (logs - mixture)).sum(dim=2).mean()


def logit_norm(logits: Tensor, labels: Tensor, temperature: float = 0.04) -> Tensor:
    r"""Compute the cross-entropy of logits scaled to a fixed length (LogitNorm).

    .. math:: L = \mathrm{CE}\Big(\frac{z}{\tau (\lVert z \rVert_2 + 10^{-7})}, y\Big)

    Parameters
    ----------
    logits : Tensor of shape (N, K), float
        Class logits, at least one row.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.
    temperature : float, default=0.04
        Temperature :math:`\tau`, above 0. The default is the authors' value for CIFAR-10.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    The loss cannot fall below :math:`\log\big(1 + (K - 1) \exp(-\tau^{-1} \sqrt{K / (K - 1)})\big)`, so a high
    temperature keeps it up.

    References
    ----------
    Wei et al., ICML 2022, arXiv:2205.09310.

    Examples
    --------
    >>> short, long = torch.tensor([[3.0, 0.0]]), torch.tensor([[30.0, 0.0]])
    >>> [round(float(logit_norm(z, torch.tensor([0]), temperature=1.0)), 4) for z in (short, long)]
    [0.3133, 0.3133]
    """
    tau = _checks.number(temperature, "temperature", 0.0, math.inf, open_low=True, open_high=True)
    z = _check_logits(logits)
    length = torch.linalg.vector_norm(z, dim=1, keepdim=True) + 1e-7
    return F.cross_entropy(z / (length * tau), _check_labels(labels, z))


class Correctness:
    r"""Count how often each training row was classified correctly so far; the source of the targets of :func:`crl`.

    With n the count of a row and epochs counted from 1, the target is by default (CRL's code, SURE)

    .. math:: \bar c = \frac{n - \min n}{m - \min n}, \qquad m = \max(1, \mathrm{epoch} - 1),

    with the minimum over all rows. With ``total`` it is :math:`\bar c = n / \mathrm{total}`, as in the
    unknown-detection benchmark, whose margins are small in early epochs.

    Parameters
    ----------
    rows : int
        Number of rows of the training set.
    total : int, optional
        Number of epochs of the whole run. It selects the benchmark's rule; without it the rule of CRL's code is used.

    Raises
    ------
    InvalidInput
        If ``rows`` or ``total`` is not a whole number of at least 1.

    Notes
    -----
    Update once a step, after the optimiser, with the predictions of the first clean training-mode pass. The target is 0
    where m is not above the minimum; CRL's code divides 0 by 0 there.

    References
    ----------
    Moon et al., ICML 2020, arXiv:2007.01458.

    Examples
    --------
    >>> record = Correctness(3)
    >>> record.update(torch.tensor([0, 1, 2]), torch.tensor([True, False, True]))
    >>> record.targets(torch.tensor([0, 1, 2]), epoch=2)
    tensor([1., 0., 1.])
    """

    def __init__(self, rows: int, *, total: int | None = None) -> None:
        self.counts = torch.zeros(_checks.whole(rows, "rows", 1), dtype=torch.int64)
        self.total = None if total is None else _checks.whole(total, "total", 1)

    def update(self, index: Tensor, right: Tensor) -> None:
        """Add the predictions of one step to the counts.

        Parameters
        ----------
        index : Tensor of shape (N,), int
            Training rows of the batch. A row that occurs twice counts twice.
        right : Tensor of shape (N,), bool
            Whether each row was classified correctly.

        Raises
        ------
        InvalidInput
            If ``index`` or ``right`` has the wrong type, shape or range.
        """
        rows = self._check_index(index)
        if not isinstance(right, Tensor) or right.shape != index.shape or right.dtype != torch.bool:
            shape = tuple(index.shape)
            raise InvalidInput(f"right must be a boolean tensor of shape {shape}, got {_describe(right)}")
        self.counts.index_add_(0, rows, right.detach().cpu().long())

    def targets(self, index: Tensor, epoch: int) -> Tensor:
        """Return the correctness of training rows in an epoch.

        Parameters
        ----------
        index : Tensor of shape (N,), int
            Training rows of the batch.
        epoch : int
            Epoch, counted from 1. The rule with ``total`` does not use it.

        Returns
        -------
        Tensor of shape (N,), float32
            Targets, on the device of ``index``.

        Raises
        ------
        InvalidInput
            If ``index`` holds no integers or rows beyond the training set, or ``epoch`` is below 1.
        """
        epoch = _checks.whole(epoch, "epoch", 1)
        n = self.counts[self._check_index(index)].float()
        if self.total is not None:
            return (n / self.total).to(index.device)
        low = int(self.counts.min())
        span = max(1, epoch - 1) - low
        if span <= 0:
            return torch.zeros_like(n).to(index.device)
        return ((n - low) / span).to(index.device)

    def _check_index(self, index: Tensor) -> Tensor:
        """Check numbers of training rows and return them on the CPU."""
        if not isinstance(index, Tensor) or index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise InvalidInput("index must be an integer tensor (N,) of training rows")
        rows = index.detach().cpu().long()
        if rows.numel() == 0:
            return rows
        first, last = int(rows.min()), int(rows.max())
        if first < 0 or last >= len(self.counts):
            raise InvalidInput(
                f"index must be in [0, {len(self.counts)}), got {first} to {last}; "
                "the training set has another number of rows than this record"
            )
        return rows

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the counts, to resume training from.

        Returns
        -------
        dict
            ``{"counts": Tensor of shape (rows,)}``.
        """
        return {"counts": self.counts.clone()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore counts saved by :meth:`state_dict` for the same training set.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidInput
            If the state has no int64 counts for this number of rows.
        """
        counts = state.get("counts")
        if not isinstance(counts, Tensor) or counts.shape != self.counts.shape or counts.dtype != torch.int64:
            raise InvalidInput(f"the saved state has no counts of {len(self.counts)} training rows")
        self.counts = counts.detach().cpu().clone()


def crl(confidence: Tensor, target: Tensor, equal: Literal["ignore", "pull"] = "ignore") -> Tensor:
    r"""Compute the correctness ranking loss over the cyclic pairs (i, i+1) of a batch.

    .. math:: L = \frac1N \sum_i \max\big(0, |\bar c_i - \bar c_j| - \mathrm{sign}(\bar c_i - \bar c_j)
              (\kappa_i - \kappa_j)\big), \qquad j = i + 1 \bmod N

    Parameters
    ----------
    confidence : Tensor of shape (N,), float
        Largest softmax value :math:`\kappa` of each row. Gradients flow through both confidences of a pair.
    target : Tensor of shape (N,), float
        Correctness :math:`\bar c` of each row, from :meth:`Correctness.targets`. It is detached.
    equal : {"ignore", "pull"}, default="ignore"
        What pairs of equal target add: nothing, or :math:`|\kappa_i - \kappa_j|`, which pulls them together. The latter
        is in the code of the unknown-detection benchmark and not in the paper.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type or shape, or the batch is empty.

    References
    ----------
    Moon et al., ICML 2020, arXiv:2007.01458.

    Examples
    --------
    >>> round(float(crl(torch.tensor([0.9, 0.6]), torch.tensor([0.0, 1.0]))), 4)
    1.3
    """
    _checks.choice(equal, "equal", ("ignore", "pull"))
    if not isinstance(confidence, Tensor) or confidence.ndim != 1 or confidence.numel() == 0:
        raise InvalidInput("confidence must be a tensor (N,) with at least one row")
    kappa = _check_rows(confidence, "confidence")
    c = _check_rows(target, "target", len(kappa)).detach()
    apart = c - c.roll(-1)
    gap = kappa - kappa.roll(-1)
    loss = F.relu(apart.abs() - apart.sign() * gap)
    if equal == "pull":
        loss = torch.where(apart == 0, gap.abs(), loss)
    return loss.mean()


def edl(
    logits: Tensor, labels: Tensor, *, weight: float, objective: Objective = "log", evidence: Evidence = "exp"
) -> Tensor:
    r"""Compute the evidential loss, which learns a Dirichlet distribution over class probabilities.

    .. math:: e = \exp(\mathrm{clip}(z, -10, 10)), \quad \alpha = e + 1, \quad S = \textstyle\sum_k \alpha_k

    .. math:: L = \log S - \log \alpha_y + w \, \mathrm{KL}\big(\mathrm{Dir}(\tilde\alpha) \Vert \mathrm{Dir}(1)\big),
              \qquad \tilde\alpha = y + (1 - y) \odot \alpha

    with the evidence of the true class removed in the second term.

    Parameters
    ----------
    logits : Tensor of shape (N, K), float
        Class logits, at least one row.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.
    weight : float
        Weight w of the divergence, 0 or more. There is no default: the unknown-detection benchmark keeps it constant
        and does not state the value; Sensoy et al. let it grow as min(1, epoch / 10).
    objective : {"log", "digamma", "mse"}, default="log"
        First term: ``log`` as above (the benchmark's choice), ``digamma`` :math:`\psi(S) - \psi(\alpha_y)`, or ``mse``
        :math:`\sum_k (y_k - \hat p_k)^2 + \hat p_k (1 - \hat p_k) / (S + 1)` with :math:`\hat p = \alpha / S`.
    evidence : {"exp", "relu", "softplus"}, default="exp"
        How logits become evidence e: ``exp`` as above (the benchmark's choice), ``relu`` :math:`\max(0, z)` (Sensoy et
        al.), or ``softplus`` :math:`\log(1 + \exp z)`. Only ``exp`` is clipped.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    The benchmark scores by the softmax of z, not by the Dirichlet mean. The divergence is a difference of large numbers
    and is computed in float64.

    References
    ----------
    Sensoy et al., NeurIPS 2018, arXiv:1806.01768.

    Examples
    --------
    >>> round(float(edl(torch.zeros(1, 2), torch.tensor([0]), weight=0.0)), 4)
    0.6931
    """
    weight = _checks.number(weight, "weight", 0.0, math.inf, open_high=True)
    _checks.choice(objective, "objective", get_args(Objective))
    _checks.choice(evidence, "evidence", get_args(Evidence))
    z = _check_logits(logits)
    y = _check_labels(labels, z)
    alpha = _evidence(z, evidence) + 1.0
    total = alpha.sum(dim=1)
    own = _pick(alpha, y)
    if objective == "log":
        fit = total.log() - own.log()
    elif objective == "digamma":
        fit = torch.digamma(total) - torch.digamma(own)
    else:
        p = alpha / total[:, None]
        squared_error = (F.one_hot(y, z.shape[1]) - p).square()
        variance = p * (1.0 - p) / (total + 1.0)[:, None]
        fit = (squared_error + variance).sum(dim=1)
    wrong = alpha.double().scatter(1, y[:, None], 1.0)
    sums = wrong.sum(dim=1)
    log_normaliser = torch.lgamma(sums) - math.lgamma(z.shape[1]) - torch.lgamma(wrong).sum(dim=1)
    mean_log_p = torch.digamma(wrong) - torch.digamma(sums)[:, None]
    divergence = log_normaliser + ((wrong - 1.0) * mean_log_p).sum(dim=1)
    return (fit + weight * divergence.to(fit.dtype)).mean()


def _evidence(logits: Tensor, kind: Evidence) -> Tensor:
    """Compute the evidence that logits stand for, 0 or more."""
    if kind == "relu":
        return logits.relu()
    if kind == "softplus":
        return F.softplus(logits)
    return logits.clamp(-10.0, 10.0).exp()


def outlier_exposure(logits_out: Tensor) -> Tensor:
    r"""Compute the cross-entropy between the predictions on outliers and the uniform distribution.

    .. math:: L = \frac1N \sum_i \Big[ \log \sum_k e^{z_{i,k}} - \frac1K \sum_k z_{i,k} \Big]

    Parameters
    ----------
    logits_out : Tensor of shape (N, K), float
        Class logits of the outliers.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If the logits are not a non-empty float tensor (N, K).

    Notes
    -----
    The authors add 0.5 times this, with twice as many outliers as training rows in a batch and one forward pass over
    both.

    References
    ----------
    Hendrycks et al., ICLR 2019, arXiv:1812.04606.

    Examples
    --------
    >>> round(float(outlier_exposure(torch.zeros(1, 4))), 4)
    1.3863
    """
    z = _check_logits(logits_out, "logits_out")
    return (torch.logsumexp(z, dim=1) - z.mean(dim=1)).mean()


def energy_margin(logits_in: Tensor, logits_out: Tensor, m_in: float, m_out: float) -> Tensor:
    r"""Compute squared hinges that separate the energies of training rows and outliers.

    .. math:: L = \mathrm{mean} \max(0, E_{in} - m_{in})^2 + \mathrm{mean} \max(0, m_{out} - E_{out})^2,
              \qquad E = -\log \sum_k e^{z_k}

    Parameters
    ----------
    logits_in : Tensor of shape (N, K), float
        Class logits of the training rows.
    logits_out : Tensor of shape (M, K), float
        Class logits of the outliers.
    m_in : float
        Energy below which training rows add nothing.
    m_out : float
        Energy above which outliers add nothing; it must exceed ``m_in``.

    Returns
    -------
    Tensor of shape ()
        The loss, the sum of two means over rows.

    Raises
    ------
    InvalidInput
        If logits are not non-empty float tensors (N, K), a margin is not finite, or ``m_in`` is not below ``m_out``.

    Notes
    -----
    The authors add 0.1 times this while fine-tuning, with m_in = -23 and m_out = -5 on CIFAR-10. The unknown-detection
    benchmark prints two margins without names; only m_in = -27, m_out = -3 (CIFAR) and -15, -7 (ImageNet) makes sense.

    References
    ----------
    Liu et al., NeurIPS 2020, arXiv:2010.03759.

    Examples
    --------
    >>> float(energy_margin(torch.tensor([[30.0, 0.0]]), torch.tensor([[0.0, 0.0]]), -23, -5))
    0.0
    """
    low = _checks.number(m_in, "m_in", -math.inf, math.inf, open_low=True, open_high=True)
    high = _checks.number(m_out, "m_out", -math.inf, math.inf, open_low=True, open_high=True)
    if low >= high:
        raise InvalidInput(f"m_in must lie below m_out (low energy means known), got m_in={low:g} and m_out={high:g}")
    inside = -torch.logsumexp(_check_logits(logits_in, "logits_in"), dim=1)
    outside = -torch.logsumexp(_check_logits(logits_out, "logits_out"), dim=1)
    return F.relu(inside - low).square().mean() + F.relu(high - outside).square().mean()


def gambler(logits: Tensor, labels: Tensor, reward: float) -> Tensor:
    r"""Compute the loss of Deep Gamblers, which may bet on a reserve instead of a class.

    .. math:: L = -\frac1N \sum_i \log \Big( p_{i, y_i} + \frac{p_{i, K+1}}{o} \Big)

    Parameters
    ----------
    logits : Tensor of shape (N, K + 1), float
        Class logits and, last, the logit of the reserve. The softmax runs over all of them.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.
    reward : float
        Reward o, above 1: at 1 the reserve would always pay. The authors ask for at most K; FD-Shifts also uses 20 with
        ten classes.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    Some authors write :math:`\log(o\,p_y + p_{K+1})`, which differs by a constant. Train with cross-entropy on the
    first K logits before using this loss.

    References
    ----------
    Liu et al., NeurIPS 2019, arXiv:1907.00208.

    Examples
    --------
    >>> round(float(gambler(torch.zeros(1, 3), torch.tensor([0]), reward=2.0)), 4)
    0.6931
    """
    o = _checks.number(reward, "reward", 1.0, math.inf, open_low=True, open_high=True)
    z = _check_logits(logits)
    if z.shape[1] < 2:
        raise InvalidInput("logits must have K + 1 columns, the last one the reserve, got 1")
    y = _check_labels(labels, z, classes=z.shape[1] - 1)
    logs = F.log_softmax(z, dim=1)
    return -torch.logaddexp(_pick(logs, y), logs[:, -1] - math.log(o)).mean()


def devries(logits: Tensor, confidence: Tensor, labels: Tensor, hint_mask: Tensor, weight: float) -> Tensor:
    r"""Compute the loss of a learnt confidence that can buy hints.

    .. math:: L = \frac1N \sum_i \Big[ -\log\big(c'_i p_{i, y_i} + 1 - c'_i\big) - \lambda \log c_i \Big],
              \qquad c' = b c + (1 - b)

    Parameters
    ----------
    logits : Tensor of shape (N, K), float
        Class logits, at least one row.
    confidence : Tensor of shape (N,), float
        Learnt confidence c, the output of a sigmoid.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.
    hint_mask : Tensor of shape (N,), bool
        b, True where the row may buy hints. In the paper b ~ Bernoulli(u) with u ~ U(0, 1) for each row, so half of the
        rows.
    weight : float
        Weight :math:`\lambda` of the price of hints, 0 or more; use :attr:`Budget.weight`.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    Probabilities below 1e-12 count as 1e-12, as in the code of FD-Shifts; rows without hints keep their exact
    log-probability.

    References
    ----------
    DeVries and Taylor, 2018, arXiv:1802.04865.

    Examples
    --------
    >>> loss = devries(torch.zeros(1, 2), torch.tensor([0.5]), torch.tensor([0]), torch.tensor([True]), 0.1)
    >>> round(float(loss), 4)
    0.357
    """
    z = _check_logits(logits)
    y = _check_labels(labels, z)
    c = _check_rows(confidence, "confidence", len(z))
    if not isinstance(hint_mask, Tensor) or hint_mask.shape != (len(z),):
        raise InvalidInput(f"hint_mask must be a tensor of shape ({len(z)},)")
    weight = _checks.number(weight, "weight", 0.0, math.inf, open_high=True)
    own = _pick(F.log_softmax(z, dim=1), y)
    hinted = (c * own.exp() + (1.0 - c)).clamp(min=TINY).log()
    return -torch.where(hint_mask.bool(), hinted, own).mean() + weight * _hint_cost(c)


def _hint_cost(confidence: Tensor) -> Tensor:
    return -confidence.clamp(min=TINY).log().mean()


class Budget:
    r"""Steer the weight of the price of hints in :func:`devries`, so that the price stays near a budget.

    .. math:: \lambda \leftarrow \lambda / 1.01 \text{ if } \mathrm{mean}(-\log c) < \beta,
              \text{ else } \lambda / 0.99

    once a step.

    Parameters
    ----------
    budget : float, default=0.3
        Price :math:`\beta` of hints to keep to, above 0.
    weight : float, default=0.1
        Weight :math:`\lambda` to start from, above 0.

    Raises
    ------
    InvalidInput
        If ``budget`` or ``weight`` is not a finite number above 0.

    Notes
    -----
    FD-Shifts does not save the weight, so a resumed run starts from 0.1 again; here it is part of the state.

    Examples
    --------
    >>> budget = Budget()
    >>> budget.update(torch.tensor([1.0]))
    >>> round(budget.weight, 4)
    0.099
    """

    def __init__(self, budget: float = 0.3, weight: float = 0.1) -> None:
        self.budget = _checks.number(budget, "budget", 0.0, math.inf, open_low=True, open_high=True)
        self.weight = _checks.number(weight, "weight", 0.0, math.inf, open_low=True, open_high=True)

    def update(self, confidence: Tensor) -> None:
        """Adjust the weight after a training step.

        Parameters
        ----------
        confidence : Tensor of shape (N,), float
            Learnt confidences of the step.

        Raises
        ------
        InvalidInput
            If ``confidence`` is not a tensor of one dimension.
        """
        c = _check_rows(confidence, "confidence").detach()
        is_below_budget = float(_hint_cost(c)) < self.budget
        self.weight /= 1.01 if is_below_budget else 0.99

    def state_dict(self) -> dict[str, float]:
        """Return the weight, to resume training from.

        Returns
        -------
        dict
            ``{"weight": float}``.
        """
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore a weight saved by :meth:`state_dict`.

        Parameters
        ----------
        state : mapping
            What :meth:`state_dict` returned.

        Raises
        ------
        InvalidInput
            If the state has no finite weight above 0.
        """
        weight = state.get("weight")
        self.weight = _checks.number(weight, "the saved weight", 0.0, math.inf, open_low=True, open_high=True)


def confidnet(confidence: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    r"""Compute the squared distance between a learnt confidence and the true-class probability (ConfidNet).

    .. math:: L = \frac1N \sum_i (c_i - p_{i, y_i})^2

    Parameters
    ----------
    confidence : Tensor of shape (N,), float
        Learnt confidence c.
    logits : Tensor of shape (N, K), float
        Class logits of the frozen classifier; no gradient reaches them.
    labels : Tensor of shape (N,), int
        Labels from 0 to K - 1.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range. The range of labels is checked on the CPU only.

    Notes
    -----
    In the second stage, where a copy of the encoder is trained, the logits still come from the original.

    References
    ----------
    Corbière et al., NeurIPS 2019, arXiv:1910.04851.

    Examples
    --------
    >>> round(float(confidnet(torch.tensor([0.7]), torch.zeros(1, 2), torch.tensor([0]))), 4)
    0.04
    """
    z = _check_logits(logits).detach()
    own = _pick(F.softmax(z, dim=1), _check_labels(labels, z))
    return (_check_rows(confidence, "confidence", len(z)) - own).square().mean()


def aurc(loss: Tensor, confidence: Tensor, estimator: AurcEstimator = "empirical") -> Tensor:
    r"""Compute the area under the risk-coverage curve of a batch as a differentiable loss.

    .. math:: L = \frac1N \sum_i \frac{w(r_i)}{\bar w} \, l_i

    with r the ascending rank of the detached confidence in the batch and w of :func:`twofold.metrics.aurc_weights`.

    Parameters
    ----------
    loss : Tensor of shape (N,), float
        Loss l of each row, such as its cross-entropy, not their mean.
    confidence : Tensor of shape (N,), float
        Confidence that ranks the rows. No gradient flows through rank or weight.
    estimator : {"empirical", "log", "sele", "self_excluded"}, default="empirical"
        Which weights w to use; see :func:`twofold.metrics.aurc_weights`.

    Returns
    -------
    Tensor of shape ()
        The loss, a mean over rows.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type or shape, the batch is empty, or there is no such estimator.

    Notes
    -----
    The authors build w once for the full batch, so that a smaller last batch gets the lowest weights only, and do not
    scale it: SELE then trains at half the learning rate. Here w is that of the actual batch with mean one.

    Rows of equal confidence share their mean weight; the authors' unstable sort gives them any. Rank by a quantity that
    keeps its digits: the largest softmax value has many ties in float32. The log-odds of the top class (largest logit
    minus logsumexp of the others) has the same order and hardly any ties. A batch of one row returns its loss.

    References
    ----------
    Zhou et al., ICML 2025, arXiv:2410.15361.

    Examples
    --------
    >>> loss = torch.tensor([1.0, 0.0])
    >>> float(aurc(loss, torch.tensor([0.1, 0.9]))), float(aurc(loss, torch.tensor([0.9, 0.1])))
    (0.25, 0.75)
    """
    _checks.choice(estimator, "estimator", get_args(AurcEstimator))
    if not isinstance(loss, Tensor) or loss.ndim != 1 or loss.numel() == 0:
        raise InvalidInput("loss must be a tensor (N,) with at least one row: one loss for each row, not their mean")
    row_loss = _check_rows(loss, "loss")
    conf = _check_rows(confidence, "confidence", len(row_loss)).detach()
    if len(row_loss) == 1:
        return row_loss.mean()
    weight = torch.from_numpy(aurc_weights(len(row_loss), estimator)).to(row_loss.device)
    _, tie_group, group_size = torch.unique(conf, return_inverse=True, return_counts=True)
    sums = F.pad(weight.cumsum(0), (1, 0))
    group_end = group_size.cumsum(0)
    mean_weight = (sums[group_end] - sums[group_end - group_size]) / group_size  # of each group of equal confidence
    scaled = (mean_weight / weight.mean()).to(row_loss.dtype)
    return (scaled[tie_group] * row_loss).mean()
