"""Recipes described by text: settings of parts, the printed variants, and values out of range."""

from dataclasses import fields

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from training_toys import MIXERS, PREPARE, network, pictures  # noqa: E402

from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.ingredients import losses  # noqa: E402
from twofold.nn.recipes import (  # noqa: E402
    CRL,
    RECIPES,
    Averaged,
    Clean,
    Evidential,
    Members,
    MixUp,
    OutlierExposure,
    PixMix,
    Ranked,
    Sharpness,
    recipe,
)
from twofold.nn.training import Settings, TrainingSetup, TrainingStep, prepare_training  # noqa: E402


def training(name, **settings):
    setup = TrainingSetup(prepare=PREPARE, mixers=MIXERS)
    found = recipe(name)
    return prepare_training(found, network(name), pictures(), Settings(epochs=4, batch=32, **settings), setup)


def test_settings_of_parts():
    assert recipe("aurc_finetune(estimator='sele')").get(Ranked).estimator == "sele"
    assert recipe("deep_ensemble(count=3)").get(Members).count == 3
    found = recipe("sure_plus(rho=0.1, rho_relative=True, sigma=0.5, lam=0.9, decay=0.99, ramp=10)")
    part = found.get(Sharpness)
    assert (part.rho, part.rho_relative, part.sigma, part.lam) == (0.1, True, 0.5, 0.9)
    assert (found.get(Averaged).decay, found.get(Averaged).ramp) == (0.99, 10)
    assert recipe("edl(objective='mse', evidence='relu')").get(Evidential).evidence == "relu"
    assert recipe("crl(total='run', equal='pull')").get(CRL).total == "run"


def test_the_weight_of_a_recipe_is_that_of_its_regularisers():
    halved = recipe("sure_plus(weight=0.5)")
    assert [halved.get(kind).weight for kind in (Clean, MixUp, PixMix)] == [1.0, 0.5, 0.5]
    one = recipe("sure_plus(mixup_weight=0.5)")
    assert [one.get(kind).weight for kind in (Clean, MixUp, PixMix)] == [1.0, 0.5, 1.0]
    both = recipe("sure_plus(weight=0.25, clean_weight=2.0)")
    assert [both.get(kind).weight for kind in (Clean, MixUp, PixMix)] == [2.0, 0.25, 0.25]
    assert recipe("oe(weight=0.2)").get(OutlierExposure).weight == 0.2
    assert recipe("basic(weight=0.2)").get(Clean).weight == 0.2
    assert recipe("sure(crl_weight=0.5)").get(CRL).weight == 0.5


def test_sure_plus_in_its_four_forms():
    """PixMix rounds, passes and averages of the text, of the released code, and of the original PixMix."""
    printed, released = recipe("sure_plus_printed"), recipe("sure_plus_released")
    assert recipe("sure_plus").get(PixMix).rounds == (0, 4)
    assert printed.get(PixMix).rounds == (1, 4)
    assert released.get(PixMix).compat == "published"
    assert released.get(Sharpness).redraw
    assert not printed.get(Sharpness).redraw
    average = released.get(Averaged)
    assert (average.decay, average.ramp, average.rebn, average.released) == (0.9998, 2000.0, False, True)
    assert recipe("sure_plus(rounds=1)").get(PixMix).rounds == 1
    assert recipe("sure_plus(rounds=(1, 4))").get(PixMix).rounds == (1, 4)


def test_settings_reach_the_optimiser_and_the_average():
    made = training("sure_plus(sigma=0.5, lam=0.9, rho=0.3, decay=0.9, ramp=3)")
    assert (made.sharpness.sigma, made.sharpness.momentum, made.sharpness.rho) == (0.5, 0.9, 0.3)
    assert (made.average.decay, made.average.ramp) == (0.9, 3)
    assert made.sharpness.repeat
    assert not training("sure_plus_released").sharpness.repeat
    assert training("sure_plus").average.decay == pytest.approx(1 - min(1, 0.0002 * 78_000 / 8))


@pytest.mark.parametrize(("name", "is_same"), [("sure_plus", True), ("sure_plus_released", False)])
def test_the_released_second_pass_mixes_anew(name, is_same):
    """Other pairs and another share in the second pass, and the same images mixed with fractals."""
    made = training(name)
    seen = []
    forward = made.forward
    made.forward = lambda images: seen.append(images.detach().clone()) or forward(images)
    made.update(TrainingStep(made, np.arange(32), epoch=0, number=0))
    assert len(seen) == 6
    clean, mixed, textured = (seen[i] for i in range(3))
    assert torch.equal(clean, seen[3])
    assert torch.equal(mixed, seen[4]) == is_same
    assert torch.equal(textured, seen[5])


