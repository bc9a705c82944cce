"""Reading image files at 224 pixels: PixMix against plain crops, two reading processes against one, waiting in training.

    python benchmarks/input.py [--save]        (a few minutes; needs torch and scikit-learn)

JPEG files of 500x375 pixels, quality 90, cut from scikit-learn's two photographs at random places and scales. PixMix
and reduced decoding are compared by seconds of the processor, which hardly depend on what else the machine does;
reading processes and waiting by the clock, for which the machine should be quiet: its load is printed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from script import announce

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from timing import best, finish, row
from twofold.nn import build
from twofold.nn.data import open as open_data
from twofold.nn.extraction import Prepare
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.recipes import RECIPES
from twofold.nn.training import Settings, TrainingSetup, prepare_training
from twofold.nn.training.input import BatchFeed, BatchMaker, BatchRequest

FILES, CLASSES, BATCH = 96, 4, 8
FEED_BATCH = 32  # what comes from reading processes
PHOTOGRAPH = (500, 375)  # width and height, the most common size in ImageNet


def write_photographs(folder, size=PHOTOGRAPH):
    """Write JPEG files cut from two photographs."""
    rng = np.random.default_rng(0)
    sources = [Image.fromarray(array) for array in load_sample_images().images]
    for number in range(FILES):
        source = sources[number % len(sources)]
        share = rng.uniform(0.5, 1.0)
        width, height = int(source.width * share), int(source.width * share * size[1] / size[0])
        left, top = rng.integers(0, source.width - width + 1), rng.integers(0, max(source.height - height, 0) + 1)
        file = folder / f"class{number % CLASSES}" / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        source.resize(
            size, Image.Resampling.BICUBIC, box=(left, top, left + width, min(top + height, source.height))
        ).save(file, quality=90)
    return open_data(f"folder:{folder}")


def settings(**changes):
    return Settings(**{"epochs": 1, "batch": BATCH, "crop": 224, "augment": ("resized_crop", "flip"), **changes})


def maker(images, recipe, mixers, **changes):
    return BatchMaker(images, settings(**changes), Prepare(), RECIPES[recipe].terms, mixers=mixers)


def requests(epoch=0, batch=BATCH):
    order = np.random.default_rng(epoch).permutation(FILES)
    return [BatchRequest(order[i : i + batch], epoch, i // batch) for i in range(0, FILES, batch)]


def pixels_only(made):
    """Decode, crop and flip some batches, without normalising."""
    for request in requests()[:4]:
        made.pixels(request.rows, request.epoch)


def pixels_and_views(made):
    """The same, and what the terms of the recipe make of them."""
    for request in requests()[:4]:
        pixels = made.pixels(request.rows, request.epoch)
        made.views(pixels, request.rows, request.epoch)


def seconds_of_feed(images, mixers, workers):
    """Seconds of the batches of eight epochs, without a pause between them, from reading processes that run already."""
    feed = BatchFeed(maker(images, "regpixmix", mixers), workers)
    for _ in feed.batches(requests(0, FEED_BATCH)):
        pass
    measured = []
    for epoch in range(1, 9):
        measured += requests(epoch, FEED_BATCH)
    start = time.perf_counter()
    for _ in feed.batches(measured):
        pass
    seconds = time.perf_counter() - start
    feed.close()
    return seconds


def share_of_waiting(images, workers):
    """Share of an epoch that a small network waits for batches; the first epoch, in which processes start, is left out."""
    model = build("resnet8_cifar", CLASSES)
    training = prepare_training(RECIPES["basic"], model, images, settings(epochs=2), TrainingSetup(workers=workers))
    training.run_epoch(0)
    before = training.feed.waited
    start = time.perf_counter()
    training.run_epoch(1)
    share = (training.feed.waited - before) / (time.perf_counter() - start)
    training.feed.close()
    return share


def main():
    torch.set_num_threads(1)
    rows = []
    announce("drawing fractals")
    mixers = Mixers.fractals(100, size=252)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        announce("writing photographs")
        images = write_photographs(Path(folder) / "small")
        large = write_photographs(Path(folder) / "large", (2000, 1500))
        announce("PixMix against plain crops")
        plain, mixed = maker(images, "basic", None), maker(images, "regpixmix", mixers)
        least = best(
            {"crop": lambda: pixels_only(plain), "pixmix": lambda: pixels_and_views(mixed)}, 5, time.process_time
        )
        ratio = least["pixmix"] / least["crop"]
        rows.append(row("500x375", "decode + crop + PixMix / decode + crop", ratio, "x", "<= 2"))
        announce("decoding at reduced scale")
        whole = maker(images, "basic", None, draft=False)
        least |= best({"whole": lambda: pixels_only(whole), "crop": lambda: pixels_only(plain)}, 5, time.process_time)
        rows.append(row("500x375", "decoded whole / at reduced scale", least["whole"] / least["crop"], "x", ">= 1"))
        reduced, full = maker(large, "basic", None), maker(large, "basic", None, draft=False)
        both = best({"reduced": lambda: pixels_only(reduced), "full": lambda: pixels_only(full)}, 3, time.process_time)
        rows.append(row("2000x1500", "decoded whole / at reduced scale", both["full"] / both["reduced"], "x", ">= 2"))
        announce("two reading processes against one")
        turns = {1: [], 2: []}
        for _ in range(4):
            for workers, measured in turns.items():
                measured.append(seconds_of_feed(images, mixers, workers))
        ratio = min(turns[1]) / min(turns[2])
        rows.append(
            row(f"500x375 + PixMix, batch {FEED_BATCH}", "images a second, 2 processes / 1", ratio, "x", ">= 1.7")
        )
        announce("waiting in training")
        waiting = min(share_of_waiting(images, 2) for _ in range(3))
        rows.append(row("resnet8, batch 8", "share of an epoch spent waiting, 2 processes", waiting, "", "<= 0.05"))
        none = min(share_of_reading(images) for _ in range(2))
        rows.append(row("resnet8, batch 8", "share of an epoch spent reading, no process", none, "", "none"))
    print(f"load of the machine before and after: {load:.1f} and {os.getloadavg()[0]:.1f}", file=sys.stderr)
    finish("input", rows)


def share_of_reading(images):
    """Share of an epoch that the same training spends on reading if it reads by itself."""
    model = build("resnet8_cifar", CLASSES)
    setup = TrainingSetup(on_bad="skip")  # prepares whole batches, in this process
    training = prepare_training(RECIPES["basic"], model, images, settings(epochs=2), setup)
    start = time.perf_counter()
    training.run_epoch(1)
    return training.feed.waited / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
