"""Extraction: outputs of the network, once and in order; resumable, shared between processes, equal to the byte."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from twofold import Outputs, Run, scorer  # noqa: E402
from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, LowPrecision, RunError  # noqa: E402
from twofold.nn.extraction import Prepare, dropout, extract, gram_rows, stream  # noqa: E402
from twofold.nn.extraction.joining import announce_process, have_joined  # noqa: E402
from twofold.nn.models import Classifier  # noqa: E402
from twofold.nn.perturb import Odin, OdinGrid, PerturbedMahalanobis, RankFeat  # noqa: E402
from twofold.scores.layers import gram_rows as gram_rows_of_arrays  # noqa: E402


class Small(nn.Module):
    """Two blocks of maps, then a linear head, with dropout where asked."""

    def __init__(self, classes=4, inside=0.0, last=0.0, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layer1 = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(inside))
        self.layer2 = nn.Sequential(nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(last)
        self.fc = nn.Linear(8, classes)
        self.calls = 0

    def forward(self, x):
        self.calls += len(x)
        return self.fc(self.drop(self.layer2(self.layer1(x)).mean(dim=(2, 3))))


def tensors(n=70, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand((n, 3, 8, 8), generator=g), torch.arange(n) % 4


def loader(n=70, batch=16, **options):
    return DataLoader(TensorDataset(*tensors(n)), batch_size=batch, **options)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(stream, "SHARD", 32)  # several shards
    return Small()


def by_hand(model, x):
    with torch.no_grad():
        h = model.layer2(model.layer1(x)).mean(dim=(2, 3))
        return model.fc(h).numpy(), h.numpy()


def test_three_lines_of_a_notebook(small, tmp_path):
    run = extract(small, loader(), tmp_path / "run", name="test", role="test")
    got = run["test"]
    logits, features = by_hand(small, tensors()[0])
    assert np.asarray(got.logits) == pytest.approx(logits, abs=1e-6)
    assert np.asarray(got.features) == pytest.approx(features, abs=1e-6)
    assert (np.asarray(got.labels) == np.arange(70) % 4).all()
    assert got.logits.dtype == got.features.dtype == np.float32
    assert np.asarray(run.head.weight) == pytest.approx(small.fc.weight.detach().numpy())
    Outputs(got.logits, got.labels, got.features, got.head)  # the head law
    run.verify()
    assert run.provenance["model"] == "Small"


def test_each_image_goes_through_the_network_once(small, tmp_path):
    extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16)
    assert small.calls <= 70 + 4  # and two rows twice, to find the head and learn the shapes


def test_many_sets_in_one_run(small, tmp_path):
    finished = []
    run = extract(small, loader(), tmp_path / "run", name="train", role="train", done=finished.append)
    assert sum(finished) == 70
    extract(small, loader(20), run, name="near", role="near")
    assert run.roles == {"train": "train", "near": "near"}
    with pytest.raises(RunError, match="already holds a data set 'near'"):
        extract(small, loader(20), run, name="near", role="near")
    extract(small, loader(30), run, name="near", role="near", replace=True)
    assert len(run["near"]) == 30
    with pytest.raises(InvalidInput, match="outputs of another model"):
        extract(Small(seed=1), loader(), run, name="other", role="test")


def test_unknown_inputs_are_labelled_so(small, tmp_path):
    run = extract(small, loader(), tmp_path / "run", name="far", role="far")
    assert not run["far"].is_id.any()


def test_images_are_normalised(small, tmp_path):
    class Images:
        labels = np.arange(10) % 4
        ids = np.array([f"image-{i}" for i in range(10)])
        class_names = ("a", "b", "c", "d")
        pixels = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)

        def __len__(self):
            return 10

        def read(self, rows):
            return self.pixels[rows]

    prepare = Prepare((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    run = extract(small, Images(), tmp_path / "run", name="test", role="test", prepare=prepare)
    x = (Images.pixels / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    logits, _ = by_hand(small, torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float32))
    assert np.asarray(run["test"].logits) == pytest.approx(logits, abs=1e-5)
    assert run["test"].ids.tolist() == Images.ids.tolist()
    assert run.class_names == Images.class_names


def test_dictionaries_are_taken(tmp_path):
    class Words(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return {"tokens": torch.tensor([i, i + 1, i % 3]), "labels": i % 2}

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.words, self.head = nn.Embedding(20, 5), nn.Linear(5, 2)

        def forward(self, tokens):
            return {"logits": self.head(self.words(tokens).mean(dim=1))}

    run = extract(Reader(), Words(), tmp_path / "run", name="text", role="test", batch=5)
    assert run["text"].features.shape == (12, 5)
    assert (np.asarray(run["text"].labels) == np.arange(12) % 2).all()


SCRIPT = """
import os, sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
from test_extract import Small, tensors
from twofold.nn.extraction import stream as module
from torch.utils.data import TensorDataset
module.SHARD = 16
seen = []
def done(rows):
    seen.append(rows)
    if len(seen) == {die} + 1:
        os.kill(os.getpid(), 9)
