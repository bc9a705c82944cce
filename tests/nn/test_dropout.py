"""Dropout by row: the hash is the published one, and masks depend on the row, the call and the pass alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.nn.dropout import _draw_levels, drop_entries, find_dropouts, row_keys, switch_on  # noqa: E402

LIMIT = 1 << 64


def mix(value):
    """One step of SplitMix64 in whole numbers of any size."""
    z = (value + 0x9E3779B97F4A7C15) % LIMIT
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % LIMIT
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % LIMIT
    return z ^ (z >> 31)


def levels(key, call, entries):
    """The draws of a row, one after the other."""
    draws = []
    start = mix((key + call) % LIMIT)
    word = 0
    while len(draws) < entries:
        bits = mix((start + word * 0x9E3779B97F4A7C15) % LIMIT)
        draws += [(bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
        word += 1
    return draws[:entries]


def as_signed(keys):
    return torch.from_numpy(np.asarray(keys, dtype=np.uint64).view(np.int64))


def test_the_hash_is_splitmix64():
    """The first outputs for seed 1234567 that implementations of SplitMix64 are tested with."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [mix(1234567 + i * 0x9E3779B97F4A7C15) for i in range(4)] == published


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_entries_are_kept_or_dropped_whatever_the_order_in_memory(rate):
    base = torch.rand((7, 3, 5, 4)) + 1
    keys = [2**64 - 1, 0, 5, 2**63, 77, 1, 2]
    for x in (base, base.to(memory_format=torch.channels_last), base[:, :, ::2], base[:, :1].expand(-1, 3, -1, -1)):
        before = x.clone()
        got = drop_entries(x, rate, as_signed(keys), 3)
        assert torch.equal(x, before)
        for r, key in enumerate(keys):
            entries = got[r].permute(1, 2, 0).flatten().tolist()
            given = x[r].permute(1, 2, 0).flatten().tolist()
            for value, one, drawn in zip(entries, given, levels(key, 3, len(given)), strict=True):
                kept = drawn >= round(rate * 65536)
                assert value == (pytest.approx(one / (1 - rate), rel=1e-4) if kept else 0.0)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (4, 7), (8, 3, 5)])
def test_the_kernel_and_torch_agree(shape):
    keys = as_signed(row_keys((3, 1), np.array([0, 9, 4, 2])))
    x = torch.rand(shape)
    by_kernel = drop_entries(x, 0.3, keys, 2)
    by_torch = drop_entries(x.double(), 0.3, keys, 2)
    assert torch.allclose(by_kernel.double(), by_torch, rtol=1e-6)
    expected = [levels(int(key) % LIMIT, 2, 9) for key in keys]
    assert _draw_levels(keys, 2, 9).tolist() == expected


def test_gradients_are_those_of_the_mask():
    keys = as_signed(row_keys((0,), np.arange(4)))
    x = torch.rand(4, 3, 5, 5, requires_grad=True)
    weights = torch.rand(4, 3, 5, 5)
    dropped = drop_entries(x, 0.4, keys, 1)
    (dropped * weights).sum().backward()
    mask = (dropped / x).detach()
    assert torch.allclose(x.grad, mask * weights, rtol=1e-5)
    assert 0.2 < float((mask == 0).float().mean()) < 0.6


def test_draws_are_even_and_calls_and_rows_differ():
    keys = as_signed(row_keys((0, 0), np.arange(200)))
    draws = _draw_levels(keys, 1, 1000).double()
    assert float(draws.mean()) == pytest.approx(32767.5, abs=5 * 65536 / np.sqrt(12 * draws.numel()))
    below = (draws < 0.1 * 65536).double()
    assert float(below.mean()) == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / draws.numel()))
    correlation = np.corrcoef(draws[:100].flatten(), draws[100:].flatten())[0, 1]
    assert abs(correlation) < 5 / np.sqrt(draws.numel() / 2)
    others = _draw_levels(keys, 2, 1000).double()
    assert abs(np.corrcoef(draws.flatten(), others.flatten())[0, 1]) < 5 / np.sqrt(draws.numel())


def test_modules_are_switched_on_by_row_and_left_as_they_were():
    torch.manual_seed(0)
    shared = nn.Dropout(0.5)
    model = nn.Sequential(shared, nn.Conv2d(3, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), shared, nn.Linear(36, 2)).eval()
    rows = np.array([4, 8, 15])
    x = torch.rand(3, 3, 5, 5)
    dropouts = find_dropouts(model)
    device = torch.device("cpu")
    with switch_on(dropouts, row_keys((1,), rows), device):
        whole = model(x)
    for i in range(3):
        with switch_on(dropouts, row_keys((1,), rows[i : i + 1]), device):
            assert torch.allclose(model(x[i : i + 1]), whole[i : i + 1], atol=1e-6)
    with switch_on(dropouts, row_keys((2,), rows), device):
        assert not torch.allclose(model(x), whole)
    assert torch.equal(model(x), model(x))
    model.train()
    with switch_on(dropouts, row_keys((1,), rows), device):
        assert torch.allclose(model(x), whole)
    assert all(module.training for module in dropouts)
    channels = nn.Sequential(nn.Dropout2d(0.5))
    with switch_on(find_dropouts(channels), row_keys((1,), rows), device):
        maps = channels(torch.ones(3, 64, 2, 2)).flatten(2)
    assert set(maps.flatten().tolist()) == {0.0, 2.0}
    assert bool((maps == maps[:, :, :1]).all())  # whole channels
