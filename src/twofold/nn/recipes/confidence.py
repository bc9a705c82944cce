"""Loss terms that shape the confidence of the predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
from torch import Tensor

from twofold import _checks
from twofold.nn.ingredients import losses
from twofold.nn.recipes.part import QUIET, Term, check_not_negative, check_positive

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep


@dataclass(frozen=True, repr=False)
class CRL(Term):
    """Rank confidences by how often each training image was predicted correctly so far (correctness ranking loss).

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term; 1 in CRL, SURE and the unknown-detection benchmark.
    equal : {"ignore", "pull"}, default="ignore"
        What to do with pairs that were correct equally often: leave them out, as CRL and SURE do, or pull their
        confidences together, as the code of the unknown-detection benchmark does.
    total : {"so_far", "run"}, default="so_far"
        What correct predictions are divided by: the epochs so far, as in the code of CRL and SURE, or all epochs of the
        run, as in the code of the unknown-detection benchmark, which makes the margins of early epochs small.
    """

    weight: float = 1.0
    equal: Literal["ignore", "pull"] = "ignore"
    total: Literal["so_far", "run"] = field(default="so_far", metadata=QUIET)
    memory: ClassVar[tuple[str, ...]] = ("correctness",)
    couples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        _checks.choice(self.equal, "equal", ("ignore", "pull"))
        _checks.choice(self.total, "total", ("so_far", "run"))

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted ranking loss; correct predictions are counted once the weights have moved.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        total = step.epochs if self.total == "run" else None
        record = step.remember("correctness", lambda: losses.Correctness(step.rows, total=total))
        confidence = step.logits.softmax(dim=1).max(dim=1).values
        index = torch.as_tensor(step.index)
        if step.is_first_pass:
            correct = step.logits.detach().argmax(dim=1) == step.labels
            step.after_update(record.update, index.to(correct.device), correct)
        target = record.targets(index, step.epoch + 1).to(confidence.device)
        ranking = losses.crl(step.gather_batch(confidence), step.gather_batch(target), self.equal)
        return self.weight * step.batch_loss(ranking)


@dataclass(frozen=True)
class LogitNorm(Term):
    """Learn by cross-entropy of logits that are scaled to one norm.

    Parameters
    ----------
    temperature : float, default=0.04
        What the normalised logits are divided by; 0.04 is the method's on CIFAR-10.
    """

    temperature: float = 0.04

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature")

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the cross-entropy of the normalised logits.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.logit_norm(step.logits, step.labels, self.temperature)


@dataclass(frozen=True, repr=False)
class Evidential(Term):
    """Learn by the evidential loss.

    Parameters
    ----------
    weight : float, default=0.01
        Weight of the divergence from the prior. The unknown-detection benchmark keeps it constant and does not state
        it; 0.01 is our choice. It is 1 after annealing in the original method.
    objective : {"log", "digamma", "mse"}, default="log"
        First term of the loss; ``"log"`` is the benchmark's choice, ``"mse"`` the original method's.
    evidence : {"exp", "relu", "softplus"}, default="exp"
        How logits become evidence; ``"exp"`` is the benchmark's choice, ``"relu"`` the original method's. The scores
        ``edl_max`` and ``edl_vacuity`` have a setting of the same name, which must be the same.
    annealing : float, default=0.0
        Epochs over which the weight of the divergence grows linearly from 0; 10 in the original method.
    """

    weight: float = 0.01
    objective: losses.Objective = field(default="log", metadata=QUIET)
    evidence: losses.Evidence = field(default="exp", metadata=QUIET)
    annealing: float = field(default=0.0, metadata=QUIET)

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        check_not_negative(self.annealing, "annealing")
        _checks.choice(self.objective, "objective", get_args(losses.Objective))
        _checks.choice(self.evidence, "evidence", get_args(losses.Evidence))

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the evidential loss.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        weight = self.weight
        if step.epoch < self.annealing:
            weight *= step.epoch / self.annealing
        return losses.edl(step.logits, step.labels, weight=weight, objective=self.objective, evidence=self.evidence)


@dataclass(frozen=True)
class Gambler(Term):
    """Learn when to abstain (Deep Gamblers): plain cross-entropy at first, then a reservation at a price.

    Parameters
    ----------
    reward : float, default=2.2
        What a correct prediction pays, above 1; the larger, the less the network abstains. FD-Shifts chooses among 2.2,
        3, 6 and 10 on validation data, and 12, 15, 20 on CIFAR-100, 15 on iWildCam and BREEDS. For the reservation as
        score it chose 12 on CIFAR-100, 6 on iWildCam and 2.2 elsewhere; the presets ``fd_...`` have these.
    warm_up : float, default=1/3
        Share of the run with plain cross-entropy: 100 of 300 epochs in the code of FD-Shifts on CIFAR (50 in its text),
        50 of 150 on SVHN, a third of the steps with ViTs.
    """

    reward: float = 2.2
    warm_up: float = 1 / 3

    def __post_init__(self) -> None:
        _checks.number(self.reward, "reward", 1.0, math.inf, open_low=True, open_high=True)
        _checks.number(self.warm_up, "warm_up", 0.0, 1.0)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute cross-entropy during the warm-up, the loss of Deep Gamblers after it.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        if step.progress < self.warm_up:
            return losses.cross_entropy(step.logits[:, :-1], step.labels)
        return losses.gambler(step.logits, step.labels, self.reward)


@dataclass(frozen=True, repr=False)
class Hints(Term):
    """Learn a confidence by which the network may ask for hints, at a price that keeps to a budget (DeVries, Taylor).

    Parameters
    ----------
    budget : float, default=0.3
        Cost of hints that the price is adapted to; 0.3 in FD-Shifts and in the method.
    price : float, default=0.1
        Price of hints at the start; 0.1 in FD-Shifts. Every step divides it by 1.01 or by 0.99.
    """

    budget: float = 0.3
    price: float = field(default=0.1, metadata=QUIET)
    memory: ClassVar[tuple[str, ...]] = ("budget",)
    needs_confidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(self.budget, "budget")
        check_positive(self.price, "price")

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the loss with hints; the price is adapted once the weights have moved.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        price = step.remember("budget", lambda: losses.Budget(self.budget, self.price))
        confidence = step.confidence
        gets_hint = step.flip_coins()
        if step.is_first_pass:
            reached = confidence.detach()
            step.after_update(price.update, reached)
        return losses.devries(step.logits, confidence, step.labels, gets_hint, price.weight)


@dataclass(frozen=True)
class TrueClass(Term):
    """Teach the confidence branch the probability of the true class (ConfidNet); the classifier stays as it is."""

    needs_confidence: ClassVar[bool] = True

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the squared distance between the confidence and the true-class probability.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.confidnet(step.confidence, step.logits, step.labels)


@dataclass(frozen=True)
class Ranked(Term):
    """Learn by the AURC of the batch.

    Parameters
    ----------
    estimator : {"empirical", "log", "sele", "self_excluded"}, default="empirical"
        Estimator of the AURC; the paper trains with the first three.
    """

    estimator: Literal["empirical", "log", "sele", "self_excluded"] = "empirical"
    couples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _checks.choice(self.estimator, "estimator", get_args(losses.AurcEstimator))

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the AURC of the cross-entropy, ranked by the log-odds of the top class.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        logits = step.logits
        each = torch.nn.functional.cross_entropy(logits, step.labels, reduction="none")
        top, prediction = logits.max(dim=1)
        others = logits.scatter(1, prediction[:, None], float("-inf"))
        log_odds = step.gather_batch(top - others.logsumexp(dim=1))
        return step.batch_loss(losses.aurc(step.gather_batch(each), log_odds, self.estimator))
