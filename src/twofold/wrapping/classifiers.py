"""Run estimators of scikit-learn, ONNX sessions and plain functions, and take their outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import AnyArray
from twofold.errors import InvalidInput, MissingExtra, TwofoldError
from twofold.outputs import Head, Outputs
from twofold.wrapping.rows import Inputs, LabelledInputs, count_rows, describe_inputs, number_labels, read_labelled

ONES = 1e-3  # rows of probabilities sum to 1 within this
NOT_ABOUT_INPUTS = (TwofoldError, MemoryError, OSError, ImportError)  # errors that are passed on as they are


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


def check_class_names(names: object) -> tuple[object, ...] | None:
    """Check that names of classes are a sequence of at least two.

    Parameters
    ----------
    names : object
        What the caller passed.

    Returns
    -------
    tuple or None
        The names; None without names.

    Raises
    ------
    InvalidInput
        If they are one text, or no sequence.

    Examples
    --------
    >>> check_class_names(["cat", "dog"])
    ('cat', 'dog')
    """
    if names is None:
        return None
    if isinstance(names, str | bytes | Mapping) or not hasattr(names, "__iter__"):
        raise InvalidInput(f"class_names must be a list of names, one for each class, got {names!r:.60}")
    return tuple(names)


@contextmanager
def naming_data(source: OutputSource, name: str, inputs: object) -> Iterator[None]:
    """Let errors say which data set a classifier was run on, and what that holds.

    Parameters
    ----------
    source : OutputSource
        The classifier.
    name : str
        The data set, for messages.
    inputs : object
        What it is run on.

    Yields
    ------
    None
        While the classifier runs.

    Raises
    ------
    InvalidInput
        If the classifier raises an error; that error is the cause.
    """
    try:
        yield
    except InvalidInput as error:
        if str(error).startswith(name):
            raise
        raise InvalidInput(f"{name}: {error}") from error
    except NOT_ABOUT_INPUTS:
        raise
    except Exception as error:
        if "out of memory" in str(error).lower():
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise InvalidInput(
            f"{name}: the {source.kind} cannot run on {describe_inputs(inputs)} "
            f"({type(error).__name__}: {first_line:.200}); pass inputs as the classifier takes them, and labelled data "
            "as a tuple (inputs, labels)"
        ) from error


class InMemorySource(OutputSource):
    """Run a classifier whose inputs are read into memory as the caller passes them."""

    width: int | None = None
    """Number of outputs of each row in the first run."""

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
        rows: LabelledInputs = read_labelled(data, name)
        with naming_data(self, name, rows.inputs):
            count = count_rows(rows.inputs)
            if count == 0:
                raise InvalidInput("there are no inputs; pass at least one row")
            outputs = self.compute(rows.inputs)
            self._check_shape(outputs, count)
        return self.with_labels(outputs, rows.labels, name, known=known)

    def _check_shape(self, outputs: Outputs, count: int) -> None:
        """Check that each input has one row, with as many classes as there are names and were in the first run."""
        if len(outputs) != count:
            raise InvalidInput(
                f"the {self.kind} returned {len(outputs)} rows for {count} inputs; it must return one each"
            )
        if self.width is None:
            if self.classes is not None and len(self.classes) != outputs.classes:
                raise InvalidInput(
                    f"class_names has {len(self.classes)} names and the {self.kind} returns {outputs.classes} classes; "
                    "name each once, in the order of the outputs"
                )
            self.width = outputs.classes
        if outputs.classes != self.width:
            raise InvalidInput(
                f"the {self.kind} returned {outputs.classes} classes, and {self.width} before; it must always return "
                "the same classes"
            )

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
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"the classifier must return logits (N, C) as numbers, got an array of dtype {array.dtype}")
    if array.ndim != 2 or array.shape[1] < 2:
        raise InvalidInput(
            f"the classifier must return logits (N, C) with at least two classes, got shape {array.shape}; for one "
            "output z return np.column_stack([np.zeros_like(z), z])"
        )
    if are_probabilities(array):
        return Outputs.from_probabilities(array, **fields)
    return Outputs(array, **fields)


def are_probabilities(values: AnyArray) -> bool:
    """Tell whether every row is a distribution: from 0 to 1, with the sum 1.

    Parameters
    ----------
    values : ndarray of shape (N, C)
        Logits or probabilities.

    Returns
    -------
    bool
        Whether they are probabilities.

    Examples
    --------
    >>> are_probabilities(np.array([[0.25, 0.75]])), are_probabilities(np.array([[0.25, 0.5]]))
    (True, False)
    """
    is_share = bool((values >= 0).all() and (values <= 1).all())
    return is_share and bool((np.abs(values.sum(axis=1) - 1.0) <= ONES).all())


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
        self.names = check_class_names(names)
        self.returns_logits = False

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
        values = self.function(inputs)
        if values is None or isinstance(values, str | tuple | Mapping):
            raise InvalidInput(
                f"the function must return an array of logits or probabilities (N, C), got {describe_inputs(values)}; "
                "return the array alone"
            )
        array = _to_array(values)
        if self.returns_logits and array.ndim == 2:  # whatever later ones sum to
            return Outputs(array)
        outputs = outputs_of(array)
        self.returns_logits = not outputs.is_scale_lost
        return outputs


def _to_array(values: Any) -> AnyArray:
    """Convert what a function returned; tensors may need gradients."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = array.astype(np.float64)
    return array


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
            raise InvalidInput(
                f"{type(estimator).__name__} has no classes_; pass a classifier, and fit the estimator first"
            )
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
        self.names = check_class_names(names)
        self.input_name = inputs[0].name
        self.dtype = np.float64 if "double" in inputs[0].type else np.float32
        self.is_number = inputs[0].type in ("tensor(float)", "tensor(double)")

    @property
    def classes(self) -> Sequence[object] | None:
        """The names that the caller passed."""
        return self.names

    def _read_zip_map(self, rows: Sequence[Mapping[object, float]]) -> npt.NDArray[np.float64]:
        """Make a table of what skl2onnx writes by default: a dictionary of probabilities by class for each row."""
        if self.names is None:
            self.names = tuple(rows[0])
        return np.array([list(row.values()) for row in rows], dtype=np.float64)

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
            if _is_zip_map(value):
                value = self._read_zip_map(value)
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] > 1 and value.dtype.kind == "f":
                tables[name] = value
        if not tables:
            raise InvalidInput(f"the ONNX session returns no logits (N, C); its outputs are {', '.join(names)}")
        for name in ("logits", "probabilities"):
            if name in tables:
                return outputs_of(tables[name], features=features)
        return outputs_of(next(iter(tables.values())), features=features)


def _is_zip_map(value: object) -> bool:
    """Tell whether an output is a list of dictionaries."""
    return isinstance(value, list) and len(value) > 0 and isinstance(value[0], Mapping)
