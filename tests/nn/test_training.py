"""Training: every recipe learns, saves, resumes to the same bits, and raises clear errors."""

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import asdict

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from PIL import Image  # noqa: E402
from training_toys import MIXERS, PREPARE, network, pictures, run  # noqa: E402, F401  # MIXERS for the scripts

from twofold import Run  # noqa: E402
from twofold.errors import InvalidInput, RunError, UnknownName  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.extraction import extract  # noqa: E402
from twofold.nn.models.checkpoint import load_parameters  # noqa: E402
from twofold.nn.recipes import (  # noqa: E402
    CRL,
    RECIPES,
    Clean,
    CosineClassifier,
    MixUp,
    PixMix,
    Ranked,
    Recipe,
    Sharpness,
    recipe,
)
from twofold.nn.training import (  # noqa: E402
    RESNET18_NORM,
    Plan,
    Settings,
    Training,
    TrainingSetup,
    TrainingStep,
    prepare_training,
    tensorboard,
    train,
    validate,
)
from twofold.nn.training.optimiser import wrap_optimiser  # noqa: E402
from twofold.nn.training.state import TrainingIdentity, read_state  # noqa: E402


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_learns_saves_resumes_and_extracts(name, tmp_path):
    whole = run(name, tmp_path / "whole", epochs=4, schedule="constant")
    losses = [values["loss"] for values in whole.history]
    if name == "rebn":  # nothing is learnt, only looked at
        assert not losses
    elif name == "confidnet":
        classifier, branch, encoder = losses[:4], losses[4:7], losses[7:]
        assert classifier[-1] < classifier[0]
        assert branch[-1] < branch[0]
        assert encoder[-1] <= branch[-1] * 1.05
    else:
        assert len(losses) == 4
        assert losses[-1] < losses[0]
    assert (tmp_path / "whole" / "weights.safetensors").exists()
    again = run(name, tmp_path / "whole", None if name != "rebn" else whole.model, epochs=4, schedule="constant")
    for a, b in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    got = extract(whole.model, pictures(16, seed=3), tmp_path / "run", name="test", role="test", prepare=PREPARE)
    assert len(got["test"]) == 16


SCRIPT = """
import os, sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import test_training as t
seen = 0
def done(values):
    global seen
    seen += 1
    if seen == {die}:
        os.kill(os.getpid(), 9)
settings = t.Settings(epochs=4, batch=16, lr=0.02)
t.train(t.recipe({name!r}), t.network({name!r}), t.pictures(), {out!r}, settings=settings, prepare=t.PREPARE,
        mixers=t.MIXERS, done=done)
"""


def attempt(name, out, die=10**9):
    here = os.path.dirname(__file__)
    code = textwrap.dedent(SCRIPT).format(here=here, name=name, out=str(out), die=die)
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


