"""Fixtures shared by all tests; torchvision's operators; and Ctrl-C, which some tests send.

torchvision's registry wheel stops beside a CPU torch unless two operators it looks for are declared first. A shell that
starts tests in the background makes them and the processes they start ignore Ctrl-C.
"""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)  # the networks of the tests are small: threads would wait for each other
    LIBRARY = torch.library.Library("torchvision", "DEF")  # kept: the operators go when it does
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(scope="session")
def data_dir():
    """The folder with real network outputs, named by the environment variable TWOFOLD_DATA."""
    folder = os.environ.get("TWOFOLD_DATA")
    if not folder:
        pytest.skip("TWOFOLD_DATA is not set; it names the folder with the real network outputs")
    return Path(folder)
