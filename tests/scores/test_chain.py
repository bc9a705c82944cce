"""Chains: one parser, settings by name, fits that return new objects, files that give the same bits back."""

import dataclasses

import numpy as np
import pytest

import twofold
from twofold.errors import InvalidInput, NotFitted
from twofold.outputs import Head, Outputs
from twofold.scores import registry
from twofold.scores.chain import _read_file, load_chain, scorer


def outputs(n=40, seed=0, classes=3, width=5):
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(n, width)))
    head = Head(rng.normal(size=(classes, width)), rng.normal(size=classes))
    return Outputs(head.logits(features), rng.integers(0, classes, n), features, head)


def test_fit_returns_a_new_chain():
    train = outputs()
    blank = scorer("react|energy")
    fitted = blank.fit(train)
    assert fitted is not blank
    assert not blank.ready
    assert fitted.ready
    with pytest.raises(NotFitted, match=r"react is not fitted; call .fit\(train\)"):
        blank.score(train)
    assert (fitted.fit(train).score(train) == fitted.score(train)).all()


def test_the_label_says_what_fitting_saw():
    train, val = outputs(), outputs(seed=1)
    assert scorer("energy").fit(train).fitted_on == ""
    assert scorer("react|energy").fit(train).fitted_on == "train"
    assert scorer("klm").fit(train).fitted_on == "train"
    assert scorer("klm").fit(train, val=val).fitted_on == "val"


def test_sets_are_found_by_parameter_name():
    train, val = outputs(), outputs(seed=1)
    on_val, on_train = scorer("klm").fit(train, val=val), scorer("klm").fit(val)
    assert (on_val.score(train) == on_train.score(train)).all()


def test_transforms_come_before_the_next_fit():
    train = outputs()
    chain = scorer("react(percentile=50)|klm").fit(train)
    limit = np.percentile(train.features, 50)
    clipped = np.minimum(train.features, limit)
    by_hand = train.replace(features=clipped, logits=train.head.logits(clipped))
    assert chain.score(train) == pytest.approx(scorer("klm").fit(by_hand).score(by_hand), abs=1e-12)


def test_a_transform_never_changes_the_prediction():
    train = outputs()
    flipped = train.replace(predictions=(np.asarray(train.predictions) + 1) % 3)
    assert not np.allclose(scorer("msp").score(train), scorer("msp").score(flipped))
    chain = scorer("temperature(value=3.0)|msp").fit(flipped)
    z = np.asarray(train.logits) / 3.0
    rows, k = np.arange(len(z)), np.asarray(flipped.predictions)
    others = np.array([np.log(np.exp(np.delete(row, c)).sum()) for row, c in zip(z, k, strict=True)])
    assert chain.score(flipped) == pytest.approx(z[rows, k] - others, abs=1e-12)


def test_missing_needs_are_explained():
    logits_only = Outputs(np.eye(3), [0, 1, 2])
    with pytest.raises(InvalidInput, match="ash needs features and head; these outputs have logits and labels only"):
        scorer("ash|energy").score(logits_only)
    with pytest.raises(InvalidInput, match="fitting react needs features, and the train outputs have none"):
        scorer("react|energy").fit(logits_only)
    with pytest.raises(InvalidInput, match="score takes Outputs"):
        scorer("energy").score(np.eye(3))


@pytest.mark.parametrize("text", ["energy", "react(percentile=80)|energy", "dice|ash(kind='p')|gen", "temperature|klm"])
def test_saved_chains_give_the_same_bits(text, tmp_path):
    train, test = outputs(), outputs(seed=2)
    chain = scorer(text).fit(train)
    chain.save(tmp_path / "chain.safetensors")
    back = load_chain(tmp_path / "chain.safetensors")
    assert (back.spec, back.fitted_on) == (chain.spec, chain.fitted_on)
    assert (back.score(test) == chain.score(test)).all()
    assert b"pickle" not in (tmp_path / "chain.safetensors").read_bytes()


def test_files_that_are_no_chain(tmp_path):
    with pytest.raises(NotFitted, match="not fitted"):
        scorer("react|energy").save(tmp_path / "c")
    with pytest.raises(InvalidInput, match="does not exist"):
        load_chain(tmp_path / "missing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InvalidInput, match="damaged or not a saved chain"):
        load_chain(tmp_path / "text")
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "other")
    with pytest.raises(InvalidInput, match="is not a saved chain; write one"):
        load_chain(tmp_path / "other")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_chain(tmp_path)


def test_chains_of_the_format_without_a_digest_are_written_again(tmp_path):
    from safetensors.numpy import save_file

    header = {"format": "twofold-chain-1", "spec": "energy", "tuned": "nothing to fit", "searched": ""}
    save_file({}, tmp_path / "old", metadata=header)
    with pytest.raises(InvalidInput, match=r"old is of the older format without a digest; write it again with Chain.s"):
        load_chain(tmp_path / "old")


