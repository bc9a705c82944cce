r"""Losses of the recipes, as pure functions of tensors: the mean over rows, differentiable, no loop over rows.

Notation: z logits, p their softmax, y the label, K classes, N rows. Logits in half precision are computed in float32.
A recipe multiplies each term by its own weight; none is hidden in here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.metrics import aurc_weights

AurcEstimator: TypeAlias = Literal["empirical", "log", "sele", "self_excluded"]
Objective: TypeAlias = Literal["log", "digamma", "mse"]

TINY = 1e-12  # below this a probability counts as zero


def _logits(value: Tensor, name: str = "logits") -> Tensor:
    """Logits (N, K) in at least float32."""
    if not isinstance(value, Tensor) or value.ndim != 2 or not value.is_floating_point():
        got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InvalidInput(f"{name} must be a float tensor (N, K), got {got}")
    if value.numel() == 0:
        raise InvalidInput(f"{name} is empty (shape {tuple(value.shape)}); at least one row and one class are needed")
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _labels(value: Tensor, logits: Tensor, name: str = "labels", *, classes: int | None = None) -> Tensor:
    """Labels (N,) as int64 for these logits; their range is checked on the CPU only, where it costs no wait."""
    classes = logits.shape[1] if classes is None else classes
    if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype == torch.bool:
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise InvalidInput(f"{name} must be an integer tensor (N,), got {got}")
    if value.shape != logits.shape[:1]:
        raise InvalidInput(f"{name} must have shape ({len(logits)},) as the logits have rows, got {tuple(value.shape)}")
    if value.device.type == "cpu" and ((value < 0) | (value >= classes)).any():
        row = int(((value < 0) | (value >= classes)).int().argmax())
        raise InvalidInput(f"{name} must be in [0, {classes}), got {int(value[row])} in row {row}")
    return value.long()


def _vector(value: Tensor, name: str, rows: int) -> Tensor:
    """One number a row, in at least float32."""
    if not isinstance(value, Tensor) or value.shape != (rows,):
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InvalidInput(f"{name} must be a tensor of shape ({rows},), got {got}")
    return value if value.dtype == torch.float64 else value.float()


def _picked(table: Tensor, labels: Tensor) -> Tensor:
    """The column of each row's label."""
    return table.gather(1, labels[:, None])[:, 0]


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    r"""Cross-entropy, with label smoothing (Szegedy et al., CVPR 2016) where asked.

    .. math:: L = \frac1N \sum_i \Big[ -(1 - s) \log p_{i, y_i} - \frac{s}{K} \sum_k \log p_{i,k} \Big]

    The smoothed share goes to all K classes, the right one among them (some papers leave it out).
    """
    smoothing = _checks.number(smoothing, "smoothing", 0.0, 1.0)
    z = _logits(logits)
    return F.cross_entropy(z, _labels(labels, z), label_smoothing=smoothing)


def mixed_cross_entropy(
    logits: Tensor, labels: Tensor, partners: Tensor, share: float | Tensor, smoothing: float = 0.0
) -> Tensor:
    r"""Cross-entropy of mixed inputs: mixup, CutMix, RegMixup (Pinto et al., NeurIPS 2022, arXiv:2206.14502).

    .. math:: L = \kappa \, \mathrm{CE}(z, y) + (1 - \kappa) \, \mathrm{CE}(z, y')

    ``share`` is the part of the labels' own images, one number or one for each row. RegMixup adds this to the
    cross-entropy of the clean batch with weight 1 (SURE+, both in print and in code); OpenOOD takes the mean over both
    batches, which is half of that sum.
    """
    smoothing = _checks.number(smoothing, "smoothing", 0.0, 1.0)
    z = _logits(logits)
    own = F.cross_entropy(z, _labels(labels, z), label_smoothing=smoothing, reduction="none")
    other = F.cross_entropy(z, _labels(partners, z, "partners"), label_smoothing=smoothing, reduction="none")
    if isinstance(share, Tensor):
        kappa = _vector(share.to(z.device), "share", len(z)) if share.ndim else share.to(z)
    else:
        kappa = z.new_tensor(_checks.number(share, "share", 0.0, 1.0))
    return (kappa * own + (1.0 - kappa) * other).mean()


