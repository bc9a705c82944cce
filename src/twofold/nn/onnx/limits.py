"""Which chains an ONNX file can hold."""

from __future__ import annotations

from collections.abc import Mapping

from twofold.errors import InvalidInput
from twofold.nn.onnx.steps import SCORES, TRANSFORMS, FittedStep, read_step
from twofold.scores.chain import Chain
from twofold.scores.step import ChainStep

BANK = 1 << 22  # most entries of a bank of training rows that the file may hold


def check_chain(chain: Chain) -> None:
    """Check that every step of a chain, and of the chains inside its score, has a form in ONNX.

    Parameters
    ----------
    chain : Chain
        A fitted chain.

    Raises
    ------
    InvalidInput
        If a step has none; the message lists those that have, or the setting to change.
    """
    *transforms, score = chain.steps
    for step in transforms:
        _check_step(step, TRANSFORMS, "transform", score)
    _check_step(score, SCORES, "score", score)
    for inner in score.inner_chains:
        check_chain(inner)


def _check_step(step: ChainStep, table: Mapping[str, object], kind: str, score: ChainStep) -> None:
    name = step.info.name
    if name not in table:
        raise InvalidInput(
            f"{name} cannot be written to ONNX; the {kind}s that can: {', '.join(sorted(table))}. "
            "Fit the gate with one of them, or decide in Python"
        )
    obstacle = _find_obstacle(name, read_step(step), score)
    if obstacle:
        raise InvalidInput(f"{step.spec} cannot be written to ONNX: {obstacle}")


def _find_obstacle(name: str, step: FittedStep, score: ChainStep) -> str:
    """Return why a step of the tables cannot be written with its settings; empty if it can."""
    if name == "project" and step.kind == "class_pred":
        return 'its subspace depends on the prediction; use kind="global" or "class_avg"'
    if name == "project" and step.kind == "class" and set(score.needs) - {"logits"}:
        return f'kind="class" filters logits alone, and {score.info.name} reads features'
    if name in ("pca_error", "kpca_error") and step.kind != "global":
        return 'use kind="global"'
    if name == "kpca_error" and step.map == "exact":
        return 'use map="cosine", "fourier" or "nystroem"'
    if name == "weiper" and step.kind == "kld":
        return 'it compares histograms; use kind="msp"'
    if name == "weiper" and step.weights.size > BANK:
        return f"its {len(step.weights)} perturbed heads are too large for the file; fit it with fewer repeats"
    if name in ("knn", "grood") and step.bank.size > BANK:
        if name == "grood":
            return f"its bank of {len(step.bank)} rows is too large for the file; fit it on fewer training rows"
        return f"its bank of {len(step.bank)} rows is too large for the file; fit it with a smaller fraction"
    if name == "energy" and step.weights is not None and not all(weight > 0 for weight in step.weights):
        return "weights must all be above 0"
    return ""
