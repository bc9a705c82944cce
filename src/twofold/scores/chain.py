"""Chains: transforms and one score, built from a text, fitted, run, saved and loaded.

>>> scorer("energy(temperature=2)").score(Outputs([[2.0, 1.0, 0.1]])).round(6)
array([3.379555])
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from twofold._files import arrays_digest, replacing, sort_header
from twofold._math import sigmoid
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput, NotFitted, UnknownName
from twofold.outputs import Outputs
from twofold.scores.parser import parse_chain
from twofold.scores.registry import ClosedForm, Judged
from twofold.scores.scoring import score_all
from twofold.scores.step import ChainStep
from twofold.scores.tensors import add_prefix, reject_unknown, remove_prefix
from twofold.typing import Array

FittedOn = Literal["", "train", "val", "ood_val"]
TunedOn = Literal["", "val", "ood_val"]
TuningLabel = Literal["untuned", "ID-tuned", "OOD-tuned"]

FORMAT, VERSION = "twofold-chain", "2"
FITTINGS: Mapping[str, FittedOn] = {
    "nothing to fit": "",
    "fitted on train": "train",
    "fitted on val": "val",
    "fitted on ood_val": "ood_val",
}
"""How files say on which set a chain was fitted, from the least to the most revealing."""
TUNINGS: tuple[TunedOn, ...] = ("", "val", "ood_val")
HEADER_FIELDS = {"format", "version", "spec", "tuned", "searched"}
NOT_SAFETENSORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
FORGED_SETTINGS = (TypeError, ValueError, AttributeError, LookupError, RecursionError)


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """Run transforms and a score from left to right; create a chain with :func:`scorer`.

    Parameters
    ----------
    steps : tuple of ChainStep
        Transforms, then one score.
    fitted_on : {"", "train", "val", "ood_val"}, default=""
        Most revealing set from which ``fit`` learnt arrays; empty before the fit, and if there is nothing to learn.
    tuned_on : {"", "val", "ood_val"}, default=""
        Set on which :func:`twofold.tune` or :func:`twofold.recommend` chose the settings or the score; empty if neither
        did.

    Examples
    --------
    >>> chain = scorer("klm").fit(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1]))
    >>> chain
    Chain('klm', fitted on train)
    >>> chain.score(Outputs([[2.0, 1.0]])).shape
    (1,)
    """

    steps: tuple[ChainStep, ...]
    fitted_on: FittedOn = ""
    tuned_on: TunedOn = ""

    @property
    def spec(self) -> str:
        """The chain as text, which :func:`scorer` reads."""
        return "|".join(step.spec for step in self.steps)

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        state = "not fitted"
        if self.ready:
            state = self._fitting
        return f"Chain({self.spec!r}, {state})"

    def _repr_html_(self) -> str:
        rows = []
        for step in self.steps:
            rows.append((step.spec, step.info.kind, ", ".join(step.needs)))
        facts = {"state": self._fitting if self.ready else "not fitted"}
        return card(f"Chain {self.spec}", facts, NotebookTable(("step", "kind", "needs"), rows))

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that scoring needs."""
        return _unite(step.needs for step in self.steps)

    @property
    def fields_read(self) -> tuple[str, ...]:
        """Fields of outputs that fitting and scoring read, required or not."""
        return _unite(step.fields_read for step in self.steps)

    @property
    def closed_form(self) -> ClosedForm | None:
        """Closed form of the logits that the chain computes, or None.

        ``"log_odds"`` of the predicted class is ``msp``, ``"log_sum_exp"`` is ``energy``, each alone and with its
        default settings. Code that needs both can compute them with one exponential per logit.
        """
        if len(self.steps) > 1 or self.steps[0].settings:
            return None
        return self.steps[0].info.closed_form

    def to_printed_scale(self, conf: Array) -> Array:
        """Turn confidences into the values that papers print: probabilities for ``msp`` and ``mc_msp``.

        Parameters
        ----------
        conf : ndarray of shape (n_samples,)
            What :meth:`score` returned.

        Returns
        -------
        ndarray of shape (n_samples,)
            Probabilities where the score is a log-odds, else ``conf`` itself.

        Examples
        --------
        >>> scorer("msp").to_printed_scale(np.array([0.0])), scorer("energy").to_printed_scale(np.array([0.0]))
        (array([0.5]), array([0.]))
        """
        last = self.steps[-1].info
        if last.closed_form == "log_odds" or last.name == "mc_msp":
            return sigmoid(conf)
        return conf

    @property
    def judges(self) -> Judged:
        """Whose prediction the score judges: the argmax of the logits, or of the mean probabilities of the passes."""
        if any(step.judges == "passes" for step in self.steps):
            return "passes"
        return "logits"

    def judged_outputs(self, outputs: Outputs) -> Outputs:
        """Return the outputs with the predictions that the score judges.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model.

        Returns
        -------
        Outputs
            The same outputs; for a score of several passes their predictions are the argmax of the mean probabilities.

        Raises
        ------
        InvalidInput
            If the score judges passes, and these outputs have none.
        """
        if self.judges == "passes":
            return outputs.averaged()
        return outputs

    @property
    def ready(self) -> bool:
        """Whether every step can run."""
        return all(step.ready for step in self.steps)

    @property
    def sets_used(self) -> frozenset[str]:
        """Sets that fitting used; unknown, and empty, for a chain that was loaded from a file."""
        return frozenset(_unite(step.sets_used for step in self.steps))

    @property
    def label(self) -> TuningLabel:
        """Whether settings or weights were chosen on OOD inputs (``OOD-tuned``), on ID ones (``ID-tuned``), or not."""
        if "ood_val" in (self.tuned_on, self.fitted_on):
            return "OOD-tuned"
        if self.tuned_on == "val":
            return "ID-tuned"
        return "untuned"

    @property
    def tuned(self) -> str:
        """The label and what fitting used, such as ``"untuned, fitted on train"``."""
        return f"{self.label}, {self._fitting}"

    @property
    def _fitting(self) -> str:
        """What fitting used, as files say it."""
        if not self.fitted_on:
            return "nothing to fit"
        return f"fitted on {self.fitted_on}"

    def fit(self, train: Outputs, *, val: Outputs | None = None, ood_val: Outputs | None = None) -> Chain:
        """Fit every step and return a new chain; each transform is applied to every set before the next step.

        Parameters
        ----------
        train : Outputs
            Training set. Rows labelled -1 are left out.
        val : Outputs, optional
            Validation set, without OOD rows; steps that prefer it use ``train`` if it is missing. Rows labelled -1 are
            left out.
        ood_val : Outputs, optional
            OOD validation set, for steps that learn from OOD inputs.

        Returns
        -------
        Chain
            The fitted chain; its ``fitted_on`` says what was used. A chain with nothing to learn returns an equal one.

        Raises
        ------
        InvalidInput
            If a set has no ID row, or lacks a field that a step learns from, or a step needs ``ood_val`` and it is
            missing.

        Notes
        -----
        Arrays that a transform changed are held in memory until the fit is done.

        Examples
        --------
        >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
        >>> scorer("klm").fit(train).fitted_on
        'train'
        """
        sets: dict[str, Outputs | None] = {"train": select_id_rows(train), "val": val, "ood_val": ood_val}
        if val is not None:
            sets["val"] = select_id_rows(val)
        fitted: list[ChainStep] = []
        for i, blank in enumerate(self.steps):
            step = blank.fit(sets)
            fitted.append(step)
            later = self.steps[i + 1 :]
            if any(other.info.learns for other in later):
                wanted = _unite(other.fields_read for other in later)
                sets = {name: _transform(step, outputs, wanted) for name, outputs in sets.items()}
        made = Chain(tuple(fitted), tuned_on=self.tuned_on)
        fitted_on: FittedOn = ""
        for name in FITTINGS.values():
            if name in made.sets_used:
                fitted_on = name
        return dataclasses.replace(made, fitted_on=fitted_on)

    def score(self, outputs: Outputs) -> Array:
        """Compute the confidence of every row, a block of rows at a time.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model that the chain was fitted on.

        Returns
        -------
        ndarray of shape (N,)
            Confidences, float64; higher is safer to accept.

        Raises
        ------
        NotFitted
            If a step learns and has not been fitted.
        InvalidInput
            If the outputs lack a field that a step needs, or a confidence is NaN.

        Warns
        -----
        LostScale
            If the score reads the scale of the logits, and these come from probabilities.

        Examples
        --------
        >>> scorer("energy").score(Outputs([[2.0, 1.0, 0.1]])).round(4)
        array([2.417])
        """
        return score_all([self], outputs)[0]

    def run(self, outputs: Outputs) -> Array:
        """Compute the confidences of all rows at once, without the checks of :meth:`score`.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model that the chain was fitted on.

        Returns
        -------
        ndarray of shape (N,)
            Confidences, float64; NaN is passed on.

        Raises
        ------
        NotFitted
            If a step learns and has not been fitted.
        InvalidInput
            If the outputs lack a field that a step needs.
        """
        *transforms, score = self.steps
        for i, step in enumerate(transforms):
            wanted = _unite(later.needs for later in self.steps[i + 1 :])
            outputs = outputs.derived(step.run(outputs, wanted))
        return np.asarray(score.run(outputs), dtype=np.float64)

    def tensors(self) -> dict[str, Array]:
        """Return the learnt arrays of all steps.

        Returns
        -------
        dict of str to ndarray
            Arrays by position of the step and name, such as ``0.means``.

        Examples
        --------
        >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
        >>> {name: array.shape for name, array in scorer("klm").fit(train).tensors().items()}
        {'0.log_typical': (2, 2)}
        """
        found: dict[str, Array] = {}
        for i, step in enumerate(self.steps):
            found |= add_prefix(step.tensors(), i)
        return found

    def restore(self, tensors: Mapping[str, Array]) -> Chain:
        """Build the chain with the learnt arrays that :meth:`tensors` returned.

        Parameters
        ----------
        tensors : mapping of str to ndarray
            Arrays by position of the step and name.

        Returns
        -------
        Chain
            The fitted chain.

        Raises
        ------
        InvalidInput
            If an array is missing, unknown, or does not have the declared kind and shape.
        """
        steps = []
        unknown = set(tensors)
        for i, step in enumerate(self.steps):
            own = remove_prefix(tensors, i)
            unknown -= add_prefix(own, i).keys()
            steps.append((step, own))
        reject_unknown(self.spec, unknown)
        restored = [step.restore(own) for step, own in steps]
        return dataclasses.replace(self, steps=tuple(restored))

    def header(self) -> dict[str, str]:
        """Return what a file says about the chain apart from its arrays.

        Returns
        -------
        dict of str to str
            ``spec``; ``tuned``, the set of the fit in words; ``searched``, the set on which settings were chosen.

        Examples
        --------
        >>> scorer("energy").header()
        {'spec': 'energy', 'tuned': 'nothing to fit', 'searched': ''}
        """
        return {"spec": self.spec, "tuned": self._fitting, "searched": self.tuned_on}

    @classmethod
    def from_header(cls, header: Mapping[str, str], tensors: Mapping[str, Array]) -> Chain:
        """Build a chain from what :meth:`header` and :meth:`tensors` returned.

        Parameters
        ----------
        header : mapping of str to str
            ``spec``, ``tuned`` and ``searched``; other entries are ignored.
        tensors : mapping of str to ndarray
            Learnt arrays by name.

        Returns
        -------
        Chain
            The fitted chain.

        Raises
        ------
        InvalidInput
            If a value of the header is unknown, or the arrays are not those of the chain.
        UnknownName
            If no step has a name of the text.

        Examples
        --------
        >>> Chain.from_header({"spec": "energy", "tuned": "nothing to fit", "searched": ""}, {})
        Chain('energy', nothing to fit)
        """
        if header["tuned"] not in FITTINGS or header["searched"] not in TUNINGS:
            raise InvalidInput("its header has unknown values")
        chain = scorer(header["spec"]).restore(tensors)
        return dataclasses.replace(chain, fitted_on=FITTINGS[header["tuned"]], tuned_on=header["searched"])

    def save(self, path: str | Path) -> None:
        """Write the fitted chain to one safetensors file: text and digest in its header, learnt arrays as tensors.

        Parameters
        ----------
        path : str or Path
            The file to write; an existing file is replaced atomically.

        Raises
        ------
        NotFitted
            If a step that learns has not been fitted.
        InvalidInput
            If a setting is an object, which a file cannot hold.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scorer("energy(temperature=2)").save(f"{folder}/energy.safetensors")
        ...     load_chain(f"{folder}/energy.safetensors")
        Chain('energy(temperature=2)', nothing to fit)
        """
        from safetensors.numpy import save

        if not self.ready:
            raise NotFitted(f"{self.spec} is not fitted; call .fit(train) before .save(path)")
        try:
            parse_chain(self.spec)
        except InvalidInput as error:
            raise InvalidInput(
                f"{self.spec} holds an object of yours, which is not saved; save your own object"
            ) from error
        arrays = self.tensors()
        header = {"format": FORMAT, "version": VERSION, **self.header()}
        header["sha256"] = arrays_digest(arrays, header)
        with replacing(Path(path)) as file:
            file.write(sort_header(save(arrays, metadata=header)))


