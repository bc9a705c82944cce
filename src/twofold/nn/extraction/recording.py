"""What is stored of a batch: outputs of the network, of its layers, of stochastic passes and of ensembles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput
from twofold.nn.dropout import row_keys, switch_on
from twofold.nn.extraction import dropout
from twofold.nn.extraction.layers import collect_layer_statistics
from twofold.nn.extraction.reading import InputBatch, RowNumbers
from twofold.nn.models import Captured, Classifier
from twofold.nn.models.head import Batch
from twofold.nn.perturb import Perturbation
from twofold.outputs import PASS_ARRAYS, Passes

Array: TypeAlias = npt.NDArray[Any]  # of any type: NumPy's own generic argument
Arrays: TypeAlias = dict[str, Array]  # by field of the store, rows first

SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class Recorder:
    """Compute what is stored of a batch.

    Parameters
    ----------
    classifiers : sequence of Classifier
        The network, or the members of an ensemble.
    device : torch.device
        Where they run.
    dtype : numpy.dtype
        Type of stored features and layer statistics; everything else is float32.
    layers : sequence of str or bool
        Names of modules, or True for all blocks, whose statistics are recorded.
    passes : int
        Number of stochastic passes; 0 for none.
    keep_passes : bool
        Whether to store the logits of every pass or member instead of the means over them.
    learned : mapping from str to Perturbation
        Further values by name, computed by passes of their own; a tensor (N, K) is stored among the layers.
    seed : int
        Seed of the stochastic passes.
    has_known_classes : bool
        Whether labels are those of the model's classes; otherwise -1 is stored.
    """

    classifiers: Sequence[Classifier]
    device: torch.device
    dtype: np.dtype[np.generic]
    layers: Sequence[str] | bool
    passes: int
    keep_passes: bool
    learned: Mapping[str, Perturbation]
    seed: int
    has_known_classes: bool

    @property
    def is_ensemble(self) -> bool:
        """Whether there are several members, which count as passes.

        Features and logits are those of the first member.
        """
        return len(self.classifiers) > 1

    @property
    def count(self) -> int:
        """Number of passes or ensemble members.

        Means over passes are divided by it.
        """
        return self.passes or len(self.classifiers)

    def record(self, batch: InputBatch, rows: RowNumbers) -> Arrays:
        """Run the network on one batch.

        Parameters
        ----------
        batch : InputBatch
            The batch.
        rows : sequence of int
            Row numbers of the batch, which seed the stochastic passes.

        Returns
        -------
        dict of str to ndarray
            Arrays by field of the store, rows first.

        Raises
        ------
        InvalidInput
            If passes are asked of a network without dropout, or a layer returns no feature maps.
        """
        main = self.classifiers[0]
        inputs = move_to(batch.inputs, self.device)
        dropouts: Sequence[nn.Module] = []
        if self.passes:
            dropouts = main.dropouts()
        with torch.no_grad():
            with (
                collect_layer_statistics(main, self.layers) as statistics,
                dropout.collect_inputs(dropouts) as dropout_inputs,
            ):
                captured = main(inputs)
            arrays = self._main_arrays(captured)
            for name, value in statistics.items():
                arrays[f"layers/{name}"] = _to_numpy(value, self.dtype)
            if self.is_ensemble:
                arrays |= self._pass_arrays(self._run_members(inputs, captured))
            elif self.passes:
                at_head = None
                if len(dropouts) == 1:
                    at_head = dropout.find_dropout_at_head(captured, dropout_inputs)
                arrays |= self._pass_arrays(self._run_passes(inputs, dropouts, at_head, rows))
        for name, perturbation in self.learned.items():
            found = perturbation(main, inputs)
            values = found if isinstance(found, Mapping) else {name: found}
            for key, value in values.items():
                if value.ndim > 1:
                    arrays[f"layers/{key}"] = _to_numpy(value, self.dtype)
                else:
                    arrays[f"learned/{key}"] = _to_numpy(value, SINGLE)
        if not self.has_known_classes:
            arrays["labels"] = np.full(len(arrays["logits"]), -1)
        elif batch.labels is not None:
            arrays["labels"] = batch.labels
        if batch.ids is not None:
            arrays["ids"] = batch.ids
        return arrays

    def _main_arrays(self, captured: Captured) -> Arrays:
        """Return logits, features and the values that the network itself predicts."""
        arrays = {
            "logits": _to_numpy(captured.logits, SINGLE),
            "features": _to_numpy(captured.features, self.dtype),
        }
        if captured.raw is not None:
            arrays["layers/penultimate/raw"] = _to_numpy(captured.raw, self.dtype)
        for name, value in captured.learned.items():
            arrays[f"learned/{name}"] = _to_numpy(value, SINGLE)
        return arrays

    def _pass_arrays(self, captures: Iterator[Captured]) -> Arrays:
        """Return the logits of passes or members, or their means; and means of the other values of each."""
        sums: dict[str, Tensor] = {}
        every: list[npt.NDArray[np.float32]] = []

        def logits() -> Iterator[npt.NDArray[np.float32]]:
            for captured in captures:
                for name, value in self._values_to_average(captured).items():
                    sums[name] = sums[name] + value if name in sums else value
                one = _to_numpy(captured.logits, SINGLE)
                if self.keep_passes:
                    every.append(one)
                yield one

        means = Passes.from_logits(logits())
        arrays: Arrays = {}
        for name, total in sums.items():
            dtype = self.dtype if name.startswith("layers") else SINGLE
            arrays[name] = _to_numpy(total / self.count, dtype)
        if self.keep_passes:
            arrays["passes"] = np.stack(every, axis=1)
            return arrays
        for name in PASS_ARRAYS:
            arrays[f"passes.{name}"] = getattr(means, name).astype(SINGLE)
        return arrays

    def _values_to_average(self, captured: Captured) -> dict[str, Tensor]:
        """Return what is averaged over passes beside the logits; members have features of their own."""
        values = {}
        if not self.is_ensemble:
            values["layers/passes/features"] = captured.features.float()
        for name, value in captured.learned.items():
            values[f"learned/passes/{name}"] = value.float()
        return values

    def _run_members(self, inputs: Batch, captured: Captured) -> Iterator[Captured]:
        """Run the other members of the ensemble; the first has run already."""
        yield captured
        for member in self.classifiers[1:]:
            yield member(inputs)

    def _run_passes(
        self, inputs: Batch, dropouts: Sequence[nn.Module], at_head: Tensor | None, rows: RowNumbers
    ) -> Iterator[Captured]:
        """Run passes with dropout on, seeded by row and pass: neither resuming nor the size of a batch matters."""
        if not dropouts:
            raise InvalidInput("passes need dropout layers with a rate above 0, and the model has none")
        main = self.classifiers[0]
        numbers = np.asarray(rows)
        with torch.random.fork_rng():
            for number in range(self.passes):
                keys = row_keys((self.seed, number), numbers)
                torch.manual_seed(int(keys[0] >> np.uint64(1)))  # of dropout that PyTorch draws
                with switch_on(dropouts, keys, self.device):
                    if at_head is None:
                        captured = main(inputs)
                    else:
                        captured = main.at_head(dropouts[0](at_head))
                yield captured


def _to_numpy(tensor: Tensor, dtype: np.dtype[np.generic]) -> Array:
    values = tensor.detach().to("cpu")
    if values.dtype == torch.bfloat16:  # which NumPy does not have
        values = values.float()
    return values.numpy().astype(dtype, copy=False)


def move_to(value: Any, device: torch.device) -> Any:
    """Move the tensors in the inputs of a model to a device.

    Parameters
    ----------
    value : object
        A tensor, or tensors in a mapping, tuple or list; anything else is returned as it is.
    device : torch.device
        The device.

    Returns
    -------
    object
        The same structure.

    Examples
    --------
    >>> move_to({"x": torch.ones(1), "n": 3}, torch.device("cpu"))
    {'x': tensor([1.]), 'n': 3}
    """
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: move_to(item, device) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(move_to(item, device) for item in value)
    return value
