"""A study file becomes rows and cells, a bad one is one clear error, and the studies of the package load."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tiny_study import TEXT, changed

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data import open as open_data
from twofold.study import load, loads, names


def test_cells_come_after_what_they_start_from(study):
    assert [c.name for c in study.cells()] == ["basic-s0", "aurc-s0", "basic-s1", "aurc-s1"]
    assert [c.name for c in study.cells(["aurc"], [1])] == ["basic-s1", "aurc-s1"]
    assert [c.name for c in study.cells(["basic"])] == ["basic-s0", "basic-s1"]
    with pytest.raises(UnknownName, match="no row of tiny 'aurk'; did you mean 'aurc'"):
        study.cells(["aurk"])
    with pytest.raises(InvalidInput, match="seed 5 is not a seed of tiny"):
        study.cells(seeds=[5])


def test_a_list_makes_a_row_for_each_value():
    text = changed("epochs = 2\n", "epochs = 2\nlr = [0.1, 0.2]\nweight_decay = [0.0, 0.001]\n")
    made = [row for row in loads(text).rows if row.family == "aurc"]
    assert [row.name for row in made] == ["aurc-1", "aurc-2", "aurc-3", "aurc-4"]
    assert [(row.settings["lr"], row.settings["weight_decay"]) for row in made] == [
        (0.1, 0.0), (0.1, 0.001), (0.2, 0.0), (0.2, 0.001),
    ]  # fmt: skip


def test_a_preset_takes_the_place_of_values():
    text = TEXT + '[presets.large]\nmodel = "resnet20_cifar"\nseeds = [7]\nsettings = { epochs = 9 }\n'
    made = loads(text + "recipes = { aurc = { epochs = 5 } }\n", preset="large")
    assert (made.model, made.seeds, made.settings["epochs"], made.settings["lr"]) == ("resnet20_cifar", (7,), 9, 0.02)
    assert made["aurc"].settings["epochs"] == 5
    other = loads(TEXT + '[presets.real]\nbenchmark = "cifar10-real"\n', preset="real")
    assert other.benchmarks[0].classes == 10
    assert other.benchmarks[0].protocols == ("joint", "fd_shifts")
    with pytest.raises(UnknownName, match=r"no preset of .* 'big'"):
        loads(text, preset="big")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('recipe = "basic"', 'recipe = "bassic"', "row basic: no recipe 'bassic'; did you mean 'basic'"),
        ("batch = 32", "bach = 32", "settings: no key 'bach'; did you mean 'batch'"),
        ("epochs = 2\n", "epoch = 2\n", "row aurc: no key 'epoch'; did you mean"),
        ("epochs = 1\n", "epochs = 0\n", "row basic: epochs must be"),
        ("resamples = 20", "resample = 20", "no key 'resample'; did you mean 'resamples'"),
        ('model = "resnet8_cifar"', 'model = "resnet8"', "no network 'resnet8'; did you mean"),
        ('preset = "cifar"', 'preset = "cifr"', "no preset 'cifr'; did you mean 'cifar'"),
        ('checkpoint = "basic"', 'checkpoint = "base"', "row aurc: no row of tiny 'base'; did you mean 'basic'"),
        ('checkpoint = "basic"\n', "", "aurc_finetune starts from another row, or a file of weights; name it in"),
        ('recipe = "basic"', 'recipe = "oe"', "oe needs outliers; name a data set in outliers"),
        ('recipe = "basic"', 'recipe = "basic"\npasses = 5', "passes need dropout"),
        ('recipe = "basic"', 'recipe = "basic"\ncheckpoint = "aurc"', "in a circle"),
        ('recipe = "basic"', 'recipe = "deep_ensemble"', "basic is an ensemble, and no row can start from it"),
        ('recipe = "basic"', 'recipe = "basic"\ndropout = 1.5', "dropout"),
        ('name = "basic"', 'name = "aurc"', "the name 'aurc' is taken"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds must be a list of different whole numbers"),
        ("seeds = [0, 1]", "seeds = [0, 1]\ntuning_seeds = [2]", "tuning_seeds must be a list of some of the seeds"),
        ("resamples = 20", 'resamples = 20\nprecision = "fp8"', "no precision 'fp8'"),
        ('role = "val"', 'role = "far"', "there is no data set of role val"),
        ('name = "close"', 'name = "near"', "two rows of the results would be called 'near'"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurk", "test", "fd_shifts", "msp"]', "no column of protocol"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test", "fd_shift", "msp"]', "no protocol 'fd_shift'"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test", "fd_shifts", "knn"]', "no score or pair of the"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test"]', "columns must be lists of metric, shift"),
        ("classes = 4", "classes = 4\nbenchmark = 'cifar10-real'", "classes belongs to the benchmark"),
        ("[settings]", "[settings", "is not TOML"),
    ],
)
def test_a_bad_file_is_one_clear_error(old, new, message):
    with pytest.raises(InvalidInput, match=message):
        loads(changed(old, new), where="file")


def test_unknown_names_and_files():
    with pytest.raises(UnknownName, match="no study 'sure'; did you mean 'sure_plus'"):
        load("sure")
    with pytest.raises(InvalidInput, match=r"nowhere.toml cannot be read as a study file"):
        load("nowhere.toml")


# network and epochs at the scale of the papers, where they are not those of ResNet-18 on CIFAR
FULL = {
    "sure_plus_imagenet": ("vit_large_patch16_dinov3", 20),
    "stratified": ("vgg13", 200),
    "fd_shifts": ("vgg13", 200),  # those of the preset fd_cifar10_printed
    "unknown_detection": ("resnet20_cifar_b", 200),
    "unknown_detection_imagenet": ("torchvision:resnet152", 90),
}


def load_small(name):
    """A study at the scale of this machine: without a preset, but for those whose file has the paper's first."""
    return load(name, preset={"sure_plus_cifar": "small", "stratified": "tiny", "fd_shifts": "here"}.get(name))


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", names())
def test_shipped_studies_load(name, scale):
    study = load_small(name)
    if scale == "full" and name == "sure_plus_finetune":
        pytest.skip("sure_plus_imagenet is fine-tuning at the scale of the paper")
    if scale == "full":
        study = load(name, preset=None if name in ("sure_plus_cifar", "stratified", "fd_shifts") else "full")
    assert study.name == name
    read_by_plans_alone = name == "fd_shifts" and scale == "small"
    assert bool(study.tables) != read_by_plans_alone
    assert len(study.cells()) == len(study.rows) * len(study.seeds) * len(study.benchmarks)
    if scale == "full":
        assert (study.model, study.settings.get("epochs", 200)) == FULL.get(name, ("resnet18_32", 200))
    else:
        assert study.model in ("resnet8_cifar", "resnet8_cifar_kd", "resnet20_cifar")


