"""Augmentations one image at a time, with Pillow and plain NumPy: what the compiled batches must equal."""

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

BILINEAR = Image.Resampling.BILINEAR
AFFINE = Image.Transform.AFFINE

PILLOW = {
    "autocontrast": lambda image, amount: ImageOps.autocontrast(image),
    "equalize": lambda image, amount: ImageOps.equalize(image),
    "posterize": lambda image, amount: ImageOps.posterize(image, int(amount)),
    "rotate": lambda image, amount: image.rotate(amount, resample=BILINEAR),
    "solarize": lambda image, amount: ImageOps.solarize(image, amount),
    "shear_x": lambda image, amount: image.transform(image.size, AFFINE, (1, amount, 0, 0, 1, 0), resample=BILINEAR),
    "shear_y": lambda image, amount: image.transform(image.size, AFFINE, (1, 0, 0, amount, 1, 0), resample=BILINEAR),
    "translate_x": lambda image, amount: image.transform(
        image.size, AFFINE, (1, 0, amount, 0, 1, 0), resample=BILINEAR
    ),
    "translate_y": lambda image, amount: image.transform(
        image.size, AFFINE, (1, 0, 0, 0, 1, amount), resample=BILINEAR
    ),
    "colour": lambda image, amount: ImageEnhance.Color(image).enhance(amount),
    "contrast": lambda image, amount: ImageEnhance.Contrast(image).enhance(amount),
    "brightness": lambda image, amount: ImageEnhance.Brightness(image).enhance(amount),
    "sharpness": lambda image, amount: ImageEnhance.Sharpness(image).enhance(amount),
}
NAMES = list(PILLOW)
STREAM = {
    "padded_crop": 0,
    "flip": 1,
    "cutout": 2,
    "rotation": 3,
    "resized_crop": 4,
    "colour_jitter": 5,
    "random_operation": 6,
    "augmix": 7,
    "pixmix": 8,
}


def draws(name, index, count, seed=0, epoch=0, view=0):
    """Numbers of one sample, from NumPy's own Philox."""
    philox = np.random.Philox(
        key=np.array([seed, epoch], np.uint64), counter=np.array([0, index, STREAM[name], view], np.uint64)
    )
    return np.random.Generator(philox).random(count)


def operate(pixels, name, amount):
    return np.asarray(PILLOW[name](Image.fromarray(pixels), amount))


def amount(name, level, negative, pixels):
    """The levels of the sheet: severities of 0 to 10."""
    height, width = pixels.shape[:2]
    sign = -1 if negative else 1
    if name == "posterize":
        return 4 - int(4 * level / 10)
    if name == "rotate":
        return sign * int(30 * level / 10)
    if name == "solarize":
        return 256 - int(256 * level / 10)
    if name.startswith("shear"):
        return sign * 0.3 * level / 10
    if name.startswith("translate"):
        return sign * int((width if name.endswith("x") else height) / 3 * level / 10)
    return 0.1 + 1.8 * level / 10


def drawn(pixels, names, severity, u):
    name = names[int(u[0] * len(names))]
    return operate(pixels, name, amount(name, 0.1 + (severity - 0.1) * u[1], u[2] < 0.5, pixels))


def augmix(pixels, u, *, width=3, depth=3, severity=3, names=NAMES[:9]):
    weights = -np.log1p(-u[1 : 1 + width])
    weights /= weights.sum()
    total = np.zeros(pixels.shape)
    for weight, chain in zip(weights, u[1 + width :].reshape(width, 1 + 3 * depth), strict=True):
        copy = pixels
        for k in range(1 + int(chain[0] * depth)):
            copy = drawn(copy, names, severity, chain[1 + 3 * k : 4 + 3 * k])
        total += weight * copy / 255
    return (1 - u[0]) * pixels / 255 + u[0] * total


def add(x, y, a, b):
    return (a * (2 * x - 1) + b * (2 * y - 1) + 1) / 2


def multiply(x, y, a, b):
    return (2 * x) ** a * np.maximum(2 * y, 1e-37) ** b / 2


def pixmix(pixels, pictures, u, *, least=0, most=4, beta=3.0, severity=3, published=False):
    height, width = pixels.shape[:2]
    picture = pictures[int(u[2] * len(pictures))]
    top, left = int(u[3] * (picture.shape[0] - height + 1)), int(u[4] * (picture.shape[1] - width + 1))
    picture = picture[top : top + height, left : left + width]
    x = (drawn(pixels, NAMES, severity, u[5:8]) if u[0] < 0.5 else pixels) / 255
    slots = u[8:].reshape(most, 8)
    choices = range(least, most + 1)
    slots = slots[[int(u[1] * most)]] if published else slots[: choices[int(u[1] * len(choices))]]
    for r in slots:
        y = (drawn(pixels, NAMES, severity, r[1:4]) if r[0] < 0.5 else picture) / 255
        near, far = r[6] ** (1 / beta), 1 - r[7] ** (1 / beta)  # B(beta, 1) and B(1, beta) by inversion
        a, b = (near, far) if r[5] < 0.5 else (1 + (1 - near), -far)
        x = np.clip((add if r[4] < 0.5 else multiply)(x, y, a, b), 0, 1)
    return x


def sample_images(count=40, height=32, width=32, seed=0):
    """Smooth images, noise, and the awkward ones: flat, black, white, two colours, one bright pixel."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    images = np.stack([np.asarray(Image.fromarray(s).resize((width, height), Image.Resampling.BICUBIC)) for s in small])
    images[:8] = rng.integers(0, 256, (8, height, width, 3))
    images[8], images[9], images[10] = 0, 255, (7, 130, 201)
    images[11, :, : width // 2], images[11, :, width // 2 :] = (10, 20, 30), (200, 20, 90)
    images[12] = 0
    images[12, height // 2, width // 3] = 255
    images[13] = images[13] // 8 + 100  # low contrast
    return images
