"""A device that is not there is one line, before anything is written."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from click.testing import CliRunner  # noqa: E402

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.device import check_device  # noqa: E402
from twofold.nn.extraction import extract  # noqa: E402

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_devices():
    assert check_device("cpu") == torch.device("cpu")
    assert check_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(InvalidInput, match="device must be cpu, cuda, cuda:N or mps, got 'gpu'"):
        check_device("gpu")
    with pytest.raises(InvalidInput, match="meta computes shapes alone"):
        check_device("meta")


@no_cuda
def test_cuda_without_cuda(tmp_path):
    with pytest.raises(InvalidInput, match=r"device cuda cannot be used here \(.*\); use --device cpu") as caught:
        extract(
            build("resnet8_cifar", 3), np.zeros((4, 3, 32, 32)), tmp_path / "run", name="a", role="test", device="cuda"
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@no_cuda
@pytest.mark.parametrize("command", ["extract", "train"])
def test_commands_say_it_in_one_line(command, tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((8, 32, 32, 3), np.uint8), labels=np.arange(8) % 2)
    data = f"npz:{tmp_path / 'x.npz'}"
    words = {
        "extract": ["extract", "resnet8_cifar?classes=2", "--data", data, "--name", "a", "--role", "test"],
        "train": [
            "train",
            "--recipe",
            "basic",
            "--model",
            "resnet8_cifar",
            "--data",
            data,
            "--epochs",
            "1",
            "--batch",
            "4",
        ],
    }[command]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "out"), "--device", "cuda"])
    assert done.exit_code == 3, done.output
    lines = [line for line in done.output.splitlines() if line.strip()]
    assert "device cuda cannot be used here" in lines[-1]
    assert "Traceback" not in done.output