def _unite(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names of several groups, each once, in the order in which they first occur."""
    names: list[str] = []
    for group in groups:
        names += group
    return tuple(dict.fromkeys(names))


def _transform(step: ChainStep, outputs: Outputs | None, wanted: tuple[str, ...]) -> Outputs | None:
    """Apply a fitted transform to one of the sets of a fit, if it is there."""
    if outputs is None:
        return None
    return outputs.derived(step.run(outputs, wanted))


def scorer(spec: str | Chain, **settings: object) -> Chain:
    """Build the chain that a text such as ``"react(percentile=90)|energy"`` describes.

    Steps are separated by ``|`` and run from left to right: transforms, then one score. Settings are Python literals,
    passed by name; a ``|`` inside quotes or brackets does not separate.

    Parameters
    ----------
    spec : str or Chain
        The text; a chain is returned as it is, or rebuilt, not fitted, with further ``settings``.
    **settings
        Further settings of the score. Arrays, such as the ``negatives`` of ``neglabel``, are saved with the chain. A
        setting may also be an object, such as an index for ``knn``; a chain with such an object cannot be saved.

    Returns
    -------
    Chain
        The chain, not fitted yet.

    Raises
    ------
    InvalidInput
        If the text cannot be parsed, a setting is unknown, or the steps do not go together.
    UnknownName
        If no step has a name of the text.

    Examples
    --------
    >>> scorer("energy").spec, scorer("temperature( value = 2.0 ) | msp").spec
    ('energy', 'temperature(value=2.0)|msp')
    """
    if not isinstance(spec, Chain):
        return Chain(parse_chain(spec, settings))
    if not settings:
        return spec
    *transforms, score = [ChainStep.make(step.info, step.settings) for step in spec.steps]
    changed = ChainStep.make(score.info, {**score.settings, **settings})
    return Chain((*transforms, changed))


def fit_all(
    specs: Iterable[str | Chain], train: Outputs, *, val: Outputs | None = None, ood_val: Outputs | None = None
) -> list[Chain]:
    """Fit several chains on the same sets; what several of them need of a set is computed once.

    Parameters
    ----------
    specs : iterable of str or Chain
        The chains, as :func:`scorer` takes them.
    train : Outputs
        Training set.
    val : Outputs, optional
        Validation set, without OOD rows.
    ood_val : Outputs, optional
        OOD validation set.

    Returns
    -------
    list of Chain
        Fitted chains, in the order of ``specs``.

    Raises
    ------
    InvalidInput
        If a chain cannot be fitted on these sets.
    UnknownName
        If no step has a name of a text.

    Examples
    --------
    >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
    >>> [chain.fitted_on for chain in fit_all(["msp", "klm"], train)]
    ['', 'train']
    """
    train = select_id_rows(train)  # once for all chains, so that they share what they compute of these rows
    if val is not None:
        val = select_id_rows(val)
    return [scorer(spec).fit(train, val=val, ood_val=ood_val) for spec in specs]


def select_id_rows(outputs: Outputs) -> Outputs:
    """Select the rows with a class of the model: those not labelled -1.

    Parameters
    ----------
    outputs : Outputs
        Outputs, with labels or without.

    Returns
    -------
    Outputs
        ID rows; all rows without labels.

    Raises
    ------
    InvalidInput
        If this is not :class:`~twofold.outputs.Outputs`, or every label is -1.

    Examples
    --------
    >>> select_id_rows(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, -1]))
    Outputs(1 rows, 2 classes; labels)
    """
    if not isinstance(outputs, Outputs):
        raise InvalidInput(f"fit takes Outputs(logits, ...), got {type(outputs).__name__}")
    if outputs.labels is None or outputs.is_id.all():
        return outputs
    if not outputs.is_id.any():
        raise InvalidInput("labels must name a class for at least one row to fit on; all are -1")
    return outputs[np.flatnonzero(outputs.is_id)]


def load_chain(path: str | Path) -> Chain:
    """Read a chain that :meth:`Chain.save` wrote; its scores are equal to the last bit.

    Parameters
    ----------
    path : str or Path
        The file to read.

    Returns
    -------
    Chain
        The fitted chain.

    Raises
    ------
    InvalidInput
        If the file is missing, damaged (its digest does not fit), of another format, or does not hold exactly the
        arrays that its steps learn, in their shapes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scorer("msp").save(f"{folder}/msp.safetensors")
    ...     load_chain(f"{folder}/msp.safetensors").spec
    'msp'
    """
    arrays, header = _read_file(path)
    try:
        return Chain.from_header(header, arrays)
    except (InvalidInput, UnknownName) as error:
        raise InvalidInput(f"{path} cannot be loaded: {error}; save the chain again") from error
    except FORGED_SETTINGS as error:
        raise InvalidInput(f"{path} was not written by Chain.save: its settings do not fit; save it again") from error


def _read_file(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read the arrays and the header of a saved chain, and check that they are unchanged since they were written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; write a chain with Chain.save") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); give the file of a saved chain") from error
    try:
        header = _read_header(raw)
        arrays = load(raw)
    except (SafetensorError, *NOT_SAFETENSORS) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InvalidInput(f"{path} is damaged or not a saved chain ({reason}); save it again") from error
    if header.get("format") == "twofold-chain-1":
        raise InvalidInput(f"{path} is of the older format without a digest; write it again with Chain.save")
    if header.get("format") != FORMAT:
        raise InvalidInput(f"{path} is not a saved chain; write one with Chain.save")
    if header.get("version") != VERSION:
        raise InvalidInput(
            f"{path} has another format version than {VERSION}, which this twofold reads; save the chain again, "
            "or update with: pip install -U twofold"
        )
    digest = header.pop("sha256", None)
    if digest != arrays_digest(arrays, header):
        raise InvalidInput(f"{path} is damaged: its SHA-256 is not the one in its header; restore it or save it again")
    if set(header) != HEADER_FIELDS:
        raise InvalidInput(f"{path} was not written by Chain.save: its header has other fields; save the chain again")
    return arrays, header


def _read_header(raw: bytes) -> dict[str, str]:
    """Return the texts in the header of a safetensors file."""
    size = int.from_bytes(raw[:8], "little")
    content = json.loads(raw[8 : 8 + size])
    return dict(content.get("__metadata__") or {})
