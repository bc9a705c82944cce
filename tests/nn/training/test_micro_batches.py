"""In one process: micro-batches, averages elsewhere, folders in use, precision, layout in memory, and clear lines."""

import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

sys.path.insert(0, str(Path(__file__).parent))

import sessions  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from training_toys import pictures  # noqa: E402

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.nn.recipes import Ranked, Recipe  # noqa: E402
from twofold.nn.training import Settings, prepare_training, state, train  # noqa: E402
from twofold.nn.training.forward import ForwardPass, find_idle_parameters  # noqa: E402
from twofold.nn.training.processes import _check_distributed_type, _leave  # noqa: E402


def distance(one, other):
    return max(float((one[key] - other[key]).abs().max()) for key in one)


@pytest.mark.parametrize("name", sessions.ACCUMULATED)
def test_micro_batches_add_up_to_the_batch(name, tmp_path):
    """Also in the ascent step of SAM, for pairs and ranks over the batch, and for what is counted after a step."""
    whole = sessions.run(name, tmp_path / "whole")
    cut = sessions.run(name, tmp_path / "cut", accumulate=4)
    assert distance(whole.model.state_dict(), cut.model.state_dict()) < 1e-6
    for one, other in zip(whole.history, cut.history, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-5)
        assert other["train_accuracy"] == one["train_accuracy"]


@pytest.mark.parametrize("name", ["regmixup", "crl"])
def test_losses_that_couple_rows_act_within_a_micro_batch_unless_gathered(name, tmp_path):
    whole = sessions.run(name, tmp_path / "whole", gather=False)
    cut = sessions.run(name, tmp_path / "cut", gather=False, accumulate=4)
    assert distance(whole.model.state_dict(), cut.model.state_dict()) > 1e-5


def test_a_batch_must_be_cut_into_equal_parts(tmp_path):
    with pytest.raises(InvalidInput, match=r"batch=16 cannot be cut into accumulate=3 equal micro-batches"):
        sessions.run("basic", tmp_path, accumulate=3)
    with pytest.raises(InvalidInput, match="accumulate"):
        Settings(accumulate=0)


def test_a_term_that_gathers_must_say_so(tmp_path):
    class Silent(Ranked):
        couples = False

    settings = Settings(epochs=1, batch=16, gather=True, accumulate=2)
    with pytest.raises(InvalidInput, match="must set couples = True"):
        train(Recipe((Silent(),)), sessions.tiny(Recipe(())), pictures(32), tmp_path, settings=settings)


def test_an_interrupted_training_with_micro_batches_ends_with_the_same_bits(tmp_path):
    sessions.run("sure", tmp_path / "whole", accumulate=2)
    with pytest.raises(sessions.Stop):
        sessions.run("sure", tmp_path / "cut", accumulate=2, done=sessions.stop_at(3))
    sessions.run("sure", tmp_path / "cut", accumulate=2)
    names = ("weights.safetensors", "metrics.csv")
    assert all((tmp_path / "cut" / n).read_bytes() == (tmp_path / "whole" / n).read_bytes() for n in names)


def test_the_average_may_be_on_a_device_of_its_own(tmp_path):
    beside = sessions.run("sure_plus", tmp_path / "a")
    elsewhere = sessions.run("sure_plus", tmp_path / "b", setup={"ema_device": "cpu"})
    assert distance(beside.model.state_dict(), elsewhere.model.state_dict()) == 0


def test_channels_last_changes_rounding_alone_and_resumes_to_the_bit(tmp_path):
    plain = sessions.run("mc_dropout", tmp_path / "plain")
    last = sessions.run("mc_dropout", tmp_path / "last", setup={"channels_last": True})
    assert last.model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert distance(plain.model.state_dict(), last.model.state_dict()) < 1e-6
    with pytest.raises(sessions.Stop):
        sessions.run("mc_dropout", tmp_path / "cut", setup={"channels_last": True}, done=sessions.stop_at(3))
    sessions.run("mc_dropout", tmp_path / "cut", setup={"channels_last": True})
    assert (tmp_path / "cut" / state.WEIGHTS).read_bytes() == (tmp_path / "last" / state.WEIGHTS).read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not locked there")