def jsd(logits_clean: Tensor, logits_a: Tensor, logits_b: Tensor) -> Tensor:
    r"""Consistency of three views of an image: AugMix (Hendrycks et al., ICLR 2020, arXiv:1912.02781).

    .. math:: L = \tfrac13 \sum_{v} \mathrm{KL}(p_v \Vert m), \qquad
              m = \max\big(\tfrac13 (p_{clean} + p_a + p_b), 10^{-7}\big)

    The generalised Jensen-Shannon divergence but for the floor of the mixture. The authors add 12 times this to the
    cross-entropy of the clean view. The unknown-detection benchmark prints that the term is off and its code has it on.
    """
    views = [_logits(logits_clean, "logits_clean"), _logits(logits_a, "logits_a"), _logits(logits_b, "logits_b")]
    if len({v.shape for v in views}) > 1:
        raise InvalidInput(f"the three views must have one shape, got {[tuple(v.shape) for v in views]}")
    logs = torch.stack([F.log_softmax(v, dim=1) for v in views])
    p = logs.exp()
    mixture = p.mean(dim=0).clamp(min=1e-7).log()
    return (p * (logs - mixture)).sum(dim=2).mean()


def logit_norm(logits: Tensor, labels: Tensor, temperature: float = 0.04) -> Tensor:
    r"""Cross-entropy of logits of a fixed length: LogitNorm (Wei et al., ICML 2022, arXiv:2205.09310).

    .. math:: L = \mathrm{CE}\Big(\frac{z}{\tau (\lVert z \rVert_2 + 10^{-7})}, y\Big)

    0.04 is the authors' value for CIFAR-10. The loss cannot fall below
    :math:`\log\big(1 + (K - 1) \exp(-\tau^{-1} \sqrt{K / (K - 1)})\big)`: a high temperature keeps it up.
    """
    tau = _checks.number(temperature, "temperature", 0.0, math.inf, open_low=True, open_high=True)
    z = _logits(logits)
    length = torch.linalg.vector_norm(z, dim=1, keepdim=True) + 1e-7
    return F.cross_entropy(z / (length * tau), _labels(labels, z))


