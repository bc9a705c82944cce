"""Write a gate and its classifier as one ONNX file: images in; label, verdict and confidences out.

Every score and transform that ONNX can hold is one small function in this package, by its name in :data:`SCORES` or
:data:`TRANSFORMS`. The network runs in its own precision, everything after it in float64, as in Python.
Notation of the score modules: z logits, h features, p = softmax(z), W and b the head.

>>> sorted(TRANSFORMS)
['ash', 'dice', 'lts', 'project', 'raw', 'react', 'scale', 'temperature', 'vra']
"""

from twofold.nn.onnx import (  # fill the tables
    _combined_scores,  # noqa: F401
    _feature_scores,  # noqa: F401
    _logit_scores,  # noqa: F401
    _newer_scores,  # noqa: F401
    _transforms,  # noqa: F401
)
from twofold.nn.onnx.export import OPSET, to_onnx
from twofold.nn.onnx.steps import SCORES, TRANSFORMS, TensorOutputs

__all__ = ["OPSET", "SCORES", "TRANSFORMS", "TensorOutputs", "to_onnx"]
