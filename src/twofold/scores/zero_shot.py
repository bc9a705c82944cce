r"""Scores of zero-shot classifiers, which compare the embedding of an image with embeddings of class names.

Notation: h the image embedding, :math:`t_k` the embedding of class k and :math:`n_j` those of names of other things.
Make outputs of such a classifier with :meth:`twofold.Outputs.from_embeddings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import _checks
from twofold._math import log_softmax, logsumexp, unit
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, array_setting


def _class_embeddings(score: str, text: Any, head: Head | None, width: int) -> Array:
    """Return the unit embeddings of the classes: those given, or the rows of the head."""
    if text is None:
        if head is None:
            raise InvalidInput(f"{score} needs features and head, or the text embeddings of the classes: text=")
        return unit(head.weight)
    return _unit_embeddings(score, "text", text, width)


def _unit_embeddings(score: str, name: str, embeddings: Any, width: int) -> Array:
    """Return unit embeddings, checked to have as many columns as the features."""
    rows = _checks.floats(embeddings, name, ndim=2)
    if rows.shape[1] != width:
        raise InvalidInput(f"{score}: {name} has {rows.shape[1]} columns, and the features have {width}")
    return unit(rows)


@register_score(
    "mcm",
    paper="Ming et al., NeurIPS 2022, arXiv:2211.13445",
    aliases=("maximum_concept_matching",),
    cost="CD",
    grid={"temperature": (0.01, 1.0, 10.0)},
)
@dataclass(frozen=True, eq=False)
class ConceptMatching(StepHooks):
    r"""Score by the largest softmax probability of the cosines between an image and the class names.

    .. math:: s = \max_k \mathrm{softmax}\!\left( \frac{\cos(h, t_k)}{\tau} \right)

    from 1/C to 1.

    Parameters
    ----------
    text : ndarray of shape (n_classes, n_features), optional
        Text embeddings of the classes, of any length; by default the rows of the head. Average the embeddings of
        several prompts before.
    temperature : float, default=1.0
        Temperature :math:`\tau`, above 0. The authors use 1, not the 0.01 at which CLIP was trained.

    Notes
    -----
    At :math:`\tau = 1` all values are near 1/C, so embeddings should be float32 or better. From logits that are cosines
    times g, ``temperature(value=g)|msp`` ranks the same.

    References
    ----------
    Ming et al., NeurIPS 2022, arXiv:2211.13445.

    Examples
    --------
    >>> ConceptMatching(text=np.eye(2)).score(np.array([[3.0, 0.0], [1.0, 1.0]])).round(6)
    array([0.731059, 0.5     ])
    """

    text: Array | None = array_setting("C D")
    temperature: float = 1.0

    def needed_fields(self) -> tuple[str, ...] | None:
        """Return the fields that scoring needs: the head only where it stands for the texts.

        Returns
        -------
        tuple of str
            Names of fields.
        """
        return ("features", "head") if self.text is None else ("features",)

    def score(self, features: Floats, head: Head | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Image embeddings of the samples to score.
        head : Head, optional
            Last linear layer, whose rows are the texts. Required unless ``text`` is given.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If ``temperature`` is not above 0, or there are neither texts nor a head, or texts of another width.
        """
        tau = _checks.number(self.temperature, "temperature", 0.0, np.inf, open_low=True, open_high=True)
        texts = _class_embeddings("mcm", self.text, head, features.shape[1])
        return np.exp(log_softmax(unit(features) @ texts.T / tau).max(axis=1))


