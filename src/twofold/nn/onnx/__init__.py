"""Write a gate and its classifier as one ONNX file: images in; label, verdict and confidences out.

Every score and transform that ONNX can hold is one small function in this package, by its name in :data:`SCORES` or
:data:`TRANSFORMS`. The network runs in its own precision, everything after it in float64, as in Python.
Notation of the score modules: z logits, h features, p = softmax(z), W and b the head.

>>> sorted(TRANSFORMS)
['ash', 'dice', 'lts', 'project', 'react', 'scale', 'temperature', 'vra']
"""

from twofold.nn.onnx import _combined_scores, _feature_scores, _logit_scores, _transforms  # noqa: F401  # fill the tables
from twofold.nn.onnx.export import OPSET, to_onnx
from twofold.nn.onnx.steps import SCORES, TRANSFORMS, TensorOutputs

__all__ = ["OPSET", "SCORES", "TRANSFORMS", "TensorOutputs", "to_onnx"]
