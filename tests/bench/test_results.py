"""Results: round trips, damage, filters, means over seeds, the choice on validation data, pivots and their text."""

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.bench import storage
from twofold.bench.protocols import PROTOCOLS
from twofold.bench.results import Results
from twofold.bench.rows import COLUMNS, KEY, REAL, WHOLE, finest, method
from twofold.bench.text import coverage_of, scale
from twofold.errors import InvalidInput, MissingExtra, RunError, UnknownName

NAN = float("nan")


def row(score="msp", value=0.1, **more):
    return {"score": score, "shift": "svhn", "metric": "aurc", "value": value, "protocol": "fd_shifts"} | more


def drawn(rows, arrays):
    """Replicates of rows, by their keys."""
    return {tuple(one.get(c) for c in KEY): a for one, a in zip(rows, arrays, strict=True)}


def several():
    """Rows of all kinds: numbers with many digits, NaN, text that needs quotes, a data set that is missing."""
    rows = [
        row(
            run="a", seed=1, low=1 / 3, high=0.1 + 0.2, level=0.95, resamples=4, n=10, n_id=6, n_ood=4, tuned="untuned"
        ),
        row(
            "react(percentile=90)|energy",
            1e-300,
            run="a",
            chosen='sum(of=("a","b"))',
            command="x, 'y'\nz",
            better="lower",
        ),
        row("knn", NAN, run="a", reason='Grüße: 1 < 2 & "3"', pair="msp"),
        row("mds", math.inf, run="b", version="1.0"),
        {"shift": "lsun", "run": "a", "value": NAN, "reason": "the run does not hold this data set"},
    ]
    return Results.of(rows, drawn(rows[:2], [[0.1, 0.2, NAN, 1 / 7], [1.0, 2.0]]))


def same(one, other):
    assert one.to_dicts() == other.to_dicts()
    assert [math.isnan(r["value"]) for r in one] == [math.isnan(r["value"]) for r in other]
    assert one.replicates.keys() == other.replicates.keys()
    for key, array in one.replicates.items():
        np.testing.assert_array_equal(array, other.replicates[key])


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_folder_comes_back(tmp_path):
    made = several()
    folder = made.save(tmp_path / "new" / "results")
    same(Results.open(folder), made)
    assert {p.name for p in folder.iterdir()} >= {"results.csv", "replicates.safetensors"}
    before = (folder / "results.csv").read_bytes()
    Results.open(folder).save(folder)
    assert (folder / "results.csv").read_bytes() == before
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


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(valeu=1)], "row 0: no column 'valeu'; did you mean 'value'"),
        ([row(), row("knn", value="high")], "value of row 1 must be a number or None, got 'high'"),
        ([row(value=True)], "value of row 0 must be a number"),
        ([row(n=1.5)], "n of row 0 must be a whole number"),
        ([row(n=2**63)], "n of row 0 must be a whole number"),
        ([row(better="up")], "better of row 0: no choice 'up'"),
        ([row(score=3)], "score of row 0 must be text"),
        ([row(reason="a\0b")], "NUL"),
        ([row(reason="\ud800")], "UTF-8"),
        ([row(metric=None)], "has the value 0.1 but no metric"),
        ([row(), row(value=0.2)], "two rows have score 'msp', shift 'svhn', protocol 'fd_shifts', metric 'aurc'"),
        (["msp"], "row 0 must be a mapping"),
    ],
)
def test_wrong_rows_are_refused(rows, message):
    with pytest.raises(InvalidInput, match=message):
        Results.of(rows)


def test_wrong_replicates_are_refused():
    with pytest.raises(InvalidInput, match="belong to no row"):
        Results.of([row()], drawn([row("knn")], [[1.0]]))
    with pytest.raises(InvalidInput, match="one-dimensional"):
        Results.of([row()], drawn([row()], [[[1.0]]]))
    given = np.array([1.0, 2.0])
    made = Results.of([row()], drawn([row()], [given]))
    given[0] = 5.0
    ((_, kept),) = made.replicates.items()
    assert kept.tolist() == [1.0, 2.0]


def test_filter_keeps_rows_and_their_replicates():
    rows = [row(s, v, shift=d) for s, v in (("msp", 0.1), ("knn", 0.2)) for d in ("svhn", "lsun")]
    made = Results.of(rows, drawn(rows, [[float(i)] for i in range(4)]))
    kept = made.filter(score=("knn", "mds"), shift="lsun")
    assert [(r["score"], r["shift"]) for r in kept] == [("knn", "lsun")]
    assert [a.tolist() for a in kept.replicates.values()] == [[3.0]]
    assert len(made.filter(score={"knn"}, metric="auroc")) == 0
    assert len(made.filter(pair=None)) == 4
    with pytest.raises(UnknownName, match="no column 'scor'"):
        made.filter(scor="msp")


def test_to_dicts_is_json():
    made = several()
    told = json.loads(json.dumps(made.to_dicts()))
    assert [one["value"] for one in told] == [0.1, 1e-300, None, math.inf, None]
    assert list(told[0]) == list(COLUMNS)


