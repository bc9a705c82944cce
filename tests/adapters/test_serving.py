"""Exported folders: the files of each server, and the verdicts of the gate behind a real one."""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from batch_world import extracted, fit_gate, network, pixels  # noqa: E402
from local_servers import post, serving  # noqa: E402

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.gate.schema import VERDICTS  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402

IMAGE = {"shape": (3, 8, 8), "prepare": Prepare()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    images = pixels(200)
    outputs = extracted(tmp_path_factory.mktemp("run") / "run", images, batch=200)
    return images, outputs, fit_gate(outputs)


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_folder_of_triton(made, tmp_path):
    _, _, gate = made
    gate.export(tmp_path / "small", network(), target="triton", **IMAGE)
    assert listed(tmp_path / "small") == ["1/model.onnx", "config.pbtxt"]
    text = (tmp_path / "small" / "config.pbtxt").read_text()
    config = parse_triton(text)
    assert config["platform"] == "onnxruntime_onnx"
    assert config["input"] == [("images", "TYPE_FP32", [-1, 3, 8, 8])]
    assert config["output"] == [
        ("label", "TYPE_INT64", [-1]),
        ("verdict", "TYPE_INT64", [-1]),
        ("conf_id", "TYPE_FP64", [-1]),
        ("conf_ood", "TYPE_FP64", [-1]),
    ]


def parse_triton(text):
    """Read the file with Triton's own definition of it, where its client is installed."""
    pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert config.max_batch_size == 0
    read = {"platform": config.platform}
    for kind in ("input", "output"):
        tensors = getattr(config, kind)
        read[kind] = [(one.name, model_config_pb2.DataType.Name(one.data_type), list(one.dims)) for one in tensors]
    return read


def test_the_folder_of_an_open_inference_server(made, tmp_path):
    _, _, gate = made
    gate.export(tmp_path / "small", network(), target="openinference", **IMAGE)
    assert listed(tmp_path / "small") == ["model-settings.json", "model.onnx"]
    settings = json.loads((tmp_path / "small" / "model-settings.json").read_text())
    assert settings["name"] == "small"
    assert settings["parameters"] == {"uri": "./model.onnx"}
    assert settings["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
    assert [output["name"] for output in settings["outputs"]] == ["label", "verdict", "conf_id", "conf_ood"]


@pytest.mark.filterwarnings("ignore")  # of MLflow
def test_the_folder_of_mlflow(made, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    images, outputs, gate = made
    gate.export(tmp_path / "small", network(), target="mlflow", **IMAGE)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "small"))
    frame = loaded.predict({"images": Prepare()(images).numpy()})
    assert frame["verdict"].tolist() == gate.decide(outputs).verdict.tolist()


def test_mistakes_are_named_and_leave_nothing(made, tmp_path):
    _, _, gate = made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    with pytest.raises(RunError, match="is not an empty folder"):
        gate.export(tmp_path / "full", network(), target="triton", **IMAGE)
    with pytest.raises(InvalidInput, match=r"no choice .tensorflow."):
        gate.export(tmp_path / "new", network(), target="tensorflow", **IMAGE)
    with pytest.raises(InvalidInput, match="cannot take inputs"):
        gate.export(tmp_path / "new", torch.nn.Linear(2, 2), target="openinference", **IMAGE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_the_command_writes_the_same_folder(made, tmp_path, monkeypatch):
    images, outputs, gate = made
    monkeypatch.chdir(tmp_path)
    gate.save("gate")
    here = Path(__file__).parent
    Path("small.py").write_text(f"import sys\nsys.path.insert(0, {str(here)!r})\nfrom batch_world import network\n")

    def export(*options):
        return CliRunner().invoke(main, ["gate", "export", "gate", "served", "--model", "small.py:network", *options])

    done = export("--shape", "3,8,8", "--normalise", "none", "--json")
    files = ["model-settings.json", "model.onnx"]
    assert json.loads(done.stdout) == {"folder": "served", "target": "openinference", "files": files}
    session = onnxruntime.InferenceSession("served/model.onnx")
    verdict = session.run(["verdict"], {"images": Prepare()(images).numpy()})[0]
    assert np.array(VERDICTS)[verdict].tolist() == gate.decide(outputs).verdict.tolist()
    again = export("--shape", "3,8,8")
    assert again.exit_code != 0
    assert "is not an empty folder" in again.stderr
    wrong = export("--shape", "3,x")
    assert wrong.exit_code == 2
    assert "--shape must be whole numbers" in wrong.stderr


@pytest.mark.slow
def test_a_real_server_answers_as_python_in_a_thousand_requests(made, tmp_path):
    if find_spec("mlserver") is None:  # not imported here: its messages and those of Triton's client exclude each other
        pytest.skip("mlserver is not installed")
    images, outputs, gate = made
    gate.export(tmp_path / "small", network(), target="openinference", **IMAGE)
    environment = {
        "MLSERVER_HTTP_PORT": "{port}",
        "MLSERVER_GRPC_PORT": "{other}",
        "MLSERVER_METRICS_PORT": "0",
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_PARALLEL_WORKERS": "0",
    }
    program = shutil.which("mlserver", path=str(Path(sys.executable).parent)) or "mlserver"
    inputs = Prepare()(images).numpy()
    decision = gate.decide(outputs)
    rng = np.random.default_rng(0)
    differences = 0
    with serving(
        [program, "start", str(tmp_path / "small")], [], ready="/v2/models/small/ready", environment=environment
    ) as url:
        for _ in range(1000):
            rows = rng.integers(0, len(images), rng.integers(1, 5))
            answer = infer(f"{url}/v2/models/small/infer", inputs[rows])
            differences += (np.array(VERDICTS)[answer["verdict"]] != decision.verdict[rows]).any()
            differences += (np.array(answer["label"]) != decision.labels[rows]).any()
            assert np.allclose(answer["conf_id"], decision.conf_id[rows], rtol=1e-4, atol=1e-4)
        check_bad_requests(f"{url}/v2/models/small/infer", inputs)
    assert differences == 0


def infer(url, images):
    tensor = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "data": images.ravel().tolist()}
    answer = post(url, {"inputs": [tensor]})
    return {output["name"]: output["data"] for output in answer["outputs"]}


def check_bad_requests(url, inputs):
    """A wrong name and a wrong shape are errors of the client, in one clear line."""
    import urllib.error

    tensor = {"name": "pictures", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": inputs[0].ravel().tolist()}
    for change, message in (({}, "no input 'images'"), ({"name": "images", "shape": [1, 3, 64]}, "must be float32 of")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(url, {"inputs": [{**tensor, **change}]})
        assert caught.value.code == 400
        assert message in caught.value.read().decode()
