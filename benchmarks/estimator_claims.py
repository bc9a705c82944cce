"""Claims of the paper on estimators of AURC, decided from the table of ``aurc_study.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from claims import Claim
from drawn_gains import over_units
from gain_claims import judge_gain
from intervals import show_gain
from network_cells import Row, read_csv
from score_cells import COMMAND
from timing import RESULTS
from twofold.typing import Array

BATCH = 128
HARMONIC, LOG, SELE, TWICE = "empirical", "log", "sele", "2sele"


def estimator_claims() -> Iterator[Claim]:
    """Decide the claims on estimators of AURC; units are models."""
    errors = EstimatorErrors(read_csv(RESULTS / "aurc_study.csv"))
    sele_bias = errors.bias(SELE)
    sele_rmse = errors.relative(SELE, "rmse")
    scale = f"{len(errors.models)} CIFAR classifiers, both losses, msp, batches of {BATCH}"
    for name, estimator in (("harmonic", HARMONIC), ("log", LOG)):
        yield decide(
            f"The {name} plug-in is less biased than SELE",
            np.abs(sele_bias) - np.abs(errors.bias(estimator)),
            "absolute bias of SELE less its own:",
            printed_at="Figure 6",
            printed="lower error",
            scale=scale,
        )
        yield decide(
            f"The {name} plug-in has a smaller error than SELE, variance included",
            sele_rmse - errors.relative(estimator, "rmse"),
            "RMSE of SELE less its own:",
            printed_at="Figure 6",
            printed="lower error, from squared bias",
            scale=scale,
        )
    yield decide(
        "SELE is too low", -sele_bias, "too low by", printed_at="Figure 3", printed="a lower bound", scale=scale
    )
    yield decide(
        "Twice SELE is too high",
        errors.bias(TWICE),
        "too high by",
        printed_at="Figure 3",
        printed="an upper bound",
        scale=scale,
    )
    smallest, largest = min(errors.sizes), max(errors.sizes)
    yield decide(
        f"The bias of the harmonic plug-in vanishes with the batch: less at {largest} than at {smallest}",
        np.abs(errors.bias(HARMONIC, smallest)) - np.abs(errors.bias(HARMONIC, largest)),
        "bias falls by",
        printed_at="Figure 3",
        printed="it converges",
        scale=scale,
    )
    yield decide(
        "The log plug-in has a smaller error than the harmonic one",
        errors.relative(HARMONIC, "rmse") - errors.relative(LOG, "rmse"),
        "RMSE of the harmonic one less its own:",
        printed_at="Figure 5",
        printed="smaller",
        scale=scale,
    )
    yield decide(
        "The 0/1 loss has a smaller relative variance than cross-entropy",
        errors.of_loss("CE", HARMONIC, "std") - errors.of_loss("0/1", HARMONIC, "std"),
        "deviation of cross-entropy less its own:",
        printed_at="Figure 4",
        printed="smaller",
        scale=scale,
    )


def decide(claim: str, gains: Array, words: str, *, printed_at: str, printed: str, scale: str) -> Claim:
    """Make a claim from the gain of each model; the words say what the gain is."""
    gain = over_units(gains)
    return judge_gain(
        "aurc_estimators",
        claim,
        gain,
        printed_at=printed_at,
        printed=printed,
        ours=f"{words} {show_gain(gain)} % of AURC",
        unit="% of AURC",
        scale=scale,
        command=COMMAND,
    )


class EstimatorErrors:
    """Look up errors of estimators, relative to the AURC of the population, as one number for each model.

    Parameters
    ----------
    rows : sequence of mapping
        A row for each model, loss, confidence, size of the batch and estimator; only msp is looked up.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        of_msp = [row for row in rows if row["confidence"] == "msp"]
        self.models = distinct(of_msp, "model")
        self.losses = distinct(of_msp, "loss")
        self.sizes = [int(size) for size in distinct(of_msp, "n")]
        self._rows: dict[tuple[str, str, int, str], Row] = {}
        for row in of_msp:
            self._rows[row["model"], row["loss"], int(row["n"]), row["estimator"]] = row

    def bias(self, estimator: str, size: int = BATCH) -> Array:
        """Return the signed bias, averaged over losses."""
        return self.relative(estimator, "bias", size)

    def relative(self, estimator: str, quantity: str, size: int = BATCH) -> Array:
        """Return a quantity, averaged over losses."""
        return np.mean([self.of_loss(loss, estimator, quantity, size) for loss in self.losses], axis=0)

    def of_loss(self, loss: str, estimator: str, quantity: str, size: int = BATCH) -> Array:
        """Return a quantity for one loss."""
        values = []
        for model in self.models:
            row = self._rows[model, loss, size, estimator]
            values.append(float(row[quantity]) / float(row["population"]))
        return np.array(values)


def distinct(rows: Sequence[Row], column: str) -> list[str]:
    """List what a column holds, each once."""
    return list(dict.fromkeys(row[column] for row in rows))
