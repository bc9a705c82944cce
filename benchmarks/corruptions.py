"""The 15 corruptions on 10,000 images of 32x32 against the per-image functions of the package imagecorruptions.

    python benchmarks/corruptions.py [--save]        (about three minutes; needs pip install imagecorruptions)

Both sides work at level 3 with the same (ImageNet) constants on crops of scikit-learn's two photographs; the reference
does 200 of the images, and times are compared per image. Current NumPy, scikit-image and setuptools took from under the
package what glass_blur, fog and its import need; that is put back first. Its frost reads a photograph for every image.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from pathlib import Path

from script import announce

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from timing import best, finish, row
from twofold.nn.corruptions import NAMES, corrupt

COUNT, FEW, LEVEL = 10_000, 200, 3


def crops(count, side=32):
    rng = np.random.default_rng(0)
    photos = load_sample_images().images
    tops, lefts = (rng.integers(0, size - side, count) for size in photos[0].shape[:2])
    cuts = zip(tops, lefts, strict=True)
    return np.stack([photos[i % 2][y : y + side, x : x + side] for i, (y, x) in enumerate(cuts)])


def reference():
    if importlib.util.find_spec("pkg_resources") is None:
        stub = types.ModuleType("pkg_resources")
        stub.resource_filename = lambda package, path: str(Path(sys.modules[package].__file__).parent / path)
        sys.modules["pkg_resources"] = stub
    module = importlib.import_module("imagecorruptions.corruptions")
    plain = module.gaussian
    module.gaussian = lambda image, sigma, multichannel=False, **settings: plain(
        image, sigma, channel_axis=-1 if multichannel else None, **settings
    )
    setattr(np, "float_", np.float64)  # noqa: B010 the plain form reads as a use of the old name
    return module


def main():
    warnings.simplefilter("ignore")
    module, images = reference(), crops(COUNT)
    ratios, seconds = {}, {"theirs": 0.0, "ours": 0.0}
    for name in NAMES:
        announce(name)
        function = getattr(module, name)
        contenders = {
            "theirs": lambda f=function: [np.uint8(f(Image.fromarray(x), LEVEL)) for x in images[:FEW]],
            "ours": lambda n=name: corrupt(images, n, LEVEL, constants="imagenet"),
        }
        least = best(contenders, 3)
        theirs, ours = least["theirs"] / FEW, least["ours"] / COUNT
        ratios[name] = theirs / ours
        seconds["theirs"] += theirs
        seconds["ours"] += ours
    case, what = "10k images of 32x32, level 3", "per-image reference / ours"
    values = np.array(list(ratios.values()))
    finish(
        "corruptions",
        [
            *(row(case, f"{name}: {what}", ratio, "x", "-") for name, ratio in ratios.items()),
            row(case, f"mean of the 15 ratios: {what}", values.mean(), "x", ">= 5"),
            row(case, f"geometric mean: {what}", np.exp(np.log(values).mean()), "x", ">= 5"),
            row(case, f"all 15 together: {what}", seconds["theirs"] / seconds["ours"], "x", ">= 5"),
        ],
    )


if __name__ == "__main__":
    main()
