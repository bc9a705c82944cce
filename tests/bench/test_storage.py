"""Files of results: round trips, damage, full disks and missing packages."""

import math
import sys

import numpy as np
import pytest
from example_rows import row, same, several
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.bench import storage
from twofold.bench.results import Results
from twofold.bench.rows import COLUMNS, REAL, WHOLE
from twofold.errors import InvalidInput, MissingExtra, RunError


def test_a_folder_comes_back(tmp_path):
    made = several()
    folder = made.save(tmp_path / "new" / "results")
    same(Results.open(folder), made)
    assert {p.name for p in folder.iterdir()} >= {"results.csv", "replicates.safetensors"}
    before = {path: path.read_bytes() for path in folder.iterdir()}
    Results.open(folder).save(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    Results.of(made.rows).save(folder)  # without replicates the old ones go
    assert not (folder / "replicates.safetensors").exists()
    assert Results.open(folder).replicates == {}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_comes_back(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    made = Results.of(several().rows)
    path = getattr(made, f"to_{kind}")(tmp_path / f"rows.{kind}")
    same(Results.open(path), made)
    empty = getattr(Results.of([]), f"to_{kind}")(tmp_path / f"none.{kind}")
    assert len(Results.open(empty)) == 0


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
cells = st.fixed_dictionaries(
    {c: st.none() | st.floats() for c in REAL}
    | {c: st.none() | st.integers(-(2**63) + 1, 2**63 - 1) for c in WHOLE}
    | {c: st.none() | texts for c in ("score", "pair", "reason", "command", "run")}
)


@given(st.lists(cells, max_size=4))
@settings(max_examples=80, deadline=None)
def test_any_text_and_number_survives_csv(rows):
    made = Results.of([{**one, "metric": "aurc", "shift": f"s{i}"} for i, one in enumerate(rows)])
    again = Results.of(storage.decode_csv(storage.encode_csv(made.rows), "rows.csv"))
    for old, new in zip(made, again, strict=True):
        for c in COLUMNS:
            assert old[c] == new[c] or (math.isnan(old[c]) and math.isnan(new[c]))


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\nb"])
def test_ends_of_lines_become_newlines(tmp_path, text):
    made = Results.of([row(reason=text)])
    assert made.rows[0]["reason"] == "a\nb"
    same(Results.open(made.to_csv(tmp_path / "r.csv")), made)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-1], "its last line is cut off"),
        (lambda b: b[:-30], "damaged|not a CSV"),
        (lambda b: b.replace(b"0.3333", b"0.3x33"), "low of row 0 is not a number: '0.3x33"),
        (lambda b: b.replace(b"untuned", b"detuned"), "tuned of row 0: no choice 'detuned'"),
        (lambda b: b.replace(b"value,", b"worth,"), "its first line must be benchmark,model"),
        (lambda b: b + b.splitlines(keepends=True)[1], "two rows have"),
        (lambda b: b + b"1,2\n", "has 2 columns, not 25"),
        (lambda b: b"\xff" + b, "not a CSV file of results"),
        (lambda b: b"", "is not a file of results"),
    ],
)
def test_damaged_rows_are_refused(tmp_path, damage, message):
    path = Results.of(several().rows).to_csv(tmp_path / "rows.csv")
    content = damage(path.read_bytes())
    assert content != path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        Results.open(path)
    assert "rows.csv" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 100, 300])
def test_damaged_replicates_are_refused(tmp_path, cut):
    folder = several().save(tmp_path / "r")
    path = folder / "replicates.safetensors"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InvalidInput, match="damaged"):
        Results.open(folder)


def test_replicates_of_other_rows_are_refused(tmp_path):
    folder = several().save(tmp_path / "r")
    Results.of([row()]).to_csv(folder / "results.csv")
    with pytest.raises(InvalidInput, match=r"results\.csv is damaged or was edited: its SHA-256"):
        Results.open(folder)
    assert len(Results.open(folder / "results.csv").rows) == 1  # alone, the text is read as it is


def test_no_flipped_bit_of_a_folder_changes_a_row_or_replicate(tmp_path):
    """Every flip in any file is refused, or leaves rows and replicates as they were."""
    made = several()
    folder = made.save(tmp_path / "r")
    rng = np.random.default_rng(0)
    refused = 0
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for place in rng.integers(0, 8 * len(raw), 40).tolist():
            damaged = bytearray(raw)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                same(Results.open(folder), made)
            except InvalidInput:
                refused += 1
        path.write_bytes(raw)
    assert refused == 40 * len(list(folder.iterdir()))
    same(Results.open(folder), made)


def test_a_folder_without_digests_is_written_again(tmp_path):
    folder = several().save(tmp_path / "r")
    (folder / "results.json").unlink()
    with pytest.raises(InvalidInput, match=r"has no results\.json .* write the results again with Results\.save"):
        Results.open(folder)


def test_flipped_bits_of_a_parquet_file(tmp_path):
    pytest.importorskip("pyarrow")
    made = Results.of(several().rows)
    path = made.to_parquet(tmp_path / "r.parquet")
    raw = path.read_bytes()
    rng, refused = np.random.default_rng(0), 0
    for place in rng.integers(0, 8 * len(raw), 60).tolist():
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            Results.open(path)
        except InvalidInput:
            refused += 1
    assert refused > 10


def test_damaged_parquet_and_missing_files(tmp_path):
    pytest.importorskip("pyarrow")
    path = several().to_parquet(tmp_path / "r.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match=r"not a Parquet file, or damaged"):
        Results.open(path)
    for place, message in ((tmp_path, "holds no results"), (tmp_path / "gone", "there is no file or folder")):
        with pytest.raises(InvalidInput, match=message):
            Results.open(place)
    with pytest.raises(InvalidInput, match="there is no folder"):
        several().to_csv(tmp_path / "gone" / "r.csv")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be a folder of results"):
        several().save(tmp_path / "file")


def test_a_full_disk_changes_nothing(tmp_path, monkeypatch):
    folder = several().save(tmp_path / "r")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        Results.of([row("knn")]).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_without_pyarrow_and_pandas(tmp_path, monkeypatch):
    made = several()
    folder = made.save(tmp_path / "r")
    for name in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (made.to_pandas, lambda: made.to_parquet(tmp_path / "r.parquet")):
        with pytest.raises(MissingExtra, match=r'pip install "twofold\[report\]"'):
            call()
    made.save(folder)
    assert (folder / "results.parquet").exists()  # of the same rows
    other = Results.of([row("knn")])
    other.save(folder)
    assert not (folder / "results.parquet").exists()  # it would be of other rows
    same(Results.open(folder), other)