@pytest.mark.parametrize("preset", [None, "vit", "tiny", "tiny_vit"])
def test_the_stratified_study_has_two_networks_three_paradigms_and_dropout(preset):
    study = load("stratified", preset=preset)
    families = {f"{name}{end}" for name in ("ce", "confidnet", "devries", "gamblers") for end in ("", "_dropout")}
    assert set(study.families) == families
    expected = {None: "vgg13", "vit": "vit_base_patch16_384", "tiny": "resnet8_cifar", "tiny_vit": "tiny_vit_32"}
    assert study.model == expected[preset]
    assert len(study.benchmarks) == {"tiny": 2, "tiny_vit": 1}.get(preset, 4)
    for row in study.rows:
        assert (row.dropout > 0) == row.family.endswith("_dropout") == (row.passes > 0)


def test_shipped_studies_have_the_rows_of_the_papers():
    rows = {name: {row.family for row in load(name).rows} for name in names()}
    assert rows["sure_plus"] >= {"basic", "mixup", "regmixup", "cutmix", "augmix", "pixmix", "sure", "sure_plus"}
    assert rows["aurc_finetune"] == {"basic", "ce", "empirical", "log", "sele", "self_excluded"}
    assert rows["unknown"] == {"basic", "crl", "edl", "mc_dropout", "ensemble", "augmix", "oe", "energy"}
    for kind in ("ce", "confidnet", "devries", "gamblers"):
        assert {kind, f"{kind}_dropout"} <= rows["paradigms"]
    grid = [[row.settings["lr"] for row in load("aurc_finetune").rows if row.family == f] for f in ("ce", "sele")]
    assert grid[0] == grid[1]  # nobody is tuned more than the control


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_shipped_studies_open_their_data(name, data_dir):
    study = load_small(name)
    specs = {row.outliers for row in study.rows if row.outliers} if name.startswith("unknown") else set()
    for on in study.benchmarks:
        status = on.status(data_dir, open_data)
        assert [(one.set.name, one.reason) for one in status if not one.present] == []
        assert [(one.set.name, one.rows, one.set.rows) for one in status if one.published is False] == []
        train = open_data(on[on.names("train")[0]].spec(data_dir))
        assert int(train.labels.max()) + 1 == on.classes
    for spec in specs:
        outliers = open_data(spec.replace("{data}", str(data_dir)))
        held = open_data(study.benchmarks[0]["ood_val"].spec(data_dir))
        assert not set(outliers.ids.tolist()) & set(held.ids.tolist())
