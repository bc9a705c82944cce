"""Run PyTorch networks, and models, pipelines and folders of Hugging Face, and take their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from twofold._checks import AnyArray
from twofold.errors import InvalidInput
from twofold.nn import data as nn_data
from twofold.nn.data import Images, Texts
from twofold.nn.extraction.prepare import Prepare
from twofold.nn.extraction.reading import RowReader
from twofold.nn.extraction.recording import move_to
from twofold.nn.extraction.stored import find_input, recall_input, remember_input
from twofold.nn.extraction.tokens import class_names_of, label_numbers, load_tokenizer, tokenize
from twofold.nn.models import Classifier, load
from twofold.nn.models.head import find_logits
from twofold.nn.models.hugging_face import LOCAL_ONLY
from twofold.outputs import Head, Outputs
from twofold.wrapping.classifiers import OutputSource, check_class_names, naming_data
from twofold.wrapping.rows import count_rows, is_table, read_labelled


def load_network(place: str) -> nn.Module:
    """Load a network from text: a folder of ``twofold train`` or of Hugging Face, or any model of ``twofold.nn.load``.

    Parameters
    ----------
    place : str
        The folder, or what :func:`twofold.nn.load` takes.

    Returns
    -------
    torch.nn.Module
        The network; one of a training folder carries the size and normalisation of its input.
    """
    folder = Path(place)
    if (folder / "config.json").is_file() and not (folder / "model.json").is_file():
        return load(f"hf:{place}")
    model = load(place)
    remember_input(model, find_input([place]))
    return model


class NetworkSource(OutputSource):
    """Run a PyTorch network on tensors, images or texts.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It is moved to ``device`` and run in evaluation mode without gradients.
    tokenizer : object, optional
        Tokenizer of a text classifier; by default the one beside its weights.
    image_processor : object, optional
        Image processor of a Hugging Face model; by default the one beside its weights, if images are passed.
    prepare : callable, optional
        Turns uint8 images (B, H, W, 3) into inputs; by default that of the training, where the network carries it.
    head : str, optional
        Name of the last linear layer; by default it is found.
    batch : int, default=64
        Rows in a batch.
    device : str or torch.device, default="cpu"
        Where the network runs.
    names : sequence, optional
        What the classes are called; by default as the network says.
    """

    kind = "PyTorch module"

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: Any = None,
        image_processor: Any = None,
        prepare: Any = None,
        head: str | None = None,
        batch: int = 64,
        device: str | torch.device = "cpu",
        names: Sequence[object] | None = None,
    ) -> None:
        self.model = model.to(device).eval()
        self.classifier: Classifier | None = Classifier(model, head=head)
        self.is_head_named = head is not None
        self.head: Head | None = None
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.prepare = prepare
        self.batch = batch
        self.device = torch.device(device)
        self.trained = recall_input(model)
        if self.trained is not None and isinstance(prepare, Prepare):
            self.trained.check_normalisation(prepare)
        self.is_named_by_caller = names is not None
        self.names = check_class_names(names) if self.is_named_by_caller else self._own_names()
        if hasattr(model, "config") and hasattr(model, "name_or_path"):
            self.kind = f"Hugging Face {type(model).__name__}"

    def _own_names(self) -> tuple[object, ...] | None:
        if self.trained is not None and self.trained.class_names is not None:
            return self.trained.class_names
        return class_names_of(self.model)

    @property
    def classes(self) -> Sequence[object] | None:
        """The class names that the network carries, or that the caller passed."""
        return self.names

    def run(self, data: object, name: str, *, known: bool) -> Outputs:
        """Run the network on a data set.

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
        self.model.eval()  # the caller may have trained it since
        if isinstance(data, str) and ":" in data and data.partition(":")[0] in nn_data.READERS:
            data = nn_data.open_any(data)
        if isinstance(data, Images):
            return self._run_images(data, known=known)
        if isinstance(data, Texts):
            outputs = self._run_texts(data.texts)
            if not known:
                return outputs.replace(labels=np.full(len(outputs), -1))
            return outputs.replace(labels=data.number_classes(label_numbers(self.model)))
        if isinstance(data, DataLoader) or _is_dataset(data):
            with naming_data(self, name, data):
                return self._run_reader(RowReader.of(data, self.prepare), name, known=known)
        rows = read_labelled(data, name)
        with naming_data(self, name, rows.inputs):
            count = 1 if isinstance(rows.inputs, str) else count_rows(rows.inputs)
            if count == 0:
                raise InvalidInput("there are no inputs; pass at least one row")
            outputs = self._run_inputs(rows.inputs)
            if len(outputs) != count:
                raise InvalidInput(
                    f"the {self.kind} returned {len(outputs)} rows for {count} inputs; it must return one each"
                )
        if rows.labels is None and known:
            return outputs
        return self.with_labels(outputs, rows.labels, name, known=known)

    def _run_images(self, images: Images, *, known: bool) -> Outputs:
        """Run the network on images of twofold.nn, brought to the size of the training."""
        prepare = self.prepare
        if self.trained is not None:
            images = self.trained.fit(images, "val" if known else "far")  # type: ignore[assignment]  # Images again
            prepare = prepare or self.trained.image_input.prepare
        return self._run_reader(RowReader.of(images, prepare), images.name, known=known)

    def _run_reader(self, reader: RowReader, name: str, *, known: bool) -> Outputs:
        if reader.rows == 0:
            raise InvalidInput(f"{name} has no rows; pass at least one")
        parts, labels = [], []
        for start in range(0, reader.rows, self.batch):
            batch = reader.read(range(start, min(start + self.batch, reader.rows)))
            parts.append(self._run_batch(batch.inputs))
            if batch.labels is not None:
                labels.append(batch.labels)
        outputs = self._join(parts)
        if known and not labels:
            return outputs
        return self.with_labels(outputs, np.concatenate(labels).tolist() if labels else None, name, known=known)

    def _run_texts(self, texts: Sequence[str]) -> Outputs:
        """Run a text classifier in batches sorted by length; outputs are in the order of the texts."""
        if self.tokenizer is None:
            self.tokenizer = load_tokenizer(self.model)
        tokens = tokenize(list(texts), self.tokenizer, self.model)
        order = np.argsort(tokens.lengths, kind="stable")
        parts = []
        for start in range(0, len(order), self.batch):
            parts.append(self._run_batch(tokens.batch(order[start : start + self.batch].tolist())))
        return self._join(parts, places=np.argsort(order))

    def _run_inputs(self, inputs: Any) -> Outputs:
        """Run the network on inputs in memory."""
        if isinstance(inputs, str):
            inputs = [inputs]
        first = inputs[0] if isinstance(inputs, list | tuple) and inputs else None
        if isinstance(first, str):
            return self._run_texts(inputs)
        if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "UO" and isinstance(inputs.flat[0], str):
            return self._run_texts(inputs.tolist())
        if _is_pixels(inputs):
            if self.trained is not None or self.prepare is not None:
                return self._run_images(Images.of(np.asarray(inputs)), known=True)
            raise InvalidInput(
                "uint8 images need a normalisation: pass prepare=twofold.nn.extraction.Prepare(mean, std), or tensors "
                "as the network takes them"
            )
        if _is_picture(first):
            return self._join([self._run_batch(batch) for batch in self._process_pictures(inputs)])
        count = count_rows(inputs)
        parts = []
        for start in range(0, count, self.batch):
            parts.append(self._run_batch(_slice_rows(inputs, slice(start, min(start + self.batch, count)))))
        return self._join(parts)

    def _process_pictures(self, pictures: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        """Prepare pictures with the image processor of a Hugging Face model."""
        if self.image_processor is None:
            import transformers

            place = getattr(self.model, "name_or_path", "")
            if not place:
                raise InvalidInput("pictures need an image processor; wrap the pipeline, or pass tensors")
            processors: Any = transformers.AutoImageProcessor  # which has no types
            self.image_processor = processors.from_pretrained(place, **LOCAL_ONLY)
        for start in range(0, len(pictures), self.batch):
            some = [picture.convert("RGB") for picture in pictures[start : start + self.batch]]
            yield dict(self.image_processor(images=some, return_tensors="pt"))

    def _run_batch(self, inputs: Any) -> dict[str, AnyArray]:
        """Run the network on one batch; where no linear head is found, logits are all there is."""
        moved = move_to(_to_tensors(inputs), self.device)
        with torch.inference_mode():
            if self.classifier is None:
                output = self.model(**moved) if isinstance(moved, Mapping) else self.model(moved)
                return {"logits": find_logits(output).float().cpu().numpy()}
            try:
                captured = self.classifier(moved)
            except InvalidInput as error:
                if self.is_head_named or "no linear layer gives" not in str(error):
                    raise
                self.classifier = None
                return self._run_batch(inputs)
        if self.head is None:
            self.head = self.classifier.head
        fields = {"logits": captured.logits.float().cpu().numpy(), "features": captured.features.cpu().numpy()}
        if captured.raw is not None:
            fields["layers/penultimate/raw"] = captured.raw.cpu().numpy()
        for key, value in captured.learned.items():
            fields[f"learned/{key}"] = value.float().cpu().numpy()
        return fields

    def _join(self, parts: Sequence[dict[str, AnyArray]], places: AnyArray | None = None) -> Outputs:
        """Concatenate batches, and bring their rows back to the order of the inputs.

        The head law was checked when the head was found, so the arrays are only looked at for NaN.
        """
        joined: dict[str, AnyArray] = {}
        for key in parts[0]:
            values = np.concatenate([part[key] for part in parts]) if len(parts) > 1 else parts[0][key]
            joined[key] = values if places is None else values[places]
        outputs = Outputs(joined["logits"])
        if self.is_named_by_caller and self.names is not None and len(self.names) != outputs.classes:
            raise InvalidInput(
                f"class_names has {len(self.names)} names and the {self.kind} returns {outputs.classes} classes; name "
                "each once, in the order of the outputs"
            )
        if "features" not in joined:
            return outputs
        if not np.isfinite(joined["features"]).all():
            raise InvalidInput("the network returns features that are not finite")
        changes: dict[str, object] = {"features": joined["features"], "head": self.head}
        layers = {key.removeprefix("layers/"): value for key, value in joined.items() if key.startswith("layers/")}
        learned = {key.removeprefix("learned/"): value for key, value in joined.items() if key.startswith("learned/")}
        if layers:
            changes["layers"] = layers
        if learned:
            changes["learned"] = learned
        return outputs.derived(changes)

    def export(self, gate: Any, path: str, **options: Any) -> None:
        """Write the network with its gate to an ONNX file.

        Parameters
        ----------
        gate : Gate
            The gate.
        path : str
            The file.
        **options
            As :meth:`twofold.Gate.to_onnx` takes them.
        """
        gate.to_onnx(self.classifier or self.model, path, **options)


def source_of_pipeline(pipeline: Any, **options: Any) -> NetworkSource:
    """Make a source of a Hugging Face pipeline for texts or images.

    Parameters
    ----------
    pipeline : transformers.Pipeline
        Of the task text-classification or image-classification.
    **options
        As :class:`NetworkSource` takes them.

    Returns
    -------
    NetworkSource
        The network of the pipeline, with its tokenizer and image processor.

    Raises
    ------
    InvalidInput
        If the pipeline has another task.
    """
    if pipeline.task not in ("text-classification", "sentiment-analysis", "image-classification"):
        raise InvalidInput(f"a pipeline for {pipeline.task} is not a classifier of texts or images")
    source = NetworkSource(
        pipeline.model,
        tokenizer=getattr(pipeline, "tokenizer", None),
        image_processor=getattr(pipeline, "image_processor", None),
        **options,
    )
    source.kind = f"Hugging Face pipeline ({pipeline.task})"
    return source


def _is_dataset(data: object) -> bool:
    """Tell whether data are a map-style data set of PyTorch."""
    from torch.utils.data import Dataset

    return isinstance(data, Dataset) and not is_table(data)


def _is_pixels(inputs: Any) -> bool:
    """Tell whether inputs are uint8 images, as arrays or a tensor."""
    return hasattr(inputs, "ndim") and inputs.ndim >= 3 and str(inputs.dtype).endswith("uint8")


def _is_picture(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "getbands")


def _slice_rows(inputs: Any, rows: slice) -> Any:
    if isinstance(inputs, Mapping):
        return {name: value[rows] for name, value in inputs.items()}
    return inputs[rows]


def _to_tensors(inputs: Any) -> Any:
    """Convert arrays to tensors; floats become float32, as networks take them."""
    if isinstance(inputs, Mapping):
        return {name: _to_tensors(value) for name, value in inputs.items()}
    if isinstance(inputs, Tensor):
        return inputs
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Tensor):
        return torch.stack(inputs)
    array = np.asarray(inputs)
    if array.dtype.kind == "f":
        array = array.astype(np.float32, copy=False)
    return torch.from_numpy(np.ascontiguousarray(array))