@pytest.mark.parametrize("text", ["energy", "react|mds", "isolation_forest(trees=3)"])
def test_no_flipped_bit_of_a_saved_chain_changes_a_score(text, tmp_path):
    """Every flip is refused, or leaves the scores as they were to the last bit."""
    test = outputs(seed=2)
    chain = scorer(text).fit(outputs())
    chain.save(tmp_path / "chain")
    raw, wanted = (tmp_path / "chain").read_bytes(), chain.score(test)
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.choice(8 * len(raw), 400, replace=False).tolist():
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            found = load_chain(tmp_path / "damaged")
        except InvalidInput:
            refused += 1
            continue
        assert found.spec == chain.spec
        assert (found.score(test) == wanted).all()
    assert refused > 300


def test_a_tree_that_leads_back_is_refused(tmp_path):
    """Scoring by it would never end."""
    from safetensors.numpy import save_file

    from twofold._files import arrays_digest

    scorer("isolation_forest(trees=3)").fit(outputs()).save(tmp_path / "chain")
    arrays, header = _read_file(tmp_path / "chain")
    children = arrays["0.children"].copy()
    children[:, children[0, 0]] = 0  # the first child of the root leads back to it
    arrays["0.children"] = children
    save_file(arrays, tmp_path / "cyclic", metadata={**header, "sha256": arrays_digest(arrays, header)})
    with pytest.raises(InvalidInput, match="does not lead to nodes behind it: no tree"):
        load_chain(tmp_path / "cyclic")


FORGED = ["energy" + "(" * 5000, "sum(of=3)", "knn(k=-1)", "energy(temperature={[]: 1})", "zzz"]


@pytest.mark.parametrize("spec", FORGED)
def test_a_forged_text_is_refused(spec, tmp_path):
    from safetensors.numpy import save_file

    from twofold._files import arrays_digest

    header = {"format": "twofold-chain", "version": "2", "spec": spec, "tuned": "nothing to fit", "searched": ""}
    save_file({}, tmp_path / "forged", metadata={**header, "sha256": arrays_digest({}, header)})
    with pytest.raises(InvalidInput, match="forged"):
        load_chain(tmp_path / "forged")


def test_a_transform_must_keep_the_rows(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    @twofold.register_transform("shorter", paper="a test")
    def shorter(logits):
        return {"logits": logits[:3]}

    @twofold.register_transform("stray", paper="a test")
    def stray(logits):
        return {"logit": logits}

    with pytest.raises(InvalidInput, match=r"must keep the 40 rows of logits, and made shape \(3, 3\)"):
        scorer("shorter|msp").score(outputs())
    with pytest.raises(InvalidInput, match="did you mean 'logits'"):
        scorer("stray|msp").score(outputs())


@pytest.mark.slow
def test_a_training_set_larger_than_memory_allows_is_fitted_in_blocks(tmp_path):
    """A memory-mapped run of 120 MB: fitting many scores holds far less than its features."""
    import tracemalloc

    rng = np.random.default_rng(0)
    rows, width, classes = 120_000, 256, 20
    weight = rng.normal(size=(classes, width)).astype(np.float32)
    head = Head(weight)
    run = twofold.Run.create(tmp_path / "run", model="a test")
    labels = np.arange(rows) % classes
    features = np.maximum(rng.normal(size=(rows, width)).astype(np.float32) + weight[labels], 0)
    run.add("train", Outputs(head.logits(features).astype(np.float32), labels, features, head), role="train")
    size = features.nbytes
    del features
    train = run["train"]
    specs = ["mds", "rmds", "she", "cosine_mean", "fdbd", "nci", "react|energy", "dice|energy", "vim", "residual"]
    specs += ["pca_error", "neco", "pnml", "klm", "sirc", "plugin_bb", "project|energy", "kpca_error"]
    tracemalloc.start()
    twofold.scores.fit_all(specs, train)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 2


def test_a_chain_judges_the_passes_if_any_step_does():
    judged = {
        "msp": "logits",
        "react|energy": "logits",
        "mc_msp": "passes",
        "average|gini": "passes",
        "mc(mls)": "passes",
    }
    assert {spec: scorer(spec).judges for spec in judged} == judged


def test_labels_of_tuning():
    chain = scorer("energy")
    assert chain.label == "untuned"
    for tuned_on, fitted_on, label in (
        ("", "train", "untuned"),
        ("", "val", "untuned"),
        ("val", "", "ID-tuned"),
        ("ood_val", "", "OOD-tuned"),
        ("", "ood_val", "OOD-tuned"),
        ("val", "ood_val", "OOD-tuned"),
    ):
        assert dataclasses.replace(chain, tuned_on=tuned_on, fitted_on=fitted_on).label == label
