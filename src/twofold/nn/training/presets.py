"""The settings of the papers by name, each with its source.

Where a paper and its released code disagree there are two presets, and their names say which is which. A preset also
says what it is meant for, and holds what a paper changes for one recipe, such as the reward of Deep Gamblers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.training.settings import Settings

NetworkKind: TypeAlias = Literal["any", "vit"]

TRANSFORMERS = ("vit", "deit", "dino", "swin", "beit", "eva", "cait")  # what names of transformers contain
SURE_PLUS = "SURE+, arXiv:2603.03903"
SURE = "SURE, CVPR 2024, arXiv:2403.00543"
UNKNOWN = "unknown detection, arXiv:2112.00337"
FD_SHIFTS = "FD-Shifts, ICLR 2023, arXiv:2211.15259"
T2FNORM = "T2FNorm, CVPR Workshops 2024, arXiv:2305.17797"
CIDER = "CIDER, ICLR 2023, arXiv:2203.04450"


@dataclass(frozen=True)
class Variation:
    """Describe what a preset changes for one recipe.

    Parameters
    ----------
    settings : mapping of str to object, default={}
        Fields of :class:`Settings` and their values.
    parts : mapping of str to object, default={}
        Settings of the recipe's parts, as ``recipe(setting=value)`` takes them.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    parts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """Hold the settings of a paper, where they are printed, and what they are meant for.

    Parameters
    ----------
    settings : Settings
        The settings.
    source : str
        Paper and table, or released code.
    network : str, default="any"
        The network that the paper trained, as text.
    kind : {"any", "vit"}, default="any"
        ``"vit"`` where the settings fit vision transformers only; another network is then refused.
    crop : int, optional
        Side of the images that the paper trained on.
    dropout : float, optional
        Rate of dropout where the paper trains with it.
    recipes : tuple of str, default=()
        The recipes that the settings are for; empty means all.
    variations : mapping of str to Variation, default={}
        What the paper changes for a recipe, by its name.

    Examples
    --------
    >>> PRESETS["fd_cifar100_released"].variations["gamblers"].parts["reward"]
    12.0
    """

    settings: Settings
    source: str
    network: str = "any"
    kind: NetworkKind = "any"
    crop: int | None = None
    dropout: float | None = None
    recipes: tuple[str, ...] = ()
    variations: Mapping[str, Variation] = field(default_factory=dict)

    def settings_for(self, recipe: str, changes: Mapping[str, object] | None = None) -> Settings:
        """Return the settings for a recipe.

        Parameters
        ----------
        recipe : str
            The recipe as text; what stands in its brackets does not count.
        changes : mapping of str to object, optional
            Fields of :class:`Settings` that differ. ``epochs`` replaces the steps of a preset, a warm-up in one unit
            that in the other, and an optimiser other than SGD goes without Nesterov's momentum.

        Returns
        -------
        Settings
            Those of the preset, with what the paper changes for this recipe, and then the changes.

        Raises
        ------
        InvalidInput
            If a value is out of range.

        Examples
        --------
        >>> PRESETS["fd_cifar100_released"].settings_for("gamblers(reward=6)").epochs
        300
        >>> PRESETS["fd_vit_cifar10_msr"].settings_for("basic", {"epochs": 2}).steps is None
        True
        """
        values: dict[str, object] = {}
        variation = self.variations.get(recipe.partition("(")[0])
        if variation is not None:
            values |= variation.settings
        if changes:
            if "epochs" in changes:
                values["steps"] = None
            if "warm_up" in changes:
                values["warm_up_epochs"] = 0.0
            if "warm_up_epochs" in changes:
                values["warm_up"] = 0
            if changes.get("optimiser", "sgd") != "sgd":
                values["nesterov"] = False
            values |= changes
        return replace(self.settings, **values)  # type: ignore[arg-type]

    def parts_for(self, recipe: str) -> Mapping[str, object]:
        """Return the settings of a recipe's parts that the paper changes.

        Parameters
        ----------
        recipe : str
            The recipe as text; what stands in its brackets does not count.

        Returns
        -------
        mapping of str to object
            Settings as ``recipe(setting=value)`` takes them.

        Examples
        --------
        >>> dict(PRESETS["unknown_detection_imagenet"].parts_for("energy_finetune"))["m_in"]
        -15.0
        """
        variation = self.variations.get(recipe.partition("(")[0])
        return {} if variation is None else variation.parts

    def check_fits(self, name: str, recipe: str, model: str) -> None:
        """Raise an error if the preset is not for a recipe or a network.

        Parameters
        ----------
        name : str
            Name of the preset, for the message.
        recipe : str
            The recipe as text.
        model : str
            The network as text.

        Raises
        ------
        InvalidInput
            If the preset is for other recipes, or for vision transformers and the network is known to be none.

        Examples
        --------
        >>> PRESETS["fd_vit_cifar100_msr"].check_fits("fd_vit_cifar100_msr", "basic", "resnet18_32")
        Traceback (most recent call last):
            ...
        twofold.errors.InvalidInput: preset fd_vit_cifar100_msr is for vision transformers (ViT-B/16), and resnet18_32 \