def test_to_pandas():
    pytest.importorskip("pandas")
    frame = several().to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["n"].dtype == "Int64"
    assert frame["n"].isna().tolist() == [False, True, True, True, True]
    assert frame["value"].isna().sum() == 2


# --- fewer rows -----------------------------------------------------------------------------------------------------


def test_over_seeds_is_numpys_mean_and_deviation():
    rng = np.random.default_rng(0)
    values, arrays = rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 5))
    rows = [
        row(s, values[i, k], seed=k, run=f"r{k}", model="net") for i, s in enumerate(("msp", "knn")) for k in range(3)
    ]
    mean = Results.of(rows, drawn(rows, arrays.reshape(6, 5))).over_seeds()
    assert len(mean) == 2
    for i, one in enumerate(mean):
        assert one["value"] == pytest.approx(values[i].mean())
        assert one["high"] - one["value"] == pytest.approx(values[i].std(ddof=1))
        assert one["value"] - one["low"] == pytest.approx(values[i].std(ddof=1))
        assert one["run"] == "r0, r1, r2"
        assert one["seed"] is None
        key = tuple(one[c] for c in KEY)
        assert mean.replicates[key] == pytest.approx(arrays[i].mean(axis=0))


def test_over_seeds_with_one_seed_a_gap_and_doubles():
    alone = Results.of([row(seed=3)]).over_seeds().rows[0]
    assert (alone["value"], alone["low"], alone["reason"]) == (0.1, None, "seed 3 alone")
    gap = Results.of([row(seed=0), row(seed=1, value=NAN)]).over_seeds().rows[0]
    assert math.isnan(gap["value"])
    assert gap["reason"] == "no value for seeds 1 of 0, 1"
    with pytest.raises(InvalidInput, match=r"differ in run \(a and b\).* for seed 0 of msp"):
        Results.of([row(seed=0, run="a"), row(seed=0, run="b")]).over_seeds()


def test_best_is_never_nan_and_follows_the_direction():
    rows = [row("a", 0.3), row("b", 0.1), row("c", NAN), row("d", 0.1)]
    assert [r["score"] for r in Results.of(rows).best()] == ["b"]
    rows = [one | {"metric": "auroc"} for one in rows]
    assert [r["score"] for r in Results.of(rows).best()] == ["a"]
    assert [r["score"] for r in Results.of(rows).best(per=("score",))] == ["a", "b", "d"]


def recipes(validated=(0.3, 0.2), tested=(0.1, 0.9)):
    """Two recipes; the one that is better in validation is worse in the test."""
    return [
        row(shift=shift, run=run, recipe=run, value=value)
        for shift, values in (("validation", validated), ("svhn", tested))
        for run, value in zip(("plain", "dropout"), values, strict=True)
    ]


def test_selection_looks_at_validation_data_only():
    chosen = Results.of(recipes()).select()
    assert {r["run"] for r in chosen} == {"dropout"}
    assert {r["reason"] for r in chosen} == {"run dropout chosen on validation data: plain 0.3, dropout 0.2"}
    for tested in ((0.0, 1.0), (1.0, 0.0), (NAN, 0.5)):
        assert {r["run"] for r in Results.of(recipes(tested=tested)).select()} == {"dropout"}
    assert {r["run"] for r in Results.of(recipes(validated=(0.1, NAN))).select()} == {"plain"}
    (empty,) = Results.of(recipes(validated=(NAN, NAN))).select()
    assert "none has a value on validation data" in empty["reason"]
    with pytest.raises(InvalidInput, match="2 runs to choose from"):
        Results.of(recipes()).filter(shift="svhn").select()


def test_a_pair_follows_its_first_score():
    pairs = [one | {"pair": "energy", "metric": "ds_aurc"} for one in recipes()[2:]]
    chosen = Results.of(recipes() + pairs).select()
    assert {r["run"] for r in chosen if r["pair"] == "energy"} == {"dropout"}


def test_finest_rows():
    def left(*shifts):
        rows = [row(shift=shift, role=role) for shift, role in shifts]
        return [r["shift"] for r in finest(Results.of(rows))]

    near, far = ("near", "near"), ("far", "far")
    assert left(near, ("cifar100", "near"), far, ("validation", "val")) == ["cifar100", "far"]
    assert left(("pooled", "pooled"), near, far) == ["near", "far"]
    assert left(("pooled", "pooled")) == ["pooled"]
    assert left(("shift", "shift"), ("sketch", "shift")) == ["shift", "sketch"]  # a data set of that name, no average


# --- text -----------------------------------------------------------------------------------------------------------


