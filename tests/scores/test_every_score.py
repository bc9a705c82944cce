"""Laws that every registered score obeys, alone and behind every transform."""

import contextlib
import inspect

import numpy as np
import pytest
from safetensors.numpy import save_file

from twofold._files import arrays_digest
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.candidates import computable_scores
from twofold.scores.chain import _read_file, load_chain, scorer
from twofold.scores.registry import PROJECTIONS, info, step_names

CLASSES, WIDTH = 4, 6
NEGATIVES = "((1, 0, 0, 0, 0, 0), (0, -1, 0, 0, 0, 1), (0, 0, -1, 0, 0, 0))"
SPECS = {
    "sum": "sum(of=('msp', 'knn'))",
    "product": "product(of=('react|energy', 'mds'))",
    "mc": "mc(knn)",
    "neglabel": f"neglabel(negatives={NEGATIVES}, groups=2, temperature=0.5)",
    "nac": "nac(alpha=1.0, bins=10)",  # steep states jump between bins with the rounding of half precision
}
SCORES = [SPECS.get(name, name) for name in step_names("score")]
SETTINGS = [
    "energy(temperature=3)",
    "gen(gamma=0.5, top=2)",
    "renyi(top=3)",
    "mds(covariance='total', nearest=False)",
    "she(kind='cosine')",
    "she(kind='euclidean')",
    "fdbd(center=False)",
    "nnguide(base='msp', k=3)",
    "relation(power=4)",
    "pnml(unit=False)",
    "pca_error(kind='class')",
    "pca_error(kind='class_pred', fused=True)",
    "kpca_error(map='fourier', width=64)",
    "kpca_error(map='nystroem', landmarks=20)",
    "kpca_error(map='exact', normalised=True)",
    "kpca_error(kind='class')",
    "neco(standardise=False)",
    "gmm(covariance='full', components=2)",
    "mds_layers(weights='equal')",
    "sirc(s1='entropy', s2=('norm', 'residual'))",
    "sirc(s2='residual', compat='published')",
    "plugin_bb(ratio='residual')",
    "plugin_bb(id_share=0.5)",
    "mc(energy)",
    "mc(msp)",
    "cadref(base='msp')",
    "cadref(base='mls')",
    "cadref(base='gen')",
    "weiper(kind='kld', repeats=20, bins=10)",
    "grood(prototype=(0.5, 1.0, 0.5, 0.0, 0.5, 0.5))",
    "combood(of='penultimate', k=5)",
    "trust(alpha=0.2, k=3)",
    "cfood(share=0.1)",
    "mcm(text=((1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 1, 0)), temperature=0.1)",
    "adascale(kind='l')|energy",
    "pro(of='gen')",
]
NAMED_CLASSES = ("weiper",)  # random directions belong to the places of the classes
BEHIND = ["msp", "energy", "entropy"]
TRANSFORMS = [{"optfs": "optfs(bins=3)"}.get(name, name) for name in step_names("transform")]  # rounding crosses bins
CHAINS = [
    *SCORES,
    *SETTINGS,
    *(f"{t}|{s}" for t in TRANSFORMS for s in BEHIND),
    *(f"project(kind={kind!r})|{s}" for kind in PROJECTIONS for s in ("msp", "cosine_weight")),
    "react|dice|energy",
    "react|knn",
    "temperature|sirc",
]
PASSES = 3
LEARNED = (
    "confidnet",
    "devries",
    "reservation",
    "odin",
    "iodin",
    "rankfeat",
    "mds_perturbed",
    "pro/msp",
    "pro/gen",
    "conf",
)