class Correctness:
    r"""How often each training row was answered rightly so far: the targets of :func:`crl`.

    Moon et al., ICML 2020, arXiv:2007.01458. With n the count of a row, epochs counted from 1, by default (CRL's code,
    SURE)

    .. math:: \bar c = \frac{n - \min n}{m - \min n}, \qquad m = \max(1, \mathrm{epoch} - 1),

    the minimum over all rows; 0 where m equals the minimum (the code divides 0 by 0 there). With ``total`` the whole
    number of epochs, :math:`\bar c = n / \mathrm{total}`, as in the unknown-detection benchmark, whose margins are
    small in early epochs. Update once a step, after the optimiser, with the answers of the first clean training-mode
    pass.
    """

    def __init__(self, rows: int, *, total: int | None = None) -> None:
        self.counts = torch.zeros(_checks.whole(rows, "rows", 1), dtype=torch.int64)
        self.total = None if total is None else _checks.whole(total, "total", 1)

    def update(self, index: Tensor, right: Tensor) -> None:
        """Count the answers of the training rows ``index``; a row given twice counts twice."""
        where = self._index(index)
        if not isinstance(right, Tensor) or right.shape != index.shape or right.dtype != torch.bool:
            got = f"{right.dtype} {tuple(right.shape)}" if isinstance(right, Tensor) else type(right).__name__
            raise InvalidInput(f"right must be a boolean tensor of shape {tuple(index.shape)}, got {got}")
        self.counts.index_add_(0, where, right.detach().cpu().long())

    def targets(self, index: Tensor, epoch: int) -> Tensor:
        """Correctness of the training rows ``index`` in this epoch, on the device of ``index``."""
        epoch = _checks.whole(epoch, "epoch", 1)
        n = self.counts[self._index(index)].float()
        if self.total is not None:
            return (n / self.total).to(index.device)
        low = int(self.counts.min())
        span = max(1, epoch - 1) - low
        return ((n - low) / span if span > 0 else torch.zeros_like(n)).to(index.device)

    def _index(self, index: Tensor) -> Tensor:
        if not isinstance(index, Tensor) or index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise InvalidInput("index must be an integer tensor (N,) of training rows")
        where = index.detach().cpu().long()
        if where.numel() and (int(where.min()) < 0 or int(where.max()) >= len(self.counts)):
            raise InvalidInput(
                f"index must be in [0, {len(self.counts)}), got {int(where.min())} to {int(where.max())}; "
                "the training set has another number of rows than this record"
            )
        return where

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"counts": self.counts.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from saved counts of the same training set."""
        counts = state.get("counts")
        if not isinstance(counts, Tensor) or counts.shape != self.counts.shape or counts.dtype != torch.int64:
            raise InvalidInput(f"the saved state has no counts of {len(self.counts)} training rows")
        self.counts = counts.detach().cpu().clone()


def crl(confidence: Tensor, target: Tensor, equal: Literal["ignore", "pull"] = "ignore") -> Tensor:
    r"""Correctness ranking loss over the pairs (i, i+1), cyclic (Moon et al., ICML 2020, arXiv:2007.01458).

    .. math:: L = \frac1N \sum_i \max\big(0, |\bar c_i - \bar c_j| - \mathrm{sign}(\bar c_i - \bar c_j)
              (\kappa_i - \kappa_j)\big), \qquad j = i + 1 \bmod N

    ``confidence`` is the largest softmax value, ``target`` comes from :meth:`Correctness.targets`; gradients flow
    through both confidences. Pairs of equal target add nothing. The unknown-detection benchmark pulls them together by
    :math:`|\kappa_i - \kappa_j|`, which the paper does not have: ``equal="pull"``.
    """
    _checks.choice(equal, "equal", ("ignore", "pull"))
    if not isinstance(confidence, Tensor) or confidence.ndim != 1 or confidence.numel() == 0:
        raise InvalidInput("confidence must be a tensor (N,) with at least one row")
    kappa = _vector(confidence, "confidence", len(confidence))
    c = _vector(target, "target", len(kappa)).detach()
    apart, gap = c - c.roll(-1), kappa - kappa.roll(-1)
    loss = F.relu(apart.abs() - apart.sign() * gap)
    if equal == "pull":
        loss = torch.where(apart == 0, gap.abs(), loss)
    return loss.mean()


def edl(logits: Tensor, labels: Tensor, *, weight: float, objective: Objective = "log") -> Tensor:
    r"""Evidential loss: a Dirichlet over class probabilities (Sensoy et al., NeurIPS 2018, arXiv:1806.01768).

    .. math:: e = \exp(\mathrm{clip}(z, -10, 10)), \quad \alpha = e + 1, \quad S = \textstyle\sum_k \alpha_k

    .. math:: L = \log S - \log \alpha_y + w \, \mathrm{KL}\big(\mathrm{Dir}(\tilde\alpha) \Vert \mathrm{Dir}(1)\big),
              \qquad \tilde\alpha = y + (1 - y) \odot \alpha

    with the evidence of the true class removed in the second term. ``objective``: ``log`` as above (the benchmark's
    choice), ``digamma`` :math:`\psi(S) - \psi(\alpha_y)`, or ``mse``
    :math:`\sum_k (y_k - \hat p_k)^2 + \hat p_k (1 - \hat p_k) / (S + 1)` with :math:`\hat p = \alpha / S`.
    ``weight`` has no default: the benchmark keeps it constant and does not tell the value; Sensoy et al. let it grow as
    min(1, epoch / 10). The benchmark scores by the softmax of z, not by the Dirichlet mean. The divergence is a
    difference of large numbers and is computed in float64.
    """
    weight = _checks.number(weight, "weight", 0.0, math.inf, open_high=True)
    _checks.choice(objective, "objective", get_args(Objective))
    z = _logits(logits)
    y = _labels(labels, z)
    alpha = z.clamp(-10.0, 10.0).exp() + 1.0
    total, own = alpha.sum(dim=1), _picked(alpha, y)
    if objective == "log":
        fit = total.log() - own.log()
    elif objective == "digamma":
        fit = torch.digamma(total) - torch.digamma(own)
    else:
        p = alpha / total[:, None]
        fit = ((F.one_hot(y, z.shape[1]) - p).square() + p * (1.0 - p) / (total + 1.0)[:, None]).sum(dim=1)
    wrong = alpha.double().scatter(1, y[:, None], 1.0)
    sums = wrong.sum(dim=1)
    spread = torch.lgamma(sums) - math.lgamma(z.shape[1]) - torch.lgamma(wrong).sum(dim=1)
    spread = spread + ((wrong - 1.0) * (torch.digamma(wrong) - torch.digamma(sums)[:, None])).sum(dim=1)
    return (fit + weight * spread.to(fit.dtype)).mean()


def outlier_exposure(logits_out: Tensor) -> Tensor:
    r"""Cross-entropy of outliers to the uniform distribution (Hendrycks et al., ICLR 2019, arXiv:1812.04606).

    .. math:: L = \frac1N \sum_i \Big[ \log \sum_k e^{z_{i,k}} - \frac1K \sum_k z_{i,k} \Big]

    The authors add 0.5 times this, with twice as many outliers as training rows in a batch and one forward pass over
    both.
    """
    z = _logits(logits_out, "logits_out")
    return (torch.logsumexp(z, dim=1) - z.mean(dim=1)).mean()


def energy_margin(logits_in: Tensor, logits_out: Tensor, m_in: float, m_out: float) -> Tensor:
    r"""Squared hinges that part the energies of training rows and outliers.

    Liu et al., NeurIPS 2020, arXiv:2010.03759.

    .. math:: L = \mathrm{mean} \max(0, E_{in} - m_{in})^2 + \mathrm{mean} \max(0, m_{out} - E_{out})^2,
              \qquad E = -\log \sum_k e^{z_k}

    The authors add 0.1 times this while fine-tuning, with m_in = -23 and m_out = -5 on CIFAR-10. The unknown-detection
    benchmark prints two margins without names; only m_in = -27, m_out = -3 (CIFAR) and -15, -7 (ImageNet) makes sense.
    """
    low = _checks.number(m_in, "m_in", -math.inf, math.inf, open_low=True, open_high=True)
    high = _checks.number(m_out, "m_out", -math.inf, math.inf, open_low=True, open_high=True)
    if low >= high:
        raise InvalidInput(f"m_in must lie below m_out (low energy means known), got m_in={low:g} and m_out={high:g}")
    inside = -torch.logsumexp(_logits(logits_in, "logits_in"), dim=1)
    outside = -torch.logsumexp(_logits(logits_out, "logits_out"), dim=1)
    return F.relu(inside - low).square().mean() + F.relu(high - outside).square().mean()


def gambler(logits: Tensor, labels: Tensor, reward: float) -> Tensor:
    r"""Betting with a reserve: Deep Gamblers (Liu et al., NeurIPS 2019, arXiv:1907.00208).

    .. math:: L = -\frac1N \sum_i \log \Big( p_{i, y_i} + \frac{p_{i, K+1}}{o} \Big)

    The softmax runs over K + 1 logits, the last one the reserve. Some write :math:`\log(o\,p_y + p_{K+1})`, a constant
    apart. The reward o lies above 1, where the reserve would always pay, and the authors ask for at most K; FD-Shifts
    also uses o = 20 with ten classes. Train with cross-entropy on the first K logits before.
    """
    o = _checks.number(reward, "reward", 1.0, math.inf, open_low=True, open_high=True)
    z = _logits(logits)
    if z.shape[1] < 2:
        raise InvalidInput("logits must have K + 1 columns, the last one the reserve, got 1")
    y = _labels(labels, z, classes=z.shape[1] - 1)
    logs = F.log_softmax(z, dim=1)
    return -torch.logaddexp(_picked(logs, y), logs[:, -1] - math.log(o)).mean()


def devries(logits: Tensor, confidence: Tensor, labels: Tensor, hint_mask: Tensor, weight: float) -> Tensor:
    r"""A learnt confidence that buys hints (DeVries & Taylor 2018, arXiv:1802.04865).

    .. math:: L = \frac1N \sum_i \Big[ -\log\big(c'_i p_{i, y_i} + 1 - c'_i\big) - \lambda \log c_i \Big],
              \qquad c' = b c + (1 - b)

    ``confidence`` is the sigmoid output c, ``hint_mask`` b is True where hints are for sale: b ~ Bernoulli(u) with
    u ~ U(0, 1) for each row, so half of the rows. ``weight`` is :attr:`Budget.weight`. Probabilities below 1e-12 count
    as 1e-12 as in the code of FD-Shifts; rows without hints keep their exact log-probability.
    """
    z = _logits(logits)
    y = _labels(labels, z)
    c = _vector(confidence, "confidence", len(z))
    if not isinstance(hint_mask, Tensor) or hint_mask.shape != (len(z),):
        raise InvalidInput(f"hint_mask must be a tensor of shape ({len(z)},)")
    weight = _checks.number(weight, "weight", 0.0, math.inf, open_high=True)
    own = _picked(F.log_softmax(z, dim=1), y)
    hinted = (c * own.exp() + (1.0 - c)).clamp(min=TINY).log()
    return -torch.where(hint_mask.bool(), hinted, own).mean() + weight * _hint_cost(c)


def _hint_cost(confidence: Tensor) -> Tensor:
    return -confidence.clamp(min=TINY).log().mean()


class Budget:
    r"""The weight of the price of hints in :func:`devries`, steered so that the price stays near the budget.

    .. math:: \lambda \leftarrow \lambda / 1.01 \text{ if } \mathrm{mean}(-\log c) < \beta,
              \text{ else } \lambda / 0.99

    from 0.1, once a step. FD-Shifts does not save it, so that a resumed run starts from 0.1 again; here it is state.
    """

    def __init__(self, budget: float = 0.3, weight: float = 0.1) -> None:
        self.budget = _checks.number(budget, "budget", 0.0, math.inf, open_low=True, open_high=True)
        self.weight = _checks.number(weight, "weight", 0.0, math.inf, open_low=True, open_high=True)

    def update(self, confidence: Tensor) -> None:
        """Move the weight after a step with these confidences."""
        c = _vector(confidence, "confidence", len(confidence)).detach()
        self.weight /= 1.01 if float(_hint_cost(c)) < self.budget else 0.99

    def state_dict(self) -> dict[str, Any]:
        """The weight."""
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved weight."""
        self.weight = _checks.number(state.get("weight"), "the saved weight", 0.0, math.inf, open_low=True)