def test_the_weight_of_evidence_is_annealed():
    """min(1, epoch / 10) of the weight, as in the original method."""
    made = training("edl_original")
    for epoch, share in ((0, 0.0), (5, 0.5), (10, 1.0), (30, 1.0)):
        step = TrainingStep(made, np.arange(32), epoch=epoch, number=0)
        (term,) = made.recipe.terms
        found = term.loss(step).detach()
        expected = losses.edl(step.logits, step.labels, weight=share, objective="mse", evidence="relu")
        assert float(found) == pytest.approx(float(expected.detach()))


def test_correctness_over_the_whole_run():
    made = training("crl(total='run')")
    step = TrainingStep(made, np.arange(32), epoch=0, number=0)
    made.update(step)
    step.finish()
    record = made._memory["correctness"]
    assert record.total == 4
    assert set(record.targets(torch.arange(32), 1).tolist()) <= {0.0, 0.25}


def test_texts_of_older_recipes_read_the_same():
    """A state holds the recipe as text; what was added since shows only where it is changed."""
    assert str(recipe("sure_plus")) == (
        "Clean(weight=1.0, smoothing=0.0) | MixUp(alpha=10.0, weight=1.0) | PixMix(weight=1.0, compat='paper') | "
        "Sharpness(kind='fsam', rho=0.2, rho_relative=False, variant='released', ascent='all') | "
        "Averaged(kind='ema', rebn=True, start=0.6, lr=1.0, released=False)"
    )
    assert str(recipe("crl")) == "Clean(weight=1.0, smoothing=0.0) | CRL(weight=1.0, equal='ignore')"
    assert str(recipe("edl")) == "Evidential(weight=0.01)"
    assert "Hints(budget=0.3)" in str(recipe("devries"))
    assert str(recipe("edl(annealing=10.0)")) == "Evidential(weight=0.01, annealing=10.0)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sam(rho=-0.1)", r"sam\(rho=-0.1\): rho must be in \[0, inf\), got -0.1"),
        ("sam(rho=1e999)", "rho must be in"),
        ("sure_plus(sigma=-1)", "sigma must be in"),
        ("sure_plus(lam=1.0)", r"lam must be in \[0, 1\)"),
        ("sure_plus(decay=1.0)", "decay must be in"),
        ("sure_plus(ramp=-5)", "ramp must be in"),
        ("sure(decay=0.9)", "decay and ramp are settings of EMA"),
        ("sure(start=1.0)", "start must be in"),
        ("sure_plus(weight=-0.5)", "weight must be in"),
        ("sure_plus(alpha=0)", "alpha must be in"),
        ("sure_plus(rounds=0)", "rounds must be a whole number of at least 1"),
        ("sure_plus(rounds=(4, 1))", "the least of rounds must not exceed the largest"),
        ("sure_plus(rounds=(1, 2, 3))", "the least and the largest"),
        ("sure_plus(compat='papers')", "compat: no choice 'papers'"),
        ("sure_plus(variant='prints')", "variant: "),
        ("sure_plus(severity=11)", "severity must be in"),
        ("sure(scale=0)", "scale must be in"),
        ("label_smoothing(smoothing=2)", "smoothing must be in"),
        ("logitnorm(temperature=0)", "temperature must be in"),
        ("edl(objective='logs')", "objective: "),
        ("edl(evidence='sigmoid')", "evidence: "),
        ("edl(annealing=-1)", "annealing must be in"),
        ("crl(total='all')", "total: "),
        ("crl(equal='push')", "equal: "),
        ("energy_finetune(m_in=-3.0, m_out=-27.0)", "m_in must lie below m_out"),
        ("gamblers(reward=1.0)", r"reward must be in \(1, inf\)"),
        ("gamblers(warm_up=1.5)", "warm_up must be in"),
        ("devries(budget=0)", "budget must be in"),
        ("mc_dropout(rate=1.0)", r"rate must be in \[0, 1\)"),
        ("confidnet(branch_epochs=0)", "branch_epochs must be in"),
        ("confidnet(stage_schedule='steps')", "stage_schedule: "),
        ("deep_ensemble(count=0)", "count must be a whole number of at least 1"),
        ("aurc_finetune(lr=0)", "lr must be in"),
        ("gamblers(2)", "must be a name"),
        ("regmixup(alpha)", "must be a name"),
        ("mixup(alpha=__import__('os'))", "must be a name"),
    ],
)
def test_values_out_of_range_are_one_clear_line(text, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        recipe(text)
    assert "\n" not in str(caught.value)


def test_names_that_are_not_there():
    with pytest.raises(UnknownName, match=r"setting of gamblers.*did you mean 'reward'"):
        recipe("gamblers(rewrad=2)")
    with pytest.raises(InvalidInput, match=r"several parts of .* have kind; write sharpness_kind or averaged_kind"):
        recipe("sure_plus(kind='swa')")


@pytest.mark.parametrize("name", RECIPES)
def test_every_part_names_the_settings_it_has(name):
    for part in recipe(name).parts:
        for setting in fields(part):
            assert f"    {setting.name} : " in type(part).__doc__, f"{type(part).__name__}.{setting.name}"