DOUBT = [  # trust right answers more than wrong ones; the others look for inputs unlike the training set
    *step_names("score", needs=["logits"]),
    "she",
    "cosine_weight",
    "fdbd",
    "gradnorm",
    "nci",
    "nnguide",
    "sirc",
    "plugin_bb",
    "mc_msp",
    "mc_mls",
    "mc_entropy",
    "mc_expected_entropy",
    "cadref",
    "weiper",
    "trust",
    "gradorth",
    "graduncertainty",
    "mcm",
]
ODD = ["klm", "openmax"]
DOUBT = [SPECS.get(name, name) for name in DOUBT if name not in (*ODD, "joint_energy", "mc", "sum", "product")]
FAR = [  # trust features of class means more than features like no class
    "mds",
    "rmds",
    "cosine_mean",
    "knn",
    "lof",
    "vim",
    "residual",
    "pca_error",
    "kpca_error",
    "pnml",
    "gmm",
    "isolation_forest",
    "relation",
    "caref",
    "cadref",
    "grood",
    "cfood(share=0.1)",
    "combood(of='penultimate')",
]


def outputs(n=60, seed=0, dtype=np.float64):
    """Separable enough to be a classifier; features non-negative, all classes present."""
    rng = np.random.default_rng(seed)
    weight = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    labels = np.arange(n) % CLASSES
    features = np.abs(rng.normal(size=(n, WIDTH)) + 1.5 * np.maximum(weight[labels], 0)).astype(dtype)
    head = Head(weight.astype(dtype), np.linspace(-0.5, 0.5, CLASSES).astype(dtype))
    logits = head.logits(features).astype(dtype)
    kept = features * (rng.random((PASSES, n, WIDTH)) > 0.2)  # dropout
    passes = np.stack([head.logits(h) for h in kept]).astype(dtype)
    layers = {"passes/features": kept.mean(axis=0).astype(dtype)}
    layers["penultimate/perturbed"] = (features + 0.1 * rng.normal(size=features.shape)).astype(dtype)
    layers["relu1/max"] = features.max(axis=1, keepdims=True)
    layers["relu1/min"] = -features[:, :1] - features[:, 1:2]
    for name, table in (("first", features[:, :3]), ("second", features[:, 2:])):
        layers |= {f"{name}/mean": table, f"{name}/var": table**2}
        layers |= {f"{name}/gram{power}": table * power for power in range(1, 6)}
    learned = {name: rng.random(n).astype(dtype) for name in LEARNED}
    learned |= {f"passes/{name}": value for name, value in learned.items()}
    return Outputs(logits, labels, features, head, layers, passes, learned)


def fit(spec, *, dtype=np.float64, change=lambda o: o):
    """The chain fitted on three sets."""
    ood = change(outputs(seed=7, dtype=dtype)).replace(labels=np.full(60, -1))
    return scorer(spec).fit(change(outputs(dtype=dtype)), val=change(outputs(seed=1, dtype=dtype)), ood_val=ood)


@pytest.fixture(scope="module", params=CHAINS)
def fitted(request):
    return fit(request.param)


def test_shape_type_and_finite(fitted):
    conf = fitted.score(outputs(seed=2))
    assert conf.shape == (60,)
    assert conf.dtype == np.float64
    assert np.isfinite(conf).all()


def test_rows_are_independent(fitted):
    test = outputs(seed=2)
    whole = fitted.score(test)
    order = np.random.default_rng(0).permutation(len(test))
    assert fitted.score(test[order]) == pytest.approx(whole[order], rel=1e-9, abs=1e-12)
    halves = np.concatenate([fitted.score(test[:23]), fitted.score(test[23:])])
    assert halves == pytest.approx(whole, rel=1e-9, abs=1e-12)
    one = np.concatenate([fitted.score(test[i]) for i in range(5)])
    assert one == pytest.approx(whole[:5], rel=1e-9, abs=1e-12)


def test_relabelling_classes_changes_nothing(fitted):
    if fitted.steps[-1].info.name in NAMED_CLASSES:
        pytest.skip("its random directions belong to the places of the classes")
    turn = np.array([2, 0, 3, 1])  # new name of each old class

    def renamed(o):
        back = np.argsort(turn)
        head = Head(np.asarray(o.head.weight)[back], np.asarray(o.head.bias)[back])
        passes = np.asarray(o.passes)[:, :, back]
        logits, labels = np.asarray(o.logits)[:, back], turn[np.asarray(o.labels)]
        return Outputs(logits, labels, o.features, head, o.layers, passes, o.learned)

    again = fit(fitted.spec, change=renamed)
    assert again.score(renamed(outputs(seed=2))) == pytest.approx(fitted.score(outputs(seed=2)), rel=1e-9, abs=1e-9)