model = Small(inside=0.3)
module.extract(model, TensorDataset(*tensors()), {out!r}, name="test", role="test", batch=8, passes=3, layers=True,
               done=done)
"""


def script(out, die=99):
    here = os.path.dirname(__file__)
    return [sys.executable, "-c", textwrap.dedent(SCRIPT).format(here=here, out=str(out), die=die)]


def stored(run):
    return (run / "test.safetensors").read_bytes()


def test_a_killed_extraction_resumes_and_gives_the_same_bytes(tmp_path):
    subprocess.run(script(tmp_path / "whole"), check=True)
    killed = subprocess.run(script(tmp_path / "cut", die=2), check=False)
    assert killed.returncode == -9
    half = Run.open(tmp_path / "cut")
    assert half.names() == []  # nothing half-written is seen
    half.verify()
    subprocess.run(script(tmp_path / "cut"), check=True)
    assert stored(tmp_path / "cut") == stored(tmp_path / "whole")
    Run.open(tmp_path / "cut").verify()


def test_two_processes_give_the_same_bytes(tmp_path):
    subprocess.run(script(tmp_path / "one"), check=True)
    both = [
        subprocess.Popen(script(tmp_path / "two"), env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
        for rank in (0, 1)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert stored(tmp_path / "two") == stored(tmp_path / "one")


def test_only_missing_shards_are_computed_again(small, tmp_path):
    class Stop(Exception):
        pass

    seen = []

    def done(rows):
        seen.append(rows)
        if len(seen) == 2:
            raise Stop

    with pytest.raises(Stop):
        extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16, done=done)
    before = small.calls
    extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16)
    assert small.calls - before < 70


def test_mc_dropout_changes_dropout_alone(tmp_path):
    model = Small(inside=0.3, last=0.2)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    run = extract(model, loader(), tmp_path / "run", name="test", role="test", passes=40)
    got = run["test"]
    logits, _ = by_hand(model.eval(), tensors()[0])
    assert np.asarray(got.logits) == pytest.approx(logits, abs=1e-6)  # the main outputs are deterministic
    assert got.passes.count == 40
    assert np.asarray(got.passes.prob_std).mean() > 1e-3
    assert all((v == before[k]).all() for k, v in model.state_dict().items())  # batch-norm statistics too
    kept = extract(model, loader(), tmp_path / "kept", name="test", role="test", passes=40, keep_passes=True)["test"]
    p = np.exp(np.asarray(kept.passes, dtype=np.float64))
    p /= p.sum(axis=2, keepdims=True)
    assert np.asarray(got.passes.mean_prob) == pytest.approx(p.mean(axis=0), abs=1e-6)
    assert np.asarray(got.passes.prob_std) == pytest.approx(p.std(axis=0), abs=1e-6)
    assert got.layers["passes/features"].shape == (70, 8)
    again = extract(model, loader(), tmp_path / "again", name="test", role="test", passes=40)["test"]
    assert (np.asarray(again.passes.mean_prob) == np.asarray(got.passes.mean_prob)).all()
    assert np.isfinite(scorer("mc(energy)").fit(got).score(got)).all()


class Line(nn.Module):
    """Dropout of images, then a linear layer: what passes give on average is known."""

    def __init__(self, drop):
        super().__init__()
        torch.manual_seed(0)
        self.drop, self.fc = drop, nn.Linear(24, 3)

    def forward(self, x):
        return self.fc(self.drop(x).flatten(1))


def test_passes_have_the_mean_and_variance_of_dropout(tmp_path):
    x = torch.rand((5, 6, 2, 2), generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x.repeat(400, 1, 1, 1), torch.zeros(2000, dtype=torch.long))  # the same five images
    for place, drop in enumerate((nn.Dropout(0.25), nn.Dropout2d(0.25))):
        model = Line(drop)
        run = extract(model, data, tmp_path / str(place), name="test", role="test", passes=50, keep_passes=True)
        logits = np.asarray(run["test"].passes, dtype=np.float64).reshape(-1, 5, 3)
        parts = (x.flatten(1)[:, None] * model.fc.weight.detach()).double()  # rows, classes, entries
        parts = parts if place == 0 else parts.unflatten(2, (6, 4)).sum(dim=3)  # whole channels are dropped
        mean = parts.sum(dim=2).numpy() + model.fc.bias.detach().numpy()
        variance = (parts**2).sum(dim=2).numpy() * 0.25 / 0.75
        error = np.sqrt(variance / len(logits))
        assert np.abs(logits.mean(axis=0) - mean).max() < 5 * error.max()
        assert logits.var(axis=0) == pytest.approx(variance, rel=0.06)


def test_passes_do_not_depend_on_the_size_of_a_batch(tmp_path):
    """A row has the same masks in any batch, inside the network and at its head."""
    for name, model in (("inside", Small(inside=0.3)), ("head", Small(last=0.4))):
        found = []
        for batch in (8, 13, 70):
            out = tmp_path / f"{name}-{batch}"
            run = extract(model, loader(), out, name="test", role="test", passes=4, keep_passes=True, batch=batch)
            found.append(np.asarray(run["test"].passes))
        assert found[1] == pytest.approx(found[0], abs=1e-6)
        assert found[2] == pytest.approx(found[0], abs=1e-6)
        assert np.abs(found[0][0] - found[0][1]).max() > 1e-3  # passes differ


def test_dropout_at_the_head_needs_one_backbone_pass(tmp_path, monkeypatch):
    model = Small(last=0.4)
    fast = extract(model, loader(), tmp_path / "fast", name="test", role="test", passes=20, keep_passes=True)
    calls = model.calls
    assert calls <= 70 + 4
    monkeypatch.setattr(dropout, "find_dropout_at_head", lambda *a: None)
    slow = extract(model, loader(), tmp_path / "slow", name="test", role="test", passes=20, keep_passes=True)
    assert model.calls - calls > 20 * 70
    assert np.asarray(fast["test"].passes) == pytest.approx(np.asarray(slow["test"].passes), abs=1e-6)


def test_an_ensemble_is_its_members(tmp_path):
    members = [Small(seed=s) for s in range(3)]
    got = extract(members, loader(), tmp_path / "run", name="test", role="test", keep_passes=True)["test"]
    for logits, model in zip(np.asarray(got.passes), members, strict=True):
        assert logits == pytest.approx(by_hand(model, tensors()[0])[0], abs=1e-6)
    assert np.asarray(got.logits) == pytest.approx(np.asarray(got.passes)[0])
    with pytest.raises(InvalidInput, match="cannot be recorded together"):
        extract(members, loader(), tmp_path / "x", name="test", role="test", passes=3)


def test_layer_statistics(small, tmp_path):
    got = extract(small, loader(), tmp_path / "run", name="train", role="train", layers=["layer1", "layer2"])["train"]
    with torch.no_grad():
        maps = small.layer1(tensors()[0]).flatten(2).numpy().astype(np.float64)
    assert np.asarray(got.layers["layer1/mean"]) == pytest.approx(maps.mean(axis=2), abs=1e-5)
    assert np.asarray(got.layers["layer1/var"]) == pytest.approx(maps.var(axis=2), abs=1e-5)
    for power in (1, 2, 5):
        want = gram_rows_of_arrays(maps, power)
        assert np.asarray(got.layers[f"layer1/gram{power}"]) == pytest.approx(want, rel=1e-3, abs=1e-4)
    assert set(got.layers) == {
        f"{n}/{k}" for n in ("layer1", "layer2") for k in ("mean", "var", *(f"gram{q}" for q in range(1, 6)))
    }
    assert np.isfinite(scorer("gram").fit(got).score(got)).all()
    with pytest.raises(InvalidInput, match="statistics need"):
        extract(small, loader(), tmp_path / "bad", name="x", role="test", layers=["fc"])


def test_gram_rows_do_not_overflow():
    assert torch.isfinite(gram_rows(torch.full((1, 2, 3), 1e8), 5)).all()


def test_a_grid_of_odin_is_odin_at_each_pair(small):
    x, _ = tensors(5)
    classifier = Classifier(small.eval(), example=x[:2])
    std = (0.2, 0.25, 0.3)
    grid = OdinGrid((1.0, 10.0), (0.0, 0.01), std)(classifier, x)
    assert list(grid) == ["odin_t1_e0", "odin_t1_e0.01", "odin_t10_e0", "odin_t10_e0.01"]
    for temperature in (1.0, 10.0):
        for epsilon in (0.0, 0.01):
            alone = Odin(temperature, epsilon, std)(classifier, x)
            assert grid[f"odin_t{temperature:g}_e{epsilon:g}"].numpy() == pytest.approx(alone.numpy(), abs=1e-6)
    for text in ("1,10", "1,10:", "a:0", "1:0:2"):
        with pytest.raises(InvalidInput, match="TEMPERATURES:STEPS"):
            OdinGrid.parse(text)
    with pytest.raises(InvalidInput, match="temperature must be in"):
        OdinGrid.parse("0,1:0")
    with pytest.raises(InvalidInput, match="epsilon must be in"):
        OdinGrid.parse("1:-0.1")


def test_the_command_records_a_grid_of_odin_that_scores_read(tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "test.npz"
    np.savez(file, images=rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8), labels=np.arange(6) % 4)
    command = ["extract", "resnet8_cifar", "--classes", "4", "--data", f"npz:{file}", "--role", "test"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "run"), "--odin-grid", "1,10:0,0.002"])
    assert done.exit_code == 0, done.output
    found = Run.open(tmp_path / "run")["test"]
    for temperature, epsilon in ((1, 0), (10, 0.002)):
        score = scorer(f"odin(temperature={temperature}, epsilon={epsilon})").score(found)
        assert score == pytest.approx(np.asarray(found.learned[f"odin_t{temperature}_e{epsilon}"]))
    plain = np.asarray(found.logits, dtype=np.float64)
    assert scorer("odin(temperature=1, epsilon=0)").score(found) == pytest.approx(
        plain.max(axis=1) - np.log(np.exp(plain).sum(axis=1)), abs=1e-5
    )
    with pytest.raises(InvalidInput, match="odin_t100_e0"):
        scorer("odin(temperature=100, epsilon=0)").score(found)
    with pytest.raises(InvalidInput, match="temperature and epsilon together"):
        scorer("odin(temperature=10)").score(found)
    refused = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "other"), "--odin-grid", "10"])
    assert refused.exit_code == 3
    assert "TEMPERATURES:STEPS" in refused.output


def test_odin_moves_against_the_gradient(small):
    x, _ = tensors(10)
    classifier = Classifier(small.eval(), example=x[:2])
    std = (0.2, 0.3, 0.4)
    with torch.no_grad():
        z = small(x).double()
    still = Odin(temperature=10.0, epsilon=0.0)(classifier, x)
    assert still.numpy() == pytest.approx((z.max(1).values - 10 * torch.logsumexp(z / 10, 1)).numpy())
    assert all(p.grad is None for p in small.parameters())
    chosen = z.argmax(dim=1)
    moved = []
    for i in range(len(x)):  # one image at a time, gradient by hand
        one = x[i : i + 1].clone().requires_grad_()
        nn.functional.cross_entropy(small(one) / 10.0, chosen[i : i + 1]).backward()
        sign = torch.where(one.grad >= 0, 1.0, -1.0)
        moved.append((one - 0.01 * sign / torch.tensor(std).view(1, 3, 1, 1)).detach())
    with torch.no_grad():
        z = small(torch.cat(moved)).double()
    want = z.max(1).values - 10 * torch.logsumexp(z / 10, 1)
    assert Odin(10.0, 0.01, std)(classifier, x).numpy() == pytest.approx(want.numpy(), abs=1e-5)
    assert Odin(10.0, 0.01, std)(classifier, x[:3]).numpy() == pytest.approx(want[:3].numpy(), abs=1e-5)


def test_mahalanobis_after_no_step_is_mds(small, tmp_path):
    run = extract(small, loader(), tmp_path / "run", name="train", role="train")
    chain = scorer("mds").fit(run["train"])
    x, _ = tensors(10)
    classifier = Classifier(small.eval(), example=x[:2])
    plain = chain.score(run["train"][:10])
    assert PerturbedMahalanobis(chain, epsilon=0.0)(classifier, x).numpy() == pytest.approx(plain, rel=1e-4)
    nearer = PerturbedMahalanobis(chain, epsilon=0.002)(classifier, x).numpy()
    assert (nearer > plain).mean() > 0.7
    with pytest.raises(InvalidInput, match="PerturbedMahalanobis needs"):
        PerturbedMahalanobis(scorer("mds"))(classifier, x)


def test_rankfeat_takes_the_leading_triple_away(small):
    x, _ = tensors(6)
    classifier = Classifier(small.eval(), example=x[:2])
    with torch.no_grad():
        first = small.layer1(x)
        total = 0
        for place in (1, 2):
            maps = first if place == 1 else small.layer2(first)
            flat = maps.flatten(2).numpy().astype(np.float64)
            for i, m in enumerate(flat):
                u, s, v = np.linalg.svd(m, full_matrices=False)
                flat[i] = m - s[0] * np.outer(u[:, 0], v[0])
            maps = torch.tensor(flat.reshape(maps.shape), dtype=torch.float32)
            h = (small.layer2(maps) if place == 1 else maps).mean(dim=(2, 3))
            total = total + small.fc(h).double()
    want = torch.logsumexp(total / 2, dim=1).numpy()
    assert RankFeat(("layer1", "layer2"))(classifier, x).numpy() == pytest.approx(want, abs=1e-4)


def test_perturbations_are_stored(small, tmp_path):
    learned = {"odin": Odin(epsilon=0.01), "rankfeat": RankFeat(("layer1", "layer2"))}
    got = extract(small, loader(), tmp_path / "run", name="test", role="test", learned=learned)["test"]
    for name in learned:
        assert np.isfinite(scorer(name).score(got)).all()
        assert scorer(name).score(got).std() > 0


def test_half_precision_is_never_silent(tmp_path):
    with pytest.warns(LowPrecision, match="computes in torch.bfloat16"):
        run = extract(
            Small().to(torch.bfloat16),
            TensorDataset(tensors()[0].to(torch.bfloat16)),
            tmp_path / "run",
            name="test",
            role="test",
        )
    assert run["test"].logits.dtype == np.float32


def test_features_may_be_half(small, tmp_path):
    got = extract(small, loader(), tmp_path / "run", name="test", role="test", features="float16")["test"]
    assert got.features.dtype == np.float16
    assert got.logits.dtype == np.float32


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: loader(shuffle=True), "shuffles"),
        (lambda: DataLoader(Endless()), "iterable dataset"),
        (lambda: 7, "data must be rows"),
    ],
)
def test_data_that_cannot_be_resumed_is_refused(small, tmp_path, data, message):
    with pytest.raises(InvalidInput, match=message):
        extract(small, data(), tmp_path / "run", name="test", role="test")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("epsilon", [float("nan"), float("inf"), -0.1, "0.1"])
def test_the_length_of_a_step_must_be_a_number(small, tmp_path, epsilon):
    x, labels = tensors(8)
    classifier = Classifier(small.eval(), example=x[:2])
    with pytest.raises(InvalidInput, match="epsilon must be"):
        Odin(epsilon=epsilon)(classifier, x)
    with torch.no_grad():
        seen = classifier(x)
    chain = scorer("mds").fit(Outputs(seen.logits, labels, seen.features))
    with pytest.raises(InvalidInput, match="epsilon must be"):
        PerturbedMahalanobis(chain, epsilon=epsilon)(classifier, x)
    with pytest.raises(InvalidInput, match="std must be"):
        Odin(std=(1.0, float("nan"), 1.0))(classifier, x)
    learned = {"odin": Odin(epsilon=epsilon)}
    with pytest.raises(InvalidInput, match="epsilon must be"):
        extract(small, loader(), tmp_path / "run", name="test", role="test", learned=learned)
    assert not (tmp_path / "run").exists()


def test_a_process_that_waits_in_vain_says_so(small, tmp_path, monkeypatch):
    """The first process made the run and never finished its share."""
    monkeypatch.setattr(stream, "WAIT", 0.2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(RunError, match="the first process made no run"):
        extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16)
    Run.create(tmp_path / "run", model="Small")
    with pytest.raises(RunError, match=r"the first process did not finish 'test' within 0\.2 s"):
        extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16)
    monkeypatch.setenv("RANK", "0")  # what the second process wrote is kept, and the first completes it
    extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16)
    assert len(Run.open(tmp_path / "run")["test"]) == 70
    monkeypatch.setenv("RANK", "1")  # outputs that are being replaced are not taken for the new ones
    with pytest.raises(RunError, match="the first process did not finish 'test'"):
        extract(small, loader(), tmp_path / "run", name="test", role="test", batch=16, replace=True)


@pytest.mark.parametrize("replace", [False, True])
def test_a_process_that_comes_late_finds_the_data_set_open(small, tmp_path, monkeypatch, replace):
    """The first process has written everything, or found it written, before the second opens its writer."""
    if replace:
        extract(small, loader(), tmp_path / "run", name="test", role="test")
    process = threading.local()
    monkeypatch.setattr(stream, "_find_rank", lambda: (process.rank, 2))
    monkeypatch.setattr(stream, "WAIT", 20.0)

    def run_process(rank):
        process.rank = rank
        time.sleep(0.5 * rank)
        return extract(small, loader(), tmp_path / "run", name="test", role="test", replace=replace)

    with ThreadPoolExecutor(2) as executor:
        runs = list(executor.map(run_process, range(2)))
    assert [len(run["test"]) for run in runs] == [70, 70]
    assert not list((tmp_path / "run").glob(".joined*"))


def test_files_of_a_killed_launch_do_not_count_as_processes(tmp_path):
    announce_process(tmp_path, "test", 1)
    assert have_joined(tmp_path, "test", 2)
    assert not have_joined(tmp_path, "test", 3)
    hour_ago = time.time() - 3600
    os.utime(next(tmp_path.iterdir()), (hour_ago, hour_ago))
    assert not have_joined(tmp_path, "test", 2)
    announce_process(tmp_path, "test", 1)
    assert have_joined(tmp_path, "test", 2)


def test_other_errors_leave_no_run(tmp_path):
    with pytest.raises(InvalidInput, match="passes need dropout"):
        extract(Small(), loader(), tmp_path / "run", name="test", role="test", passes=3)
    with pytest.raises(InvalidInput, match="empty list"):
        extract([], loader(), tmp_path / "run", name="test", role="test")
    assert not (tmp_path / "run").exists()
