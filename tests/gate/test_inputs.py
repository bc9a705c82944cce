"""What enters a gate: digests of all rows, the columns that its scores read, both confidences from one exponential."""

import hashlib

import numpy as np
import pytest
from scipy.special import logsumexp

from twofold.errors import InvalidInput
from twofold.gate.inputs import confidences, fingerprint, fit_chain, head_fingerprint, measure_widths
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer


def world(n=60, width=4, dtype=np.float64):
    rng = np.random.default_rng(0)
    head = Head(rng.normal(size=(3, width)), np.arange(3.0))
    features = rng.normal(size=(n, width)).astype(dtype)
    layers = {"block/mean": rng.normal(size=(n, 2))}
    return Outputs(head.logits(features), rng.integers(-1, 3, n), features, head, layers=layers)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_fingerprint_is_the_digest_of_types_shapes_and_bytes(labelled):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(8200, 3)).astype(np.float32), rng.integers(0, 3, 8200)
    outputs = Outputs(logits, labels if labelled else None)
    want = hashlib.sha256()
    for array in (outputs.logits, outputs.labels) if labelled else (outputs.logits,):
        want.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    assert fingerprint(outputs) == want.hexdigest()
    for row in (0, 4095, 4096, 4097, 8192, 8199):  # no row is passed over
        other = logits.copy()
        other[row, 0] += 1.0
        assert fingerprint(Outputs(other, outputs.labels)) != want.hexdigest()


def test_widths_and_head_are_kept_where_a_score_reads_them():
    o = world()
    for specs, columns, reads_head in (
        (["msp", None], {}, False),
        (["msp", "knn"], {"features": 4}, True),
        (["msp", "vim"], {"features": 4}, True),
    ):
        chains = [None if spec is None else scorer(spec) for spec in specs]
        assert measure_widths(chains, o) == columns
        assert (head_fingerprint(chains, o.head) is not None) == reads_head
        assert head_fingerprint(chains, None) is None
    both = head_fingerprint([scorer("knn"), None], Head(o.head.weight, o.head.bias + 1.0))
    assert both != head_fingerprint([scorer("knn"), None], o.head)


def test_msp_and_energy_from_one_exponential():
    """Log-odds of the judged class and log-sum-exp of all, for flat, confident, hopeless and extreme logits."""
    z = np.array([[0.0, 0.0, 0.0], [9.0, 1.0, 0.5], [800.0, 0.0, -5.0], [2.0, 1.9, -700.0], [1e300, 0.0, 0.0]])
    for chosen in ([0, 0, 0, 0, 0], [2, 1, 1, 2, 0]):
        conf_id, conf_ood = confidences(scorer("msp"), scorer("energy"), Outputs(z, predictions=chosen))
        for row, c, odds, energy in zip(z, chosen, conf_id, conf_ood, strict=True):
            assert odds == pytest.approx(row[c] - logsumexp(np.delete(row, c)), rel=1e-12, abs=1e-12)
            assert energy == pytest.approx(logsumexp(row), rel=1e-12)
    conf_id, conf_ood = confidences(scorer("energy"), scorer("msp"), Outputs(z[:2]))  # in the other order
    assert conf_id == pytest.approx(logsumexp(z[:2], axis=1))
    assert conf_ood == pytest.approx([-np.log(2), 9.0 - logsumexp([1.0, 0.5])])
    assert confidences(scorer("msp"), None, Outputs(z[:2]))[1] is None


def test_a_fitted_chain_is_taken_as_it_is_and_others_need_train():
    o = world()
    ready = scorer("knn(k=3)").fit(o)
    assert fit_chain(ready, None, o) is ready
    assert fit_chain(scorer("msp"), None, o).ready
    assert fit_chain(scorer("knn(k=3)"), o, o).ready
    with pytest.raises(InvalidInput, match="learns from a training set; pass train="):
        fit_chain(scorer("knn"), None, o)
