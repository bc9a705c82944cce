"""Write a gate and its classifier as a folder that an inference server serves."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from twofold._checks import choice
from twofold.errors import InvalidInput, MissingExtra, RunError
from twofold.gate import Gate

Target = Literal["triton", "openinference", "mlflow"]
TARGETS: tuple[Target, ...] = ("triton", "openinference", "mlflow")
RUNTIME = "twofold.adapters.openinference.OnnxRuntime"
TYPES = {"tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(int64)": "INT64"}  # of the protocol


def export_gate(
    gate: Gate,
    folder: str | os.PathLike[str],
    model: Any,
    *,
    target: Target,
    shape: Sequence[int] | None = None,
    prepare: Any = None,
    head: str | None = None,
) -> Path:
    """Write a gate and its classifier as a folder that an inference server serves.

    ``triton`` writes ``config.pbtxt`` and ``1/model.onnx``, an entry of a model repository of Triton.
    ``openinference`` writes ``model-settings.json`` and ``model.onnx`` for MLServer. Both speak the Open Inference
    Protocol, with the input ``images`` and the outputs ``label``, ``verdict`` (0 accept, 1 unsure, 2 unknown),
    ``conf_id`` and ``conf_ood``. ``mlflow`` writes an MLflow model (:func:`twofold.adapters.mlflow.save_model`).

    Parameters
    ----------
    gate : Gate
        A fitted gate.
    folder : str or path-like
        Folder to write; it must not exist, or be empty. Its name is that of the model.
    model : nn.Module or Classifier
        The classifier, float32 on the CPU.
    target : {"triton", "openinference", "mlflow"}
        The server.
    shape : sequence of int, optional
        Shape of one input; by default that of the training, where the model carries it, else ``(3, 32, 32)``.
    prepare : Prepare, optional
        Normalisation to put inside the file, as in :func:`twofold.nn.to_onnx`.
    head : str, optional
        Name of the last layer; by default it is found.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InvalidInput
        If ``target`` is unknown, or the gate or the model cannot be written to ONNX.
    MissingExtra
        If torch, onnx or, for ``mlflow``, MLflow is not installed.
    RunError
        If the folder holds something.
    """
    choice(target, "target", TARGETS)
    out = Path(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} exists and is not an empty folder; choose a new one")
    out.parent.mkdir(parents=True, exist_ok=True)
    options = {"shape": shape, "prepare": prepare}
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        draft = Path(temporary) / out.name
        if target == "mlflow":
            from twofold.adapters.mlflow import save_model

            save_model(gate, draft, model=model, head_layer=head, **options)
        else:
            WRITERS[target](draft, lambda path: gate.to_onnx(model, path, head=head, **options))
        if out.exists():
            out.rmdir()
        shutil.move(draft, out)  # whole or not at all
    return out


def _write_triton(folder: Path, write_onnx: Callable[[Path], None]) -> None:
    (folder / "1").mkdir(parents=True)
    write_onnx(folder / "1" / "model.onnx")
    inputs, outputs = read_tensors(folder / "1" / "model.onnx")
    lines = [
        'platform: "onnxruntime_onnx"',
        "max_batch_size: 0  # the first dimension of every tensor is the batch, of any size",
        *_triton_tensors("input", inputs),
        *_triton_tensors("output", outputs),
    ]
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _triton_tensors(kind: str, tensors: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for tensor in tensors:
        dims = ", ".join(map(str, tensor["shape"]))
        lines += [
            f"{kind} {{",
            f'  name: "{tensor["name"]}"',
            f"  data_type: TYPE_{tensor['datatype']}",
            f"  dims: [ {dims} ]",
            "}",
        ]
    return lines


def _write_openinference(folder: Path, write_onnx: Callable[[Path], None]) -> None:
    folder.mkdir(parents=True)
    write_onnx(folder / "model.onnx")
    write_settings(folder, folder.name)


def write_settings(folder: Path, name: str) -> None:
    """Write ``model-settings.json`` for the ONNX file of a folder.

    Parameters
    ----------
    folder : Path
        A folder with ``model.onnx``.
    name : str
        Name of the model in requests.
    """
    inputs, outputs = read_tensors(folder / "model.onnx")
    settings = {
        "name": name,
        "implementation": RUNTIME,
        "parameters": {"uri": "./model.onnx"},
        "inputs": inputs,
        "outputs": outputs,
    }
    (folder / "model-settings.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


WRITERS: dict[str, Callable[[Path, Callable[[Path], None]], None]] = {
    "triton": _write_triton,
    "openinference": _write_openinference,
}


def read_tensors(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read the inputs and outputs of an ONNX file, in the words of the Open Inference Protocol.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    inputs, outputs : list of dict
        ``name``, ``datatype`` and ``shape`` of each tensor; -1 is any size.

    Raises
    ------
    InvalidInput
        If a tensor has a type that the protocol does not name here.
    MissingExtra
        If onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra('exporting needs onnxruntime: pip install "twofold[torch]"') from error
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return _describe(session.get_inputs()), _describe(session.get_outputs())


def _describe(nodes: Sequence[Any]) -> list[dict[str, Any]]:
    tensors = []
    for node in nodes:
        if node.type not in TYPES:
            raise InvalidInput(f"{node.name} has the type {node.type}, which is none of {', '.join(TYPES)}")
        shape = [size if isinstance(size, int) else -1 for size in node.shape]
        tensors.append({"name": node.name, "datatype": TYPES[node.type], "shape": shape})
    return tensors
