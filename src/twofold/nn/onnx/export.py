"""Trace a gate and its classifier, and write the graph with its metadata."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from twofold._files import replacing
from twofold.errors import InvalidInput, MissingExtra, TwofoldError
from twofold.gate.gate import Gate
from twofold.gate.inputs import head_fingerprint
from twofold.gate.schema import VERDICTS
from twofold.nn.extraction import Prepare
from twofold.nn.extraction.stored import TrainedInput, recall_input
from twofold.nn.models.head import Captured, Classifier
from twofold.nn.onnx._stable import to_tensor
from twofold.nn.onnx.limits import check_chain
from twofold.nn.onnx.steps import TensorOutputs, run_chain

OPSET = 17


def to_onnx(
    gate: Gate,
    model: nn.Module | Classifier,
    path: str | os.PathLike[str],
    *,
    shape: Sequence[int] | None = None,
    prepare: Prepare | None = None,
    head: str | None = None,
) -> None:
    """Write a gate and the classifier it was fitted for to one ONNX file.

    The input of the graph is ``images``, float32 of shape ``(N, *shape)``, N of any size. Its outputs are, (N,) each:
    ``label`` int64; ``verdict`` int64, 0 accept, 1 unsure, 2 unknown; ``conf_id`` and, for a gate of two scores,
    ``conf_ood``, float64. The file's metadata holds the words of the verdicts, both chains, thresholds and class names.

    Parameters
    ----------
    gate : Gate
        A fitted gate.
    model : nn.Module or Classifier
        The classifier, in float32 on the CPU. It is run in evaluation mode; its own mode is restored afterwards.
    path : str or path-like
        The file to write.
    shape : sequence of int, optional
        Shape of one input. By default that of the training, where the model carries it, else ``(3, 32, 32)``.
    prepare : Prepare, optional
        Normalisation to put inside the file: the input is then pixels in [0, 1]. By default that of the training, where
        the model carries it; else the file takes inputs as the model does.
    head : str, optional
        Name of the last layer, as :class:`~twofold.nn.models.Classifier` takes it; by default it is found.

    Raises
    ------
    InvalidInput
        If ONNX cannot hold a step of a chain (the message lists those it can) or an operation of the network, if the
        model is not float32 on the CPU, if it has other classes or another last layer than the gate was fitted with, or
        if ``shape`` or ``prepare`` is not that of the training.
    MissingExtra
        If ``onnx`` is not installed.

    Notes
    -----
    A network that twofold trained, or loaded from a training folder, carries size and normalisation of its input. The
    metadata then says under ``input`` how images become that input.

    A confidence that is NaN is never accepted. A bank of training rows (``knn``) is limited to 4,194,304 entries.
    Python gives the same verdicts with :meth:`twofold.Gate.decide`.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra('to_onnx needs onnx: pip install "twofold[torch]"') from error
    check_chain(gate.id)
    if gate.ood is not None:
        check_chain(gate.ood)
    classifier = model if isinstance(model, Classifier) else Classifier(model, head=head)
    _check_device_and_type(classifier.model)
    trained = recall_input(classifier.model)
    if trained is not None:
        trained.check_normalisation(prepare)
        prepare = trained.image_input.prepare
        shape = _trained_shape(trained, shape)
    example = torch.rand((2, *(shape or (3, 32, 32))), generator=torch.Generator().manual_seed(0))
    with _evaluation_mode(classifier.model), explain_tracer_errors():
        gated = _GatedClassifier(gate, classifier, prepare)
        gated(example)  # finds the head, and raises our own errors before the tracer runs
        _check_fit(gate, classifier)
        graph = onnx.load_from_string(_trace(gated, example))
    taken = "as the model takes them" if prepare is None else "pixels in [0, 1]"
    onnx.helper.set_model_props(graph, describe_gate(gate, taken, trained))
    with replacing(Path(path)) as file:
        file.write(graph.SerializeToString())


class _GatedClassifier(nn.Module):
    """Run the classifier, both scores and both thresholds as one module."""

    def __init__(self, gate: Gate, classifier: Classifier, prepare: Prepare | None) -> None:
        super().__init__()
        self.gate, self.classifier, self.prepare = gate, classifier, prepare
        self.model = classifier.model  # its parameters are this module's

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.prepare is not None:
            mean = torch.tensor(self.prepare.mean, dtype=torch.float32).view(-1, 1, 1)
            std = torch.tensor(self.prepare.std, dtype=torch.float32).view(-1, 1, 1)
            images = (images - mean) / std
        outputs = _read_outputs(self.classifier(images), self.classifier)
        label = outputs.predictions
        conf_id = run_chain(self.gate.id, outputs)
        verdict = torch.where(conf_id >= self.gate.tau_id, 0, 1)
        if self.gate.ood is None:
            return label, verdict, conf_id
        conf_ood = run_chain(self.gate.ood, outputs)
        verdict = torch.where(conf_ood >= self.gate.tau_ood, verdict, 2)
        return label, verdict, conf_id, conf_ood


