"""Serve an ONNX file with MLServer, which speaks the Open Inference Protocol (v2) over HTTP and gRPC.

``Gate.export(folder, target="openinference", ...)`` writes the file and a ``model-settings.json`` that names
:class:`OnnxRuntime`; ``mlserver start folder`` serves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri

from twofold._checks import AnyArray

ONNX_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
}


class OnnxRuntime(MLModel):  # type: ignore[misc]  # MLServer may be missing where types are checked
    """Run an ONNX file on the inputs of a request, by name, and answer with its outputs.

    The file is that of ``parameters.uri`` in the settings. A gate answers with ``label``, ``verdict`` (0 accept,
    1 unsure, 2 unknown), ``conf_id`` and ``conf_ood``.
    """

    async def load(self) -> bool:
        """Open the file.

        Returns
        -------
        bool
            Whether the model is ready.
        """
        import onnxruntime

        path = await get_model_uri(self._settings)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # MLServer spreads requests over processes
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {node.name: node for node in self._session.get_inputs()}
        self._names = [node.name for node in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer one request.

        Parameters
        ----------
        payload : mlserver.types.InferenceRequest
            The request; its inputs are those of the file.

        Returns
        -------
        mlserver.types.InferenceResponse
            The outputs of the file, or those that the request names.

        Raises
        ------
        InferenceError
            If an input is missing or has another shape; the server answers with status 400.
        """
        given = {tensor.name: tensor for tensor in payload.inputs}
        feeds = {}
        for name, node in self._inputs.items():
            if name not in given:
                raise InferenceError(f"the request has no input {name!r}; it has {', '.join(given)}")
            feeds[name] = _read_tensor(given[name], node)
        wanted = self._names
        if payload.outputs:
            wanted = [output.name for output in payload.outputs]
            for name in wanted:
                if name not in self._names:
                    raise InferenceError(f"there is no output {name!r}; there are {', '.join(self._names)}")
        values = self._session.run(wanted, feeds)
        outputs = [NumpyCodec.encode_output(name, value) for name, value in zip(wanted, values, strict=True)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)


def _read_tensor(tensor: Any, node: Any) -> AnyArray:
    """Decode an input of a request and check it against that of the file."""
    wanted = ONNX_TYPES[node.type]
    try:
        values = NumpyCodec.decode_input(tensor)
    except (ValueError, TypeError) as error:
        raise InferenceError(f"input {tensor.name!r} cannot be read: {error!s:.200}") from error
    shape = node.shape
    fits = values.ndim == len(shape)
    for size, axis in zip(values.shape, shape, strict=False):
        fits = fits and (not isinstance(axis, int) or axis == size)
    if not fits or values.dtype != wanted:
        raise InferenceError(
            f"input {tensor.name!r} must be {np.dtype(wanted)} of shape {shape}, got {values.dtype} of shape "
            f"{list(values.shape)}"
        )
    return np.ascontiguousarray(values)
