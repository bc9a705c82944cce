"""Wrapped networks: tensors, loaders, images of a training folder, texts and pictures of Hugging Face."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import twofold  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.data import Images, Texts  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.wrapping import Wrapped  # noqa: E402


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(n=90, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn((n, 3, 2, 2), generator=g)


def labelled(network, n=90, seed=0):
    inputs = batch(n, seed)
    with torch.no_grad():
        return inputs, network(inputs).argmax(dim=1)


def test_tensors_loaders_and_arrays_give_the_same_gate(network):
    inputs, labels = labelled(network)
    one = twofold.wrap(network, train=(inputs, labels), val=(inputs, labels))
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=7)
    two = twofold.wrap(network, train=loader, val=loader, batch=16)
    three = twofold.wrap(network, train=(inputs.numpy(), labels.numpy()), val=TensorDataset(inputs, labels))
    assert one.gate.ood.spec == "knn"
    assert tuple(one.gate.taus()) == pytest.approx(tuple(two.gate.taus()), abs=1e-5)
    assert tuple(one.gate.taus()) == pytest.approx(tuple(three.gate.taus()), abs=1e-5)
    outputs = one.outputs(inputs)
    with torch.no_grad():
        np.testing.assert_allclose(outputs.logits, network(inputs).numpy(), atol=1e-6)
        np.testing.assert_allclose(outputs.features, network[:3](inputs).numpy(), atol=1e-6)
    assert outputs.head is not None


def test_a_network_without_a_linear_head_has_logits_alone():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.LogSoftmax(dim=1))
    inputs, labels = labelled(model)
    wrapped = twofold.wrap(model, train=(inputs, labels), val=(inputs, labels))
    assert wrapped.outputs(inputs).features is None
    named = twofold.wrap(model, val=(inputs, labels), head="1")
    assert named.outputs(inputs).features is not None


def test_onnx_and_files(network, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    inputs, labels = labelled(network)
    wrapped = twofold.wrap(network, train=(inputs, labels), val=(inputs, labels))
    wrapped.to_onnx(tmp_path / "gate.onnx", shape=(3, 2, 2))
    session = runtime.InferenceSession(str(tmp_path / "gate.onnx"), providers=["CPUExecutionProvider"])
    fresh = batch(40, seed=5)
    verdict = session.run(["verdict"], {"images": fresh.numpy()})[0]
    assert np.array(["accept", "unsure", "unknown"])[verdict].tolist() == wrapped.decide(fresh).verdict.tolist()
    wrapped.save(tmp_path / "wrapped")
    assert Wrapped.load(tmp_path / "wrapped", network)(fresh) == wrapped(fresh)


def test_uint8_images_need_a_normalisation(network):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 2, 2, 3)).astype(np.uint8)
    labels = np.arange(40) % 3
    with pytest.raises(InvalidInput, match="need a normalisation"):
        twofold.wrap(network, val=(pixels, labels))
    wrapped = twofold.wrap(network, val=(pixels, labels), prepare=Prepare())
    expected = torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        np.testing.assert_allclose(wrapped.outputs(pixels).logits, network(expected).numpy(), atol=1e-6)


def test_a_training_folder_brings_size_normalisation_and_names(tmp_path):
    from twofold.nn import build
    from twofold.nn.recipes import recipe
    from twofold.nn.training import Settings, train

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (60, 16, 16, 3)).astype(np.uint8)
    images = Images.of(pixels, np.arange(60) % 2, class_names=("cat", "dog"))
    prepare = Prepare((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    settings = Settings(epochs=1, batch=30)
    train(recipe("basic"), build("resnet8_cifar", 2), images, tmp_path / "net", settings=settings, prepare=prepare)
    wrapped = twofold.wrap(tmp_path / "net", train=images, val=images)
    assert wrapped.source.classes == ("cat", "dog")
    assert set(wrapped(pixels[:9])) <= {"cat", "dog", None}
    network = wrapped.source.model
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    inputs = (torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255 - mean) / std
    with torch.no_grad():
        np.testing.assert_allclose(wrapped.outputs(images).logits, network(inputs).numpy(), atol=1e-5)
    with pytest.raises(InvalidInput, match="was trained on 16x16"):
        wrapped(rng.integers(0, 256, (3, 12, 12, 3)).astype(np.uint8))
    swapped = Images.of(pixels, np.arange(60) % 2, class_names=("dog", "cat"))
    with pytest.raises(InvalidInput, match="class 0"):
        twofold.wrap(tmp_path / "net", val=swapped)
    with pytest.raises(InvalidInput, match="is not that of the training"):
        twofold.wrap(tmp_path / "net", val=images, prepare=Prepare())


# Hugging Face

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pay", "bill", "hello", "there", "now", "rain"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    home = tmp_path_factory.mktemp("bert")
    (home / "vocab.txt").write_text("\n".join(WORDS))
    hf.BertTokenizer(str(home / "vocab.txt"), model_max_length=16).save_pretrained(home / "model")
    torch.manual_seed(0)
    names = {0: "pay", 1: "greet"}
    config = hf.BertConfig(
        vocab_size=len(WORDS), id2label=names, label2id={name: number for number, name in names.items()}, **SIZES
    )
    hf.BertForSequenceClassification(config).eval().save_pretrained(home / "model")
    return home / "model"


@pytest.fixture
def queries():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:], size=rng.integers(1, 8))) for _ in range(50)]
    return texts, rng.choice(["pay", "greet"], size=50).tolist()


def test_folder_model_pipeline_and_file_are_one(bert, queries, tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    model = hf.AutoModelForSequenceClassification.from_pretrained(bert)
    pipe = hf.pipeline("text-classification", model=str(bert), device="cpu")
    with (tmp_path / "val.jsonl").open("w") as file:
        for text, label in zip(*queries, strict=True):
            print(json.dumps({"text": text, "label": label}), file=file)
    folder = twofold.wrap(bert, train=queries, val=queries)
    others = [
        twofold.wrap(model, train=queries, val=queries),
        twofold.wrap(pipe, train=queries, val=Texts.of(*queries)),
        twofold.wrap(f"hf:{bert}", train=queries, val=f"text:{tmp_path / 'val.jsonl'}"),
    ]
    for other in others:
        assert tuple(other.gate.taus()) == pytest.approx(tuple(folder.gate.taus()), abs=1e-5)
    answers = folder(queries[0])
    named = [one["label"] for one in pipe(queries[0])]
    assert [answer or label for answer, label in zip(answers, named, strict=True)] == named
    assert len(folder("hello there")) == 1
    assert "Hugging Face BertForSequenceClassification" in str(folder)
    with pytest.raises(InvalidInput, match="'refund' is none of the"):
        twofold.wrap(bert, val=(queries[0][:2], ["pay", "refund"]))


def test_hugging_face_data_sets(bert, queries):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["greet", "pay"])}
    )
    numbers = [["greet", "pay"].index(label) for label in queries[1]]
    table = datasets.Dataset.from_dict({"text": queries[0], "label": numbers}, features=features)
    wrapped = twofold.wrap(bert, train=table, val=table)
    assert wrapped.gate.taus() == twofold.wrap(bert, train=queries, val=queries).gate.taus()
    with pytest.raises(InvalidInput, match="none is called text"):
        twofold.wrap(bert, val=datasets.Dataset.from_dict({"a": [1]}))


def test_pictures_go_through_the_image_processor(tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    torch.manual_seed(0)
    model = hf.ViTForImageClassification(hf.ViTConfig(image_size=8, patch_size=4, num_labels=3, **SIZES)).eval()
    model.save_pretrained(tmp_path / "vit")
    processor = hf.ViTImageProcessor(size={"height": 8, "width": 8})
    processor.save_pretrained(tmp_path / "vit")
    rng = np.random.default_rng(0)
    pictures = [image.fromarray(rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)) for _ in range(20)]
    wrapped = twofold.wrap(tmp_path / "vit", val=(pictures, np.arange(20) % 3))
    with torch.no_grad():
        expected = model(**processor(images=pictures, return_tensors="pt")).logits.numpy()
    np.testing.assert_allclose(wrapped.outputs(pictures).logits, expected, atol=1e-4)


def test_the_real_intent_classifier_abstains(data_dir):
    pytest.importorskip("transformers", reason="transformers is not installed")
    clinc = data_dir / "text/clinc150"
    wrapped = twofold.wrap(
        str(data_dir / "text/minilm_clinc150"), val=f"text:{clinc / 'val.jsonl.gz'}?sample=300", keep=0.9
    )
    assert wrapped(["what is my account balance"]) == ["balance"]
    known = wrapped(Texts.of(twofold.nn.data.open_texts(f"text:{clinc / 'test.jsonl.gz'}?sample=100").texts))
    outside = wrapped(f"text:{clinc / 'oos_test.jsonl.gz'}?limit=100")
    assert sum(label is not None for label in known) >= 80
    assert sum(label is not None for label in outside) <= 50


def test_hugging_face_data_sets_of_images_and_of_unknown_texts(bert, queries, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    others = datasets.Dataset.from_dict({"text": ["what is the weather", "who won the game"] * 5})
    wrapped = twofold.wrap(bert, train=queries, val=queries, unknown=others, id="msp", ood="energy", f1=True)
    assert sum(wrapped.gate.promise.outside) == 10
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    from PIL import Image

    pictures = [Image.fromarray(one) for one in pixels]
    table = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1] * 6}, features=features)
    config = hf.ViTConfig(
        image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    config.id2label, config.label2id = {0: "cat", 1: "dog"}, {"cat": 0, "dog": 1}
    torch.manual_seed(0)
    hf.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    hf.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    model = hf.ViTForImageClassification.from_pretrained(tmp_path / "vit")
    seen = twofold.wrap(model, train=table, val=table)
    assert set(seen(table)) <= {"cat", "dog", None}
    assert seen(table) == seen(pictures)


def test_a_network_in_training_mode_is_run_in_evaluation_mode():
    torch.manual_seed(0)
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 3))
    inputs, labels = labelled(dropping.eval())
    safe = twofold.wrap(dropping.train(), train=(inputs, labels), val=(inputs, labels), keep=0.9)
    before = safe(inputs)
    dropping.train()
    assert safe(inputs) == before


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (batch()[:0], "inputs: there are no inputs"),
        ([], "inputs: there are no inputs"),
        (torch.zeros(4, 5), r"inputs: the PyTorch module cannot run on a Tensor of shape \(4, 5\)"),
        (batch() * torch.nan, "inputs: logits must be finite"),
    ],
)
def test_inputs_that_a_network_cannot_take(network, inputs, message):
    safe = twofold.wrap(network, val=labelled(network))
    with pytest.raises(InvalidInput, match=message):
        safe(inputs)
