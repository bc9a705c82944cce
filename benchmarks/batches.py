"""Preparing mixed batches against Pillow image by image and against a training step; drawing fractals.

    python benchmarks/batches.py [--save]        (about two minutes; needs torch)

Batches of 128 images of 32 x 32. The Pillow contenders draw from the same distributions, with Pillow for
operations and NumPy for mixing. The step is forward, backward and SGD of a 32 x 32 ResNet-18 on the same two cores.
"""

from __future__ import annotations

from script import announce

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from timing import best, finish, row
from twofold.nn.ingredients.augment import flip, padded_crop
from twofold.nn.ingredients.fractals import Mixers, fractals
from twofold.nn.ingredients.mixing import augmix
from twofold.nn.ingredients.pixmix import pixmix

BATCH, SIZE, TEN = 128, 32, 10
BILINEAR, AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE


def affine(image, *matrix):
    return image.transform(image.size, AFFINE, matrix, resample=BILINEAR)


OPERATIONS = [
    lambda x, l, s: ImageOps.autocontrast(x),
    lambda x, l, s: ImageOps.equalize(x),
    lambda x, l, s: ImageOps.posterize(x, 4 - int(4 * l / 10)),
    lambda x, l, s: x.rotate(s * int(30 * l / 10), resample=BILINEAR),
    lambda x, l, s: ImageOps.solarize(x, 256 - int(256 * l / 10)),
    lambda x, l, s: affine(x, 1, s * 0.03 * l, 0, 0, 1, 0),
    lambda x, l, s: affine(x, 1, 0, 0, s * 0.03 * l, 1, 0),
    lambda x, l, s: affine(x, 1, 0, s * int(SIZE / 3 * l / 10), 0, 1, 0),
    lambda x, l, s: affine(x, 1, 0, 0, 0, 1, s * int(SIZE / 3 * l / 10)),
    lambda x, l, s: ImageEnhance.Color(x).enhance(0.1 + 0.18 * l),
    lambda x, l, s: ImageEnhance.Contrast(x).enhance(0.1 + 0.18 * l),
    lambda x, l, s: ImageEnhance.Brightness(x).enhance(0.1 + 0.18 * l),
    lambda x, l, s: ImageEnhance.Sharpness(x).enhance(0.1 + 0.18 * l),
]


def floats(image):
    return np.asarray(image, dtype=np.float32) / 255


def augmented(image, rng, count=13):
    return OPERATIONS[rng.integers(count)](image, rng.uniform(0.1, 3), rng.choice([-1, 1]))


def pillow_pixmix(images, pictures, rng):
    """Mix one image after another, as a data loader's worker does it."""
    result = []
    for image in images:
        picture = pictures[rng.integers(len(pictures))]
        left, top = rng.integers(0, picture.size[0] - SIZE + 1, 2)
        picture = picture.crop((left, top, left + SIZE, top + SIZE))
        x = floats(augmented(image, rng) if rng.random() < 0.5 else image)
        for _ in range(rng.integers(5)):
            y = floats(augmented(image, rng) if rng.random() < 0.5 else picture)
            if rng.random() < 0.5:
                a, b = np.float32(rng.beta(3, 1)), np.float32(rng.beta(1, 3))
            else:
                a, b = np.float32(1 + rng.beta(1, 3)), np.float32(-rng.beta(1, 3))
            if rng.random() < 0.5:
                x = (a * (2 * x - 1) + b * (2 * y - 1) + 1) / 2
            else:
                x = (2 * x) ** a * np.maximum(2 * y, np.float32(1e-37)) ** b / 2
            x = np.clip(x, 0, 1)
        result.append(x)
    return np.stack(result)


def pillow_augmix(images, rng):
    result = []
    for image in images:
        weights, share, total = (
            rng.dirichlet([1, 1, 1]),
            np.float32(rng.random()),
            np.zeros((SIZE, SIZE, 3), np.float32),
        )
        for weight in weights.astype(np.float32):
            chain = image
            for _ in range(rng.integers(1, 4)):
                chain = augmented(chain, rng, 9)
            total += weight * floats(chain)
        result.append((1 - share) * floats(image) + share * total)
    return np.stack(result)


def pillow_crop_flip(images, rng):
    result = []
    for image in images:
        left, top = rng.integers(0, 9, 2)
        image = ImageOps.expand(image, 4).crop((left, top, left + SIZE, top + SIZE))
        result.append(np.asarray(ImageOps.mirror(image) if rng.random() < 0.5 else image))
    return np.stack(result)


def training_step():
    """Forward, backward and SGD of a ResNet-18 for small images."""
    import torch

    from twofold.nn.models import build

    torch.manual_seed(0)
    model = build("resnet18_32", 10).train().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x = torch.randn(BATCH, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (BATCH,))

    def step():
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def natural(count):
    """Generate smooth images with noise; hardly any time depends on the pixels."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (count, 5, 5, 3), dtype=np.uint8)
    smooth = [np.asarray(Image.fromarray(s).resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for s in small]
    return np.clip(np.stack(smooth) + rng.normal(0, 10, (count, SIZE, SIZE, 3)), 0, 255).astype(np.uint8)


def main():
    announce("drawing fractals")
    images, mixers, index = natural(BATCH), Mixers.fractals(500), np.arange(BATCH)
    one_by_one, pictures = [Image.fromarray(x) for x in images], [Image.fromarray(x) for x in mixers.images]

    def batches(make):
        """Draw ten batches, the same in every turn."""
        return lambda: [make(epoch) for epoch in range(TEN)]

    def pillow_batches(make, *more):
        return batches(lambda epoch: make(one_by_one, *more, np.random.default_rng(epoch)))

    announce("ten batches of each kind, by turns")
    least = best(
        {
            "pixmix": batches(lambda epoch: pixmix(images, mixers, index, epoch=epoch)),
            "pixmix, Pillow": pillow_batches(pillow_pixmix, pictures),
            "augmix": batches(lambda epoch: augmix(images, index, epoch=epoch)),
            "augmix, Pillow": pillow_batches(pillow_augmix),
            "crop, flip": batches(lambda epoch: flip(padded_crop(images, index, epoch=epoch), index, epoch=epoch)),
            "crop, flip, Pillow": pillow_batches(pillow_crop_flip),
            "500 fractals": lambda: fractals(500, size=64),
            "40 fractals": lambda: fractals(40, size=256),
            "step": training_step(),
        },
        5,
    )
    step = least["step"]
    rows = []
    for case, target in (("pixmix", ">= 5"), ("augmix", "-"), ("crop, flip", "-")):
        label = f"{case}, 128 images of 32 x 32"
        rows.append(row(label, "Pillow image by image / ours", least[f"{case}, Pillow"] / least[case], "x", target))
        rows.append(row(label, "time of a batch", 1000 * least[case] / TEN, "ms", "-"))
        rows.append(row(label, "time / ResNet-18 step", least[case] / TEN / step, "x", "<= 0.1"))
    rows.append(row("ResNet-18, batch 128", "forward, backward, SGD step", 1000 * step, "ms", "-"))
    rows.append(row("fractals, 64 x 64", "pictures on one core", 500 / least["500 fractals"], "/s", ">= 200"))
    rows.append(row("fractals, 256 x 256", "pictures on one core", 40 / least["40 fractals"], "/s", "-"))
    finish("batches", rows)


if __name__ == "__main__":
    main()