def confidnet(confidence: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    r"""Squared distance of a learnt confidence to the true-class probability: ConfidNet.

    Corbière et al., NeurIPS 2019, arXiv:1910.04851.

    .. math:: L = \frac1N \sum_i (c_i - p_{i, y_i})^2

    The logits are those of the frozen classifier; no gradient reaches them. In the second stage, where a copy of the
    encoder is trained, they still come from the original.
    """
    z = _logits(logits).detach()
    own = _picked(F.softmax(z, dim=1), _labels(labels, z))
    return (_vector(confidence, "confidence", len(z)) - own).square().mean()


def aurc(loss: Tensor, confidence: Tensor, estimator: AurcEstimator = "empirical") -> Tensor:
    r"""Area under the risk-coverage curve of a batch as a loss (Zhou et al., ICML 2025, arXiv:2410.15361).

    .. math:: L = \frac1N \sum_i \frac{w(r_i)}{\bar w} \, l_i

    with r the ascending rank of the detached confidence in the batch and w of :func:`twofold.metrics.aurc_weights`. No
    gradient flows through rank or weight. The authors build w once for the full batch, so that a smaller last batch
    gets the lowest weights only, and do not scale it: SELE then trains at half the learning rate. Here w is that of the
    actual batch with mean one. Rows of equal confidence share their mean weight; the authors' unstable sort gives them
    any. Rank by a quantity that keeps its digits: the largest softmax value has many ties in float32, the log-odds of
    the top class (largest logit minus logsumexp of the others) has the same order and hardly any.
    """
    _checks.choice(estimator, "estimator", get_args(AurcEstimator))
    if not isinstance(loss, Tensor) or loss.ndim != 1 or loss.numel() == 0:
        raise InvalidInput("loss must be a tensor (N,) with at least one row: one loss for each row, not their mean")
    l = _vector(loss, "loss", len(loss))
    conf = _vector(confidence, "confidence", len(l)).detach()
    weight = torch.from_numpy(aurc_weights(len(l), estimator)).to(l.device)
    if len(l) == 1:
        return l.mean()
    _, group, count = torch.unique(conf, return_inverse=True, return_counts=True)
    sums = F.pad(weight.cumsum(0), (1, 0))
    end = count.cumsum(0)
    shared = (sums[end] - sums[end - count]) / count
    return ((shared / weight.mean()).to(l.dtype)[group] * l).mean()
