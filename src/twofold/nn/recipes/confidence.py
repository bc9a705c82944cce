"""Loss terms that shape the confidence of the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from twofold.nn.ingredients import losses
from twofold.nn.recipes.part import Term

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep


@dataclass(frozen=True)
class CRL(Term):
    """Rank confidences by how often each training image was predicted correctly so far (correctness ranking loss).

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    equal : {"ignore", "pull"}, default="ignore"
        What to do with pairs that were correct equally often: leave them out, or pull their confidences together.
    """

    weight: float = 1.0
    equal: Literal["ignore", "pull"] = "ignore"
    memory: ClassVar[tuple[str, ...]] = ("correctness",)

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
        record = step.remember("correctness", lambda: losses.Correctness(step.rows))
        confidence = step.logits.softmax(dim=1).max(dim=1).values
        index = torch.as_tensor(step.index)
        if step.is_first_pass:
            correct = step.logits.detach().argmax(dim=1) == step.labels
            step.after_update(lambda: record.update(step.gather(index.to(correct.device)), step.gather(correct)))
        target = record.targets(index, step.epoch + 1).to(confidence.device)
        ranking = losses.crl(step.gather_batch(confidence), step.gather_batch(target), self.equal)
        return self.weight * step.batch_loss(ranking)


@dataclass(frozen=True)
class LogitNorm(Term):
    """Learn by cross-entropy of logits that are scaled to one norm.

    Parameters
    ----------
    temperature : float, default=0.04
        What the normalised logits are divided by.
    """

    temperature: float = 0.04

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


@dataclass(frozen=True)
class Evidential(Term):
    """Learn by the evidential loss.

    Parameters
    ----------
    weight : float, default=0.01
        Weight of the divergence from the prior. The benchmark that used this loss does not state it; 0.01 is our
        choice.
    """

    weight: float = 0.01

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
        return losses.edl(step.logits, step.labels, weight=self.weight)


@dataclass(frozen=True)
class Gambler(Term):
    """Learn when to abstain (Deep Gamblers): plain cross-entropy at first, then a reservation at a price.

    Parameters
    ----------
    reward : float, default=2.2
        What a correct prediction pays; the larger, the less the network abstains.
    warm_up : float, default=1/3
        Share of the run with plain cross-entropy.
    """

    reward: float = 2.2
    warm_up: float = 1 / 3

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


@dataclass(frozen=True)
class Hints(Term):
    """Learn a confidence by which the network may ask for hints, at a price that keeps to a budget (DeVries, Taylor).

    Parameters
    ----------
    budget : float, default=0.3
        Cost of hints that the price is adapted to.
    """

    budget: float = 0.3
    memory: ClassVar[tuple[str, ...]] = ("budget",)

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
        price = step.remember("budget", lambda: losses.Budget(self.budget))
        confidence = step.confidence
        gets_hint = step.flip_coins()
        if step.is_first_pass:
            reached = confidence.detach()
            step.after_update(lambda: price.update(step.gather(reached)))
        return losses.devries(step.logits, confidence, step.labels, gets_hint, price.weight)


@dataclass(frozen=True)
class TrueClass(Term):
    """Teach the confidence branch the probability of the true class (ConfidNet); the classifier stays as it is."""

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
        Estimator of the AURC.
    """

    estimator: Literal["empirical", "log", "sele", "self_excluded"] = "empirical"

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
