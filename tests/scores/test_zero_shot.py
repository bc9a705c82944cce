"""MCM and NegLabel against loops, arrays among the settings in files, and the mining of negatives."""

import numpy as np
import pytest
from score_worlds import softmax

from twofold import Gate
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.zero_shot import mine_negatives

RNG = np.random.default_rng(0)
IMAGES, TEXTS, NEGATIVES = RNG.normal(size=(12, 5)), RNG.normal(size=(3, 5)), RNG.normal(size=(11, 5))
TEST = Outputs(np.zeros((12, 3)), None, IMAGES)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_mcm_against_a_loop(tau):
    got = scorer("mcm", text=TEXTS, temperature=tau).score(TEST)
    for value, image in zip(got, IMAGES, strict=True):
        assert value == pytest.approx(softmax(np.array([cosine(image, t) for t in TEXTS]) / tau).max(), rel=1e-12)


def test_mcm_without_texts_takes_the_rows_of_the_head():
    head = Head(TEXTS)
    outputs = Outputs(head.logits(IMAGES), None, IMAGES, head)
    assert scorer("mcm").score(outputs) == pytest.approx(scorer("mcm", text=TEXTS).score(TEST), rel=1e-12)
    with pytest.raises(InvalidInput, match="needs features and head, or the text"):
        scorer("mcm").score(TEST)


def test_mcm_ranks_like_msp_of_cosines_at_the_temperature_of_the_logits():
    cosines = np.array([[cosine(image, t) for t in TEXTS] for image in IMAGES])
    got = scorer("mcm", text=TEXTS).score(TEST)
    logits = Outputs(100.0 * cosines, np.zeros(12, int))
    other = scorer("temperature(value=100.0)|msp").fit(logits).score(logits)
    assert (np.argsort(got) == np.argsort(other)).all()


@pytest.mark.parametrize("seed", [None, 0, 3])
def test_neglabel_against_a_loop(seed):
    got = scorer("neglabel", text=TEXTS, negatives=NEGATIVES, groups=3, temperature=0.2, seed=seed).score(TEST)
    places = np.arange(9)  # 11 negatives in 3 groups: the last two are dropped
    if seed is not None:
        places = np.random.default_rng(seed).permutation(9)
    for value, image in zip(got, IMAGES, strict=True):
        known = sum(np.exp(cosine(image, t) / 0.2) for t in TEXTS)
        shares = []
        for g in range(3):
            unknown = sum(np.exp(cosine(image, NEGATIVES[j]) / 0.2) for j in places[3 * g : 3 * g + 3])
            shares.append(known / (known + unknown))
        assert value == pytest.approx(np.log(np.mean(shares)), rel=1e-10)


def test_neglabel_keeps_the_order_of_hopeless_images():
    far = Outputs(np.zeros((2, 1)), None, [[-1.0, 0.0], [-1.0, 0.2]])
    got = scorer("neglabel", text=np.eye(2)[:1], negatives=-np.eye(2)[:1], groups=1, temperature=1e-3).score(far)
    assert np.isfinite(got).all()
    assert got[0] < got[1]


def test_neglabel_refuses_too_few_negatives_and_other_widths():
    with pytest.raises(InvalidInput, match="11 negatives cannot make 100 groups"):
        scorer("neglabel", text=TEXTS, negatives=NEGATIVES).score(TEST)
    with pytest.raises(InvalidInput, match="needs embeddings of negative labels"):
        scorer("neglabel", text=TEXTS).score(TEST)
    with pytest.raises(InvalidInput, match="negatives has 2 columns, and the features have 5"):
        scorer("neglabel", text=TEXTS, negatives=np.ones((4, 2)), groups=2).score(TEST)


def test_arrays_among_the_settings_are_saved_and_loaded(tmp_path):
    chain = scorer("neglabel", text=TEXTS, negatives=NEGATIVES, groups=3)
    assert chain.spec == "neglabel(text=..., negatives=..., groups=3)"
    chain.save(tmp_path / "chain")
    loaded = load_chain(tmp_path / "chain")
    assert loaded.spec == chain.spec
    assert (loaded.score(TEST) == chain.score(TEST)).all()
    assert (loaded.steps[0].setting("negatives") == NEGATIVES).all()


NOISE = np.random.default_rng(8).normal(size=(3, 4, 5))
ARRAYS = {
    "mcm": {"text": TEXTS},
    "neglabel(groups=3)": {"text": TEXTS, "negatives": NEGATIVES},
    "weiper": {"noise": NOISE / np.linalg.norm(NOISE, axis=2, keepdims=True)},
    "weiper(kind='kld', bins=10)": {"noise": NOISE / np.linalg.norm(NOISE, axis=2, keepdims=True)},
    "grood": {"prototype": np.linspace(-1.0, 1.0, 5)},
}


