"""torchvision's registry wheel stops beside a CPU torch unless two operators it looks for are declared first."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)  # the networks of the tests are small: threads would wait for each other
    LIBRARY = torch.library.Library("torchvision", "DEF")  # kept: the operators go when it does
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
