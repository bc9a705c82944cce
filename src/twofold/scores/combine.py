r"""Scores made of other scores.

Notation: p the softmax of the logits, :math:`\hat y` the prediction, h features, R and u residual directions and origin
of ``vim``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._math import SMALLEST_NORMAL, TINY, log_odds, sigmoid
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs, Passes
from twofold.scores._fitting.moments import blocks, mean_feature
from twofold.scores.chain import Chain, scorer
from twofold.scores.distance import raw_features
from twofold.scores.logits import entropy
from twofold.scores.passes import means
from twofold.scores.registry import register_score
from twofold.scores.subspace import residual_norm, residual_space
from twofold.typing import Array, Changes, Floats, Labels, StepHooks, chain_state, state

Second = Literal["norm", "residual"]


def _second(name: str, features: Floats, raw: Floats, origin: Array | None, basis: Array | None) -> Array:
    """Compute the second score of SIRC and the plug-in rule, higher is safer: the L1 norm, or the negative residual."""
    if name == "norm" or origin is None or basis is None:
        return np.asarray(np.abs(np.asarray(raw, dtype=np.float64)).sum(axis=1))
    return -residual_norm(features, origin, basis)


def _check_residual(origin: Array | None, basis: Array | None) -> None:
    """Raise unless loaded arrays hold the residual directions."""
    if origin is None or basis is None:
        raise InvalidInput("origin or basis is missing, which the residual needs")


def _fit_residual(features: Floats, head: Head | None, name: str) -> tuple[Array, Array]:
    """Find the origin and the directions of the residual; ``name`` is the score, for the error."""
    if head is None:
        raise InvalidInput(f"{name} with the residual needs the head, and the train outputs have none")
    return residual_space(features, head.weight, head.bias)


@register_score(
    "sirc",
    paper="Xia & Bouganis, ACCV 2022, arXiv:2207.07517",
    cost="C + D, residual D(D-d)",
    grid={"s1": ("msp", "entropy"), "s2": ("norm", "residual", ("norm", "residual"))},
    project=(),
)
@dataclass(frozen=True, eq=False)
class Sirc(StepHooks):
    r"""Score by a softmax score that is lowered where a second score says that the input is unlike training.

    .. math:: s = -\log(S_1^{\max} - S_1) - \sum_j \log\left(1 + e^{-b_j (S_{2j} - a_j)}\right)

    with :math:`a = \mathrm{mean}(S_2) - 3\,\mathrm{std}(S_2)` and :math:`b = 1 / \mathrm{std}(S_2)` over the training
    rows.

    Parameters
    ----------
    s1 : {"msp", "entropy"}, default="msp"
        The softmax score: the maximum probability (maximum 1), or the negative entropy (maximum 0).
    s2 : {"norm", "residual"} or tuple of these, default="norm"
        The second score: ``"norm"`` :math:`\lVert h \rVert_1`, ``"residual"`` :math:`-\lVert R^T (h - u) \rVert`, or a
        tuple of both, the extended form.
    compat : {"paper", "published"}, default="paper"
        ``"published"`` is the code behind the SURE+ paper, whose "Res." is :math:`+\lVert h - \mu \rVert_1` with a and
        b of the norm; that code fits them on validation outputs, so pass those as train to reproduce its table.

    Attributes
    ----------
    low : ndarray of shape (n_second_scores,)
        The constants a; learnt by ``fit``.
    slope : ndarray of shape (n_second_scores,)
        The constants b; learnt by ``fit``.
    origin : ndarray of shape (n_features,) or None
        The point u of the residual; learnt by ``fit``.
    basis : ndarray of shape (n_features, n_residual) or None
        The residual directions R; learnt by ``fit``.
    mean : ndarray of shape (n_features,) or None
        Mean training feature with ``compat="published"``; learnt by ``fit``.

    Notes
    -----
    The equation is the logarithm of the published product, which ranks alike and keeps its digits. A second score that
    is constant on the training set has no effect. With a cosine head, the norm is that of
    ``layers["penultimate/raw"]``.

    References
    ----------
    Xia & Bouganis, ACCV 2022, arXiv:2207.07517.

    Examples
    --------
    >>> fitted = Sirc().fit(np.array([[3.5, 0.0], [4.5, 0.0]]), np.zeros((2, 2)))
    >>> z, h = np.array([[2.0, 1.0, 0.1]]), np.array([[1.0, 2.0, 0.5, 0.0]])
    >>> fitted.score(z, h, np.array([0])).round(8)
    array([0.94894813])
    """

    s1: Literal["msp", "entropy"] = "msp"
    s2: Second | tuple[Second, ...] = "norm"
    compat: Literal["paper", "published"] = "paper"
    low: Array = state("J")  # a
    slope: Array = state("J")  # b
    origin: Array | None = state("D", optional=True)
    basis: Array | None = state("D R", optional=True)  # (D, D - d)
    mean: Array | None = state("D", optional=True)

    @property
    def seconds(self) -> tuple[str, ...]:
        """Names of the second scores, always as a tuple."""
        if isinstance(self.s2, str):
            return (self.s2,)
        return tuple(self.s2)

    def fit(
        self, features: Floats, logits: Floats, head: Head | None = None, layers: Mapping[str, Floats] | None = None
    ) -> Self:
        """Compute the mean and spread of the second scores, and the residual directions if needed.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; not used by the fit.
        head : Head, optional
            Last linear layer of the classifier; required by the residual.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        Sirc
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is unknown, ``s2`` is empty, or the residual is requested without a head or leaves no
            direction.
        """
        _checks.choice(self.s1, "s1", ("msp", "entropy"))
        _checks.choice(self.compat, "compat", ("paper", "published"))
        if not self.seconds:
            raise InvalidInput("sirc: s2 must name a second score, such as 'norm', got none")
        for name in self.seconds:
            _checks.choice(name, "s2", ("norm", "residual"))
        names, mean, origin, basis = self.seconds, None, None, None
        if self.compat == "published":
            names = ("norm",) * len(self.seconds)
            mean = mean_feature(features)
        elif "residual" in self.seconds:
            origin, basis = _fit_residual(features, head, "sirc")
        table = []
        for h, raw in blocks(features, raw_features(features, layers)):
            table.append(np.stack([_second(name, h, raw, origin, basis) for name in names]))
        values = np.concatenate(table, axis=1)
        spread = values.std(axis=1)
        varies = spread > 1e-12 * np.abs(values).max(axis=1)
        slope = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
        low = values.mean(axis=1) - 3.0 * spread
        return replace(self, low=low, slope=slope, origin=origin, basis=basis, mean=mean)

    def check_state(self) -> None:
        """Check that the arrays which the second scores need are there.

        Raises
        ------
        InvalidInput
            If an array is missing or has the wrong length.
        """
        if len(self.low) != len(self.seconds):
            raise InvalidInput(f"low has {len(self.low)} entries for {len(self.seconds)} second scores")
        if self.compat == "published":
            if self.mean is None:
                raise InvalidInput('mean is missing, which compat="published" needs')
        elif "residual" in self.seconds:
            _check_residual(self.origin, self.basis)

    def score(
        self, logits: Floats, features: Floats, predictions: Labels, layers: Mapping[str, Floats] | None = None
    ) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        if self.s1 == "msp":
            result = np.logaddexp(0.0, log_odds(logits, predictions))  # -log(1 - p)
        else:
            result = -np.log(np.maximum(-entropy(logits), 1e-300))
        for name, low, slope in zip(self.seconds, self.low, self.slope, strict=True):
            if self.mean is not None and name == "residual":
                value = np.abs(np.asarray(features, dtype=np.float64) - self.mean).sum(axis=1)
            else:
                value = _second(name, features, raw_features(features, layers), self.origin, self.basis)
            result -= np.logaddexp(0.0, -slope * (value - low))
        return np.asarray(result)


@register_score(
    "plugin_bb",
    paper="Narasimhan et al., ICLR 2024, arXiv:2301.12386",
    cost="C + D, residual D(D-d)",
    grid={"ratio": ("norm", "residual")},
    project=(),
)
@dataclass(frozen=True, eq=False)
class PluginBlackBox(StepHooks):
    r"""Score by the probability of the predicted class, reduced by the price of a low density ratio.

    .. math:: s = p_{\hat y} - \kappa / \rho, \qquad \kappa = \frac{c_{fn}}{1 - c_{fn}}

    :math:`\rho` stands for the ratio of the densities of in-distribution and OOD inputs, divided by its training mean.

    The rule minimises the mixed risk under a budget of rejections; its multiplier enters the price, which is why it is
    often swept on a grid. For a known share of in-distribution inputs ``id_share`` there is nevertheless one ranking,
    by the multiplier at which a sample is accepted,

    .. math:: s = -\frac{(1 - c_{fn})(1 - p_{\hat y}) + c_{fn} / \rho}{\pi + (1 - \pi) / \rho}

    which is used where ``id_share`` is set; :func:`twofold.metrics.plugin_bb_curve` computes its whole curve.

    Parameters
    ----------
    ratio : {"norm", "residual"}, default="norm"
        The stand-in for :math:`\rho`: ``"norm"`` :math:`\lVert h \rVert_1` or ``"residual"`` :math:`1 / \lVert R^T (h -
        u) \rVert`.
    c_fn : float, default=0.75
        Cost of accepting an OOD input, in [0, 1), where accepting an error costs ``1 - c_fn``; raise it if OOD inputs
        do more harm.
    id_share : float, optional
        Share :math:`\pi` of in-distribution inputs in deployment, in (0, 1]; by default the first equation is used.
    compat : {"paper", "published"}, default="paper"
        ``"published"`` does not divide the ratio by its training mean, which with norms of some hundreds leaves nothing
        but :math:`p_{\hat y}`.

    Attributes
    ----------
    scale : ndarray of shape ()
        Training mean of the ratio; learnt by ``fit``.
    origin : ndarray of shape (n_features,) or None
        The point u of the residual; learnt by ``fit``.
    basis : ndarray of shape (n_features, n_residual) or None
        The residual directions R; learnt by ``fit``.

    Notes
    -----
    Norms and residuals below 1e-12 count as 1e-12. With a cosine head, the norm is that of
    ``layers["penultimate/raw"]``.

    References
    ----------
    Narasimhan et al., ICLR 2024, arXiv:2301.12386.

    Examples
    --------
    >>> fitted = PluginBlackBox().fit(np.array([[1.0, 1.0], [1.0, 3.0]]), np.zeros((2, 2)))
    >>> fitted.score(np.log([[0.9, 0.1]]), np.array([[3.0, 3.0]]), np.array([0])).round(6)
    array([-0.6])
    """

    ratio: Second = "norm"
    c_fn: float = 0.75
    id_share: float | None = None
    compat: Literal["paper", "published"] = "paper"
    scale: Array = state("")  # training mean of the ratio
    origin: Array | None = state("D", optional=True)
    basis: Array | None = state("D R", optional=True)

    def fit(
        self, features: Floats, logits: Floats, head: Head | None = None, layers: Mapping[str, Floats] | None = None
    ) -> Self:
        """Compute the training mean of the ratio, and the residual directions if needed.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; not used by the fit.
        head : Head, optional
            Last linear layer of the classifier; required by the residual.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        PluginBlackBox
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or the residual is requested without a head or leaves no direction.
        """
        _checks.choice(self.ratio, "ratio", ("norm", "residual"))
        _checks.choice(self.compat, "compat", ("paper", "published"))
        _checks.number(self.c_fn, "c_fn", 0.0, 1.0, open_high=True)
        if self.id_share is not None:
            _checks.number(self.id_share, "id_share", 0.0, 1.0, open_low=True)
        fitted = replace(self, scale=np.array(1.0))
        if self.ratio == "residual":
            origin, basis = _fit_residual(features, head, "plugin_bb")
            fitted = replace(fitted, origin=origin, basis=basis)
        if self.compat == "published":
            return fitted
        total = 0.0
        for h, raw in blocks(features, raw_features(features, layers)):
            total += float((1.0 / fitted._inverse_ratio(h, raw)).sum())
        return replace(fitted, scale=np.array(total / len(features)))

    def check_state(self) -> None:
        """Check that the arrays which the ratio needs are there.

        Raises
        ------
        InvalidInput
            If the residual is used and its origin or basis is missing.
        """
        if self.ratio == "residual":
            _check_residual(self.origin, self.basis)

    def _inverse_ratio(self, features: Floats, raw: Floats) -> Array:
        """Compute 1 / ratio; lengths below 1e-12 count as 1e-12, so that it is finite."""
        value = _second(self.ratio, features, raw, self.origin, self.basis)
        if self.ratio == "norm":
            return 1.0 / np.maximum(value, TINY)
        return np.maximum(-value, TINY)

    def score(
        self, logits: Floats, features: Floats, predictions: Labels, layers: Mapping[str, Floats] | None = None
    ) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        inverse = self._inverse_ratio(features, raw_features(features, layers)) * self.scale
        odds = log_odds(logits, predictions)
        if self.id_share is None:
            return sigmoid(odds) - self.c_fn / (1.0 - self.c_fn) * inverse
        price = (1.0 - self.c_fn) * sigmoid(-odds) + self.c_fn * inverse
        return -price / (self.id_share + (1.0 - self.id_share) * inverse)


@dataclass(frozen=True, eq=False)
class _CombinedScores(StepHooks):
    """Hold chains whose scores are standardised by their mean and spread on the training set."""

    of: str | tuple[str, ...] = ()
    chains: tuple[Chain, ...] = chain_state()
    centre: Array = state("J")
    spread: Array = state("J")

    def inner_chains(self) -> tuple[Chain, ...]:
        """Return the chains, fitted if this object is.

        Returns
        -------
        tuple of Chain
            One chain for each entry of ``of``.

        Raises
        ------
        InvalidInput
            If ``of`` is not a tuple of two or more chains.
        """
        if self.chains:
            return self.chains
        if isinstance(self.of, str) or len(self.of) < 2:
            raise InvalidInput(f'of must be a tuple of two or more chains, such as of=("msp", "knn"), got {self.of!r}')
        return tuple(scorer(spec) for spec in self.of)

    def fit(self, outputs: Outputs, val_outputs: Outputs | None = None, ood_val_outputs: Outputs | None = None) -> Self:
        """Fit each chain, then its mean and spread over the training rows with a finite score.

        Parameters
        ----------
        outputs : Outputs
            Training outputs.
        val_outputs : Outputs, optional
            Validation outputs, for steps that are fitted on them.
        ood_val_outputs : Outputs, optional
            OOD validation outputs, for steps that are fitted on them.

        Returns
        -------
        Sum or Product
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``of`` is not a tuple of two or more chains, or a chain is finite on no training row.
        """
        chains: list[Chain] = []
        centre: list[float] = []
        spread: list[float] = []
        for blank in self.inner_chains():
            chain = blank.fit(outputs, val=val_outputs, ood_val=ood_val_outputs)
            conf = chain.score(outputs)
            conf = conf[np.isfinite(conf)]
            if not len(conf):
                raise InvalidInput(f"{chain.spec} is finite on no training row, so it cannot be standardised")
            chains.append(chain)
            centre.append(conf.mean())
            spread.append(conf.std() or 1.0)
        return replace(self, chains=tuple(chains), centre=np.array(centre), spread=np.array(spread))

    def check_state(self) -> None:
        """Check that each chain has its mean and spread.

        Raises
        ------
        InvalidInput
            If there are more or fewer means than chains.
        """
        if len(self.centre) != len(self.chains):
            raise InvalidInput(f"centre has {len(self.centre)} entries for {len(self.chains)} chains")

    def _standardise(self, outputs: Outputs) -> Array:
        """Score (J, N) by every chain, in units of its training spread."""
        values = np.stack([chain.run(outputs) for chain in self.chains])
        return (values - self.centre[:, None]) / self.spread[:, None]


@register_score("sum", paper="Kittler et al., IEEE TPAMI 1998, doi:10.1109/34.667881", cost="sum of parts", project=())
@dataclass(frozen=True, eq=False)
class Sum(_CombinedScores):
    r"""Score by the sum of several scores, each standardised on the training rows.

    .. math:: s = \sum_j w_j \frac{s_j - \mathrm{mean}_j}{\mathrm{std}_j}

    Parameters
    ----------
    of : tuple of str
        Two or more chains, such as ``("msp", "react(percentile=90)|energy")``.
    weights : tuple of float, optional
        The weight :math:`w_j` of each chain; by default all 1.

    Attributes
    ----------
    chains : tuple of Chain
        The fitted chains; set by ``fit``.
    centre : ndarray of shape (n_chains,)
        Training mean of each chain; learnt by ``fit``.
    spread : ndarray of shape (n_chains,)
        Training standard deviation of each chain, 1 for a constant score; learnt by ``fit``.

    References
    ----------
    Kittler et al., IEEE TPAMI 1998.

    Examples
    --------
    >>> train = Outputs([[2.0, 0.0], [0.0, 1.0]])
    >>> Sum(of=("mls", "margin")).fit(train).score(train).round(6)
    array([ 2., -2.])
    """

    weights: tuple[float, ...] | None = None

    def score(self, outputs: Outputs) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        outputs : Outputs
            Outputs to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If ``weights`` are not one finite number for each chain.
        """
        values = self._standardise(outputs)
        weights = np.ones(len(values))
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64)
        if weights.shape != (len(values),) or not np.isfinite(weights).all():
            raise InvalidInput(f"weights must be {len(values)} numbers, one for each chain, got {self.weights!r}")
        return weights @ values


