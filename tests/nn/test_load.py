"""Models from strings and parameters from files; everything broken gives one clear error and changes nothing."""

import pickle
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.errors import InvalidInput, MissingExtra, UnknownName  # noqa: E402
from twofold.nn.models import build, load, names  # noqa: E402
from twofold.nn.models.checkpoint import fits, read_parameters  # noqa: E402
from twofold.nn.models.parts import CosineHead  # noqa: E402

SPEC = "resnet8_cifar?classes=3"


@pytest.fixture
def trained():
    """A network unlike the one that load() draws."""
    return build("resnet8_cifar", 3, seed=5).eval()


def equal(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_zoo_with_options():
    model = load("resnet8_cifar?classes=7&dropout=0.1&head=cosine&confidence=devries&abstain=true&scale=4&seed=3")
    assert model.linear.weight.shape == (8, 64)
    assert isinstance(model.linear, CosineHead)
    assert float(model.linear.scale) == 4
    assert model.confidence.kind == "devries"
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.1, 0.05}
    assert not model.training
    same = build("resnet8_cifar", 7, dropout=0.1, head="cosine", confidence="devries", abstain=True, scale=4, seed=3)
    assert equal(model, same)
    assert isinstance(load("resnet8_cifar", classes=7, head="cosine").linear, CosineHead)
    assert "resnet18_32" in names()


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("resnet8_cfar?classes=3", UnknownName, "did you mean 'resnet8_cifar'"),
        ("resnet8_cifar?clases=3", UnknownName, "no option of resnet8_cifar 'clases'; did you mean 'classes'"),
        ("resnet8_cifar", InvalidInput, r"write resnet8_cifar\?classes=10"),
        ("resnet8_cifar?classes", InvalidInput, "written name=value"),
        ("resnet8_cifar?classes=3&classes=4", InvalidInput, "twice"),
        ("resnet8_cifar?classes=many", InvalidInput, "classes must be a whole number"),
        ("resnet8_cifar?classes=3&dropout=high", InvalidInput, "dropout must be a number"),
        ("keras:resnet", InvalidInput, "no kind of model 'keras'"),
        ("", InvalidInput, "spec must be a string"),
        (None, InvalidInput, "spec must be a string"),
    ],
)
def test_wrong_specs(spec, error, message):
    with pytest.raises(error, match=message):
        load(spec)


def test_arguments_that_contradict_the_spec():
    with pytest.raises(InvalidInput, match="has classes=3 and the argument classes is 4"):
        load(SPEC, classes=4)


def save(model, path, form):
    state = model.state_dict()
    if form == "safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    elif form == "npz":
        np.savez(path, **{k: v.numpy() for k, v in state.items() if not k.endswith("num_batches_tracked")})
    else:
        wrapped = {f"module.{k}": v for k, v in state.items()}
        compiled = {f"_orig_mod.module.{k}": v for k, v in state.items()}
        forms = {
            "plain": state,
            "module": wrapped,
            "compiled": compiled,
            "state_dict": {"state_dict": wrapped, "epoch": 3},
            "model": {"model": state, "optimizer": {"lr": 0.1}},
            "net": {"net": state, "acc": 0.9},
        }
        torch.save(forms[form], path)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("safetensors", "w.safetensors"),
        ("npz", "w.npz"),
        ("plain", "w.pt"),
        ("module", "w.pth"),
        ("compiled", "w.th"),
        ("state_dict", "w.tar"),
        ("model", "w.ckpt"),
        ("net", "w"),
    ],
)
def test_checkpoints_of_every_form(trained, tmp_path, form, name):
    save(trained, tmp_path / name, form)
    assert not equal(load(SPEC), trained)
    assert equal(load(SPEC, checkpoint=tmp_path / name), trained)
    assert equal(load("resnet8_cifar", checkpoint=str(tmp_path / name)), trained)  # the file knows the classes


def test_number_of_classes_of_an_abstaining_checkpoint(tmp_path):
    model = build("resnet8_cifar", 3, abstain=True)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert equal(load("resnet8_cifar?abstain=true", checkpoint=tmp_path / "w.pt"), model)


class Evil:
    def __reduce__(self):
        return (print, ("this must not run",))


def broken(path, kind, trained):
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not a checkpoint at all")
    elif kind == "folder":
        path.mkdir()
    elif kind == "truncated":
        form = {".safetensors": "safetensors", ".npz": "npz"}.get(path.suffix, "plain")
        save(trained, path, form)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "flipped":
        form = {".safetensors": "safetensors", ".npz": "npz"}.get(path.suffix, "plain")
        save(trained, path, form)
        data = bytearray(path.read_bytes())
        data[:64] = bytes(64)
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "text", "truncated", "flipped"])
@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_broken_files(trained, tmp_path, suffix, kind):
    path = tmp_path / f"w{suffix}"
    broken(path, kind, trained)
    with pytest.raises(InvalidInput, match=r"checkpoint .*w\.\w+ (is|must)"):
        load(SPEC, checkpoint=path)


