r"""Scores from the density of the training features, fitted by scikit-learn and evaluated with plain arrays.

Notation: h features, D their number.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import logsumexp
from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.moments import mean_feature
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, state

KEPT = 100_000  # largest number of rows from which the trees of a forest draw theirs


@register_score(
    "gmm", paper="Mukhoti et al., CVPR 2023, arXiv:2102.11582", aliases=("ddu",), cost="JD, JD^2 if full; J components"
)
@dataclass(frozen=True, eq=False)
class GaussianMixtures(StepHooks):
    r"""Score by the log density of the feature under a mixture of Gaussians for each class.

    .. math:: s = \log \sum_c \frac{N_c}{N} \sum_j w_{cj} \, \mathcal N(h; \mu_{cj}, \Sigma_{cj})

    The mixtures are fitted by expectation maximisation from a seeded k-means start. One full Gaussian per class is the
    density of the paper.

    Parameters
    ----------
    components : int, default=1
        Gaussians per class; a class has no more than it has distinct rows.
    covariance : {"diag", "full"}, default="diag"
        Shape of the covariance of each Gaussian. ``"full"`` holds a D x D matrix for every component in memory.
    reg : float, default=1e-6
        Added to every variance, at least 0; raise it if a component collapses.
    seed : int, default=0
        Seed of the k-means start.

    Attributes
    ----------
    centre : ndarray of shape (n_features,)
        Mean of all training rows, which is subtracted first; learnt by ``fit``.
    log_weights : ndarray of shape (n_gaussians,)
        Logarithm of :math:`w_{cj} N_c / N` for the Gaussians of all classes; learnt by ``fit``.
    means : ndarray of shape (n_gaussians, n_features)
        Means of the Gaussians; learnt by ``fit``.
    factors : ndarray of shape (n_gaussians, n_features) or (n_gaussians, n_features, n_features)
        One over the standard deviations, or F with :math:`F F^T` the inverse covariance; learnt by ``fit``.

    Notes
    -----
    Another library keeps the nearest Mahalanobis term alone, without weights and determinants, which is a different
    score. Unlike distances, the value depends on the units of the features.

    A class without training rows is left out. For a class with one row, or in directions without variance, ``reg`` is
    all the variance there is. The rows of one class at a time are held in memory.

    References
    ----------
    Mukhoti et al., CVPR 2023, arXiv:2102.11582.

    Examples
    --------
    >>> h, y = np.array([[-1.0], [1.0], [9.0], [11.0]]), np.array([0, 0, 1, 1])
    >>> GaussianMixtures(reg=0.0).fit(h, y).score(np.array([[0.0], [10.0], [5.0]])).round(4)
    array([ -1.6121,  -1.6121, -13.4189])
    """

    components: int = 1
    covariance: Literal["diag", "full"] = "diag"
    reg: float = 1e-6
    seed: int = 0
    centre: Array = state("D")  # mean of all rows, from which the rest is measured
    log_weights: Array = state("J")  # of the components of all classes, class shares included
    means: Array = state("J D")
    # one over the standard deviations, or F with F F^T the inverse covariance
    factors: Array = state("J D|J D D")

    def fit(self, features: Floats, labels: Labels) -> Self:
        """Fit one mixture to each class that has training rows.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.

        Returns
        -------
        GaussianMixtures
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, every label is -1, or a component has no variance in some direction.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture
        from threadpoolctl import threadpool_limits

        components, seed = _checks.whole(self.components, "components", 1), _checks.whole(self.seed, "seed", 0)
        _checks.choice(self.covariance, "covariance", ("diag", "full"))
        reg = _checks.number(self.reg, "reg", 0.0, np.inf, open_high=True)
        truth = np.asarray(labels)
        if (truth < 0).all():
            raise InvalidInput("labels must name a class for at least one training row; all are -1")
        centre = mean_feature(features)
        order = np.argsort(truth, kind="stable")
        order = order[truth[order] >= 0]
        classes, first = np.unique(truth[order], return_index=True)
        log_weights, means, factors = [], [], []
        # one thread, as the order of sums between threads may change the last bits
        with threadpool_limits(1, "openmp"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for c, rows in zip(classes, np.split(order, first[1:]), strict=True):
                h = np.asarray(features[rows], dtype=np.float64) - centre
                release(features)
                count = components
                if components > 1:
                    count = min(components, len(np.unique(h, axis=0)))
                if len(h) == 1:
                    h = np.repeat(h, 2, axis=0)  # scikit-learn rejects a single row
                model = GaussianMixture(count, covariance_type=self.covariance, reg_covar=reg, random_state=seed)
                try:
                    model.fit(h)
                except ValueError as error:
                    raise InvalidInput(
                        f"gmm: a component of class {c} ({len(rows)} rows) has no variance in some direction; "
                        f"raise reg (now {reg:g}), or use fewer components"
                    ) from error
                log_weights.append(np.log(model.weights_) + np.log(len(rows) / len(order)))
                means.append(model.means_)
                factors.append(model.precisions_cholesky_)
        return replace(
            self,
            centre=centre,
            log_weights=np.concatenate(log_weights),
            means=np.concatenate(means),
            factors=np.concatenate(factors),
        )

    def check_state(self) -> None:
        """Check that the factors are those of the kind of covariance.

        Raises
        ------
        InvalidInput
            If their shape does not fit ``covariance``, or there are none.
        """
        dimensions = 2 if self.covariance == "diag" else 3
        if self.factors.ndim != dimensions or len(self.factors) == 0:
            raise InvalidInput(f"factors of shape {self.factors.shape} do not fit covariance={self.covariance!r}")

    def score(self, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        h = np.asarray(features, dtype=np.float64) - self.centre
        if self.covariance == "diag":
            precision = self.factors**2
            away = h**2 @ precision.T - 2.0 * h @ (self.means * precision).T + (self.means**2 * precision).sum(axis=1)
            log_det = np.log(self.factors).sum(axis=1)
        else:
            away = np.empty((len(h), len(self.means)))
            for j, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
                away[:, j] = (((h - mean) @ factor) ** 2).sum(axis=1)
            log_det = np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)
        log_density = log_det - 0.5 * (h.shape[1] * np.log(2.0 * np.pi) + np.maximum(away, 0.0))
        return logsumexp(self.log_weights + log_density)


@register_score(
    "isolation_forest",
    paper="Liu, Ting, Zhou, ICDM 2008, doi:10.1109/ICDM.2008.17",
    aliases=("iforest",),
    cost="trees x log2(rows)",
)
@dataclass(frozen=True, eq=False)
class IsolationForest(StepHooks):
    r"""Score by how many random cuts it takes to isolate the feature; unusual features need few.

    .. math:: s = -2^{-\bar\ell(h) / c(n)}, \qquad c(n) = 2 (\ln(n - 1) + \gamma) - \frac{2 (n - 1)}{n}

    with :math:`\bar\ell` the mean over ``trees`` of the depth of the leaf that h falls into, plus c of the number of
    training rows in that leaf, and c(n) the mean depth of a tree of n = ``rows`` rows (c(2) = 1, c(1) = 0). In [-1, 0);
    about -0.5 is usual.

    Parameters
    ----------
    trees : int, default=100
        Number of trees.
    rows : int, default=256
        Training rows that every tree sees; all if there are fewer.
    seed : int, default=0
        Seed of the draw of rows and cuts.

    Attributes
    ----------
    roots : ndarray of shape (n_trees,)
        First node of each tree in the list of all nodes; learnt by ``fit``.
    children : ndarray of shape (2, n_nodes)
        Next node if the feature is at most the threshold, and if it is above; learnt by ``fit``.
    feature : ndarray of shape (n_nodes,)
        Column that each node compares; learnt by ``fit``.
    threshold : ndarray of shape (n_nodes,)
        Threshold of each node; learnt by ``fit``.
    length : ndarray of shape (n_nodes,)
        Expected depth of a row that ends in each node; learnt by ``fit``.
    usual : ndarray of shape ()
        The mean depth c(n); learnt by ``fit``.

    Notes
    -----
    From a training set of more than 100,000 rows, the rows are drawn from a seeded sample of 100,000. Features are
    compared in float32, as scikit-learn does, and the result is its ``score_samples``. Training features that do not
    vary, or a single row, give -0.5 for all samples.

    References
    ----------
    Liu, Ting, Zhou, ICDM 2008.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=(500, 2))
    >>> fitted = IsolationForest().fit(h)
    >>> bool(fitted.score(np.array([[0.0, 0.0]])) > -0.5 > fitted.score(np.array([[6.0, 6.0]])))
    True
    """

    trees: int = 100
    rows: int = 256
    seed: int = 0
    roots: Labels = state("T", kind="integer")  # first node of each tree; the nodes of all trees are in one list
    # next node if the feature is at most the threshold, and if it is above
    children: Labels = state("2 M", kind="integer")
    feature: Labels = state("M", kind="integer")
    threshold: Array = state("M")
    length: Array = state("M")  # expected depth of a row that ends here
    usual: Array = state("")  # c(n), the mean depth of a tree

    def fit(self, features: Floats) -> Self:
        """Grow the trees and lay them out as arrays, in which a leaf leads to itself.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.

        Returns
        -------
        IsolationForest
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or a feature exceeds the range of float32.
        """
        from sklearn.ensemble import IsolationForest as Forest

        trees, seed = _checks.whole(self.trees, "trees", 1), _checks.whole(self.seed, "seed", 0)
        rows = _checks.whole(self.rows, "rows", 1)
        if len(features) > KEPT:
            chosen = np.sort(np.random.default_rng(seed).choice(len(features), KEPT, replace=False))
            h = _single(features[chosen])
            release(features)
        else:
            h = _single(features)
        if not np.isfinite(h).all():
            raise InvalidInput("isolation_forest: features go beyond the range of float32; scale them down")
        rows = min(rows, len(h))
        forest = Forest(n_estimators=trees, max_samples=rows, random_state=seed).fit(h)
        roots, children, feature, threshold, length = [], [], [], [], []
        root = 0
        for estimator in forest.estimators_:
            tree = estimator.tree_
            below = np.stack([tree.children_left, tree.children_right])  # negative for a leaf
            is_leaf = below[0] < 0
            roots.append(root)
            children.append(np.where(is_leaf, np.arange(tree.node_count), below) + root)
            feature.append(np.where(is_leaf, 0, tree.feature))
            threshold.append(tree.threshold)
            length.append(_depths(below) + _mean_depth(tree.n_node_samples))
            root += tree.node_count
        return replace(
            self,
            roots=np.array(roots, dtype=np.int64),
            children=np.concatenate(children, axis=1),
            feature=np.concatenate(feature),
            threshold=np.concatenate(threshold),
            length=np.concatenate(length),
            usual=_mean_depth(np.array(rows)),
        )

    def check_state(self) -> None:
        """Check that every path ends: a leaf leads to itself, and any other node to later nodes.

        Raises
        ------
        InvalidInput
            If roots, children or features do not describe trees.
        """
        nodes = len(self.feature)
        if len(self.roots) == 0 or not ((self.roots >= 0) & (self.roots < nodes)).all():
            raise InvalidInput(f"roots must name some of the {nodes} nodes")
        own = np.arange(nodes)
        leaf = (self.children == own).all(axis=0)
        behind = ((self.children > own) & (self.children < nodes)).all(axis=0)
        if not (leaf | behind).all():
            raise InvalidInput(f"node {int((~(leaf | behind)).argmax())} does not lead to nodes behind it: no tree")
        if (self.feature < 0).any():
            raise InvalidInput("feature must name columns from 0 on")

    def score(self, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If there are fewer columns than the trees read.
        """
        h = _single(features)
        columns = int(self.feature.max()) + 1
        if columns > h.shape[1]:
            raise InvalidInput(f"isolation_forest reads {columns} columns of features; these outputs have {h.shape[1]}")
        each = np.arange(len(h))[:, None]
        node = np.broadcast_to(self.roots, (len(h), len(self.roots)))
        while True:
            right = h[each, self.feature[node]] > self.threshold[node]
            below = self.children[right.astype(np.int64), node]
            if (below == node).all():
                break
            node = below
        mean = self.length[node].mean(axis=1)
        relative = mean / self.usual if self.usual > 0 else np.ones_like(mean)
        return -(2.0**-relative)


def _single(features: Floats) -> npt.NDArray[np.float32]:
    """Convert features to float32, in which trees compare; values beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(features, dtype=np.float32)


def _depths(children: Labels) -> Array:
    """Compute the depth of each node of a tree; children come after their parent."""
    depths = np.zeros(children.shape[1])
    for node, pair in enumerate(children.T):
        if pair[0] >= 0:
            depths[pair] = depths[node] + 1.0
    return depths


def _mean_depth(rows: Labels) -> Array:
    """Compute the mean depth of an unsuccessful search in a binary tree of that many rows."""
    n = np.maximum(np.asarray(rows, dtype=np.float64), 2.0)
    many = 2.0 * (np.log(np.maximum(n - 1.0, 1.0)) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, many))
