"""Wrap a classifier of any kind so that it abstains where it does not know: :func:`twofold.wrap`.

``classifiers`` runs estimators, ONNX sessions and functions, ``networks`` PyTorch and Hugging Face models; ``rows``
reads what a caller passes as data; ``goal`` chooses scores and thresholds; ``wrapped`` is the result.
"""

from __future__ import annotations

from twofold.wrapping.wrapped import Explanation, Wrapped, wrap

__all__ = ["Explanation", "Wrapped", "wrap"]
