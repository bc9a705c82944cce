"""Write a gate and the scikit-learn estimator it was fitted for to one ONNX file, through skl2onnx."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold._files import replacing
from twofold._math import SMALLEST_NORMAL
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate.gate import Gate
from twofold.nn.onnx._stable import to_tensor
from twofold.nn.onnx.export import OPSET, describe_gate, explain_tracer_errors, silence_graph_log
from twofold.nn.onnx.limits import check_chain
from twofold.nn.onnx.steps import TensorOutputs, run_chain
from twofold.outputs import Head

ML_OPSET = 3  # operators of ai.onnx.ml: trees in float64
INPUT = "inputs"


@dataclass(frozen=True, eq=False)
class EstimatorParts:
    """Say where the logits and features of an estimator come from.

    Parameters
    ----------
    estimator : object
        A fitted estimator of scikit-learn.
    transformer : object or None
        The steps before its last one, whose result are the features; None where the inputs are.
    head : Head or None
        The linear layer whose logits the gate reads; None where it reads log p of the estimator's probabilities.
    """

    estimator: Any
    transformer: Any = None
    head: Head | None = None


def estimator_to_onnx(gate: Gate, parts: EstimatorParts, path: str | os.PathLike[str]) -> None:
    """Write a gate and a scikit-learn estimator to one ONNX file.

    The input of the graph is ``inputs``, float64 of shape ``(N, D)``. Its outputs are those of
    :func:`twofold.nn.onnx.to_onnx`; ``label`` is the place of a class in ``classes_``.

    Parameters
    ----------
    gate : Gate
        A gate that was fitted on the outputs of the estimator.
    parts : EstimatorParts
        The fitted estimator, and what the gate reads of it.
    path : str or path-like
        The file to write.

    Raises
    ------
    MissingExtra
        If ``onnx`` or ``skl2onnx`` is not installed.
    InvalidInput
        If the estimator takes something else than rows of numbers, skl2onnx cannot convert it, or ONNX cannot hold a
        score.

    Notes
    -----
    Everything is computed in float64, except that ONNX has trees with probabilities in float32 only: where two classes
    tie, or a confidence lies within rounding of its threshold, a forest may give another label or verdict than Python.
    """
    onnx = _import_onnx()
    columns = getattr(parts.estimator, "n_features_in_", None)
    if columns is None:
        raise InvalidInput(
            f"{type(parts.estimator).__name__} does not say how many columns it takes (n_features_in_); only "
            "estimators of rows of numbers can be written to ONNX"
        )
    check_chain(gate.id)
    if gate.ood is not None:
        check_chain(gate.ood)
    graphs = []
    links = {}
    width = columns
    if parts.transformer is not None:
        graph = _convert(parts.transformer, columns, "features_")
        links["features"] = graph.graph.output[0].name
        graphs.append(graph)
        width = parts.transformer.transform(_zeros(columns)).shape[1]
    else:
        links["features"] = INPUT
    if parts.head is None:
        graph = _convert(parts.estimator, columns, "estimator_")
        links["probabilities"] = graph.graph.output[1].name
        graphs.append(graph)
    graphs.append(onnx.compose.add_prefix(_trace_gate(gate, parts.head, width), "gate_"))
    model = _join(graphs, links, columns)
    onnx.helper.set_model_props(model, describe_gate(gate, "rows of numbers as the estimator takes them"))
    with replacing(Path(path)) as file:
        file.write(model.SerializeToString())


def _import_onnx() -> Any:
    """Import onnx, and say what to install where it or skl2onnx is missing."""
    try:
        import onnx
        import onnx.compose
        import skl2onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            f'an estimator needs {error.name} to be written: pip install "twofold[sklearn-onnx]"'
        ) from error
    return onnx


def _zeros(columns: int) -> Any:
    import numpy as np

    return np.zeros((1, columns))


def _convert(model: Any, columns: int, prefix: str) -> Any:
    """Convert an estimator or a transformer in float64; its input keeps its name, all else gets a prefix."""
    import onnx.compose
    import skl2onnx
    from skl2onnx.common.data_types import DoubleTensorType

    options = {"zipmap": False} if hasattr(model, "classes_") else None
    try:
        graph = skl2onnx.to_onnx(
            model,
            initial_types=[(INPUT, DoubleTensorType([None, columns]))],
            options=options,
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
        )
    except Exception as error:  # skl2onnx has no common base of its errors
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(f"skl2onnx cannot convert {type(model).__name__}: {reason}") from error
    return onnx.compose.add_prefix(graph, prefix)


class _GatedOutputs(nn.Module):
    """Run both scores and both thresholds on what an estimator returns."""

    def __init__(self, gate: Gate, head: Head | None) -> None:
        super().__init__()
        self.gate = gate
        self.weight = None if head is None else to_tensor(head.weight)
        self.bias = None if head is None else to_tensor(head.bias)

    def forward(self, features: Tensor, probabilities: Tensor | None = None) -> tuple[Tensor, ...]:
        if probabilities is None:
            assert self.weight is not None
            assert self.bias is not None
            logits = features @ self.weight.T + self.bias
            label = logits.argmax(dim=1)
        else:
            logits = probabilities.clamp(min=SMALLEST_NORMAL).log()
            label = probabilities.argmax(dim=1)
        outputs = TensorOutputs(logits, features, label, features, self.weight, self.bias, {})
        conf_id = run_chain(self.gate.id, outputs)
        verdict = torch.where(conf_id >= self.gate.tau_id, 0, 1)
        if self.gate.ood is None:
            return label, verdict, conf_id
        conf_ood = run_chain(self.gate.ood, outputs)
        verdict = torch.where(conf_ood >= self.gate.tau_ood, verdict, 2)
        return label, verdict, conf_id, conf_ood


def _trace_gate(gate: Gate, head: Head | None, width: int) -> Any:
    """Export the gate alone, from features and probabilities to verdicts."""
    import onnx

    outputs = ["label", "verdict", "conf_id"]
    if gate.ood is not None:
        outputs.append("conf_ood")
    examples = [torch.rand((2, width), dtype=torch.float64)]
    inputs = ["features"]
    if head is None:
        examples.append(torch.rand((2, gate.classes), dtype=torch.float64).softmax(dim=1))
        inputs.append("probabilities")
    buffer = io.BytesIO()
    with explain_tracer_errors(), silence_graph_log(), torch.no_grad():
        torch.onnx.export(
            _GatedOutputs(gate, head),
            tuple(examples),
            buffer,  # type: ignore[arg-type]
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: {0: "N"} for name in [*inputs, *outputs]},
            opset_version=OPSET,
            dynamo=False,
        )
    return onnx.load_from_string(buffer.getvalue())


def _join(graphs: list[Any], links: Mapping[str, str], columns: int) -> Any:
    """Join graphs whose names do not clash: all read the one input, and the last one reads what the others return."""
    from onnx import TensorProto, helper

    nodes, initializers, functions = [], [], []
    imports: dict[str, int] = {}
    for model in graphs:
        for given in model.graph.input:
            role = given.name.split("_", 1)[1]
            source = INPUT if role == INPUT else links[role]
            nodes.append(helper.make_node("Cast", [source], [given.name], to=TensorProto.DOUBLE))  # trees give float32
        nodes += model.graph.node
        initializers += model.graph.initializer
        functions += model.functions
        for one in model.opset_import:
            imports[one.domain] = max(one.version, imports.get(one.domain, 0))
    results = []
    for output in graphs[-1].graph.output:
        name = output.name.split("_", 1)[1]
        nodes.append(helper.make_node("Identity", [output.name], [name]))
        results.append(helper.make_tensor_value_info(name, output.type.tensor_type.elem_type, ["N"]))
    entry = helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["N", columns])
    graph = helper.make_graph(nodes, "twofold", [entry], results, initializers)
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return helper.make_model(
        graph,
        opset_imports=opsets,
        functions=functions,
        ir_version=max(model.ir_version for model in graphs),
        producer_name="twofold",
    )
