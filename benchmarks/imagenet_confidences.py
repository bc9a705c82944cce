"""What claims on ImageNet classifiers share: the command, the material, and the confidences they are decided from."""

from __future__ import annotations

from collections.abc import Mapping

from twofold.typing import Array

COMMAND = "python benchmarks/imagenet_claims.py --save"
SCALE = "14 convolutional ImageNet classifiers, 50,000 validation images, maximum softmax probability"

Models = Mapping[str, tuple[Array, Array]]
"""Which images a classifier labels correctly, and its confidences, by the name of the classifier."""