def test_inputs_are_untouched(fitted):
    test = outputs(seed=2)
    before = {k: v.copy() for k, v in test.flat().items()}
    fitted.score(test)
    for name, array in test.flat().items():
        assert (array == before[name]).all(), name


def test_fit_is_deterministic_and_saved_exactly(fitted, tmp_path):
    test = outputs(seed=2)
    again = fit(fitted.spec)
    assert (again.score(test) == fitted.score(test)).all()
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == fitted.score(test)).all()


def forge(arrays, header, path):
    """Write a chain's file with changed content and a digest that fits it."""
    header = {name: text for name, text in header.items() if name != "sha256"}
    header["sha256"] = arrays_digest(arrays, header)
    save_file(arrays, path, metadata=header)


def test_files_with_other_arrays_are_refused(fitted, tmp_path):
    """Also where the digest fits: a file may be untrusted."""
    fitted.save(tmp_path / "c")
    arrays, header = _read_file(tmp_path / "c")
    forged = {"one too many": {**arrays, "0.zzz": np.zeros(2)}, "no step": {**arrays, "9.zzz": np.zeros(2)}}
    for name, array in arrays.items():
        forged[f"without {name}"] = {key: value for key, value in arrays.items() if key != name}
        forged[f"{name} with one axis more"] = {**arrays, name: array[None].copy()}
        other = np.uint16 if array.dtype.kind == "f" else np.float64
        forged[f"{name} of another kind"] = {**arrays, name: np.zeros(array.shape, other)}
        if array.dtype.kind == "f" and array.size:
            holed = array.copy()
            holed.flat[0] = np.nan
            forged[f"{name} with NaN"] = {**arrays, name: holed}
    for what, content in forged.items():
        forge(content, header, tmp_path / "forged")
        with pytest.raises(InvalidInput, match="forged"):
            pytest.fail(f"{what}: {load_chain(tmp_path / 'forged')}")
    forge(arrays, header, tmp_path / "forged")
    assert load_chain(tmp_path / "forged").spec == fitted.spec


def test_outputs_of_another_size_give_no_error_of_numpy(fitted):
    test = outputs(seed=2)
    wider = {name: np.pad(array, ((0, 0), (0, 1))) for name, array in test.layers.items()}
    head = Head(np.pad(test.head.weight, ((0, 1), (0, 1))), np.pad(test.head.bias, (0, 1)))
    features = np.pad(test.features, ((0, 0), (0, 1)))
    passes = np.pad(test.passes, ((0, 0), (0, 0), (0, 1)))
    logits = np.pad(test.logits, ((0, 0), (0, 1)))
    last = np.where(np.arange(len(test)) % 2, CLASSES, test.predictions)
    other = Outputs(logits, None, features, head, wider, passes, test.learned, last)
    with contextlib.suppress(InvalidInput):
        assert np.isfinite(fitted.score(other)).all()


def test_half_precision_inputs_work(fitted):
    got = fit(fitted.spec, dtype=np.float16).score(outputs(seed=2, dtype=np.float16))
    assert np.isfinite(got).all()
    reference = fitted.score(outputs(seed=2))
    if np.ptp(reference) < 1e-9:  # the energy of averaged probabilities is 0
        assert np.ptp(got) < 1e-9
    else:
        assert np.corrcoef(got, reference)[0, 1] > 0.95


@pytest.mark.parametrize("spec", [*SCORES, *(f"{t}|energy" for t in TRANSFORMS)])
def test_a_missing_need_is_explained(spec):
    chain = fit(spec)
    test = outputs(seed=2)
    for need in chain.needs:
        if need == "logits":
            continue
        fields = dict.fromkeys((need, *(["head"] if need == "features" else [])))
        without = test.replace(**fields)
        with pytest.raises(InvalidInput, match=f"needs .*{need}"):
            chain.score(without)


