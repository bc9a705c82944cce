"""Run estimators of scikit-learn, ONNX sessions and plain functions, and take their outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import AnyArray
from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import Head, Outputs
from twofold.wrapping.rows import Inputs, LabelledInputs, number_labels, read_labelled

ONES = 1e-3  # rows of probabilities sum to 1 within this


class OutputSource(ABC):
    """Run a classifier on whatever inputs it takes, and return its outputs."""

    kind: str = ""
    """What the classifier is, in words."""

    @property
    @abstractmethod
    def classes(self) -> Sequence[object] | None:
        """What the classes are called, in the order of the outputs; None where they have numbers only."""

    @abstractmethod
    def run(self, data: object, name: str, *, known: bool) -> Outputs:
        """Run the classifier on a data set.

        Parameters
        ----------
        data : object
            Inputs, or inputs with labels, in any form that :func:`twofold.wrap` takes.
        name : str
            The data set, for messages.
        known : bool
            Whether labels are classes of the classifier; otherwise they are ignored and stored as -1.

        Returns
        -------
        Outputs
            Logits, and features and head where they are found; labels where there are some.
        """

    def export(self, gate: Any, path: str, **options: Any) -> None:
        """Write the classifier with its gate to an ONNX file.

        Parameters
        ----------
        gate : Gate
            The gate.
        path : str
            The file.
        **options
            As :meth:`twofold.Gate.to_onnx` takes them.

        Raises
        ------
        InvalidInput
            If a classifier of this kind cannot be exported.
        """
        raise InvalidInput(
            f"a {self.kind} cannot be written to ONNX with its gate; export the classifier with its own library, and "
            "compare its confidences with gate.taus()"
        )

    def with_labels(self, outputs: Outputs, labels: Sequence[object] | None, name: str, *, known: bool) -> Outputs:
        """Add labels to outputs.

        Parameters
        ----------
        outputs : Outputs
            Outputs without labels.
        labels : sequence or None
            Labels as the caller wrote them.
        name : str
            The data set, for messages.
        known : bool
            Whether they are classes of the classifier.

        Returns
        -------
        Outputs
            With labels as class numbers.
        """
        if not known:
            return outputs.replace(labels=np.full(len(outputs), -1))
        if labels is None:
            return outputs
        classes = self.classes or range(outputs.classes)
        return outputs.replace(labels=number_labels(labels, classes, name))


class InMemorySource(OutputSource):
    """Run a classifier whose inputs are read into memory as the caller passes them."""

    def run(self, data: object, name: str, *, known: bool) -> Outputs:
        """Run the classifier on a data set.

        Parameters
        ----------
        data : object
            Inputs, or inputs with labels, in any form that :func:`twofold.wrap` takes.
        name : str
            The data set, for messages.
        known : bool
            Whether labels are classes of the classifier.

        Returns
        -------
        Outputs
            Logits, and features and head where they are found; labels where there are some.
        """
        if isinstance(data, Outputs):
            return data
        rows: LabelledInputs = read_labelled(data)
        return self.with_labels(self.compute(rows.inputs), rows.labels, name, known=known)

    @abstractmethod
    def compute(self, inputs: Inputs) -> Outputs:
        """Compute the outputs of inputs.

        Parameters
        ----------
        inputs : object
            Inputs of the classifier.

        Returns
        -------
        Outputs
            Without labels.
        """


def outputs_of(values: AnyArray, **fields: Any) -> Outputs:
    """Make outputs of what a classifier returned: probabilities are recognised by rows that sum to 1.

    Parameters
    ----------
    values : ndarray of shape (N, C)
        Logits or probabilities.
    **fields
        Further fields of :class:`twofold.Outputs`.

    Returns
    -------
    Outputs
        With log p as logits where the values are probabilities.

    Raises
    ------
    InvalidInput
        If the values do not have one row of at least two classes for each input.

    Examples
    --------
    >>> outputs_of(np.array([[0.25, 0.75]])).logits.round(3)
    array([[-1.386, -0.288]])
    """
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InvalidInput(
            f"the classifier must return logits (N, C) with at least two classes, got shape {array.shape}; for one "
            "output z return np.column_stack([np.zeros_like(z), z])"
        )
    is_share = bool((array >= 0).all() and (array <= 1).all())
    if is_share and bool((np.abs(array.sum(axis=1) - 1.0) <= ONES).all()):
        return Outputs.from_probabilities(array, **fields)
    return Outputs(array, **fields)


class FunctionSource(InMemorySource):
    """Call a function from inputs to logits or probabilities.

    Parameters
    ----------
    function : callable
        Takes inputs and returns an array (N, C).
    names : sequence or None
        What the classes are called.
    """

    kind = "function"

    def __init__(self, function: Callable[[Inputs], Any], names: Sequence[object] | None) -> None:
        self.function = function
        self.names = names

    @property
    def classes(self) -> Sequence[object] | None:
        """The names that the caller passed."""
        return self.names

    def compute(self, inputs: Inputs) -> Outputs:
        """Call the function.

        Parameters
        ----------
        inputs : object
            Inputs of the classifier.

        Returns
        -------
        Outputs
            Without labels.
        """
        return outputs_of(_to_array(self.function(inputs)))


def _to_array(values: Any) -> AnyArray:
    """Convert what a function returned; tensors may need gradients."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


