"""Batches of columns: the outputs of an extraction to the last bit, the verdicts of the gate, clear errors."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from batch_world import check_decision, extracted, fit_gate, network, pixels  # noqa: E402

from twofold.adapters import BatchPredictor  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import Classifier  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    images = pixels(90)
    return images, extracted(tmp_path_factory.mktemp("run") / "run", images, batch=32)


def test_outputs_are_those_of_an_extraction(made):
    images, outputs = made
    columns = BatchPredictor(network(), images="image", batch=32)({"image": images, "name": np.arange(90)})
    assert sorted(columns) == ["features", "logits", "name"]
    assert np.array_equal(columns["logits"], outputs.logits)
    assert np.array_equal(columns["features"], outputs.features)
    assert np.array_equal(columns["name"], np.arange(90))


@pytest.mark.parametrize("ood", ["energy", "mds", None])
def test_a_gate_decides_on_the_way(made, tmp_path, ood):
    images, outputs = made
    gate = fit_gate(outputs, ood=ood, train=None if ood != "mds" else train_outputs(outputs))
    gate.save(tmp_path / "gate")
    predictor = BatchPredictor(Classifier(network()), gate=str(tmp_path / "gate"), outputs=(), batch=32)
    columns = predictor({"images": images})
    decision = gate.decide(outputs)
    assert np.array_equal(columns["verdict"], decision.verdict)
    assert np.array_equal(columns["conf_id"], decision.conf_id)
    assert ("conf_ood" in columns) == (ood is not None)
    if ood:
        check_decision(columns, decision)


def train_outputs(outputs):
    return outputs.replace(labels=outputs.logits.argmax(axis=1))


def test_other_forms_of_the_same_images(made):
    from PIL import Image

    images, outputs = made
    predictor = BatchPredictor(network(), outputs=("logits",), shape=(8, 8, 3), batch=32)
    flat = predictor({"images": images.reshape(90, -1)})
    raw = np.array([image.tobytes() for image in images], dtype=object)
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(file.getvalue())
    decoded = BatchPredictor(network(), outputs=("logits",), batch=32)({"images": np.array(files, dtype=object)})
    ready = BatchPredictor(network(), outputs=("logits",), batch=32)({"images": Prepare()(images).numpy()})
    for columns in (flat, predictor({"images": raw}), decoded, ready):
        assert np.array_equal(columns["logits"], outputs.logits)


def test_an_onnx_gate_decides_as_its_own_session(made, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    images, outputs = made
    gate = fit_gate(outputs)
    path = str(tmp_path / "gate.onnx")
    gate.to_onnx(network(), path, shape=(3, 8, 8), prepare=Prepare())
    columns = BatchPredictor(path)({"images": images})
    floats = Prepare()(images).numpy()
    want = onnxruntime.InferenceSession(path).run(None, {"images": floats})
    assert np.array_equal(columns["prediction"], want[0])
    assert np.array_equal(columns["conf_id"], want[2])
    assert (columns["verdict"] == gate.decide(outputs).verdict).all()
    as_the_model = str(tmp_path / "bare.onnx")
    gate.to_onnx(network(), as_the_model, shape=(3, 8, 8))
    assert np.array_equal(BatchPredictor(as_the_model)({"images": floats})["conf_id"], want[2])
    with pytest.raises(InvalidInput, match="normalise the images first"):
        BatchPredictor(as_the_model)({"images": images})


def test_mistakes_are_named(made, tmp_path):
    images, _outputs = made
    with pytest.raises(InvalidInput, match="images='photo' is no column; the table has images"):
        BatchPredictor(network(), images="photo")({"images": images})
    with pytest.raises(InvalidInput, match="has a column 'logits' already"):
        BatchPredictor(network())({"images": images, "logits": np.zeros(90)})
    with pytest.raises(InvalidInput, match="nothing to compute"):
        BatchPredictor(network(), outputs=())
    with pytest.raises(InvalidInput, match="logits or features, got 'passes'"):
        BatchPredictor(network(), outputs=("passes",))
    with pytest.raises(InvalidInput, match="holds its gate"):
        BatchPredictor("gate.onnx", gate="gate")
    with pytest.raises(InvalidInput, match="is not a file; write it with Gate"):
        BatchPredictor(str(tmp_path / "gate.onnx"))
    with pytest.raises(InvalidInput, match="inputs of 192 numbers, not shape="):
        BatchPredictor(network(), shape=(3, 3))({"images": images})
    with pytest.raises(InvalidInput, match="uint8 images, encoded images or floats, got int64"):
        BatchPredictor(network())({"images": np.zeros((2, 3), np.int64)})
    with pytest.raises(InvalidInput, match="not a readable image"):
        BatchPredictor(network())({"images": np.array([b"nonsense"], dtype=object)})
    with pytest.raises(InvalidInput, match="named by text"):
        BatchPredictor(network(), classes=4)
