"""Confidences of several chains from one pass over the outputs, a block of rows at a time."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from twofold.errors import InvalidInput, LostScale, TwofoldError
from twofold.outputs import Outputs
from twofold.scores.overflow import reject_huge
from twofold.typing import Array, StepHooks

if TYPE_CHECKING:
    from twofold.scores.chain import Chain

ROWS = 1024  # rows scored at a time


def score_all(chains: Iterable[Chain], outputs: Outputs) -> list[Array]:
    """Compute the confidences of several chains, a block of rows at a time.

    Memory stays small and each row is read once. Chains that can share work do: one product with the training rows
    serves every ``knn(k=)``, ``nnguide`` and ``combood``.

    Parameters
    ----------
    chains : iterable of Chain
        Chains that need no fit, or are fitted.
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    list of ndarray of shape (N,)
        Confidences of each chain, float64; higher is safer to accept.

    Raises
    ------
    NotFitted
        If a step learns and has not been fitted.
    InvalidInput
        If the outputs lack a field that a step needs, a confidence is NaN, or values are so large that a score
        overflows.

    Warns
    -----
    LostScale
        If a score reads the scale of the logits, and these come from probabilities.

    Examples
    --------
    >>> from twofold.scores.chain import scorer
    >>> [conf.round(3) for conf in score_all([scorer("mls"), scorer("energy")], Outputs([[2.0, 1.0]]))]
    [array([2.]), array([2.313])]
    """
    if not isinstance(outputs, Outputs):
        raise InvalidInput(f"score takes Outputs(logits, ...), got {type(outputs).__name__}")
    chains = list(chains)
    warn_of_lost_scale(chains, outputs)
    results = [np.empty(len(outputs)) for _ in chains]
    groups = _group(chains)
    first = 0
    for block in _split_rows(outputs):
        rows = slice(first, first + len(block))
        for places in groups:
            scored = _score_group([chains[i] for i in places], block)
            for i, conf in zip(places, scored, strict=True):
                _check_confidences(chains[i].spec, conf, block, first)
                results[i][rows] = conf
        first = rows.stop
    return results


def _split_rows(outputs: Outputs) -> Iterable[Outputs]:
    """Return the rows in blocks; few rows are one block as they are."""
    if len(outputs) <= ROWS:
        return [outputs]
    return outputs.blocks(ROWS)


def _group(chains: Sequence[Chain]) -> list[list[int]]:
    """Group the places of chains that one call may score: ready single steps with hooks, of one class or family."""
    groups: dict[Hashable, list[int]] = {}
    for i, chain in enumerate(chains):
        record = chain.steps[0].info
        can_share = len(chain.steps) == 1 and chain.ready and record.has_hooks
        key: Hashable = i
        if can_share:
            hooks: StepHooks = chain.steps[0].instance
            key = hooks.family()
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _score_group(chains: Sequence[Chain], block: Outputs) -> list[Array]:
    """Score a block by the chains of one group: by one call if their classes can, else one after the other."""
    if len(chains) > 1:
        step = chains[0].steps[0]
        hooks: list[StepHooks] = [chain.steps[0].instance for chain in chains]
        arguments: dict[str, object] = {}
        for chain in chains:
            arguments |= chain.steps[0].arguments(block)
        shared = step.guard(arguments, lambda: hooks[0].score_together(hooks, arguments))
        if shared is not None:
            return shared
    return [chain.run(block) for chain in chains]


def _check_confidences(spec: str, conf: Array, block: Outputs, first: int) -> None:
    """Raise if a confidence is NaN, or infinite because input values are huge; ``first`` is the row of the block."""
    is_nan = np.isnan(conf)
    if is_nan.any():
        reject_huge(spec, [block])
        row = first + int(is_nan.argmax())
        raise InvalidInput(f"{spec} has no value in row {row}; look at what its formula needs there")
    if np.isinf(conf).any():
        reject_huge(spec, [block])


def reads_scale(chain: Chain, outputs: Outputs) -> bool:
    """Check whether a score changes when a constant is added to all logits of a row.

    Parameters
    ----------
    chain : Chain
        A chain that needs no fit, or is fitted.
    outputs : Outputs
        Outputs that the chain can score; the first 8 rows are tried.

    Returns
    -------
    bool
        True for scores such as energy and mls, False for all scores of probabilities.

    Examples
    --------
    >>> from twofold.scores.chain import scorer
    >>> outputs = Outputs([[2.0, 1.0], [0.5, 0.0]])
    >>> reads_scale(scorer("energy"), outputs), reads_scale(scorer("msp"), outputs)
    (True, False)
    """
    few = outputs[: min(8, len(outputs))]
    moved = few.derived({"logits": few.logits.astype(np.float64) + 3.0})
    try:
        before, after = chain.run(few), chain.run(moved)
    except TwofoldError:  # scoring says what is wrong
        return False
    return not np.allclose(before, after, rtol=1e-5, atol=1e-8)


def warn_of_lost_scale(chains: Iterable[Chain], outputs: Outputs) -> None:
    """Warn of scores that read the scale of the logits, where the logits come from probabilities.

    Parameters
    ----------
    chains : iterable of Chain
        The scores; those that are not fitted are skipped.
    outputs : Outputs
        Outputs to be scored.

    Warns
    -----
    LostScale
        If a score is affected; the message lists all of them.
    """
    if not outputs.is_scale_lost:
        return
    affected = [chain.spec for chain in chains if chain.ready and reads_scale(chain, outputs)]
    if affected:
        message = (
            f"{', '.join(affected)}: these outputs are probabilities, which have lost the scale of the logits that the "
            "score reads; use logits, or a score of probabilities such as msp, entropy or gen"
        )
        warnings.warn(message, LostScale, stacklevel=3)
