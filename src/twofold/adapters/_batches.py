"""Run a network and a gate, or an ONNX gate, on batches of columns: what Ray Data and Spark hand over."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from twofold._checks import AnyArray, whole
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Decision, Gate
from twofold.gate.schema import VERDICTS
from twofold.outputs import Outputs

if TYPE_CHECKING:
    from torch import nn

    from twofold.nn import Classifier
    from twofold.nn.extraction import Prepare

Columns = dict[str, AnyArray]
Output = Literal["logits", "features"]


class BatchPredictor:
    """Run a classifier, and a gate if there is one, on batches of a table; or run a gate that is an ONNX file.

    Pass the class to ``map_batches`` of Ray Data, which builds one object in each worker. A call takes the columns of a
    batch as arrays by name and returns them with the outputs added, in place of the images.

    Parameters
    ----------
    model : str, path-like, nn.Module or Classifier
        A file that ends in ``.onnx``, as :meth:`twofold.Gate.to_onnx` writes it; a model as :func:`twofold.nn.load`
        takes it, such as a training folder; or the network itself.
    gate : str, path-like or Gate, optional
        A saved gate, or its folder. With it, ``prediction``, ``verdict``, ``conf_id`` and ``conf_ood`` are added. An
        ONNX file holds its gate.
    images : str, default="images"
        The column with the inputs: uint8 images (H, W, 3), encoded image files (bytes), or float32 inputs as the model
        takes them.
    shape : sequence of int, optional
        Shape of one input, where the column holds flat lists of numbers or raw bytes.
    outputs : sequence of {"logits", "features"}, default=("logits", "features")
        Outputs of the network to add. An ONNX file has none.
    batch : int, default=256
        Largest number of rows that the network sees at once.
    prepare : Prepare, optional
        Normalisation of uint8 images, by default that of the training, where the model carries it; else a division by
        255.
    checkpoint : str, optional
        Weights to load into a model that is named by text.
    classes : int, optional
        Number of classes of a model that is built by name.
    head : str, optional
        Name of the last linear layer; by default it is found.
    device : str, default="cpu"
        Where the network runs.

    Raises
    ------
    InvalidInput
        If settings do not fit together, or the gate was fitted for another model.
    MissingExtra
        If torch, or onnxruntime for an ONNX file, is not installed.

    Notes
    -----
    The network runs on the same code path as :func:`twofold.nn.extract`. Where batches are cut alike, logits and
    features are equal to the last bit.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | nn.Module | Classifier,
        *,
        gate: str | os.PathLike[str] | Gate | None = None,
        images: str = "images",
        shape: Sequence[int] | None = None,
        outputs: Sequence[Output] = ("logits", "features"),
        batch: int = 256,
        prepare: Prepare | None = None,
        checkpoint: str | None = None,
        classes: int | None = None,
        head: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.images = images
        self.shape = None if shape is None else tuple(shape)
        self.batch = whole(batch, "batch", 1)
        self._run: Callable[[AnyArray], Columns]
        if isinstance(model, str | os.PathLike) and str(model).endswith(".onnx"):
            if gate is not None:
                raise InvalidInput("an ONNX file holds its gate; leave gate= out")
            self._run = _OnnxGate(str(model))
            return
        for name in outputs:
            if name not in ("logits", "features"):
                raise InvalidInput(f"outputs must be logits or features, got {name!r}")
        opened = Gate.load(gate) if isinstance(gate, str | os.PathLike) else gate
        if opened is None and not outputs:
            raise InvalidInput("there is nothing to compute: pass gate= or outputs=")
        classifier = _load_classifier(model, checkpoint, classes, head)
        self._run = _GatedNetwork(classifier, opened, tuple(outputs), prepare, device)

    def __call__(self, batch: Mapping[str, AnyArray]) -> Columns:
        """Compute the outputs of a batch.

        Parameters
        ----------
        batch : mapping of str to ndarray
            The columns of some rows.

        Returns
        -------
        dict of str to ndarray
            All columns but the images, and the outputs.

        Raises
        ------
        InvalidInput
            If the column of images is missing or holds something else, or an output has the name of another column.
        """
        if self.images not in batch:
            raise InvalidInput(f"images={self.images!r} is no column; the table has {', '.join(map(str, batch))}")
        inputs = _read_inputs(batch[self.images], self.shape, self.images)
        parts = [self._run(inputs[first : first + self.batch]) for first in range(0, len(inputs), self.batch)]
        result = {name: column for name, column in batch.items() if name != self.images}
        for name in parts[0]:
            if name in result:
                raise InvalidInput(f"the table has a column {name!r} already; rename it before the network runs")
            result[name] = np.concatenate([part[name] for part in parts])
        return result