def test_two_trainings_at_once_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "PATIENCE", 0.2)
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(values):
        has_begun.set()
        may_end.wait(60)

    first = threading.Thread(target=sessions.run, args=("basic", tmp_path / "run"), kwargs={"done": wait})
    first.start()
    try:
        assert has_begun.wait(60)
        with pytest.raises(RunError, match=r"another training is at work in .*; wait until it ends, or choose another"):
            sessions.run("basic", tmp_path / "run")
    finally:
        may_end.set()
        first.join()
    again = sessions.run("basic", tmp_path / "run")  # the folder is free, and the training complete
    assert len(again.history) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of PyTorch's own compiler
def test_compiled_networks_draw_the_same_masks_in_float32_and_bf16(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    plain = sessions.run("mc_dropout", tmp_path / "plain")
    compiled = sessions.run("mc_dropout", tmp_path / "compiled", setup={"compiled": True})
    assert distance(plain.model.state_dict(), compiled.model.state_dict()) < 1e-5
    half = sessions.run("mc_dropout", tmp_path / "half", setup={"precision": "bf16"})
    both = sessions.run("mc_dropout", tmp_path / "both", setup={"compiled": True, "precision": "bf16"})
    assert 0 < distance(plain.model.state_dict(), half.model.state_dict()) < 0.05
    assert distance(half.model.state_dict(), both.model.state_dict()) < 0.05


def test_parameters_without_gradient_are_found():
    """Those of a branch that no term reads, and those that do not learn."""
    made = sessions.recipe("confidnet")
    training = prepare_training(made, sessions.tiny(made), pictures(32), Settings(batch=16))
    images = torch.rand(2, 3, 32, 32)
    learnt = [p for group in training.optimiser.param_groups for p in group["params"]]
    idle = find_idle_parameters(training.wrapped, images, learnt)
    assert idle
    assert all(name.startswith("model.confidence.") for name in idle)
    network = sessions.tiny(made)
    whole = ForwardPass(network, with_confidence=True)
    assert find_idle_parameters(whole, images, network.parameters()) == []
    branch = find_idle_parameters(whole, images, network.confidence.parameters())
    assert not any(name.startswith("model.confidence.") for name in branch)
    assert len(branch) == 6  # weights and biases of the convolution, the hidden layer and the head


def test_networks_in_shards_are_rejected():
    with pytest.raises(InvalidInput, match="configured for FSDP, which cuts the network into shards"):
        _check_distributed_type("FSDP")
    _check_distributed_type("MULTI_GPU")


no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@no_cuda
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--device", "cuda"], "device cuda cannot be used here"),
        (["--device", "cuda:7"], "device cuda:7 cannot be used here"),
        (["--device", "mps"], "device mps cannot be used here"),
        (["--device", "gpu"], "device must be cpu, cuda, cuda:N or mps, got 'gpu'"),
        (["--ema-device", "cuda"], "device cuda cannot be used here"),
        (["--sync-bn"], "--sync-bn needs CUDA, and the device is cpu"),
        (["--clip-norm", "-1"], "--clip-norm must be"),
        (["--accumulate", "3"], "cannot be cut into accumulate=3"),
    ],
)
def test_what_cannot_be_done_is_one_line(options, said, tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((8, 32, 32, 3), np.uint8), labels=np.arange(8) % 2)
    words = ["train", "--recipe", "basic", "--model", "resnet8_cifar", "--data", f"npz:{tmp_path / 'x.npz'}"]
    words += ["--epochs", "1", "--batch", "4", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*words, *options])
    assert done.exit_code == 3, done.output
    assert said in done.output
    assert "Traceback" not in done.output


def test_only_the_first_process_prints(tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", images=pictures(16).read(), labels=pictures(16).labels)
    words = ["train", "--recipe", "basic", "--model", "resnet8_cifar", "--data", f"npz:{tmp_path / 'x.npz'}"]
    words += ["--epochs", "1", "--batch", "8", "--out"]
    first = CliRunner().invoke(main, [*words, str(tmp_path / "first")])
    assert first.exit_code == 0, first.output
    assert "weights" in first.output
    monkeypatch.setenv("RANK", "1")
    second = CliRunner().invoke(main, [*words, str(tmp_path / "second")])
    assert second.exit_code == 0, second.output
    assert second.output == ""


def test_threads_of_the_group_have_time_to_free_their_tensors(tmp_path):
    """They need the interpreter, and a thread that asks for it while Python ends aborts the process."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    thread = threading.Thread(target=time.sleep, args=(0.1,))
    thread.start()
    _leave()
    assert not thread.is_alive()
    assert not torch.distributed.is_initialized()
    _leave()  # nothing is left to leave