is none; choose another preset (twofold list presets), or pass the settings one by one
        """
        plain = recipe.partition("(")[0]
        if self.recipes and plain not in self.recipes:
            raise InvalidInput(
                f"preset {name} is for {' and '.join(self.recipes)}, not for {plain}; choose another preset "
                "(twofold list presets), or pass the settings one by one"
            )
        if self.kind == "vit" and not _may_be_transformer(model):
            raise InvalidInput(
                f"preset {name} is for vision transformers ({self.network}), and {model} is none; choose another "
                "preset (twofold list presets), or pass the settings one by one"
            )


def _may_be_transformer(model: str) -> bool:
    """Whether a network may be a transformer; a file of one's own may hold anything."""
    source, _, name = model.rpartition(":")
    if source.endswith(".py") or source == "hf":
        return True
    return any(word in name.lower() for word in TRANSFORMERS)


def find_preset(name: str) -> Preset:
    """Return a preset by name.

    Parameters
    ----------
    name : str
        A name in ``PRESETS``.

    Returns
    -------
    Preset
        The preset.

    Raises
    ------
    UnknownName
        If there is no such preset.

    Examples
    --------
    >>> find_preset("sure_plus_cifar").settings.lr
    0.05
    """
    if name not in PRESETS:
        raise UnknownName.of("preset", name, PRESETS)
    return PRESETS[name]


IMAGENET = ("resized_crop", "flip")


def _sure_plus() -> dict[str, Preset]:
    """List the presets of SURE+ and of SURE."""
    cifar = Preset(
        Settings(),
        f"{SURE_PLUS}, released scripts for CIFAR-100: weight decay 5e-4",
        network="resnet18_32",
        crop=32,
    )
    # Cross-entropy alone was trained at 0.1 by the released script, at 0.05 by the text.
    released = replace(cifar, variations={"basic": Variation({"lr": 0.1})})
    printed = replace(
        cifar, settings=Settings(weight_decay=5e-3), source=f"{SURE_PLUS}, text on CIFAR-100: weight decay 5e-3"
    )
    dinov3 = Preset(
        Settings(epochs=20, batch=64, lr=1e-5, weight_decay=5e-6, optimiser="adamw", augment=IMAGENET),
        f"{SURE_PLUS}, Table 4, released scripts for ImageNet: lr 1e-5, batch 64 on each of 8 GPUs",
        network="DINOv3 ViT-L/16",
        kind="vit",
        crop=224,
        variations={"sure": Variation(parts={"scale": 64.0})},
    )
    dinov3_printed = replace(
        dinov3,
        settings=replace(dinov3.settings, lr=1e-6),
        source=f"{SURE_PLUS}, Table 4, text on ImageNet: lr 1e-6",
    )
    baselines = Preset(
        Settings(epochs=100, lr=0.1, nesterov=True, min_lr=1e-6),
        "OpenOOD v1.5, CIFAR training scripts, of which SURE+ trains its baselines with 200 epochs at 0.05",
        network="resnet18_32",
        crop=32,
        variations={"regmixup": Variation(parts={"alpha": 20.0, "clean_weight": 0.5, "mixup_weight": 0.5})},
    )
    deit = Preset(
        Settings(epochs=50, lr=0.01, weight_decay=5e-5, augment=IMAGENET),
        f"{SURE}, released scripts for DeiT-B: SWA from the first epoch at 0.4 of the learning rate, MixUp at 0.2",
        network="DeiT-B/16",
        kind="vit",
        crop=224,
        variations={
            "sure": Variation(parts={"scale": 64.0}),
            "sure_no_csc_crl": Variation(parts={"start": 0.02, "averaged_lr": 0.4, "weight": 0.2, "rho": 0.05}),
        },
    )
    sure = Preset(
        Settings(lr=0.1, schedule_per="epoch"),
        f"{SURE}, released scripts for CIFAR: cosine epoch by epoch, rho 0.05",
        network="resnet18_32",
        crop=32,
        variations={"sure": Variation(parts={"rho": 0.05, "averaged_lr": 0.5})},
    )
    return {
        "sure_plus_cifar": released,
        "sure_plus_cifar_printed": printed,
        "sure_plus_dinov3": dinov3,
        "sure_plus_dinov3_printed": dinov3_printed,
        "sure_cifar": sure,
        "sure_deit": deit,
        "openood_cifar": baselines,
    }