@register_score("neglabel", paper="Jiang et al., ICLR 2024, arXiv:2403.20078", cost="(C + M)D")
@dataclass(frozen=True, eq=False)
class NegativeLabels(StepHooks):
    r"""Score by the share of an image's affinity that goes to the class names rather than to negative labels.

    .. math:: s = \log \frac1G \sum_g \frac{\sum_k e^{\cos(h, t_k) / \tau}}
              {\sum_k e^{\cos(h, t_k) / \tau} + \sum_{j \in g} e^{\cos(h, n_j) / \tau}}

    over G groups of negative labels of equal size; at most 0.

    Parameters
    ----------
    text : ndarray of shape (n_classes, n_features), optional
        Text embeddings of the classes; by default the rows of the head.
    negatives : ndarray of shape (n_negatives, n_features)
        Text embeddings of names that are far from all classes; at least ``groups``. See :func:`mine_negatives`.
    groups : int, default=100
        Number of groups. Negatives beyond a multiple of it are dropped, the last first.
    temperature : float, default=0.01
        Temperature :math:`\tau`, above 0.
    seed : int or None, default=0
        Seed of the permutation that deals the negatives to groups; None keeps their order.

    Notes
    -----
    The share itself spans thirty orders of magnitude, so its logarithm is the score; it ranks the same. The authors
    permute on the GPU, which cannot be repeated on a CPU.

    References
    ----------
    Jiang et al., ICLR 2024, arXiv:2403.20078.

    Examples
    --------
    >>> score = NegativeLabels(text=np.eye(3)[:2], negatives=np.eye(3)[2:], groups=1, temperature=1.0)
    >>> np.exp(score.score(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))).round(4)
    array([0.7881, 0.4239])
    """

    text: Array | None = array_setting("C D")
    negatives: Array | None = array_setting("M D")
    groups: int = 100
    temperature: float = 0.01
    seed: int | None = 0

    def needed_fields(self) -> tuple[str, ...] | None:
        """Return the fields that scoring needs: the head only where it stands for the texts.

        Returns
        -------
        tuple of str
            Names of fields.
        """
        return ("features", "head") if self.text is None else ("features",)

    def score(self, features: Floats, head: Head | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Image embeddings of the samples to score.
        head : Head, optional
            Last linear layer, whose rows are the texts. Required unless ``text`` is given.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If a setting is out of range, there are fewer negatives than groups, or neither texts nor a head.
        """
        tau = _checks.number(self.temperature, "temperature", 0.0, np.inf, open_low=True, open_high=True)
        images = unit(features)
        texts = _class_embeddings("neglabel", self.text, head, features.shape[1])
        negatives = group_negatives(self.negatives, self.groups, self.seed, features.shape[1])
        known = logsumexp(images @ texts.T / tau)
        unknown = np.stack([logsumexp(images @ group.T / tau) for group in negatives], axis=1)
        shares = -np.logaddexp(0.0, unknown - known[:, None])
        return logsumexp(shares) - np.log(shares.shape[1])


def group_negatives(negatives: Any, groups: int, seed: int | None, width: int) -> Array:
    """Scale the embeddings of negative labels to length 1, and deal them to groups.

    Parameters
    ----------
    negatives : array-like of shape (n_negatives, n_features) or None
        Text embeddings.
    groups : int
        Number of groups; negatives beyond a multiple of it are dropped, the last first.
    seed : int or None
        Seed of the permutation; None keeps the order.
    width : int
        Number of columns that they must have.

    Returns
    -------
    ndarray of shape (n_groups, n_in_group, n_features)
        Unit embeddings by group.

    Raises
    ------
    InvalidInput
        If there are none, fewer than groups, or of another width.

    Examples
    --------
    >>> group_negatives(np.eye(3), 2, None, 3).shape
    (2, 1, 3)
    """
    if negatives is None:
        raise InvalidInput('neglabel needs embeddings of negative labels: scorer("neglabel", negatives=array)')
    rows = _unit_embeddings("neglabel", "negatives", negatives, width)
    count = _checks.whole(groups, "groups", 1)
    if len(rows) < count:
        raise InvalidInput(f"neglabel: {len(rows)} negatives cannot make {count} groups; lower groups, or add more")
    size = len(rows) // count
    rows = rows[: count * size]
    if seed is not None:
        rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    return rows.reshape(count, size, width)


def mine_negatives(candidates: Floats, text: Floats, *, share: float = 0.15, quantile: float = 0.95) -> Labels:
    """Choose the names that are farthest from all classes, for the negatives of ``neglabel``.

    Candidates are ranked by a quantile of their cosines to the class names; the lowest are chosen.

    Parameters
    ----------
    candidates : ndarray of shape (n_candidates, n_features)
        Text embeddings of many words, such as the nouns of WordNet; mine nouns and adjectives separately.
    text : ndarray of shape (n_classes, n_features)
        Text embeddings of the classes.
    share : float, default=0.15
        Share of the candidates to choose, in (0, 1].
    quantile : float, default=0.95
        Quantile of the cosines, in [0, 1]; 1 is the largest.

    Returns
    -------
    ndarray of shape (n_chosen,)
        Places of the chosen candidates, the farthest first.

    Raises
    ------
    InvalidInput
        If a setting is out of range, or the embeddings differ in width.

    References
    ----------
    Jiang et al., ICLR 2024, arXiv:2403.20078.

    Examples
    --------
    >>> mine_negatives(np.array([[1.0, 0.1], [-1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0]]), share=0.7)
    array([1, 2])
    """
    kept = _checks.number(share, "share", 0.0, 1.0, open_low=True)
    level = _checks.number(quantile, "quantile", 0.0, 1.0)
    classes = unit(_checks.floats(text, "text", ndim=2))
    rows = _unit_embeddings("mine_negatives", "candidates", candidates, classes.shape[1])
    closeness = np.quantile(rows @ classes.T, level, axis=1)
    count = max(1, int(kept * len(rows)))
    return np.argsort(closeness, kind="stable")[:count]
