"""Miniature images for the tests of data sets."""

import numpy as np
from PIL import Image


def pixels(n, h=32, w=32, seed=0):
    """Random images (n, h, w, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (n, h, w, 3), dtype=np.uint8)


def save(file, array):
    """Save an image, and create its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(file)
