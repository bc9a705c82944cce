"""Decide what the confidences of fourteen ImageNet classifiers can decide of the papers' claims.

    TWOFOLD_DATA=... python benchmarks/imagenet_claims.py [--save]        (2 minutes of processor time)

The file has the class, the predicted class and the maximum softmax probability of 50,000 validation images for fourteen
convolutional classifiers, so claims on other scores, unknown inputs or shifts are out of reach. With --save the lines go
to results/claims/imagenet.csv.

Rules; accuracy and AURC of these models were known. The interval decides as benchmarks/claims.py says.

- Orders. Two metrics "rank classifiers differently" if Kendall's correlation of their orders is below 0.5, which is a quarter of
  all pairs in opposite order. Gain: 0.5 less the correlation. Interval: images and classifiers are both resampled.
- A more accurate classifier can be less reliable. Over all pairs whose accuracies differ after Holm's correction: the excess
  of AURC of the more accurate one. The largest excess decides, with Bonferroni intervals over all 91 pairs.
- Few samples. Batches of 128 random images; the AURC of all 50,000 is the truth. Gains are in percent of AURC, intervals are
  Student's over the fourteen classifiers.
- Guarantees. 2,000 images are drawn with replacement and a threshold is fitted that promises a risk of at most 10 % with
  confidence 90 %; the 50,000 images are the population, on which its true risk is known exactly. Gain: the allowed share of
  broken promises (10 %) less the observed one, with the interval of Clopper and Pearson over 14 x 200 independent draws. For
  other classes: fitted on the images of 500 random classes, judged on the other 500; intervals over 100 such splits.
- Calibration. A logistic curve through the log-odds of the confidence, fitted on 2,000 images: ECE before less after on the others.
- Half precision. AUROC of failures with float32 confidences less that with float16 ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from script import announce, data_folder

from claims import Claim, untestable, write_claims
from imagenet_confidences import COMMAND, SCALE
from imagenet_order_claims import claims_on_accuracy, claims_on_orders
from imagenet_sample_claims import (
    claims_on_calibration,
    claims_on_estimators,
    claims_on_precision,
    claims_on_promises,
)
from imagenet_study import compute, load


def main() -> None:
    """Decide every claim and print it."""
    data_folder("imagenet_val_confidence_14models.npz")
    labels, models = load()
    study = compute()
    announce("batches, promises and calibration")
    claims = [
        *claims_on_orders(study),
        *claims_on_accuracy(study),
        *claims_on_estimators(models),
        *claims_on_promises(labels, models),
        *claims_on_calibration(models),
        *claims_on_precision(models),
        *claims_out_of_reach(),
    ]
    for claim in claims:
        print(f"{claim.verdict:28} {claim.claim}: {claim.ours}")
    if "--save" in sys.argv:
        print(write_claims("imagenet", claims))


def claims_out_of_reach() -> Iterable[Claim]:
    """List claims that this file cannot test."""
    why = "the file has one confidence of known images; logits or features of ImageNet networks, with unknown sets, would test it"
    claims = (
        (
            "sure_plus",
            "Two scores are better than one on ImageNet",
            "Table 1",
            "AURC 241.4 near, with MDS as second score 226.2",
        ),
        ("sure_plus", "SURE+ is the best fine-tuning on ImageNet", "Table 4", "DS-F1 near 77.10, cross-entropy 75.42"),
        (
            "fd_shifts",
            "On ImageNet-like data no score beats the softmax across shifts",
            "Table 1",
            "the softmax is rarely outperformed",
        ),
        (
            "unknown_detection",
            "Ensembles detect unknown inputs best on ImageNet",
            "Table 7",
            "the best row of the table",
        ),
    )
    for paper, claim, printed_at, printed in claims:
        yield untestable(paper, claim, printed_at=printed_at, printed=printed, why=why, scale=SCALE, command=COMMAND)


if __name__ == "__main__":
    main()
