"""Settings of a training: every schedule, the bounds of every value, and what older states lack."""

import math
from dataclasses import asdict, replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from training_toys import run  # noqa: E402

from twofold.errors import InvalidInput, RunError, UnknownName  # noqa: E402
from twofold.nn.recipes import recipe  # noqa: E402
from twofold.nn.training import STATE, Settings  # noqa: E402
from twofold.nn.training.schedule import LearningRate  # noqa: E402
from twofold.nn.training.state import TrainingIdentity, read_state, read_tensors, write_tensors  # noqa: E402


def rates(steps_per_epoch=2, **options):
    """The learning rate of every step of ten epochs that start at 1."""
    settings = Settings(**{"epochs": 10, "lr": 1.0, **options})
    schedule = LearningRate(settings, settings.lr, steps_per_epoch)
    return [schedule.at(step) for step in range(schedule.steps)]


def torch_rates(make, steps, every=1):
    """The same, by a scheduler of PyTorch that is stepped after every so many updates."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimiser)
    found = []
    for step in range(steps):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return found


def test_schedules_are_those_of_pytorch():
    library = torch.optim.lr_scheduler
    assert rates() == pytest.approx(torch_rates(lambda o: library.CosineAnnealingLR(o, 20), 20))
    assert rates(min_lr=0.01) == pytest.approx(torch_rates(lambda o: library.CosineAnnealingLR(o, 20, 0.01), 20))
    by_epoch = torch_rates(lambda o: library.CosineAnnealingLR(o, 10), 20, every=2)
    assert rates(schedule_per="epoch") == pytest.approx(by_epoch)
    dropped = torch_rates(lambda o: library.MultiStepLR(o, [3, 6]), 20, every=2)
    assert rates(schedule="drops", drops=(3, 6)) == pytest.approx(dropped)
    assert rates(schedule="drops", drops=(0.3, 0.6)) == pytest.approx(dropped)
    fifths = torch_rates(lambda o: library.MultiStepLR(o, [6, 8], gamma=0.2), 20, every=2)
    assert rates(schedule="drops", drop_factor=0.2) == pytest.approx(fifths)
    assert set(rates(schedule="constant")) == {1.0}


def test_drops_at_shares_are_exact():
    """7 of 10 steps are the share 0.7, whatever the rounding of 0.7 times 10."""
    for tenth in range(1, 10):
        found = rates(steps_per_epoch=1, schedule="drops", drops=(tenth / 10,))
        assert found == pytest.approx([1.0] * tenth + [0.1] * (10 - tenth))
    ninety = rates(steps_per_epoch=3, epochs=90, schedule="drops", drops=(1 / 3, 2 / 3))
    assert ninety == pytest.approx([1.0] * 90 + [0.1] * 90 + [0.01] * 90)


def test_warm_up_in_steps_and_in_epochs():
    assert rates(warm_up=4)[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, rates()[4]])
    assert rates(warm_up_epochs=2.0) == rates(warm_up=4)


def test_steps_become_the_nearest_epochs():
    assert Settings(steps=40_000).for_rows(50_000).epochs == 103  # 390 steps an epoch: 102.6
    assert Settings(steps=10_000, batch=512).for_rows(50_000).epochs == 103
    assert Settings(steps=3).for_rows(50_000).epochs == 1
    assert Settings(epochs=7).for_rows(50_000).epochs == 7
    assert Settings(steps=40_000).for_rows(50_000).steps is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, "momentum must be in"),
        ({"lr": math.nan}, "lr must be in"),
        ({"lr": -1.0}, "lr must be in"),
        ({"lr": math.inf}, "lr must be in"),
        ({"weight_decay": -1e-4}, "weight_decay must be in"),
        ({"min_lr": math.nan}, "min_lr must be in"),
        ({"drop_factor": 0.0}, r"drop_factor must be in \(0, 1\]"),
        ({"drop_factor": 1.5}, "drop_factor must be in"),
        ({"clip_norm": 0.0}, "clip_norm must be in"),
        ({"drops": (0.3, 1.2)}, r"a share of drops must be in \(0, 1\), got 1.2"),
        ({"drops": (0.6, 0.3)}, "drops must rise"),
        ({"drops": (30, 30)}, "drops must rise"),
        ({"drops": (30, 0.6)}, "not both"),
        ({"drops": (0,)}, "an epoch of drops must be a whole number of at least 1"),
        ({"drops": ()}, "drops must be a sequence"),
        ({"drops": "30,60"}, "drops must be a sequence"),
        ({"schedule": "drops", "drops": (30, 200)}, "before the end of the run of 200 epochs, got epoch 200"),
        ({"schedule": "step"}, "schedule: no choice 'step'"),
        ({"schedule_per": "day"}, "schedule_per"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs optimiser='sgd'"),
        ({"nesterov": True, "optimiser": "adamw"}, "nesterov needs optimiser='sgd'"),
        ({"warm_up": 5, "warm_up_epochs": 1.0}, "not both"),
        ({"warm_up": -1}, "warm_up must be a whole number"),
        ({"warm_up_epochs": -1.0}, "warm_up_epochs must be in"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"augment": "flip"}, "augment must be a sequence of names"),
    ],
)
def test_values_out_of_range_are_one_clear_line(values, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        Settings(**values)
    assert "\n" not in str(caught.value)


def test_an_unknown_augmentation_has_suggestions():
    with pytest.raises(UnknownName, match="did you mean 'flip'"):
        Settings(augment=("filp",))


def test_a_state_from_before_a_setting_was_added_still_opens(tmp_path):
    """Settings that were added since have their defaults there; any other value is another training."""
    run("basic", tmp_path / "run", epochs=1)
    path = tmp_path / "run" / STATE
    tensors, metadata = read_tensors(path)
    for name in ("drops", "drop_factor", "steps", "min_lr", "schedule_per", "warm_up_epochs"):
        del metadata["settings"][name]
    write_tensors(path, tensors, metadata)
    settings = Settings(epochs=1, batch=32, lr=0.02)
    text = str(recipe("basic"))
    assert read_state(path, TrainingIdentity(text, asdict(settings), 64)) is not None
    with pytest.raises(RunError, match="settings differs"):
        read_state(path, TrainingIdentity(text, asdict(replace(settings, min_lr=0.01)), 64))