def _read_outputs(captured: Captured, classifier: Classifier) -> TensorOutputs:
    head = classifier.head
    raw = captured.features if captured.raw is None else captured.raw
    return TensorOutputs(
        logits=captured.logits.double(),
        features=captured.features.double(),
        predictions=captured.logits.argmax(dim=1),
        raw=raw.double(),
        weight=to_tensor(head.weight),
        bias=to_tensor(head.bias),
        learned={name: value.double() for name, value in captured.learned.items()},
    )


def _trace(gated: _GatedClassifier, example: Tensor) -> bytes:
    """Export the module by tracing, which follows the hooks that capture features."""
    names = ["label", "verdict", "conf_id"]
    if gated.gate.ood is not None:
        names.append("conf_ood")
    buffer = io.BytesIO()
    with silence_graph_log():
        torch.onnx.export(
            gated,
            (example,),
            buffer,  # type: ignore[arg-type]
            input_names=["images"],
            output_names=names,
            dynamic_axes={name: {0: "N"} for name in ["images", *names]},
            opset_version=OPSET,
            dynamo=False,
        )
    return buffer.getvalue()


@contextmanager
def silence_graph_log() -> Iterator[None]:
    """Keep the tracer from printing the whole graph when it fails, which it does in every mode.

    Yields
    ------
    None
        While the tracer may run.
    """
    log = getattr(torch._C, "_jit_onnx_log", None)
    if log is None:
        yield
        return
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = log


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set a network to evaluation mode while open, without gradients; each module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def explain_tracer_errors() -> Iterator[None]:
    """Turn the many errors of the tracer, which hold the whole graph, into one line.

    Yields
    ------
    None
        While the tracer may run.

    Raises
    ------
    InvalidInput
        With the first line of whatever the tracer raises.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer warns of every shape check, and that it is deprecated
            yield
    except TwofoldError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise InvalidInput(
            f"this network cannot be written to ONNX: {type(error).__name__}: {reason}; "
            "replace that operation, or decide with Gate.decide"
        ) from error


def _trained_shape(trained: TrainedInput, shape: Sequence[int] | None) -> Sequence[int] | None:
    """Return the shape of one input in training; raise if another one is asked for."""
    if trained.size is None:
        return shape
    own = (3, *trained.size)
    if shape is not None and tuple(shape) != own:
        raise InvalidInput(f"shape={tuple(shape)} is not that of the training, {own}; leave it out to use the latter")
    return own


def describe_gate(gate: Gate, inputs: str, trained: TrainedInput | None = None) -> dict[str, str]:
    """Describe the gate for the reader of the file.

    Parameters
    ----------
    gate : Gate
        The gate.
    inputs : str
        What the graph takes.
    trained : TrainedInput, optional
        Size and normalisation of the training images.

    Returns
    -------
    dict of str to str
        Metadata, each value as JSON.
    """
    from twofold import __version__

    facts: dict[str, object] = {
        "verdicts": VERDICTS,
        "id": gate.id.spec,
        "ood": None if gate.ood is None else gate.ood.spec,
        "tau_id": repr(gate.tau_id),
        "tau_ood": repr(gate.tau_ood),
        "class_names": gate.class_names,
        "images": inputs,
        "input": None if trained is None else trained.to_mapping(),
        "version": __version__,
    }
    return {f"twofold.{name}": json.dumps(value) for name, value in facts.items()}


def _check_device_and_type(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise InvalidInput(
                f"the model must be float32 on the CPU to be written, got {parameter.dtype} on {parameter.device}; "
                "pass model.float().cpu()"
            )


def _check_fit(gate: Gate, classifier: Classifier) -> None:
    """Raise an error if the gate was fitted for another classifier."""
    if classifier.classes != gate.classes:
        raise InvalidInput(f"this gate is for {gate.classes} classes, the model has {classifier.classes}")
    own = head_fingerprint([gate.id, gate.ood], classifier.head)
    if gate.head and own and gate.head != own:
        raise InvalidInput("the model has another last layer than the gate was fitted with; it is another model")