def _feature_recipes() -> dict[str, Preset]:
    """List the presets of T2FNorm and of CIDER.

    CIDER's own crops and colours are stronger than ours of the same names, and it makes some images grey.
    """
    t2fnorm = Preset(
        Settings(epochs=100, lr=0.1),
        f"{T2FNORM}: 100 epochs at 0.1",
        network="resnet18_32",
        crop=32,
        recipes=("t2fnorm",),
    )
    of_imagenet = replace(t2fnorm, network="ResNet-18", crop=224)
    cider = Preset(
        Settings(
            epochs=100,
            batch=512,
            lr=0.5,
            weight_decay=1e-4,
            nesterov=True,
            warm_up_epochs=10.0,
            augment=(*IMAGENET, "colour_jitter"),
        ),
        f"{CIDER}: 100 epochs at 0.5, the first 10 of them rising",
        network="resnet18_32",
        crop=32,
        recipes=("cider",),
    )
    last_stage = replace(cider.settings, epochs=10, lr=1e-2, warm_up_epochs=0.0, freeze=4)
    return {
        "t2fnorm_cifar": t2fnorm,
        "t2fnorm_imagenet200": replace(
            of_imagenet,
            settings=replace(t2fnorm.settings, epochs=90, augment=IMAGENET),
            source=f"{T2FNORM}, on ImageNet-200: 90 epochs at 0.1",
        ),
        "t2fnorm_imagenet": replace(
            of_imagenet,
            settings=replace(t2fnorm.settings, epochs=30, lr=1e-3, augment=IMAGENET),
            source=f"{T2FNORM}, on ImageNet: 30 epochs at 1e-3 from a trained network",
            network="ResNet-50",
        ),
        "cider_cifar10": cider,
        "cider_cifar100": replace(
            cider,
            source=f"{CIDER}: as on CIFAR-10, prototypes keep half of themselves",
            variations={"cider": Variation(parts={"momentum": 0.5})},
        ),
        "cider_imagenet200": replace(
            cider,
            settings=last_stage,
            source=f"{CIDER}, on ImageNet-200: the last stage of a trained network, 10 epochs at 1e-2",
            network="ResNet-18",
            crop=224,
        ),
        "cider_imagenet": replace(
            cider,
            settings=replace(last_stage, lr=1e-3),
            source=f"{CIDER}, on ImageNet: the last stage of a trained network, 10 epochs at 1e-3",
            network="ResNet-50",
            crop=224,
        ),
    }


def _unknown_detection() -> dict[str, Preset]:
    """List the presets of the unknown-detection benchmark."""
    fine_tuning = {"epochs": 10, "lr": 1e-3, "schedule": "cosine", "min_lr": 1e-6, "nesterov": True}
    cifar = Preset(
        Settings(lr=0.1, schedule="drops", drops=(0.6, 0.8)),
        f"{UNKNOWN}, text on CIFAR-40: 200 epochs, /10 at 120 and 160; margins of energy from Table 5",
        network="resnet20_cifar",
        crop=32,
        variations={
            "energy_finetune": Variation(fine_tuning, {"m_in": -27.0, "m_out": -3.0, "lr": 1.0}),
        },
    )
    code_rules = {"equal": "pull", "total": "run"}  # of CRL
    cifar_released = replace(
        cifar,
        settings=replace(cifar.settings, nesterov=True),
        source=f"{UNKNOWN}, released code on CIFAR-40: Nesterov's momentum, CRL over the whole run with pulled pairs",
        variations={"energy_finetune": cifar.variations["energy_finetune"], "crl": Variation(parts=code_rules)},
    )
    imagenet = Preset(
        Settings(
            epochs=90, batch=256, lr=0.1, weight_decay=1e-4, schedule="drops", drops=(1 / 3, 2 / 3), augment=IMAGENET
        ),
        f"{UNKNOWN}, text on ImageNet-200: 90 epochs, /10 at 30 and 60; margins of energy from Table 5",
        network="ResNet-152",
        crop=224,
        variations={
            "energy_finetune": Variation(fine_tuning, {"m_in": -15.0, "m_out": -7.0, "lr": 1.0}),
        },
    )
    imagenet_released = replace(
        imagenet,
        settings=replace(imagenet.settings, batch=128),
        source=f"{UNKNOWN}, released code on ImageNet-200: batch 128, CRL over the whole run with pulled pairs",
        variations={"energy_finetune": imagenet.variations["energy_finetune"], "crl": Variation(parts=code_rules)},
    )
    return {
        "unknown_detection_cifar": cifar,
        "unknown_detection_cifar_released": cifar_released,
        "unknown_detection_imagenet": imagenet,
        "unknown_detection_imagenet_released": imagenet_released,
    }


