"""Presets: the printed values, what they change for one recipe, and what they refuse."""

import json
import math

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.recipes import RECIPES, EnergyMargin, Gambler, recipe  # noqa: E402
from twofold.nn.training import PRESETS, find_preset  # noqa: E402
from twofold.nn.training.schedule import LearningRate  # noqa: E402

# by hand from the papers: epochs or steps, batch, learning rate, weight decay
PRINTED = {
    "sure_plus_cifar": (200, 128, 0.05, 5e-4),
    "sure_plus_cifar_printed": (200, 128, 0.05, 5e-3),
    "sure_plus_dinov3": (20, 64, 1e-5, 5e-6),
    "sure_plus_dinov3_printed": (20, 64, 1e-6, 5e-6),
    "sure_deit": (50, 128, 0.01, 5e-5),
    "unknown_detection_cifar": (200, 128, 0.1, 5e-4),
    "unknown_detection_imagenet": (90, 256, 0.1, 1e-4),
    "unknown_detection_imagenet_released": (90, 128, 0.1, 1e-4),
    "fd_svhn_printed": (100, 128, 0.01, 1.5e-3),
    "fd_svhn_released": (100, 128, 0.01, 5e-4),
    "fd_cifar100_released": (250, 128, 0.1, 5e-4),
    "fd_iwildcam_printed": (12, 16, 1e-3, 0.0),
    "fd_iwildcam_released": (12, 128, 1e-3, 0.0),
    "fd_camelyon_printed": (5, 32, 0.01, 0.01),
    "fd_breeds": (300, 128, 0.1, 1e-4),
    "fd_vit_svhn_maha": (40_000, 128, 0.03, 0.0),
    "fd_vit_cifar10_msr": (40_000, 128, 3e-4, 0.0),
    "fd_vit_cifar100_msr": (10_000, 512, 0.01, 0.0),
    "fd_vit_breeds_mcd": (40_000, 128, 0.01, 0.0),
    "fd_vit_super_cifar100_printed_maha": (10_000, 512, 0.003, 0.0),
    "fd_vit_super_cifar100_released_maha": (40_000, 512, 0.003, 0.0),
    "aurc_finetune": (30, 128, 1e-3, 5e-4),
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_values(name):
    settings = PRESETS[name].settings
    assert (settings.steps or settings.epochs, settings.batch, settings.lr, settings.weight_decay) == PRINTED[name]


def test_the_imagenet_of_unknown_detection_drops_at_30_and_60():
    settings = PRESETS["unknown_detection_imagenet"].settings
    schedule = LearningRate(settings, settings.lr, steps_per_epoch=5)
    of_epoch = [schedule.at(epoch * 5) for epoch in range(90)]
    assert of_epoch == pytest.approx([0.1] * 30 + [0.01] * 30 + [0.001] * 30)


# the reward selected for the reservation, epochs of Deep Gamblers, epochs of plain cross-entropy, ConfidNet's stages
FD = {
    "fd_svhn_released": (2.2, 150, 50, (100, 200, 20)),
    "fd_cifar10_released": (2.2, 300, 100, (250, 200, 20)),
    "fd_cifar100_printed": (12.0, 300, 50, (250, 200, 20)),
    "fd_cifar100_released": (12.0, 300, 100, (250, 200, 20)),
    "fd_iwildcam_printed": (6.0, 18, 6, (12, 5, 3)),
    "fd_camelyon_printed": (2.2, 8, 3, (5, 3, 1)),
    "fd_breeds": (2.2, 350, 50, (300, 200, 20)),
}


@pytest.mark.parametrize("name", FD)
def test_fd_shifts_by_data_set(name):
    reward, epochs, plain, stages = FD[name]
    preset = PRESETS[name]
    gambler = recipe("gamblers", **preset.parts_for("gamblers")).get(Gambler)
    settings = preset.settings_for("gamblers")
    assert (gambler.reward, settings.epochs) == (reward, epochs)
    assert gambler.warm_up * epochs == pytest.approx(plain)
    first = preset.settings_for("confidnet").epochs
    later = recipe("confidnet", **preset.parts_for("confidnet")).later_stages
    assert (first, *(stage.count_epochs(first) for stage in later)) == stages
    assert preset.settings_for("devries").nesterov
    assert not preset.settings_for("basic").nesterov


def test_margins_of_energy_by_data_set():
    for name, margins in (("cifar", (-27.0, -3.0)), ("imagenet", (-15.0, -7.0))):
        preset = PRESETS[f"unknown_detection_{name}"]
        part = recipe("energy_finetune", **preset.parts_for("energy_finetune")).get(EnergyMargin)
        assert (part.m_in, part.m_out) == margins
        settings = preset.settings_for("energy_finetune")
        assert (settings.epochs, settings.lr, settings.min_lr) == (10, 1e-3, 1e-6)


def test_what_the_text_says_comes_before_the_preset():
    parts = PRESETS["fd_cifar100_released"].parts_for("gamblers(reward=6.0)")
    assert recipe("gamblers(reward=6.0)", **parts).get(Gambler).reward == 6.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_source_and_recipes_that_take_its_settings(name):
    preset = PRESETS[name]
    assert len(preset.source) > 20
    for plain in preset.variations:
        assert plain in RECIPES
        preset.settings_for(plain)
        recipe(plain, **preset.parts_for(plain))


def test_changes_replace_what_they_exclude():
    vit = PRESETS["fd_vit_cifar10_msr"]
    changed = vit.settings_for("basic", {"epochs": 3, "warm_up_epochs": 1.0})
    assert (changed.steps, changed.epochs, changed.warm_up) == (None, 3, 0)
    released = PRESETS["unknown_detection_cifar_released"]
    assert not released.settings_for("basic", {"optimiser": "adamw"}).nesterov
    with pytest.raises(InvalidInput, match="nesterov needs"):
        released.settings_for("basic", {"optimiser": "adamw", "nesterov": True})


def test_older_names_have_the_settings_they_had():
    assert PRESETS["cifar"].settings == PRESETS["sure_plus_cifar"].settings
    assert PRESETS["cifar"].settings_for("basic").lr == 0.05
    assert PRESETS["as_printed"].settings.weight_decay == 5e-3
    assert PRESETS["unknown_detection"].settings.nesterov
    assert PRESETS["fd_cifar"].settings_for("gamblers").epochs == 250
    assert PRESETS["dinov3"].settings.lr == 1e-5


@pytest.mark.parametrize("model", ["vit_tiny", "timm:deit_base_patch16_224", "own.py:make", "hf:folder"])
def test_what_may_be_a_transformer_is_accepted(model):
    PRESETS["sure_plus_dinov3"].check_fits("sure_plus_dinov3", "sure_plus", model)


def test_a_preset_that_does_not_fit_is_one_clear_line(tmp_path):
    with pytest.raises(InvalidInput, match=r"is for vision transformers .ViT-B/16., and timm:resnet50 is none"):
        find_preset("fd_vit_svhn_msr").check_fits("fd_vit_svhn_msr", "basic", "timm:resnet50")
    with pytest.raises(UnknownName, match="did you mean"):
        find_preset("fd_svhm_printed")
    arguments = ["train", "--model", "resnet8_cifar", "--data", "npz:none.npz", "--out", str(tmp_path / "out")]
    for preset, chosen, message in (
        ("sure_plus_dinov3", "sure_plus", "preset sure_plus_dinov3 is for vision transformers"),
        ("aurc_finetune", "oe", "preset aurc_finetune is for aurc_finetune and basic, not for oe"),
    ):
        result = CliRunner().invoke(main, [*arguments, "--preset", preset, "--recipe", chosen])
        assert result.exit_code == 3
        assert message in result.output
        assert "Traceback" not in result.output


def test_the_list_of_presets_is_json_without_nan():
    result = CliRunner().invoke(main, ["list", "presets", "--json"])
    assert result.exit_code == 0
    found = {row["name"]: row for row in json.loads(result.output)}
    assert set(found) == set(PRESETS)
    assert found["fd_cifar100_released"]["variations"]["gamblers"]["parts"]["reward"] == 12.0
    assert found["fd_cifar100_released"]["dropout"] == 0.3
    assert "released code" in found["fd_cifar100_released"]["summary"]
    assert not any(math.isnan(row["settings"]["lr"]) for row in found.values())
    table = CliRunner().invoke(main, ["list", "presets"]).output
    assert all(name in table for name in PRESETS)
