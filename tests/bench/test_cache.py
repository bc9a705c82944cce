"""The cache: damaged entries count as missing."""

import numpy as np

from twofold.bench.cache import Cache, CacheEntry


def test_no_flipped_bit_of_an_entry_is_read(tmp_path):
    """An entry that is not as it was written counts as not there; one whose shape alone was changed as well."""
    cache = Cache(tmp_path)
    entry = CacheEntry({"a": np.arange(6.0).reshape(2, 3), "b": np.ones(4, np.int64)}, {"a": "k", "b": "k"}, {"n": 3})
    cache.write("one", entry)
    raw = (tmp_path / "one.safetensors").read_bytes()
    damages = [raw.replace(b"[2,3]", b"[3,2]")]
    for place in np.random.default_rng(0).choice(8 * len(raw), 400, replace=False).tolist():
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        damages.append(bytes(damaged))
    for damaged in damages:
        assert damaged != raw
        (tmp_path / "one.safetensors").write_bytes(damaged)
        assert cache.read("one").arrays == {}
    (tmp_path / "one.safetensors").write_bytes(raw)
    assert cache.read("one").arrays["a"].tolist() == entry.arrays["a"].tolist()