def _fd_variations(
    gamblers_epochs: int, plain_epochs: int, reward: float, branch_epochs: int, encoder_epochs: int
) -> dict[str, Variation]:
    """List what FD-Shifts changes for its three ways of training a confidence."""
    return {
        "gamblers": Variation(
            {"epochs": gamblers_epochs}, {"reward": reward, "warm_up": plain_epochs / gamblers_epochs}
        ),
        "confidnet": Variation(parts={"branch_epochs": branch_epochs, "encoder_epochs": encoder_epochs}),
        "devries": Variation({"nesterov": True}),
    }


def _fd_shifts() -> dict[str, Preset]:
    """List the presets of FD-Shifts for networks that are trained from scratch.

    The reward is that selected for the reservation (DG-Res); 250 + 200 + 20 epochs are ConfidNet's three stages.
    """
    cifar = Settings(epochs=250, lr=0.1, clip_norm=1.0, augment=("padded_crop", "flip", "cutout"))
    cifar_printed = replace(cifar, augment=("padded_crop", "flip", "rotation", "cutout"))
    svhn = Settings(epochs=100, lr=0.01, clip_norm=1.0, augment=())
    iwildcam = Settings(epochs=12, batch=16, lr=1e-3, weight_decay=0.0, clip_norm=1.0, augment=())
    camelyon = Settings(epochs=5, batch=32, lr=0.01, weight_decay=0.01, clip_norm=1.0, augment=())
    breeds = Settings(
        epochs=300, lr=0.1, weight_decay=1e-4, clip_norm=1.0, augment=("resized_crop", "flip", "colour_jitter")
    )
    text, code = f"{FD_SHIFTS}, text", f"{FD_SHIFTS}, released code"
    vgg = Preset(cifar, code, network="vgg13", crop=32, dropout=0.3)
    small = Preset(svhn, code, network="svhn_small", crop=32, dropout=0.3)
    resnet = Preset(iwildcam, code, network="ResNet-50", dropout=0.1)
    presets: dict[str, Preset] = {}
    for name, reward in (("cifar10", 2.2), ("cifar100", 12.0)):
        presets[f"fd_{name}_printed"] = replace(
            vgg,
            settings=cifar_printed,
            source=f"{text}: rotation, 50 epochs of cross-entropy before Deep Gamblers",
            variations=_fd_variations(300, 50, reward, 200, 20),
        )
        presets[f"fd_{name}_released"] = replace(
            vgg,
            source=f"{code}: no rotation, 100 epochs of cross-entropy before Deep Gamblers",
            variations=_fd_variations(300, 100, reward, 200, 20),
        )
    of_svhn = _fd_variations(150, 50, 2.2, 200, 20)
    presets["fd_svhn_printed"] = replace(
        small,
        settings=replace(svhn, weight_decay=1.5e-3),
        source=f"{text}: weight decay 1.5e-3",
        variations=of_svhn,
    )
    presets["fd_svhn_released"] = replace(small, source=f"{code}: weight decay 5e-4", variations=of_svhn)
    of_iwildcam = _fd_variations(18, 6, 6.0, 5, 3)
    presets["fd_iwildcam_printed"] = replace(resnet, source=f"{text}: batch 16", crop=448, variations=of_iwildcam)
    presets["fd_iwildcam_released"] = replace(
        resnet,
        settings=replace(iwildcam, batch=128),
        source=f"{code}: batch 128",
        crop=448,
        variations=of_iwildcam,
    )
    of_camelyon = _fd_variations(8, 3, 2.2, 3, 1)
    presets["fd_camelyon_printed"] = replace(
        resnet, settings=camelyon, source=f"{text}: batch 32", crop=96, variations=of_camelyon
    )
    presets["fd_camelyon_released"] = replace(
        resnet,
        settings=replace(camelyon, batch=128),
        source=f"{code}: batch 128",
        crop=96,
        variations=of_camelyon,
    )
    presets["fd_breeds"] = replace(
        resnet,
        settings=breeds,
        source=f"{text} and released code",
        crop=224,
        variations=_fd_variations(350, 50, 2.2, 200, 20),
    )
    return presets


