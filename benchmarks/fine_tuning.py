"""A real CIFAR-10 ResNet-20 with a new head, fine-tuned to CIFAR-100, against the same network from scratch.

    TWOFOLD_DATA=... python benchmarks/fine_tuning.py [--save]        (about two minutes on 2 idle cores, resumable)

Two epochs of 2,000 real images in batches of 32, one seed, judged on 2,000 test images. Expected: the accuracy with
pretrained weights is more than twice that from scratch. The rows with a new head are what this command does:

    twofold train --recipe basic --model resnet20_cifar --checkpoint weights_cifar10_resnet20.npz --new-head \
      --data "sheet:cifar100_train_10k.webp?labels=image_labels.npz&sample=2000" --normalise imagenet \
      --epochs 2 --batch 32 --lr 0.02 --out run

State is kept in the folder named by --work (by default fine-tuning).
"""

from __future__ import annotations

import sys
import time

from script import announce, data_folder, refresh, work_folder

from timing import finish, row
from twofold.nn import data as sets
from twofold.nn.extraction import extract
from twofold.nn.training import Plan

EPOCHS, BATCH, RATE, ROWS = 2, 32, 0.02, 2000
FILES = ("image_labels.npz", "cifar100_train_10k.webp", "cifar100_test.webp", "weights_cifar10_resnet20.npz")


def main():
    data = data_folder(*FILES)
    work = work_folder("fine-tuning")
    labels = f"labels={data}/image_labels.npz"
    pretrained = {"checkpoint": str(data / "weights_cifar10_resnet20.npz"), "new_head": True}
    cases = {
        "from scratch": {},
        "new head": pretrained,
    }
    rows = []
    for case, options in cases.items():
        train = f"sheet:{data}/cifar100_train_10k.webp?{labels}&sample={ROWS}"
        plan = Plan.of(
            "basic", "resnet20_cifar", train, normalise="imagenet", epochs=EPOCHS, batch=BATCH, lr=RATE, **options
        )
        announce(case)
        begin = time.perf_counter()
        folder = work / case.replace(", ", "-").replace(" ", "-")
        (trained,) = plan.run(folder, done=show, report=lambda loaded: print(f"  {loaded}", file=sys.stderr))
        rows.append(row(case, "minutes of training in this run", (time.perf_counter() - begin) / 60, "min", "-"))
        test = sets.open(f"sheet:{data}/cifar100_test.webp?{labels}&sample={ROWS}")
        run = extract(trained.model, test, folder / "run", name="test", role="test", prepare=plan.prepare, replace=True)
        rows.append(
            row(case, f"accuracy on CIFAR-100 after {EPOCHS} epochs", float(run["test"].correct.mean()), "", "-")
        )
    finish("fine_tuning", rows)


def show(values):
    """Show the step on a terminal, and print every epoch."""
    if "epoch" not in values:
        refresh(f"  step {values['step']:.0f}: loss {values['loss']:.3f}")
        return
    refresh("")
    shown = f"  epoch {values['epoch']:.0f}: loss {values['loss']:.3f}, accuracy {values['train_accuracy']:.3f}"
    print(shown, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