@register_score(
    "product", paper="Kittler et al., IEEE TPAMI 1998, doi:10.1109/34.667881", cost="sum of parts", project=()
)
@dataclass(frozen=True, eq=False)
class Product(_CombinedScores):
    r"""Score by the product of several scores, each standardised on the training rows and squeezed between 0 and 1.

    .. math:: s = \sum_j \log \sigma\left(\frac{s_j - \mathrm{mean}_j}{\mathrm{std}_j}\right)

    with :math:`\sigma` the logistic function, so that two negative factors do not make a positive one; the logarithm of
    the product ranks alike. One low score is enough to lower the confidence.

    Parameters
    ----------
    of : tuple of str
        Two or more chains, such as ``("msp", "react(percentile=90)|energy")``.

    Attributes
    ----------
    chains : tuple of Chain
        The fitted chains; set by ``fit``.
    centre : ndarray of shape (n_chains,)
        Training mean of each chain; learnt by ``fit``.
    spread : ndarray of shape (n_chains,)
        Training standard deviation of each chain, 1 for a constant score; learnt by ``fit``.

    References
    ----------
    Kittler et al., IEEE TPAMI 1998.

    Examples
    --------
    >>> train = Outputs([[2.0, 0.0], [0.0, 1.0]])
    >>> Product(of=("mls", "margin")).fit(train).score(train).round(6)
    array([-0.626523, -2.626523])
    """

    def score(self, outputs: Outputs) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        outputs : Outputs
            Outputs to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        return -np.logaddexp(0.0, -self._standardise(outputs)).sum(axis=0)