@pytest.mark.parametrize(
    "name",
    [
        "sure_plus",
        "cider",  # its prototypes move with every batch
        pytest.param("t2fnorm", marks=pytest.mark.slow),
        pytest.param("sure", marks=pytest.mark.slow),
        pytest.param("mc_dropout", marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_training_ends_with_the_same_bits(name, tmp_path):
    assert attempt(name, tmp_path / "whole") == 0
    assert attempt(name, tmp_path / "cut", die=12) == -9  # in the middle of the third epoch
    assert attempt(name, tmp_path / "cut") == 0
    assert (tmp_path / "cut" / "weights.safetensors").read_bytes() == (
        tmp_path / "whole" / "weights.safetensors"
    ).read_bytes()


def test_sure_and_sure_plus_differ_as_the_ablation_says():
    sure, plus = recipe("sure"), recipe("sure_plus")
    assert sure.get(CosineClassifier)
    assert sure.get(CRL)
    assert not plus.get(CosineClassifier)
    assert not plus.get(CRL)
    assert plus.get(PixMix)
    assert (recipe("basic").passes, sure.passes, plus.passes) == (1, 4, 6)
    assert (recipe("augmix").passes, recipe("augmix_no_jsd").passes) == (3, 1)
    assert recipe("sure_no_csc").get(CosineClassifier) is None
    with pytest.raises(InvalidInput, match="no CRL to leave out"):
        recipe("basic") - CRL
    with pytest.raises(UnknownName, match="did you mean 'sure_plus'"):
        recipe("sure_pls")


def test_parts_replace_their_own_kind():
    made = Clean() | MixUp(10.0) | MixUp(0.2)
    assert made.get(MixUp).alpha == 0.2
    assert len(made.parts) == 2


def test_validation_keeps_the_best(tmp_path):
    settings = Settings(epochs=3, batch=32, lr=0.02, keep="accuracy")
    found = train(
        recipe("basic"),
        network(),
        pictures(),
        tmp_path / "run",
        val=pictures(32, 7),
        settings=settings,
        prepare=PREPARE,
    )
    best = max(values["accuracy"] for values in found.history)
    assert validate(found.model, pictures(32, 7), PREPARE)["accuracy"] == pytest.approx(best)
    assert (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0].startswith("epoch,lr,loss")


def test_errors_are_clear_and_lose_nothing(tmp_path):
    with pytest.raises(InvalidInput, match="needs outliers"):
        train(recipe("oe"), network("oe"), pictures(), tmp_path / "a", settings=Settings(batch=8))
    with pytest.raises(InvalidInput, match="larger than the training set"):
        train(recipe("basic"), network(), pictures(), tmp_path / "a", settings=Settings(batch=65))
    with pytest.raises(UnknownName, match="flip"):
        Settings(augment=("flop",))
    with pytest.raises(InvalidInput, match="needs validation data"):
        run("basic", tmp_path / "b", keep="aurc")
    run("basic", tmp_path / "c")
    with pytest.raises(RunError, match="holds another training"):
        run("mixup", tmp_path / "c")
    (tmp_path / "c" / "state.safetensors").write_bytes(b"junk")
    with pytest.raises(RunError, match="damaged"):
        run("basic", tmp_path / "c")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        run("basic", tmp_path / "file")
    with pytest.raises(InvalidInput, match="labels must be"):
        run("basic", tmp_path / "d", build("resnet8_cifar", 3))
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "p.npz", images=pictures(8).read())
    spec = f"npz:{tmp_path / 'p.npz'}?images=images"
    with pytest.raises(InvalidInput, match="holds no image files"):
        Plan.of("pixmix", "resnet8_cifar", spec, mixers=str(tmp_path / "empty"))
    with pytest.raises(InvalidInput, match="no labels to learn"):
        Plan.of("basic", "resnet8_cifar", spec).network()
    with pytest.raises(InvalidInput, match="there is no such"):
        Plan.of("basic", "resnet8_cifar", f"npz:{tmp_path / 'q.npz'}")


def test_a_loss_that_is_no_number_stops(tmp_path):
    with pytest.raises(RunError, match=r"the loss is (nan|inf) at step"):
        train(
            recipe("basic"),
            network(),
            pictures(),
            tmp_path / "run",
            settings=Settings(epochs=30, batch=32, lr=1e18, schedule="constant"),
            prepare=PREPARE,
        )


COUPLED = {
    "basic": recipe("basic"),
    "mixup": recipe("mixup"),
    "cutmix": recipe("cutmix"),
    "crl": recipe("crl"),
    "ranks": Recipe((Ranked("empirical"),)),
}
TOGETHER = """
import sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import test_training as t
for name, made in t.COUPLED.items():
    for gather in (False, True):
        where = f"{out}/{{name}}-{{gather}}"
        t.train(made, t.plain(), t.pictures(), where, settings=t.shared(gather), prepare=t.PREPARE)
"""


def plain():
    """A network without batch norm."""
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 4, 5, stride=4)
    return torch.nn.Sequential(convolution, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 49, 4))


def shared(gather=False):
    return Settings(epochs=3, batch=16, lr=0.05, augment=(), gather=gather)


def by_shares(made):
    """What two processes promise, in one: each half of a batch by itself, and the mean of their gradients."""
    model = plain()
    training = prepare_training(made, model, pictures(), shared(), TrainingSetup(prepare=PREPARE))
    for epoch in range(3):
        order = np.random.default_rng((0, epoch)).permutation(64)
        for i in range(4):
            number = 4 * epoch + i
            training.optimiser.param_groups[0]["lr"] = training.learning_rate.at(number)
            training.optimiser.zero_grad()
            steps = [TrainingStep(training, order[16 * i : 16 * i + 16][k::2], epoch, number) for k in range(2)]
            for step in steps:
                for terms in step.term_groups():
                    (step.loss(terms) / 2).backward()
            training.optimiser.step()
            for step in steps:
                step.finish()
    return model.state_dict()


