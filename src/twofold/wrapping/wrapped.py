"""One call from a classifier to one that abstains: :func:`wrap`, and what it returns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold._checks import Array, whole
from twofold._files import is_temporary, read_regular, replacing
from twofold._json import check_list, check_table, check_text, decode_json, encode_json
from twofold._math import softmax
from twofold.errors import InvalidInput, MissingExtra, RunError
from twofold.gate import Decision, Gate, Monitor, ReportCard
from twofold.gate.inputs import keep_common_fields
from twofold.outputs import Outputs
from twofold.scores.chain import Chain
from twofold.wrapping.choice import choose_scores, needs_choice
from twofold.wrapping.classifiers import EstimatorSource, FunctionSource, OnnxSource, OutputSource
from twofold.wrapping.goal import Goal, fit_gate, split_for_choice
from twofold.wrapping.rows import Inputs

FORMAT, VERSION = "twofold-wrapped", 1
FILE, GATE = "wrapped.json", "gate"
KEYS = ("kind", "classes", "why")
TOP = 3  # classes that an explanation names


@dataclass(frozen=True)
class Explanation:
    """Say why one input was accepted or not.

    Parameters
    ----------
    label : object
        What the classifier predicts.
    verdict : {"accept", "unsure", "unknown"}
        What the gate says.
    reason : str
        The sentence to show.
    conf_id, tau_id : float
        Confidence in the label, and its threshold.
    conf_ood, tau_ood : float or None
        Confidence that the input is known, and its threshold.
    alternatives : tuple of (object, float)
        The most probable classes with their probabilities.
    """

    label: object
    verdict: str
    reason: str
    conf_id: float
    tau_id: float
    conf_ood: float | None
    tau_ood: float | None
    alternatives: tuple[tuple[object, float], ...]

    def __str__(self) -> str:
        ranked = ", ".join(f"{label} {probability:.2f}" for label, probability in self.alternatives)
        return f"{self.verdict}: {self.reason} [{ranked}]"


@dataclass(frozen=True, eq=False, repr=False)
class Wrapped:
    """Predict with a classifier, and abstain where its gate does not accept. Made by :func:`wrap`.

    Parameters
    ----------
    source : OutputSource
        Runs the classifier.
    gate : Gate
        Two scores, two thresholds and a promise.
    why : tuple of str
        Why these scores and thresholds, as sentences.

    Examples
    --------
    >>> logits = np.array([[4.0, 0.0], [0.0, 3.0], [0.2, 0.0], [0.3, 0.1]])
    >>> wrapped = wrap(lambda x: x, val=(logits, [0, 1, 0, 1]), keep=0.5, class_names=("cat", "dog"))
    >>> wrapped(np.array([[5.0, 0.0], [0.1, 0.0]]))
    ['cat', None]
    """

    source: OutputSource
    gate: Gate
    why: tuple[str, ...]

    def __call__(self, inputs: Inputs) -> list[object]:
        """Predict the label of each input, None where the gate does not accept.

        Parameters
        ----------
        inputs : object
            Inputs as the classifier takes them: arrays, tensors, texts, pictures, a loader or a data set.

        Returns
        -------
        list
            Names of classes where they are known, otherwise numbers; None where the classifier abstains.
        """
        decision = self.decide(inputs)
        labels = self._name_all(decision.labels.tolist())
        answers: list[object] = []
        for label, verdict in zip(labels, decision.verdict.tolist(), strict=True):
            answers.append(label if verdict == "accept" else None)
        return answers

    def outputs(self, inputs: Inputs) -> Outputs:
        """Run the classifier: logits, and features and head where they are found.

        Parameters
        ----------
        inputs : object
            Inputs, or inputs with labels, as :func:`wrap` takes them.

        Returns
        -------
        Outputs
            What the scores read.
        """
        return self.source.run(inputs, "inputs", known=True)

    def decide(self, inputs: Inputs) -> Decision:
        """Give a verdict for each input.

        Parameters
        ----------
        inputs : object
            Inputs as the classifier takes them.

        Returns
        -------
        Decision
            Class numbers, verdicts (accept, unsure, unknown), confidences and margins.
        """
        return self.gate.decide(self.outputs(inputs))

    def explain(self, inputs: Inputs) -> list[Explanation]:
        """Say for each input why it was accepted or not.

        Parameters
        ----------
        inputs : object
            Inputs as the classifier takes them.

        Returns
        -------
        list of Explanation
            One for each input; ``str`` of it is a sentence.

        Examples
        --------
        >>> logits = np.array([[4.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.25, 0.0]])
        >>> wrapped = wrap(lambda x: x, val=(logits, [0, 1, 0, 1]), keep=0.5, ood="none")
        >>> print(wrapped.explain(logits[3:])[0])
        unsure: the confidence in label 0 is 0.25, below its threshold of 0.625 [0 0.56, 1 0.44]
        """
        outputs = self.outputs(inputs)
        decision = self.gate.decide(outputs)
        shares = softmax(np.asarray(outputs.logits, dtype=np.float64))
        explained = []
        for row in range(len(outputs)):
            explained.append(self._explain_row(decision, row, shares[row]))
        return explained

    def _explain_row(self, decision: Decision, row: int, shares: Array) -> Explanation:
        """Explain the verdict of one row, whose classes have these probabilities."""
        label = self._name_all([int(decision.labels[row])])[0]
        verdict = str(decision.verdict[row])
        conf_id = float(decision.conf_id[row])
        conf_ood = tau_ood = None
        if decision.conf_ood is not None:
            conf_ood = float(decision.conf_ood[row])
            tau_ood = self.gate.tau_ood
        reason = self._reason(label, verdict, conf_id, conf_ood)
        top = np.argsort(-shares, kind="stable")[:TOP]
        names = self._name_all(top.tolist())
        probabilities = shares[top].tolist()
        return Explanation(
            label=label,
            verdict=verdict,
            reason=reason,
            conf_id=conf_id,
            tau_id=self.gate.tau_id,
            conf_ood=conf_ood,
            tau_ood=tau_ood,
            alternatives=tuple(zip(names, probabilities, strict=True)),
        )

    def _reason(self, label: object, verdict: str, conf_id: float, conf_ood: float | None) -> str:
        if verdict == "unknown":
            return (
                f"the confidence that the input is known is {conf_ood:.4g}, below its threshold of "
                f"{self.gate.tau_ood:.4g}"
            )
        if verdict == "unsure":
            return f"the confidence in label {label} is {conf_id:.4g}, below its threshold of {self.gate.tau_id:.4g}"
        return f"the confidence in label {label} is {conf_id:.4g}, at or above its threshold of {self.gate.tau_id:.4g}"

    def card(self, known: object, unknown: object | None = None) -> ReportCard:
        """Measure on other labelled data what the wrapped classifier does, compared with its promise.

        Parameters
        ----------
        known : pair of inputs and labels, loader or data set
            Labelled inputs, not those the gate was fitted on.
        unknown : inputs, loader or data set, optional
            Inputs of no known class.

        Returns
        -------
        ReportCard
            Coverage, risk, counts and DS-F1 with intervals, and whether the promise was kept.
        """
        known_outputs = self.source.run(known, "known", known=True)
        if known_outputs.labels is None:
            raise InvalidInput("a card needs labels; pass a pair (inputs, labels) or a labelled data set")
        parts = [known_outputs]
        if unknown is not None:
            parts.append(self.source.run(unknown, "unknown", known=False))
        return self.gate.report_card(Outputs.concat(keep_common_fields(parts)))

    def monitor(self, *, false_alarms: float = 0.01) -> Monitor:
        """Create a counter of live verdicts that raises an alarm when their rates leave those of validation.

        Parameters
        ----------
        false_alarms : float, default=0.01
            Share of deployments in which an alarm is raised though nothing changed.

        Returns
        -------
        Monitor
            Pass it what :meth:`decide` returns.
        """
        return self.gate.monitor(false_alarms=false_alarms)

    def to_onnx(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write classifier and gate to one ONNX file.

        Parameters
        ----------
        path : str or path-like
            The file to write.
        **options
            ``shape`` and ``prepare`` as in :meth:`twofold.Gate.to_onnx`.

        Raises
        ------
        InvalidInput
            If the classifier is neither a PyTorch module nor an estimator with probabilities, or ONNX cannot hold a
            score.
        MissingExtra
            If torch or onnx is not installed, or skl2onnx for an estimator.
        """
        self.source.export(self.gate, os.fspath(path), **options)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write gate and reasons into a folder; the classifier stays where it is.

        Parameters
        ----------
        folder : str or path-like
            A new or empty folder, or one that holds a wrapped classifier.

        Raises
        ------
        RunError
            If the folder holds something else, or cannot be written.
        InvalidInput
            If ``folder`` is not a path.

        Notes
        -----
        Reasons are written first, then the gate, each whole or not at all. If two processes save different ones at the
        same time, or one is killed between the two files, reasons and gate may be those of different classifiers;
        decisions are always those of one.
        """
        if not isinstance(folder, str | os.PathLike):
            raise InvalidInput(f"folder must be a path, got {folder!r:.60}")
        place = Path(folder)
        try:
            self._write(place)
        except RunError:
            raise
        except OSError as error:
            raise RunError(
                f"{place} cannot be written ({error.strerror or error}); choose a folder that you may write to"
            ) from error

    def _write(self, place: Path) -> None:
        """Write reasons and gate into a folder."""
        if place.exists() and not place.is_dir():
            raise RunError(f"{place} is a file; choose a folder")
        if place.is_dir() and not _may_replace(place):
            raise RunError(f"{place} is not empty and holds no wrapped classifier; choose an empty or new folder")
        place.mkdir(parents=True, exist_ok=True)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.source.kind,
            "classes": _class_texts(self.source),
            "why": list(self.why),
        }
        with replacing(place / FILE) as file:
            file.write(encode_json(content))
        self.gate.save(place / GATE)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], classifier: Any, **options: Any) -> Wrapped:
        """Read what :meth:`save` wrote, for the same classifier.

        Parameters
        ----------
        folder : str or path-like
            The folder.
        classifier : object
            The classifier, as :func:`wrap` takes it; no code or weights are stored in the folder.
        **options
            ``class_names``, ``head``, ``prepare``, ``batch`` and ``device`` as in :func:`wrap`.

        Returns
        -------
        Wrapped
            The wrapped classifier; its decisions are equal to those of the one that was saved.

        Raises
        ------
        RunError
            If the folder is damaged.
        InvalidInput
            If the classifier has other classes. Another last layer is noticed when it decides.
        """
        why, classes = _read_reasons(Path(folder) / FILE)
        source = source_of(classifier, **options)
        own = _class_texts(source)
        if classes is not None and own is not None and own != classes:
            raise InvalidInput("the classifier has other classes than the one that was saved; pass the same classifier")
        gate = Gate.load(Path(folder) / GATE)
        return cls(source, gate, why)

    def _name_all(self, numbers: Sequence[int]) -> list[object]:
        classes = self.source.classes
        if classes is None:
            return list(numbers)
        return [classes[number] for number in numbers]

    def __repr__(self) -> str:
        return f"Wrapped({self.source.kind}; {self.gate!r})"

    def __str__(self) -> str:
        lines = [f"{self.source.kind} with a gate"]
        for reason in self.why:
            lines.append(f"- {reason}")
        lines.append(str(self.gate))
        return "\n".join(lines)


def _may_replace(folder: Path) -> bool:
    """Tell whether a folder is empty, holds a wrapped classifier, or what a writer of one has begun."""
    if (folder / FILE).exists():
        return True
    return all(is_temporary(entry.name, FILE) for entry in folder.iterdir())


def _class_texts(source: OutputSource) -> list[str] | None:
    """Return the names of the classes as text."""
    if source.classes is None:
        return None
    return [str(label) for label in source.classes]


def _read_reasons(path: Path) -> tuple[tuple[str, ...], list[str] | None]:
    """Read why a wrapped classifier has its scores, and the names of its classes."""
    try:
        raw = read_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} does not exist; write it with Wrapped.save") from error
    content = decode_json(raw, path, kind="a wrapped classifier", form=FORMAT, version=VERSION, again="save it again")
    try:
        table = check_table(content, "the wrapped classifier", KEYS)
        why = _check_texts(table["why"], "why")
        classes = None
        if table["classes"] is not None:
            classes = _check_texts(table["classes"], "classes")
    except ValueError as error:
        raise RunError(f"{path} was not written by Wrapped.save ({error})") from error
    return tuple(why), classes


def _check_texts(values: object, name: str) -> list[str]:
    """Check that values are a list of texts."""
    texts = []
    for value in check_list(values, name):
        texts.append(check_text(value, name))
    return texts


def source_of(
    classifier: Any,
    *,
    class_names: Sequence[object] | None = None,
    head: str | None = None,
    prepare: Any = None,
    batch: int = 64,
    device: str = "cpu",
) -> OutputSource:
    """Find out what kind of classifier this is, and how it runs.

    Parameters
    ----------
    classifier : object
        As :func:`wrap` takes it.
    class_names : sequence, optional
        What the classes are called.
    head : str, optional
        Name of the last linear layer of a network.
    prepare : callable, optional
        Turns uint8 images into inputs of a network.
    batch : int, default=64
        Rows in a batch of a network.
    device : str, default="cpu"
        Where a network runs.

    Returns
    -------
    OutputSource
        Runs the classifier.

    Raises
    ------
    InvalidInput
        If it is none of the known kinds.
    """
    whole(batch, "batch", 1)
    if isinstance(classifier, type):
        raise InvalidInput(
            f"classifier must be a trained object, got the class {classifier.__name__}; make one of it first"
        )
    network_options = {"head": head, "prepare": prepare, "batch": batch, "device": device, "names": class_names}
    kinds = {base.__module__.partition(".")[0] for base in type(classifier).__mro__}
    if isinstance(classifier, str | os.PathLike):
        networks = _networks()
        return networks.NetworkSource(networks.load_network(os.fspath(classifier)), **network_options)
    if "transformers" in kinds and hasattr(classifier, "task"):
        return _networks().source_of_pipeline(classifier, **network_options)
    if "torch" in kinds and hasattr(classifier, "parameters"):
        return _networks().NetworkSource(classifier, **network_options)
    for name, value in (("head", head), ("prepare", prepare)):
        if value is not None:
            raise InvalidInput(f"{name} is for PyTorch networks, and the classifier is a {type(classifier).__name__}")
    if hasattr(classifier, "get_inputs") and hasattr(classifier, "run"):
        return OnnxSource(classifier, class_names)
    if hasattr(classifier, "classes_") or "sklearn" in kinds:
        if class_names is not None:
            raise InvalidInput("an estimator knows its classes; leave class_names out")
        return EstimatorSource(classifier)
    if callable(classifier):
        return FunctionSource(classifier, class_names)
    raise InvalidInput(
        f"classifier must be a PyTorch module, a Hugging Face model, pipeline or folder, a fitted scikit-learn "
        f"estimator, an ONNX session or a function from inputs to logits, got {type(classifier).__name__}"
    )


def _networks() -> Any:
    """Import what needs torch."""
    try:
        from twofold.wrapping import networks
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('a network needs torch: pip install "twofold[torch]"') from error
    return networks


def wrap(
    classifier: Any,
    *,
    val: object,
    train: object | None = None,
    unknown: object | None = None,
    keep: float | None = None,
    risk: float | None = None,
    delta: float | None = None,
    f1: bool = False,
    id: str | Chain | None = None,  # noqa: A002 - the name that Gate.fit uses
    ood: str | Chain | None = None,
    class_names: Sequence[object] | None = None,
    head: str | None = None,
    prepare: Any = None,
    batch: int = 64,
    device: str = "cpu",
) -> Wrapped:
    """Make a classifier abstain where it does not know.

    The classifier runs once over the data. Features and head are found where it has a linear last layer. With unknown
    inputs the scores are the pair that :func:`twofold.recommend` ranks first, of a few that are fast to fit and on a
    sample of the rows; without them a default that the outputs allow. Then a gate is fitted for the goal: ``keep``,
    ``risk`` or ``f1``; by default ``keep=0.95``.

    Parameters
    ----------
    classifier : object
        A PyTorch module (timm and torchvision models too); a Hugging Face model, text or image ``pipeline``, or folder;
        a folder of ``twofold train``; a fitted scikit-learn estimator; an ``onnxruntime.InferenceSession``; or a
        function from inputs to logits or probabilities (N, C).
    val : pair of inputs and labels, loader or data set
        Labelled inputs that the classifier was not trained on. A pair is ``(X, y)``; a data set is a ``DataLoader``, a
        PyTorch ``Dataset``, a Hugging Face data set, data of :mod:`twofold.nn.data` or their specification
        (``"text:val.csv"``), or :class:`twofold.Outputs`.
    train : pair of inputs and labels, loader or data set, optional
        The training set, or a part of it, for scores that learn.
    unknown : inputs, loader or data set, optional
        Inputs of no known class, as the classifier may meet them. Without them the thresholds come from known inputs
        alone, and nothing is promised about unknown ones.
    keep : float, optional
        Accept at least this share of the known inputs.
    risk : float, optional
        Accept as many as possible with at most this share of failures among them.
    delta : float, optional
        Guarantee that risk with confidence 1 - ``delta``, for independent inputs.
    f1 : bool, default=False
        Choose the thresholds with the best DS-F1.
    id : str or Chain, optional
        Score of correct against wrong labels; by default chosen, or ``msp`` without unknown inputs.
    ood : str or Chain, optional
        Score of known against unknown inputs; by default chosen. ``"none"`` makes a gate of one score.
    class_names : sequence, optional
        What the classes are called, in the order of the outputs; by default as the classifier says.
    head : str, optional
        Name of the last linear layer of a network, if it is not found.
    prepare : callable, optional
        Turns uint8 images (B, H, W, 3) into inputs of a network; by default that of the training, where it is stored.
    batch : int, default=64
        Rows in a batch of a network.
    device : str, default="cpu"
        Where a network runs.

    Returns
    -------
    Wrapped
        Call it with inputs: labels, and None where it abstains. ``print`` of it says what was chosen and why, and what
        is not promised.

    Raises
    ------
    InvalidInput
        If the classifier or the data are of no known kind, labels are missing or are none of the classes, several goals
        are named, or a training folder says another size, normalisation or order of classes.
    Infeasible
        If no thresholds meet the risk; its ``best`` says what is feasible.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X[::2], y[::2])
    >>> wrapped = wrap(model, train=(X[::2], y[::2]), val=(X[1::2], y[1::2]), keep=0.9)
    >>> wrapped([[5.0, 3.4, 1.5, 0.2], [50.0, 0.0, 0.0, 9.0]])
    [0, None]
    """
    goal = Goal.of(keep, risk, delta, f1)
    source = source_of(classifier, class_names=class_names, head=head, prepare=prepare, batch=batch, device=device)
    val_outputs = source.run(val, "val", known=True)
    train_outputs = unknown_outputs = None
    if train is not None:
        train_outputs = source.run(train, "train", known=True)
    if unknown is not None:
        unknown_outputs = source.run(unknown, "unknown", known=False)
    _check_data(val_outputs, {"train": train_outputs, "unknown": unknown_outputs})
    rows = split_for_choice(goal, val_outputs, unknown_outputs, is_open=needs_choice(id, ood))
    choice = choose_scores(rows.val_to_choose, train_outputs, rows.unknown_to_choose, id, ood)
    gate = fit_gate(goal, choice, train_outputs, rows.val, rows.unknown)
    if source.classes is not None and gate.class_names is None:
        gate = dataclasses.replace(gate, class_names=_unique_names(source.classes))
    why = (f"goal: {goal}", *choice.why, *rows.why)
    return Wrapped(source, gate, why)


def _check_data(val: Outputs, others: Mapping[str, Outputs | None]) -> None:
    """Check that val has labels of known classes, and that the other outputs are as wide as its own."""
    if val.labels is None:
        raise InvalidInput("val needs labels; pass a pair (inputs, labels) or a labelled data set")
    if not val.is_id.any():
        raise InvalidInput(
            f"val needs inputs of known classes, and all of its {len(val)} labels are -1 or None; pass inputs of no "
            "class as unknown="
        )
    for name, outputs in others.items():
        if outputs is None:
            continue
        if outputs.classes != val.classes:
            raise InvalidInput(
                f"{name} has outputs of {outputs.classes} classes and val of {val.classes}; both must come from "
                "the same classifier"
            )
        if outputs.features is not None and val.features is not None:
            width, val_width = outputs.features.shape[1], val.features.shape[1]
            if width != val_width:
                raise InvalidInput(
                    f"{name} has features of width {width} and val of {val_width}; both must come from the same "
                    "classifier"
                )


def _unique_names(classes: Sequence[object]) -> tuple[str, ...] | None:
    """Return the classes as text, if they stay different from each other."""
    names = tuple(str(label) for label in classes)
    return names if len(set(names)) == len(names) else None