@pytest.mark.parametrize("spec", ARRAYS)
def test_chains_and_gates_keep_every_array_setting(spec, tmp_path):
    """Saved, loaded and saved again, alone and in a gate; another array gives other confidences."""
    rng = np.random.default_rng(9)
    head = Head(rng.normal(size=(4, 5)), rng.normal(size=4))
    h = rng.normal(size=(60, 5))
    known = Outputs(head.logits(h), head.logits(h).argmax(axis=1), h, head)
    test = Outputs(head.logits(h[::-1] + 0.5), None, h[::-1] + 0.5, head)
    chain = scorer(spec, **ARRAYS[spec]).fit(known)
    chain.save(tmp_path / "chain")
    load_chain(tmp_path / "chain").save(tmp_path / "again")
    loaded = load_chain(tmp_path / "again")
    assert loaded.spec == chain.spec
    assert np.array_equal(loaded.score(test), chain.score(test))
    for name, array in ARRAYS[spec].items():
        assert f"{name}=..." in loaded.spec
        assert np.array_equal(loaded.steps[0].setting(name), array)
        other = scorer(spec, **{**ARRAYS[spec], name: -array}).fit(known)
        assert not np.allclose(other.score(test), chain.score(test))
    gate = Gate.fit(known, "msp", chain, train=known, objective="coverage", coverage=0.7)
    gate.save(tmp_path / "gate")
    again = Gate.load(tmp_path / "gate")
    assert np.array_equal(again.decide(test).conf_ood, chain.score(test))


def test_a_text_without_its_arrays_says_so():
    text = scorer("mcm", text=TEXTS).spec
    assert not scorer(text).ready
    with pytest.raises(InvalidInput, match="the array text is not part of the text; pass text="):
        scorer(text).score(TEST)
    again = scorer(scorer("mcm", text=TEXTS), temperature=0.5)
    assert again.score(TEST) == pytest.approx(scorer("mcm", text=TEXTS, temperature=0.5).score(TEST))


def test_arrays_of_other_shapes_or_values_are_refused_at_once():
    with pytest.raises(InvalidInput, match=r"mcm: text must have shape \(C, D\), got \(5,\)"):
        scorer("mcm", text=TEXTS[0])
    with pytest.raises(InvalidInput, match="mcm: text"):
        scorer("mcm", text=np.full((2, 5), np.nan))


def test_later_changes_of_an_array_have_no_effect():
    texts = TEXTS.copy()
    chain = scorer("mcm", text=texts)
    before = chain.score(TEST)
    texts[:] = 1.0
    assert (chain.score(TEST) == before).all()


def test_negatives_are_the_candidates_farthest_from_all_classes():
    candidates = RNG.normal(size=(40, 5))
    chosen = mine_negatives(candidates, TEXTS, share=0.25, quantile=1.0)
    closeness = [max(cosine(row, t) for t in TEXTS) for row in candidates]
    assert chosen.tolist() == np.argsort(closeness).tolist()[:10]


def test_outputs_of_a_zero_shot_classifier():
    outputs = Outputs.from_embeddings(IMAGES, TEXTS, np.arange(12) % 3, temperature=0.02)
    for image, z in zip(IMAGES, outputs.logits, strict=True):
        assert z == pytest.approx([cosine(image, t) / 0.02 for t in TEXTS])
    assert scorer("mcm").score(outputs) == pytest.approx(scorer("mcm", text=TEXTS).score(TEST), rel=1e-12)
    got = scorer("neglabel", negatives=NEGATIVES, groups=3).score(outputs)
    assert got == pytest.approx(scorer("neglabel", text=TEXTS, negatives=NEGATIVES, groups=3).score(TEST), rel=1e-10)


def test_prompts_of_a_class_are_averaged_by_direction():
    prompts = RNG.normal(size=(3, 4, 5))
    outputs = Outputs.from_embeddings(IMAGES, prompts)
    for k in range(3):
        mean = np.mean([row / np.linalg.norm(row) for row in prompts[k]], axis=0)
        assert outputs.logits[:, k] == pytest.approx([100 * cosine(image, mean) for image in IMAGES])


def test_embeddings_that_do_not_go_together_are_refused():
    with pytest.raises(InvalidInput, match="images have 5 columns, and class_texts 2"):
        Outputs.from_embeddings(IMAGES, np.ones((3, 2)))
    with pytest.raises(InvalidInput, match="class_texts is all zeros in row 1"):
        Outputs.from_embeddings(IMAGES, [[1.0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0]])
    with pytest.raises(InvalidInput, match="temperature"):
        Outputs.from_embeddings(IMAGES, TEXTS, temperature=0)


def test_a_gate_with_negatives_is_saved_and_loaded(tmp_path):
    from twofold.gate import Gate

    labels = np.where(np.arange(12) % 4 == 3, -1, np.arange(12) % 3)
    outputs = Outputs.from_embeddings(IMAGES, TEXTS, labels)
    chain = scorer("neglabel", negatives=NEGATIVES, groups=3)
    gate = Gate.fit(outputs, "mcm", chain, objective="coverage", coverage=0.6)
    gate.save(tmp_path / "gate")
    assert (Gate.load(tmp_path / "gate").decide(outputs).conf_ood == gate.decide(outputs).conf_ood).all()
