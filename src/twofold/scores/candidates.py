"""Which scores the outputs of a run allow: the candidates of a search, a benchmark or a report."""

from __future__ import annotations

from collections.abc import Sequence

from twofold.outputs import FIELDS, Outputs
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.scores.registry import step_names
from twofold.scores.scoring import reads_scale
from twofold.scores.step import holds_field

USUAL = ("msp", "energy", "mls", "entropy", "gen", "knn", "mds", "vim", "neco", "fdbd")
"""Scores whose pairs :func:`twofold.scores.pairs.choose_pairs` tries by default, as far as the outputs allow them."""

NEED_SETTINGS = ("sum", "product", "mc", "recorded", "neglabel")  # other scores, a name or embeddings must be given


def usual_scores(run: Run) -> list[str]:
    """List the scores of ``USUAL`` that the outputs of every judged set of a run allow.

    Parameters
    ----------
    run : Run
        The run; its sets with the roles train and shift are not considered.

    Returns
    -------
    list of str
        Names of scores, in the order of ``USUAL``.
    """
    allowed = computable_scores(judged_sets(run))
    return [name for name in USUAL if name in allowed]


def judged_sets(run: Run) -> list[Outputs]:
    """Return the sets that scores are chosen and judged on: all but those with the roles train and shift.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    list of Outputs
        Outputs of each such set, in the order in which they were added.
    """
    return [run[name] for name, role in run.roles.items() if role not in ("train", "shift")]


def computable_scores(sets: Sequence[Outputs]) -> list[str]:
    """List the scores that need only what all of these outputs hold, including the scale of the logits.

    Parameters
    ----------
    sets : sequence of Outputs
        At least one.

    Returns
    -------
    list of str
        Names of scores, without sum, product, mc, recorded and neglabel, which need settings, and without those whose
        default settings need more than the outputs hold. Where the logits of a set come from probabilities, scores that
        read their scale are left out, as far as this can be tested before a fit.

    Examples
    --------
    >>> "energy" in computable_scores([Outputs([[2.0, 1.0]])])
    True
    >>> "energy" in computable_scores([Outputs.from_probabilities([[0.9, 0.1]])])
    False
    """
    fields = common_fields(sets)
    without_scale = [outputs for outputs in sets if outputs.is_scale_lost]
    computable = []
    for name in step_names("score", needs=fields):
        if name in NEED_SETTINGS:
            continue
        chain = scorer(name)
        reads_lost_scale = bool(without_scale) and chain.ready and reads_scale(chain, without_scale[0])
        if fields.issuperset(chain.needs) and not reads_lost_scale:
            computable.append(name)
    return computable


def common_fields(sets: Sequence[Outputs]) -> set[str]:
    """Return the fields that all of these outputs hold.

    Parameters
    ----------
    sets : sequence of Outputs
        At least one.

    Returns
    -------
    set of str
        Names of fields; empty mappings do not count.

    Examples
    --------
    >>> sorted(common_fields([Outputs([[2.0, 1.0]], labels=[0]), Outputs([[2.0, 1.0]])]))
    ['logits', 'predictions']
    """
    common = set(FIELDS)
    for outputs in sets:
        common &= {name for name in FIELDS if holds_field(outputs, name)}
    return common
