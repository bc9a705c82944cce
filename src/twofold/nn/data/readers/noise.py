"""The reader of generated noise."""

from __future__ import annotations

import numpy as np

from twofold._checks import number, whole
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.images import Images
from twofold.nn.data.readers.registry import reader
from twofold.nn.data.sources import Noise, NoiseSource


@reader("noise")
def _read_noise(
    path: str, *, n: int = 1000, size: int = 32, seed: int = 0, mean: float = 0.5, std: float = 1.0
) -> Images:
    """Generate noise images without labels: gaussian (mean and std of values in [0, 1], clipped) or uniform.

    The defaults of gaussian are those of Liang, Li, Srikant, ICLR 2018 (ODIN); the unknown-detection paper states none.
    """
    kinds: dict[str, Noise] = {"gaussian": "gaussian", "uniform": "uniform"}
    if path not in kinds:
        raise UnknownName.of("noise", path, kinds)
    if path == "uniform" and (mean, std) != (0.5, 1.0):
        raise InvalidInput("noise:uniform has no mean and std; they belong to noise:gaussian")
    number(std, "std", 0, np.inf, open_high=True)
    source = NoiseSource(kinds[path], whole(n, "n", 1), whole(size, "size", 1), seed, mean, std)
    return Images.of(source, name=f"noise-{path}")