def test_no_file_runs_code(tmp_path, capsys):
    (tmp_path / "raw.pt").write_bytes(pickle.dumps({"a": Evil()}))
    torch.save({"a": Evil()}, tmp_path / "zip.pt")
    np.savez(tmp_path / "w.npz", a=np.array([Evil()], dtype=object))
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    for name in ("raw.pt", "zip.pt", "w.npz", "module.pt"):
        with pytest.raises(InvalidInput, match="damaged"):
            read_parameters(tmp_path / name)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [{}, {"epoch": 3}, {"state_dict": {}}, [torch.zeros(2)], torch.zeros(2)])
def test_torch_files_without_parameters(tmp_path, content):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InvalidInput, match="must hold"):
        load(SPEC, checkpoint=tmp_path / "w.pt")


def test_an_npz_with_a_damaged_member(trained, tmp_path):
    save(trained, tmp_path / "w.npz", "npz")
    with zipfile.ZipFile(tmp_path / "w.npz") as old, zipfile.ZipFile(tmp_path / "v.npz", "w") as new:
        for member in old.namelist():
            data = old.read(member)
            new.writestr(member, data[:20] if member.startswith("linear.weight") else data)
    with pytest.raises(InvalidInput, match="damaged"):
        load(SPEC, checkpoint=tmp_path / "v.npz")


def test_checkpoint_of_another_architecture(trained, tmp_path):
    save(trained, tmp_path / "w.pt", "plain")
    with pytest.raises(InvalidInput) as caught:
        load("resnet20_cifar_b?classes=3", checkpoint=tmp_path / "w.pt")
    text = str(caught.value)
    assert "does not fit resnet20_cifar_b?classes=3" in text
    assert "missing: layer1.1.conv1.weight, layer1.1.bn1.weight, layer1.1.bn1.bias, ..." in text
    assert text.endswith("the file fits resnet8_cifar?classes=3")


def test_checkpoint_with_other_classes_and_unexpected_keys(trained, tmp_path):
    save(trained, tmp_path / "w.pt", "plain")
    with pytest.raises(InvalidInput, match=r"2 of another shape: linear\.weight \(3, 64\) for \(9, 64\)"):
        load("resnet8_cifar?classes=9", checkpoint=tmp_path / "w.pt")
    torch.save(trained.state_dict() | {"extra.weight": torch.zeros(2)}, tmp_path / "more.pt")
    with pytest.raises(InvalidInput, match=r"1 unexpected: extra\.weight\); choose the architecture"):
        load(SPEC, checkpoint=tmp_path / "more.pt")


def test_fits_tells_the_variants_apart():
    for name in ("resnet8_cifar", "resnet8_cifar_b", "resnet8_cifar_kd", "svhn_small"):
        assert fits(build(name, 4, in_channels=1).state_dict()) == [f"{name}?classes=4&in_channels=1"]
    assert fits({"weight": torch.zeros(2)}) == []
    assert fits({"linear.weight": torch.zeros(2, 2)}) == []


