"""The 15 corruptions, their five levels, and the constants of CIFAR-10-C and ImageNet-C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Setting: TypeAlias = Any  # a number, or a tuple of numbers; each corruption knows its own

NAMES = (
    "brightness",
    "contrast",
    "defocus_blur",
    "elastic_transform",
    "fog",
    "frost",
    "gaussian_noise",
    "glass_blur",
    "impulse_noise",
    "jpeg_compression",
    "motion_blur",
    "pixelate",
    "shot_noise",
    "snow",
    "zoom_blur",
)
LEVELS = (1, 2, 3, 4, 5)
LARGE = 224  # shorter side from which the constants of ImageNet-C are used
LEAST = 8  # shortest side allowed; blurs and fractals need the room

CIFAR: Mapping[str, tuple[Setting, ...]] = {
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),  # added to the value of HSV
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, sigma of its edge
    # strength and sigma of the displacement, reach of the affine map, in pixels
    "elastic_transform": ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # strength, decay of roughness
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),  # weights of image and frost
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),  # sigma, reach, passes
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "shot_noise": (500, 250, 100, 75, 50),
    # mean, spread, zoom and threshold of the flakes, radius and sigma of their motion, weight of the image
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),  # end and step of the zooms
}
IMAGENET: Mapping[str, tuple[Setting, ...]] = {
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    # in multiples of 244, a slip for 224 that made the published set
    "elastic_transform": (
        (488, 170.8, 24.4),
        (488, 19.52, 48.8),
        (12.2, 2.44, 4.88),
        (17.08, 2.44, 4.88),
        (29.28, 2.44, 4.88),
    ),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "jpeg_compression": (25, 18, 15, 10, 7),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "shot_noise": (60, 25, 12, 5, 3),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
}
# The five photographs of the original (two are the same picture): mean and standard deviation of each channel.
FROST = (
    ((78, 149, 166), (27, 16, 15)),
    ((201, 205, 214), (21, 22, 23)),
    ((201, 205, 214), (21, 22, 23)),
    ((138, 153, 165), (28, 28, 30)),
    ((112, 123, 135), (44, 43, 42)),
)
FROST_SIDE = 640
FROST_STEP = 5  # the original shrinks its photographs to one fifth for CIFAR, by taking every fifth pixel