@register_score(
    "mc",
    paper="Gal & Ghahramani, ICML 2016, arXiv:1506.02142; Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474",
    judges="passes",
    cost="of the chain",
    project=(),
)
@dataclass(frozen=True, eq=False)
class MonteCarlo(StepHooks):
    r"""Score by any chain on the mean of several passes, or of the members of an ensemble.

    .. math:: s = S(\bar z, \bar h), \qquad \bar z = \tfrac1M \sum_m z_m, \quad \bar h = \tfrac1M \sum_m h_m

    ``mc(knn)`` is short for ``mc(of="knn")``. The averaged prediction is judged.

    Parameters
    ----------
    of : str, default="msp"
        The chain to apply to the means; it must not read the passes itself.

    Attributes
    ----------
    chain : tuple of Chain
        The fitted chain; set by ``fit``.

    Notes
    -----
    Scores that read probabilities alone get :math:`\log \bar p` in place of :math:`\bar z`, so that ``mc(msp)`` is
    ``mc_msp``. Mean features are read from ``layers["passes/features"]`` and means of learned values from
    ``learned["passes/NAME"]``. Training rows are used as they are, averaged if they have passes.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142; Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474.

    Examples
    --------
    >>> two = Outputs([[2.0, 0.0]], passes=[[[2.0, 0.0]], [[0.0, 1.0]]])
    >>> scorer("mc(mls)").fit(two).score(two)
    array([1.])
    """

    of: str = "msp"
    chain: tuple[Chain, ...] = chain_state()

    def inner_chains(self) -> tuple[Chain, ...]:
        """Return the chain, fitted if this object is.

        Returns
        -------
        tuple of Chain
            One chain.
        """
        return self.chain or (scorer(self.of),)

    def needed_fields(self) -> tuple[str, ...]:
        """List the fields that scoring needs: passes, and layers in place of features.

        Returns
        -------
        tuple of str
            ``"passes"``, ``"layers"`` if the chain reads features (their means are stored there), and the other fields
            that the chain needs.

        Examples
        --------
        >>> MonteCarlo(of="knn").needed_fields()
        ('passes', 'layers')
        """
        needed = ["passes"]
        inner = self.inner_chains()[0].needs
        if "features" in inner:
            needed.append("layers")
        needed += [name for name in inner if name != "features"]
        return tuple(needed)

    def fit(self, outputs: Outputs, val_outputs: Outputs | None = None, ood_val_outputs: Outputs | None = None) -> Self:
        """Fit the chain, on averaged outputs where there are passes.

        Parameters
        ----------
        outputs : Outputs
            Training outputs.
        val_outputs : Outputs, optional
            Validation outputs, for steps that are fitted on them.
        ood_val_outputs : Outputs, optional
            OOD validation outputs, for steps that are fitted on them.

        Returns
        -------
        MonteCarlo
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If the chain reads the passes itself, or a mean that it needs was not stored.
        """
        (blank,) = self.inner_chains()
        if blank.judges == "passes":
            raise InvalidInput(f"mc(of={self.of!r}): {blank.spec} reads the passes itself; use it alone")
        train = _average_if_passes(outputs, blank)
        val = None if val_outputs is None else _average_if_passes(val_outputs, blank)
        ood_val = None if ood_val_outputs is None else _average_if_passes(ood_val_outputs, blank)
        return replace(self, chain=(blank.fit(train, val=val, ood_val=ood_val),))

    def score(self, outputs: Outputs, passes: Floats | Passes) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        outputs : Outputs
            Outputs to score.
        passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
            The passes of ``outputs``; named so that the registry requires them, and read from ``outputs``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If a mean that the chain needs was not stored.
        """
        return self.chain[0].run(average_passes(outputs, self.chain[0]))


def _average_if_passes(outputs: Outputs, chain: Chain) -> Outputs:
    """Average outputs that have passes; others are used as they are."""
    if outputs.passes is None:
        return outputs
    return average_passes(outputs, chain)


def average_passes(outputs: Outputs, chain: Chain) -> Outputs:
    """Replace logits, features and learned values by their means over the passes, as far as a chain needs them.

    Parameters
    ----------
    outputs : Outputs
        Outputs with passes.
    chain : Chain
        The chain that will score the result.

    Returns
    -------
    Outputs
        Outputs without passes, whose predictions are the averaged ones. A chain that reads probabilities alone gets the
        logarithm of the mean probabilities as logits.

    Raises
    ------
    InvalidInput
        If the outputs have no passes, or the chain needs features or learned values whose means were not stored.

    Examples
    --------
    >>> two = Outputs([[2.0, 0.0]], passes=[[[2.0, 0.0]], [[0.0, 1.0]]])
    >>> average_passes(two, scorer("mls")).logits
    array([[1. , 0.5]])
    """
    if outputs.passes is None:
        raise InvalidInput(f"mc of {chain.spec} needs passes, and these outputs have none")
    average = means(outputs.passes)
    changes: Changes = {"predictions": np.asarray(average.mean_prob).argmax(axis=1), "passes": None}
    if chain.steps[-1].info.probabilities and chain.needs == ("logits",):
        probabilities = np.asarray(average.mean_prob, dtype=np.float64)
        logits = np.log(np.maximum(probabilities, SMALLEST_NORMAL))
        return outputs.replace(**changes, logits=logits, features=None, head=None)
    changes["logits"] = average.mean_logits
    changes["features"] = (outputs.layers or {}).get("passes/features")
    if changes["features"] is None and "features" in chain.needs:
        raise InvalidInput(
            f'mc of {chain.spec} needs layers["passes/features"], the mean features of the passes, and these outputs '
            "have none; store them at extraction, or use the score without mc"
        )
    if "learned" in chain.needs:
        learned = outputs.learned or {}
        averages = {}
        for name, value in learned.items():
            if name.startswith("passes/"):
                averages[name.removeprefix("passes/")] = value
        if not averages:
            raise InvalidInput(
                f'mc of {chain.spec} needs learned["passes/NAME"], the means over the passes, and these outputs '
                "have none"
            )
        changes["learned"] = {**learned, **averages}
    return outputs.replace(**changes)