class EstimatorSource(InMemorySource):
    """Run a fitted estimator of scikit-learn.

    Logits are those of the linear model where the estimator ends in one, otherwise the logarithms of its probabilities.
    Features are the numbers that its last step takes.

    Parameters
    ----------
    estimator : object
        With ``classes_``, and ``predict_proba`` or ``decision_function``.
    """

    kind = "scikit-learn estimator"

    def __init__(self, estimator: Any) -> None:
        if not hasattr(estimator, "classes_"):
            raise InvalidInput(f"{type(estimator).__name__} has no classes_; fit the estimator first")
        if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
            raise InvalidInput(f"{type(estimator).__name__} has neither predict_proba nor decision_function")
        self.estimator = estimator

    @property
    def classes(self) -> Sequence[object]:
        """The classes of the estimator."""
        return list(np.asarray(self.estimator.classes_).tolist())

    @property
    def last_step(self) -> Any:
        """The last step of a pipeline, or the estimator itself."""
        steps = getattr(self.estimator, "steps", None)
        return self.estimator if not steps else steps[-1][1]

    def compute(self, inputs: Inputs) -> Outputs:
        """Run the estimator.

        Parameters
        ----------
        inputs : object
            Inputs of the classifier.

        Returns
        -------
        Outputs
            Without labels.
        """
        features = self.find_features(inputs)
        head = self.find_head()
        if head is not None and features is not None and features.shape[1] == head.weight.shape[1]:
            return Outputs(head.logits(features), features=features, head=head)
        if hasattr(self.estimator, "predict_proba"):
            return outputs_of(self.estimator.predict_proba(inputs), features=features)
        margins = np.asarray(self.estimator.decision_function(inputs), dtype=np.float64)
        if margins.ndim == 1:
            margins = np.column_stack([np.zeros_like(margins), margins])
        return Outputs(margins, features=features)

    def find_head(self) -> Head | None:
        """Find the linear layer of a logistic regression; with two classes, the first has the logit 0.

        Returns
        -------
        Head or None
            The layer; None for another model.
        """
        model = self.last_step
        if type(model).__name__ != "LogisticRegression":
            return None
        weight, bias = np.asarray(model.coef_, dtype=np.float64), np.asarray(model.intercept_, dtype=np.float64)
        if len(weight) == 1:
            return Head(np.vstack([np.zeros_like(weight), weight]), np.concatenate([[0.0], bias]))
        return Head(weight, np.broadcast_to(bias, (len(weight),)).copy())

    def find_features(self, inputs: Inputs) -> npt.NDArray[np.float64] | None:
        """Find the numbers that the last step takes.

        Parameters
        ----------
        inputs : object
            Inputs of the estimator.

        Returns
        -------
        ndarray of shape (N, D) or None
            The numbers; None where they are not a finite dense or sparse matrix.
        """
        steps = getattr(self.estimator, "steps", None)
        values = self.estimator[:-1].transform(inputs) if steps and len(steps) > 1 else inputs
        if hasattr(values, "toarray"):
            values = values.toarray()
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        if array.ndim != 2 or not np.isfinite(array).all():
            return None
        return array

    def export(self, gate: Any, path: str, **options: Any) -> None:
        """Write the estimator with its gate to an ONNX file, through skl2onnx.

        Parameters
        ----------
        gate : Gate
            The gate.
        path : str
            The file.
        **options
            None for an estimator.

        Raises
        ------
        InvalidInput
            If it has no probabilities, does not take rows of numbers, or cannot be converted.
        MissingExtra
            If torch, onnx or skl2onnx is not installed.
        """
        if options:
            raise InvalidInput(f"an estimator is written without options, got {', '.join(options)}")
        head = self.find_head()
        if head is None and not hasattr(self.estimator, "predict_proba"):
            super().export(gate, path)
        steps = getattr(self.estimator, "steps", None)
        transformer = self.estimator[:-1] if steps and len(steps) > 1 else None
        write_estimator(gate, path, self.estimator, transformer=transformer, head=head)


