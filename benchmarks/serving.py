"""The gate behind a real server of the Open Inference Protocol, against the bare classifier served the same way.

    python benchmarks/serving.py [--save]        (about two minutes; needs torch, onnx, onnxruntime and mlserver)

MLServer on the loopback interface serves both ONNX files: a ResNet-20 for 32x32 images with random weights, alone and
with a gate. Requests of one image take turns between the two, over one connection each, and the medians are compared.
Every answer of the gate is compared with that of Python.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from script import announce

import numpy as np
import torch

from onnx_gate import bare, outputs
from timing import finish, row
from twofold import Outputs
from twofold.adapters.serving import write_settings
from twofold.gate import Gate
from twofold.gate.schema import VERDICTS
from twofold.nn.models import Classifier, build

REQUESTS = 1000  # to each model
WARM_UP = 50
PATIENCE = 120.0  # seconds until the server must be ready
PAIRS = (("msp", "energy"), ("msp", "react|energy"), ("msp", "rmds"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def server(folder, names):
    """Run MLServer over a folder of models while the context is open, and return its port."""
    program = shutil.which("mlserver", path=str(Path(sys.executable).parent)) or "mlserver"
    port = free_port()
    settings = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "MLSERVER_DEBUG": "false",
    }
    process = subprocess.Popen(
        [program, "start", str(folder)],
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for name in names:
            wait_until_ready(process, port, name)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ready(process, port, name):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit("mlserver ended before it was ready; start it by hand to see why")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", f"/v2/models/{name}/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"mlserver did not load {name} within {PATIENCE:g} s")


def ask(connection, name, body):
    """Send one request; return the seconds it took and the outputs."""
    start = time.perf_counter()
    connection.request("POST", f"/v2/models/{name}/infer", body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    seconds = time.perf_counter() - start
    return seconds, {output["name"]: output["data"] for output in json.loads(answer)["outputs"]}


def request_of(image):
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, *image.shape], "data": image.ravel().tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


def compare(port, name, decision, bodies):
    """Let requests to the bare model and to the gate take turns; return the ratio of medians and the differences."""
    connections = {one: http.client.HTTPConnection("127.0.0.1", port) for one in ("bare", name)}
    seconds = {one: [] for one in connections}
    differences = 0
    for turn in range(WARM_UP + REQUESTS):
        place = turn % len(bodies)
        for one, connection in connections.items():
            taken, answer = ask(connection, one, bodies[place])
            if turn >= WARM_UP:
                seconds[one].append(taken)
            if one == name:
                differences += VERDICTS[answer["verdict"][0]] != decision.verdict[place]
    return np.median(seconds[name]) / np.median(seconds["bare"]), np.median(seconds["bare"]), differences


def main():
    torch.set_num_threads(1)
    model = build("resnet20_cifar", 10).eval()
    classifier = Classifier(model)
    train, validation = outputs(classifier)
    images = torch.rand((100, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        seen = classifier(images)
    new = Outputs(seen.logits.numpy(), features=seen.features.numpy(), head=classifier.head)
    bodies = [request_of(image) for image in images.numpy()]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "bare").mkdir()
        bare(model, folder / "bare" / "model.onnx")
        write_settings(folder / "bare", "bare")
        gates = {}
        for first, second in PAIRS:
            name = f"{first}-{second}".replace("|", "-")
            gates[name] = Gate.fit(validation, first, second, train=train)
            gates[name].export(folder / name, model, target="openinference", shape=(3, 32, 32))
        with server(folder, ["bare", *gates]) as port:
            for name, gate in gates.items():
                announce(f"{name} against the bare classifier")
                ratio, plain, differences = compare(port, name, gate.decide(new), bodies)
                rows.append(row(name, "p50 latency / bare classifier", ratio, "x", "<= 1.2"))
                rows.append(row(name, "p50 latency of the bare classifier", 1e3 * plain, "ms", "-"))
                rows.append(row(name, f"differences in {WARM_UP + REQUESTS} requests", differences, "-", "0"))
    finish("serving", rows)


if __name__ == "__main__":
    main()