def test_overview_has_the_means_of_single_sets_best_first():
    values = {"msp": (0.1, 0.3), "knn": (0.2, 0.1), "mds": (0.0, NAN)}
    rows = [row(s, v, shift=d, role="far") for s, pair in values.items() for d, v in zip("ab", pair, strict=True)]
    rows += [row(s, 0.0, shift=d, role=r) for s in values for d, r in (("far", "far"), ("validation", "val"))]
    rows += [
        row("msp", 0.5, metric="f1", protocol="joint"),
        row("msp", 0.7, metric="ds_f1", pair="knn", protocol="joint"),
    ]
    assert Results.of(rows).overview().splitlines() == [
        "fd_shifts: aurc (x1000), lower is better, coverage of all samples "
        "(without misclassified ID samples beside OOD samples), mean of 2 values",
        "  150.00  knn",
        "  200.00  msp",
        "    0.00  mds  (of 1 only)",
        "",
        "joint: ds_f1 (%), higher is better, mean of 1 value",
        "  70.00  msp + knn",
    ]
    many = Results.of([row(f"s{i}", i / 100) for i in range(40)]).overview().splitlines()
    assert len(many) == 17
    assert many[-1] == "  and 25 more"
    assert Results.of([]).overview() == Results.of([row(value=NAN)]).overview() == "no values"


def test_pivot_marks_by_paired_replicates_else_by_the_interval():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=200)
    rows = [
        row("msp", 0.10, run="a", low=0.0, high=0.3, level=0.95),
        row("knn", 0.12, run="a", low=0.0, high=0.3, level=0.95),  # worse in every resample
        row("mds", 0.11, run="a", low=0.0, high=0.3, level=0.95),  # now better, now worse
        row("vim", 0.13, run="a", low=0.09, high=0.3, level=0.95),  # no replicates; the interval holds the best
        row("gen", 0.13, run="a", low=0.11, high=0.3, level=0.95),
        row("far", 0.10, run="a"),
    ]
    rows[-1] |= {"shift": "lsun"}
    best = 0.1 + 0.05 * noise
    arrays = [best, best + 0.02, best + 0.02 * rng.normal(size=200)]
    pivot = Results.of(rows, drawn(rows[:3], arrays)).pivot(metric="aurc")
    assert pivot.index == ("msp", "knn", "mds", "vim", "gen", "far")
    assert pivot.columns == ("svhn", "lsun")
    assert pivot.best[:, 0].tolist() == [True, False, False, False, False, False]
    assert pivot.tied[:, 0].tolist() == [False, False, True, True, False, False]
    assert pivot.best[:, 1].tolist() == [False] * 5 + [True]
    assert "msp, lsun: not in the results" in pivot.notes
    text = pivot.to_markdown(digits=1)
    assert text.splitlines()[2:5] == ["| msp | **100.0** | – |", "| knn | 120.0 | – |", "| mds | 110.0† | – |"]
    assert "the 95% interval of the paired bootstrap difference" in text


def test_pivot_leaves_validation_out_and_refuses_doubles():
    rows = [*recipes(), {"score": "mc", "protocol": "fd_shifts", "reason": "needs passes", "value": NAN}]
    pivot = Results.of(rows).filter(run=("plain", None)).pivot(metric="aurc")
    assert pivot.columns == ("svhn",)
    assert pivot.notes == ("mc: needs passes",)
    with pytest.raises(InvalidInput, match=r"recipe \(plain and dropout\), run"):
        Results.of(rows).pivot(metric="aurc")
    assert Results.of(rows).pivot(("score", "run"), metric="aurc").index == ("msp / plain", "msp / dropout")
    with pytest.raises(UnknownName, match="did you mean 'aurc'"):
        Results.of(rows).pivot(metric="aucr")
    with pytest.raises(InvalidInput, match="several protocols"):
        Results.of([row(), row(protocol="joint")]).pivot(metric="aurc")
    with pytest.raises(InvalidInput, match="disagree on whether higher or lower"):
        Results.of([row(better="lower"), row("knn", better="higher")]).pivot(metric="aurc")


def test_text_is_escaped():
    made = Results.of([row("a|b_c*<d>&$", 0.5, shift="50%_x\\")])
    line = made.to_markdown(metric="aurc").splitlines()
    assert line[0] == "| | 50%\\_x\\\\ |"
    assert line[2] == "| a\\|b\\_c\\*&lt;d&gt;&amp;\\$ | **500.00** |"
    latex = made.to_latex(metric="aurc")
    assert r" & 50\%\_x\textbackslash{} \\" in latex
    assert r"a\textbar{}b\_c{*}\textless{}d\textgreater{}\&\$ & \textbf{500.00} \\" in latex
    assert latex.count("{") - latex.count(r"\{") == latex.count("}") - latex.count(r"\}")


def test_method_and_scale():
    assert method({"score": "msp", "pair": None}) == "msp"
    assert [scale(m) for m in ("augrc", "ds_f1", "fpr95_ood", "nonsense")] == [
        (1000, "x1000"),
        (100, "%"),
        (100, "%"),
        (1, ""),
    ]


def test_protocols_that_judge_other_samples_say_so():
    """An area under a protocol that leaves samples out, or turns them round, is not that of ``evaluate``."""
    sets = {"test": "test", "a": "near", "b": "mid", "c": "far"}
    for name, protocol in PROTOCOLS.items():
        rules = {view.rule for view in protocol.views(sets) if view.unknown}
        said = coverage_of("aurc", name)
        assert ("without misclassified ID samples" in said) == ("proposed" in rules), name
        assert ("every ID sample counted as correct" in said) == ("original" in rules), name