class _GatedNetwork:
    """Hold a network on its device, and a gate."""

    def __init__(
        self,
        classifier: Classifier,
        gate: Gate | None,
        outputs: tuple[str, ...],
        prepare: Prepare | None,
        device: str,
    ) -> None:
        from twofold.nn.device import check_device
        from twofold.nn.extraction.recording import Recorder
        from twofold.nn.extraction.stored import recall_input

        self.classifier, self.gate, self.outputs = classifier, gate, outputs
        self.device = check_device(device)
        classifier.model.to(self.device).eval()
        self.trained = recall_input(classifier.model)
        if self.trained is not None:
            self.trained.check_normalisation(prepare)
            prepare = self.trained.image_input.prepare
        self.prepare = prepare
        self.recorder = Recorder(
            classifiers=[classifier],
            device=self.device,
            dtype=np.dtype(np.float32),
            layers=(),
            passes=0,
            keep_passes=False,
            learned={},
            seed=0,
            has_known_classes=True,
        )

    def __call__(self, inputs: AnyArray) -> Columns:
        arrays = self.recorder.record(self._read(inputs), range(len(inputs)))
        columns = {name: arrays[name] for name in self.outputs}
        if self.gate is not None:
            columns |= decision_columns(self.gate.decide(self._outputs(arrays)))
        return columns

    def _read(self, inputs: AnyArray) -> Any:
        """Turn images into a batch of the network, as an extraction does; floats are taken as they are."""
        import torch

        from twofold.nn.data import Images
        from twofold.nn.extraction.reading import InputBatch, RowReader

        if inputs.dtype != np.uint8 and inputs.dtype != object:
            return InputBatch(torch.from_numpy(np.array(inputs, dtype=np.float32)))
        source = _DecodedImages(list(inputs)) if inputs.dtype == object else inputs
        images: Any = Images.of(source, name="images")
        if self.trained is not None:
            images = self.trained.fit(images, "far")  # a role whose labels are not looked at
        return RowReader.of(images, self.prepare).read(range(len(inputs)))

    def _outputs(self, arrays: Mapping[str, AnyArray]) -> Outputs:
        layers, learned = {}, {}
        for name, array in arrays.items():
            kind, _, rest = name.partition("/")
            if kind == "layers":
                layers[rest] = array
            elif kind == "learned":
                learned[rest] = array
        return Outputs(
            arrays["logits"],
            features=arrays["features"],
            head=self.classifier.head,
            layers=layers or None,
            learned=learned or None,
        )


class _OnnxGate:
    """Hold a session of ONNX Runtime with a gate in it."""

    def __init__(self, path: str) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtra('an ONNX gate needs onnxruntime: pip install "twofold[torch]"') from error
        if not Path(path).is_file():
            raise InvalidInput(f"{path} is not a file; write it with Gate.to_onnx")
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in self.session.get_outputs()]
        if "verdict" not in names:
            raise InvalidInput(f"{path} has the outputs {', '.join(names)} and no verdict; write it with Gate.to_onnx")
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.takes_pixels = json.loads(metadata.get("twofold.images", '""')) == "pixels in [0, 1]"

    def __call__(self, inputs: AnyArray) -> Columns:
        return run_session(self.session, self._read(inputs))

    def _read(self, inputs: AnyArray) -> AnyArray:
        """Turn uint8 images into pixels in [0, 1], channels first; floats are taken as they are."""
        if inputs.dtype == object:
            sizes = {image.shape for image in inputs}
            if len(sizes) > 1:
                raise InvalidInput(f"an ONNX gate takes images of one size, got {len(sizes)} sizes; resize them first")
            inputs = np.stack(list(inputs))
        if inputs.dtype != np.uint8:
            return np.ascontiguousarray(inputs, dtype=np.float32)
        if not self.takes_pixels:
            raise InvalidInput(
                "this ONNX file takes inputs as its network does; normalise the images first, or write the file with "
                "prepare="
            )
        scaled = inputs.astype(np.float32) / np.float32(255.0)
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))


