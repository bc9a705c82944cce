"""basic, SURE and SURE+ on 10,000 real CIFAR-10 images: trained, extracted and judged, one seed each.

    TWOFOLD_DATA=... python benchmarks/real_training.py [--save]        (about twenty minutes on 2 cores, resumable)

A ResNet-8 for a few epochs is far from the papers' 200 epochs of ResNet-18: this shows the pipeline at work on real
images, not the papers' claims. State is kept in the folder named by --work (by default real-training).
"""

from __future__ import annotations

import sys
import time

from script import announce, data_folder, refresh, work_folder

from timing import finish, row
from twofold import Outputs, metrics, scorer
from twofold.nn.extraction import Prepare, extract
from twofold.nn.training import Plan

EPOCHS = 7
UNKNOWN = ("svhn", "textures", "tinyimagenet")


def main():
    sheets = [f"{name}.webp" for name in ("cifar10_train_10k", "cifar10_test", *(f"ood_{name}" for name in UNKNOWN))]
    data = data_folder("image_labels.npz", *sheets)
    work = work_folder("real-training")
    labels = f"labels={data}/image_labels.npz"
    rows = []
    for name in ("basic", "sure", "sure_plus"):
        train = f"sheet:{data}/cifar10_train_10k.webp?{labels}"
        plan = Plan.of(name, "resnet8_cifar", train, normalise="cifar10", epochs=EPOCHS)
        announce(f"{name}: {EPOCHS} epochs")
        begin = time.perf_counter()
        (trained,) = plan.run(work / name, done=show_training)
        minutes = (time.perf_counter() - begin) / 60
        case = f"{name}, ResNet-8, {EPOCHS} epochs"
        rows.append(row(case, "minutes of training in this run", minutes, "min", "-"))
        rows.append(row(case, "weights averaged (effective)", trained.window, "", "-"))
        rows += judged(case, trained.model, plan.prepare, data, labels, work / name / "run")
    finish("real_training", rows)


def show_training(values):
    """Show the step on a terminal, and print every epoch."""
    if "epoch" not in values:
        refresh(f"  step {values['step']:.0f}: loss {values['loss']:.3f}")
        return
    refresh("")
    shown = f"  epoch {values['epoch']:.0f}: loss {values['loss']:.3f}, accuracy {values['train_accuracy']:.3f}"
    print(shown, file=sys.stderr, flush=True)


def judged(case, model, prepare: Prepare, data, labels, folder):
    """Measure accuracy, AURC and joint metrics of MSP and energy on the test set and three unknown sets."""
    from twofold.nn import data as sets

    specs = {"test": f"sheet:{data}/cifar10_test.webp?{labels}"}
    specs |= {name: f"sheet:{data}/ood_{name}.webp" for name in UNKNOWN}
    for name, spec in specs.items():
        announce(f"extracting {name}")
        role = "test" if name == "test" else "far"
        run = extract(model, sets.open(spec), folder, name=name, role=role, prepare=prepare, replace=True)
    test = run["test"]
    msp, energy = scorer("msp"), scorer("energy")
    rows = [
        row(case, "accuracy", float(test.correct.mean()), "", "-"),
        row(case, "AURC x1000, MSP", 1000 * metrics.aurc(test.correct, msp.score(test)), "", "-"),
    ]
    for name in UNKNOWN:
        both = Outputs.concat([test, run[name]])
        conf_id, conf_ood = msp.score(both), energy.score(both)
        rows.append(row(case, f"AUROC against {name}, energy", metrics.auroc(both.is_id, conf_ood), "", "-"))
        value = metrics.ds_f1(both.correct, conf_id, conf_ood, both.is_id).value
        rows.append(row(case, f"DS-F1 with {name}, MSP + energy", value, "", "-"))
    return rows


if __name__ == "__main__":
    main()