def test_labels_of_no_class_are_left_out_of_fits():
    train, strangers = outputs(), outputs(40, seed=8)
    mixed = Outputs.concat([train, strangers.replace(labels=np.full(40, -1))])
    for spec in ("mds", "knn", "react|energy", "vim", "klm", "gmm", "openmax", "temperature|msp"):
        assert scorer(spec).fit(mixed).score(train) == pytest.approx(scorer(spec).fit(train).score(train), rel=1e-9), (
            spec
        )


@pytest.mark.parametrize("spec", [*DOUBT, "temperature|msp", "mc(msp)", "sum(of=('msp', 'fdbd'))"])
def test_confidence_is_higher_for_right_answers(spec):
    """Orientation: on a working classifier scores of doubt prefer right answers (others look for the odd)."""
    from twofold.metrics import auroc

    test = outputs(n=2000, seed=3)
    chain = scorer(spec).fit(outputs())
    judged = test.averaged() if chain.judges == "passes" else test
    assert auroc(judged.correct, chain.score(test)) > 0.55


@pytest.mark.parametrize("spec", ODD)
def test_odd_answers_have_lower_confidence(spec):
    """Orientation: logits like no training sample's are trusted less than those of class means."""
    train = outputs(400)
    z = np.asarray(train.logits)
    typical = np.stack([z[np.asarray(train.labels) == k].mean(axis=0) for k in range(CLASSES)])
    odd = np.full((1, CLASSES), 30.0)
    chain = scorer(spec).fit(train)
    assert chain.score(Outputs(typical)).min() > chain.score(Outputs(odd))[0]


@pytest.mark.parametrize("name", [*step_names("score"), *step_names("transform")])
def test_every_step_is_documented(name):
    record = info(name)
    text = inspect.getdoc(record.maker)
    assert ">>>" in text
    assert ".. math::" in text or ":math:" in text or name == "mls"
    assert record.paper
    assert record.summary.endswith(".")


@pytest.mark.parametrize("name", step_names("score", needs=["logits"]))
def test_two_classes_and_extreme_logits(name):
    if name in ("sum", "product", "mc"):
        pytest.skip("made of other scores")
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30, 2)) * 3
    train = Outputs(z, np.where(rng.random(30) < 0.8, z.argmax(axis=1), 1 - z.argmax(axis=1)))
    chain = scorer(name).fit(train)
    assert np.isfinite(chain.score(train)).all()
    extreme = Outputs([[800.0, -800.0], [0.0, 0.0], [-1e4, 1e4]], [0, 1, 1])
    assert not np.isnan(chain.score(extreme)).any()


@pytest.mark.parametrize("spec", FAR)
def test_odd_features_have_lower_confidence(spec):
    """Orientation: features like no class are trusted less than class means."""
    train = outputs(400)
    h = np.asarray(train.features)
    means = np.stack([h[np.asarray(train.labels) == k].mean(axis=0) for k in range(CLASSES)])
    odd = np.array([[9.0, -9, 9, -9, 9, -9]])  # far away, and along no class
    chain = scorer(spec).fit(train)
    trusted = chain.score(Outputs(train.head.logits(means), None, means, train.head))
    assert trusted.min() > chain.score(Outputs(train.head.logits(odd), None, odd, train.head))[0]


@pytest.mark.parametrize("fields", [("logits",), ("logits", "features", "head")])
def test_every_score_that_outputs_allow_works_on_them(fields):
    full = outputs(120)
    given = Outputs(full.logits, full.labels, *(getattr(full, name) for name in fields[1:]))
    names = computable_scores([given])
    assert {"combood", "neglabel"}.isdisjoint(names)  # layers or embeddings are missing
    for name in names:
        assert np.isfinite(scorer(name).fit(given, val=given).score(given)).all(), name


def test_combood_is_a_candidate_where_the_extremes_of_layers_are_recorded():
    full = outputs(120)
    extremes = {f"block/{kind}": np.asarray(full.features) for kind in ("max", "min")}
    given = Outputs(full.logits, full.labels, full.features, layers=extremes)
    assert "combood" in computable_scores([given])
    assert "combood" not in computable_scores([given, Outputs(full.logits, full.labels, full.features)])