def run_session(session: Any, images: AnyArray) -> Columns:
    """Run an ONNX gate and name its outputs as columns of predictions."""
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"images": images}), strict=True))
    columns = {"prediction": found["label"], "verdict": np.array(VERDICTS)[found["verdict"]]}
    for name in ("conf_id", "conf_ood"):
        if name in found:
            columns[name] = found[name]
    return columns


@dataclass(frozen=True, eq=False)
class _DecodedImages:
    """Images of any size, decoded."""

    pixels: Sequence[AnyArray]

    def __len__(self) -> int:
        return len(self.pixels)

    def raw(self, rows: AnyArray) -> list[AnyArray]:
        return [self.pixels[row] for row in rows.tolist()]

    def where(self, row: int) -> str:
        return f"image {row} of the batch"


def _load_classifier(model: Any, checkpoint: str | None, classes: int | None, head: str | None) -> Classifier:
    """Build the network that a text names, or wrap the one that is given."""
    try:
        from twofold.nn import Classifier, load
    except ModuleNotFoundError as error:
        if str(error.name).startswith("twofold"):
            raise
        raise MissingExtra('a network needs torch: pip install "twofold[torch]"') from error
    if not isinstance(model, str | os.PathLike):
        if checkpoint is not None or classes is not None:
            raise InvalidInput("checkpoint= and classes= are for a model that is named by text")
        return model if isinstance(model, Classifier) else Classifier(model, head=head)
    from twofold.nn.extraction.stored import find_input, remember_input

    network = load(str(model), classes=classes, checkpoint=checkpoint)
    remember_input(network, find_input([checkpoint, str(model)]))
    return Classifier(network, head=head)


def _read_inputs(column: AnyArray, shape: tuple[int, ...] | None, name: str) -> AnyArray:
    """Return inputs as one array of numbers, or as an object array of decoded images of any size."""
    values = np.asarray(column)
    if len(values) == 0:
        raise InvalidInput(f"column {name!r} has no rows")
    if values.dtype == object:
        values = _unpack(list(values), shape, name)
    if values.dtype != object and shape is not None and values.shape[1:] != shape:
        try:
            values = values.reshape(len(values), *shape)
        except ValueError as error:
            raise InvalidInput(
                f"column {name!r} holds inputs of {values[0].size} numbers, not shape={shape}"
            ) from error
    if values.dtype == object or values.dtype == np.uint8 or values.dtype.kind == "f":
        return values
    raise InvalidInput(f"column {name!r} must hold uint8 images, encoded images or floats, got {values.dtype}")


def _unpack(values: list[Any], shape: tuple[int, ...] | None, name: str) -> AnyArray:
    """Unpack a column of Python objects: raw bytes of a known shape, image files, or arrays."""
    if isinstance(values[0], bytes | bytearray | memoryview) and shape is not None:
        return np.stack([np.frombuffer(value, np.uint8) for value in values])
    if isinstance(values[0], bytes | bytearray | memoryview):
        from twofold.nn.data.decoding import decode_file

        decoded = [
            decode_file(io.BytesIO(value), f"{name}, row {row} of the batch") for row, value in enumerate(values)
        ]
        return _object_array(decoded)
    arrays = [np.asarray(value) for value in values]
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    return _object_array(arrays)


def _object_array(values: Sequence[AnyArray]) -> AnyArray:
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        result[row] = value
    return result


def decision_columns(decision: Decision) -> Columns:
    columns: Columns = {"prediction": decision.labels, "verdict": decision.verdict, "conf_id": decision.conf_id}
    if decision.conf_ood is not None:
        columns["conf_ood"] = decision.conf_ood
    return columns