FILE = """
from dataclasses import dataclass
from torch import nn
from neighbour import WIDTH

@dataclass
class Setting:
    width: int = WIDTH

def make():
    return nn.Sequential(nn.Linear(Setting().width, 3))

def needs(x):
    return nn.Linear(x, 2)

def wrong():
    return 3
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "neighbour.py").write_text("WIDTH = 5\n")
    return tmp_path / "net.py"


def test_a_function_in_a_file(file, tmp_path, monkeypatch):
    import sys

    before = list(sys.path)
    assert load(f"{file}:make")[0].in_features == 5
    monkeypatch.chdir(tmp_path)
    model = load("net.py:make")
    torch.save(nn.Sequential(nn.Linear(5, 3)).state_dict(), "w.pt")
    assert not equal(load("net.py:make", checkpoint="w.pt"), model)
    assert sys.path == before


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("mak", UnknownName, "no function in .* 'mak'; did you mean 'make'"),
        ("needs", InvalidInput, "could not be called without arguments"),
        ("wrong", InvalidInput, "must return a torch.nn.Module, got int"),
    ],
)
def test_wrong_functions(file, function, error, message):
    with pytest.raises(error, match=message):
        load(f"{file}:{function}")


def test_files_that_cannot_be_imported(tmp_path, file):
    (tmp_path / "bad.py").write_text("def make(:\n")
    with pytest.raises(InvalidInput, match=r"bad\.py cannot be imported: SyntaxError"):
        load(f"{tmp_path / 'bad.py'}:make")
    with pytest.raises(InvalidInput, match="there is no file"):
        load(f"{tmp_path / 'none.py'}:make")


def test_timm_and_torchvision_names():
    pytest.importorskip("timm", reason="timm is not installed")
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    with pytest.raises(UnknownName, match=r"no timm model 'resnet1'; did you mean .*'resnet18'"):
        load("timm:resnet1")
    with pytest.raises(UnknownName, match="no timm model"):
        load("timm:hf-hub:timm/resnet18")
    with pytest.raises(UnknownName, match=r"no torchvision classifier 'resnet1'; did you mean .*'resnet1"):
        load("torchvision:resnet1")
    with pytest.raises(UnknownName, match="no torchvision classifier"):
        load("torchvision:fasterrcnn_resnet50_fpn")
    for spec in ("timm:test_resnet?pretrained=True", "torchvision:resnet18?weights=DEFAULT"):
        with pytest.raises(InvalidInput, match="pass checkpoint="):
            load(spec)
    with pytest.raises(InvalidInput, match="cannot build test_resnet"):
        load("timm:test_resnet?colour=3")
    with pytest.raises(InvalidInput, match="has num_classes=3 and"):
        load("timm:test_resnet?num_classes=3", classes=4)


def test_timm_checkpoint(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    trained = load("timm:test_resnet?classes=4")
    save(trained, tmp_path / "w.safetensors", "safetensors")
    other = load("timm:test_resnet", classes=4, seed=1)
    assert not equal(other, trained)
    assert equal(load("timm:test_resnet", classes=4, checkpoint=tmp_path / "w.safetensors"), trained)


@pytest.mark.parametrize("spec", ["timm:test_resnet", "torchvision:resnet18", "hf:folder"])
def test_missing_libraries(spec, monkeypatch):
    import sys

    for name in ("timm", "torchvision", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r'pip install "twofold\[zoo\]"'):
        load(spec)


@pytest.fixture
def bert(tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    model = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=30, num_labels=4, **small)).eval()
    model.save_pretrained(tmp_path / "bert")
    hf.ViTForImageClassification(hf.ViTConfig(image_size=8, patch_size=4, num_labels=3, **small)).save_pretrained(
        tmp_path / "vit"
    )
    return model


def test_hugging_face_folders(bert, tmp_path, capfd):
    capfd.readouterr()
    model = load(f"hf:{tmp_path / 'bert'}")
    assert equal(model, bert)
    assert not model.training
    assert type(load(f"hf:{tmp_path / 'vit'}")).__name__ == "ViTForImageClassification"
    torch.save(bert.state_dict(), tmp_path / "w.pt")
    assert equal(load(f"hf:{tmp_path / 'bert'}", checkpoint=tmp_path / "w.pt"), bert)
    assert capfd.readouterr() == ("", "")


def test_code_in_hugging_face_folders_is_never_run_or_offered(bert, tmp_path, monkeypatch):
    """An untrusted folder must not run code by being loaded, nor make a person answer whether it may."""
    import builtins
    import json

    def asked(*_):
        pytest.fail("a person was asked whether to run code")

    monkeypatch.setattr(builtins, "input", asked)
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\nclass Config: pass\nclass Model: pass\n"
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    own = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "code.py").write_text(code)
    (tmp_path / "bert" / "code.py").write_text(code)
    (strange / "config.json").write_text(json.dumps({"model_type": "my_own", "auto_map": own}))
    for options in ({}, {"checkpoint": tmp_path / "w.pt"}):
        torch.save(bert.state_dict(), tmp_path / "w.pt")
        with pytest.raises(
            InvalidInput, match=r"needs code from its folder, which twofold never runs.*file\.py:function"
        ):
            load(f"hf:{strange}", **options)
    kernel = {**config, "attn_implementation": "someone/kernels"}
    (strange / "config.json").write_text(json.dumps(kernel))
    with pytest.raises(InvalidInput, match="needs code from another repository, which twofold never runs"):
        load(f"hf:{strange}")
    (tmp_path / "bert" / "config.json").write_text(json.dumps({**config, "auto_map": own}))
    assert equal(load(f"hf:{tmp_path / 'bert'}"), bert)  # transformers has code of its own for it
    assert not ran.exists()


def test_hugging_face_mistakes(bert, tmp_path):
    with pytest.raises(InvalidInput, match="nothing is downloaded"):
        load(f"hf:{tmp_path / 'none'}")
    with pytest.raises(InvalidInput, match="nothing is downloaded"):
        load("hf:twofold-tests/no-such-model")
    bert.bert.save_pretrained(tmp_path / "backbone")
    with pytest.raises(InvalidInput, match=r"no trained values for classifier\.bias, classifier\.weight"):
        load(f"hf:{tmp_path / 'backbone'}")
    with pytest.raises(InvalidInput, match=r"(no trained values for classifier|has no weights that can be read)"):
        load(f"hf:{tmp_path / 'bert'}", classes=9)
    weights = tmp_path / "bert" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InvalidInput, match="has no weights that can be read"):
        load(f"hf:{tmp_path / 'bert'}")
    weights.unlink()
    with pytest.raises(InvalidInput, match="has no weights that can be read"):
        load(f"hf:{tmp_path / 'bert'}")
    (tmp_path / "bert" / "config.json").write_text("{")
    with pytest.raises(InvalidInput, match="damaged"):
        load(f"hf:{tmp_path / 'bert'}")