@dataclass(frozen=True)
class _ViTRun:
    """A fine-tuned ViT: learning rates for Mahalanobis, MC dropout, and MSR with entropy; which have dropout."""

    maha: float
    mcd: float
    msr: float
    steps: int = 40_000
    batch: int = 128
    dropout: tuple[str, ...] = ("mcd",)


# FD-Shifts, Table 7; the learning rates are those that the paper selected on validation data
_VIT_RUNS: Mapping[str, _ViTRun] = {
    "svhn": _ViTRun(0.03, 0.01, 0.01, dropout=("maha", "mcd")),
    "cifar10": _ViTRun(0.01, 0.01, 3e-4, dropout=("maha", "mcd")),
    "cifar100": _ViTRun(0.01, 0.01, 0.01, steps=10_000, batch=512, dropout=("mcd", "msr")),
    "super_cifar100_printed": _ViTRun(0.003, 0.001, 0.001, steps=10_000, batch=512, dropout=("mcd", "msr")),
    "super_cifar100_released": _ViTRun(0.003, 0.001, 0.001, batch=512, dropout=("mcd", "msr")),
    "iwildcam_printed": _ViTRun(0.003, 0.003, 0.001, batch=512),
    "iwildcam_released": _ViTRun(0.003, 0.003, 0.001),
    "camelyon": _ViTRun(0.001, 0.003, 0.001),
    "breeds": _ViTRun(0.003, 0.01, 0.001),
}


def _fd_vit() -> dict[str, Preset]:
    """List the presets of FD-Shifts for fine-tuned ViTs: one for each data set and score."""
    presets: dict[str, Preset] = {}
    for data, run in _VIT_RUNS.items():
        for score, lr in (("msr", run.msr), ("mcd", run.mcd), ("maha", run.maha)):
            settings = Settings(
                steps=run.steps,
                batch=run.batch,
                lr=lr,
                weight_decay=0.0,
                warm_up=500,
                clip_norm=1.0,
                augment=("flip",),
            )
            source = "released code" if data.endswith("released") else "Table 7"
            presets[f"fd_vit_{data}_{score}"] = Preset(
                settings,
                f"{FD_SHIFTS}, {source}: learning rate selected for {score}",
                network="ViT-B/16",
                kind="vit",
                crop=384,
                dropout=0.1 if score in run.dropout else None,
                variations={"gamblers": Variation({"steps": run.steps * 3 // 2}, {"warm_up": 1 / 3})},
            )
    return presets


PRESETS: dict[str, Preset] = {
    **_sure_plus(),
    **_feature_recipes(),
    **_unknown_detection(),
    **_fd_shifts(),
    **_fd_vit(),
}
PRESETS["aurc_finetune"] = Preset(
    Settings(epochs=30, lr=1e-3, schedule="constant"),
    "AURC estimators, ICML 2025, arXiv:2410.15361, text: 30 epochs at 1e-3, batch 128; optimiser not stated",
    network="any trained network",
    recipes=("aurc_finetune", "basic"),
    variations={"aurc_finetune": Variation(parts={"lr": 1.0})},
)

# Names from before presets had sources: the settings alone, without what a paper changes for one recipe
OLDER_NAMES: Mapping[str, str] = {
    "cifar": "sure_plus_cifar",
    "as_printed": "sure_plus_cifar_printed",
    "unknown_detection": "unknown_detection_cifar_released",
    "imagenet": "unknown_detection_imagenet",
    "fd_cifar": "fd_cifar10_released",
    "fd_svhn": "fd_svhn_released",
    "fd_camelyon": "fd_camelyon_printed",
    "fd_iwildcam": "fd_iwildcam_printed",
    "fd_vit": "fd_vit_cifar10_maha",
    "deit": "sure_deit",
    "dinov3": "sure_plus_dinov3",
}
for _older, _name in OLDER_NAMES.items():
    PRESETS[_older] = replace(
        PRESETS[_name], dropout=None, variations={}, source=f"{_name}, without what it changes for one recipe"
    )