def test_two_processes_share_a_batch(tmp_path):
    """Gathered, or where rows do not meet, they end with the weights of one process; else each share acts by itself."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    script = tmp_path / "script.py"
    code = TOGETHER.format(here=os.path.dirname(__file__), out=str(tmp_path))
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    here = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}  # processes of this machine alone
    subprocess.run([sys.executable, *launch, str(script)], check=True, timeout=240, env=here)
    for name, made in COUPLED.items():
        alone = train(made, plain(), pictures(), tmp_path / name, settings=shared(), prepare=PREPARE)
        one = alone.model.state_dict()
        apart, together = (_weights(tmp_path / f"{name}-{gather}") for gather in (False, True))
        halves = by_shares(made)
        for key, value in one.items():
            assert torch.allclose(value, together[key], atol=1e-5), (name, key)
            assert torch.allclose(halves[key], apart[key], atol=1e-5), (name, key)
        if name != "basic":
            assert max(float((one[key] - apart[key]).abs().max()) for key in one) > 1e-3, name
    for gather in (False, True):  # the record counts the correct predictions of both
        identity = TrainingIdentity(str(COUPLED["crl"]), asdict(shared(gather)), 64)
        saved = read_state(tmp_path / f"crl-{gather}" / "state.safetensors", identity)
        counts = saved.state["memory"]["correctness"]["counts"]
        assert int(counts.sum()) == round(sum(64 * values["train_accuracy"] for values in saved.progress.history)) > 0


def _weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "weights.safetensors")


def test_confidnet_goes_through_its_stages(tmp_path):
    model = network("confidnet")
    found = run("confidnet", tmp_path / "run", model, epochs=5)
    classifier, kept = _weights(tmp_path / "run" / "classifier"), _weights(tmp_path / "run")
    assert len(found.history) == 5 + 4 + 1
    for key, value in classifier.items():  # the classifier stays what the first stage made it
        if not key.startswith("confidence."):
            assert torch.equal(value, kept[key]), key
    moved = [k for k in kept if k.startswith("confidence.encoder.") and k.endswith("weight")]
    assert moved
    assert any(not torch.equal(kept[k], kept[k.removeprefix("confidence.encoder.")]) for k in moved)
    assert all(torch.equal(kept[k], kept[k.removeprefix("confidence.encoder.")]) for k in kept if "running_mean" in k)
    images = pictures(16, seed=3)
    got = extract(model, images, tmp_path / "got", name="test", role="test", prepare=PREPARE)["test"]
    with torch.no_grad():
        x = PREPARE(images.read(np.arange(16)))
        expected = model.confidence.layers(model.confidence.encoder.encode(x)).sigmoid()[:, 0]
    assert got.learned["confidnet"] == pytest.approx(expected.numpy(), abs=1e-6)
    again = network("confidnet")
    load_parameters(again, kept, source="kept", expected="resnet8_cifar")
    for key, value in again.state_dict().items():
        assert torch.equal(value, kept[key])
    trained = network("confidnet")
    later = train(
        recipe("confidnet"),
        trained,
        pictures(),
        tmp_path / "later",
        settings=Settings(epochs=5, batch=32),
        prepare=PREPARE,
        trained=True,
    )
    assert len(later.history) == 4 + 1
    assert not (tmp_path / "later" / "classifier").exists()


def test_batch_norm_is_renewed_from_the_checkpoint_of_the_average(tmp_path):
    """The row "+ ReBN" of the ablation re-uses the checkpoint of the row before it."""
    before = run("sure_ema", tmp_path / "ema").model
    whole = run("sure_ema_rebn", tmp_path / "rebn").model.state_dict()
    renewed = run("rebn", tmp_path / "again", before).model.state_dict()
    for key, value in whole.items():
        assert torch.equal(value, renewed[key]), key


def test_a_perturbation_from_the_clean_view_is_that_of_sam_on_it(tmp_path):
    """With one view alone there is nothing to save; with three the first pass has one."""
    made = Clean() | Sharpness("sam")
    both = []
    for ascent in ("all", "clean"):
        found = train(
            made | Sharpness("sam", ascent=ascent),
            network(),
            pictures(),
            tmp_path / ascent,
            settings=Settings(epochs=1, batch=32),
            prepare=PREPARE,
        )
        both.append(found.model.state_dict())
    assert all(torch.equal(both[0][key], both[1][key]) for key in both[0])
    assert (recipe("sure_plus_fast").passes, recipe("sure_plus").passes) == (4, 6)


def test_a_relative_radius_is_that_of_a_resnet18():
    """The printed radius is a length; a network with another norm of its weights gets it in proportion."""
    big = build("resnet18_32", 100, seed=0)
    small = build("resnet8_cifar", 10, seed=0)
    norms = [
        np.sqrt(sum(np.square(p.detach().numpy(), dtype=np.float64).sum() for p in m.parameters()))
        for m in (big, small)
    ]
    assert norms[0] == pytest.approx(RESNET18_NORM, rel=2e-3)  # random weights: seeds differ a little
    radius = {}
    for name, model in (("big", big), ("small", small)):
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        radius[name] = wrap_optimiser(Sharpness("fsam", rho=0.2, rho_relative=True), sgd, model).rho
    assert radius["big"] == pytest.approx(0.2, rel=2e-3)
    assert radius["small"] == pytest.approx(0.2 * norms[1] / norms[0], rel=2e-3)
    assert radius["small"] < 0.2 / 4.4
    assert wrap_optimiser(Sharpness("sam"), sgd, small).rho == 0.2


def test_history_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard(tmp_path / "events") as done:
        settings = Settings(epochs=2, batch=32, lr=0.02)
        made = train(
            recipe("basic"), plain(), pictures(), tmp_path / "run", settings=settings, prepare=PREPARE, done=done
        )
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [e.step for e in events.Scalars("step/loss")] == [1, 2, 3, 4]
    losses = [e.value for e in events.Scalars("epoch/loss")]
    assert losses == pytest.approx([values["loss"] for values in made.history], rel=1e-5)


def test_half_precision_passes(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerate.Accelerator(cpu=True, mixed_precision="no")  # another training of this process
    found = train(
        recipe("basic"),
        network(),
        pictures(),
        tmp_path / "run",
        settings=Settings(epochs=1, batch=32, lr=0.02),
        prepare=PREPARE,
        precision="bf16",
    )
    assert np.isfinite(found.history[0]["loss"])
    assert next(found.model.parameters()).dtype == torch.float32


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of PyTorch's own compiler
def test_a_compiled_network_learns_the_same(tmp_path):
    class Dropped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.drop, self.fc = torch.nn.Dropout(0.3), torch.nn.Linear(32 * 32 * 3, 4)

        def forward(self, x):
            return self.fc(self.drop(x.flatten(1)))

    settings = Settings(epochs=1, batch=32, lr=0.02)
    found = [
        train(recipe("sam"), Dropped(), pictures(), tmp_path / str(c), settings=settings, prepare=PREPARE, compiled=c)
        for c in (False, True)
    ]
    plain, compiled = (one.model.fc.weight for one in found)
    assert not torch.allclose(plain, Dropped().fc.weight, atol=1e-4)
    assert torch.allclose(plain, compiled, atol=1e-5)


def test_a_network_that_cannot_be_compiled(tmp_path, monkeypatch):
    class Stubborn(RuntimeError):
        __module__ = "torch._inductor.exc"

    def stub(model, **options):
        def forward(images):
            raise Stubborn("no working compiler\nand more")

        return forward

    monkeypatch.setattr(torch, "compile", stub)
    with pytest.raises(RunError, match=r"cannot compile this network \(no working compiler\); train without it"):
        train(recipe("basic"), network(), pictures(), tmp_path, settings=Settings(epochs=1, batch=32), compiled=True)


def test_a_plan_trains_other_libraries_networks_too(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    sheet = pictures(32)
    np.savez(tmp_path / "p.npz", images=sheet.read(), labels=sheet.labels)
    spec = f"npz:{tmp_path / 'p.npz'}?images=images&labels=labels"
    tiny = "timm:vit_tiny_patch16_224?img_size=32&patch_size=8&depth=1&embed_dim=16&num_heads=2"
    plan = Plan.of("regmixup", tiny, spec, val=spec, preset="dinov3", epochs=1, batch=16)
    (found,) = plan.run(tmp_path / "out")
    assert np.isfinite(found.history[0]["loss"])
    judged = Run.open(tmp_path / "out" / "run")
    assert judged["val"].features.shape == (32, 16)
    assert (judged.provenance["recipe"], judged.provenance["seed"]) == (plan.name, plan.settings.seed)
    assert Plan.of("sure", tiny, spec).network().options.head == "cosine"
    with pytest.raises(InvalidInput, match="starts from a trained network"):
        Plan.of("aurc_finetune", "resnet8_cifar", spec)
    described = Plan.of("sure_plus", "resnet8_cifar", spec, epochs=3, batch=16, mixers=None).describe(steps=1)
    assert (described["passes_per_step"], described["steps"], described["classes"]) == (6, 6, 4)


def test_outliers_must_be_unknown(tmp_path):
    for name, classes in (("in", ("cat", "dog")), ("out", ("dog", "fox"))):
        for c in classes:
            folder = tmp_path / name / c
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = np.random.default_rng(i).integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    with pytest.raises(InvalidInput, match="dog are in both sets"):
        Plan.of("oe", "resnet8_cifar", f"folder:{tmp_path / 'in'}", outliers=f"folder:{tmp_path / 'out'}")


def test_memory_that_does_not_suffice(tmp_path, monkeypatch):
    def full(self, step):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(Training, "update", full)
    with pytest.raises(RunError, match="a batch of 32 does not fit in memory"):
        run("basic", tmp_path / "run")