def write_estimator(gate: Any, path: str, estimator: Any, *, transformer: Any, head: Head | None) -> None:
    """Import what needs torch, and write an estimator with its gate.

    Parameters
    ----------
    gate : Gate
        The gate.
    path : str
        The file.
    estimator : object
        A fitted estimator of scikit-learn.
    transformer : object or None
        Its steps before the last one.
    head : Head or None
        The linear layer whose logits the gate reads.
    """
    try:
        from twofold.nn.onnx.estimators import EstimatorParts, estimator_to_onnx
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('an ONNX file needs torch: pip install "twofold[torch]"') from error
    estimator_to_onnx(gate, EstimatorParts(estimator, transformer, head), path)


class OnnxSource(InMemorySource):
    """Run an ONNX session.

    Parameters
    ----------
    session : onnxruntime.InferenceSession
        With one input, and an output of shape (N, C) with logits or probabilities. An output called ``features`` is
        recorded too.
    names : sequence or None
        What the classes are called.
    """

    kind = "ONNX session"

    def __init__(self, session: Any, names: Sequence[object] | None) -> None:
        inputs = session.get_inputs()
        if len(inputs) != 1:
            raise InvalidInput(f"the ONNX session has {len(inputs)} inputs, and one is needed; wrap a function instead")
        self.session = session
        self.names = names
        self.input_name = inputs[0].name
        self.dtype = np.float64 if "double" in inputs[0].type else np.float32
        self.is_number = inputs[0].type in ("tensor(float)", "tensor(double)")

    @property
    def classes(self) -> Sequence[object] | None:
        """The names that the caller passed."""
        return self.names

    def compute(self, inputs: Inputs) -> Outputs:
        """Run the session.

        Parameters
        ----------
        inputs : object
            Inputs of the classifier.

        Returns
        -------
        Outputs
            Without labels.
        """
        given = _to_array(inputs)
        if self.is_number:
            given = given.astype(self.dtype, copy=False)
        names = [one.name for one in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(None, {self.input_name: given}), strict=True))
        features = found.pop("features", None)
        tables = {}
        for name, value in found.items():
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] > 1 and value.dtype.kind == "f":
                tables[name] = value
        if not tables:
            raise InvalidInput(f"the ONNX session returns no logits (N, C); its outputs are {', '.join(names)}")
        for name in ("logits", "probabilities"):
            if name in tables:
                return outputs_of(tables[name], features=features)
        return outputs_of(next(iter(tables.values())), features=features)
