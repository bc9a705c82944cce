"""Start a real inference server on the loopback interface, wait until it is ready, and stop it."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

PATIENCE = 120  # seconds until a server must be ready


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def serving(command, options, *, ready, environment=None):
    """Run a server while the context is open; ``{port}`` in the options and the environment is a free port."""
    port = free_port()
    words = [*command, *(option.format(port=port) for option in options)]
    variables = {name: value.format(port=port, other=free_port()) for name, value in (environment or {}).items()}
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:  # a pipe that nobody reads would stop the server
        process = subprocess.Popen(
            words, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_until_ready(process, url + ready, log)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the server and the workers that it started
            process.wait()


def wait_until_ready(process, url, log):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise AssertionError(f"the server ended: {log.read().decode()[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"no answer at {url} within {PATIENCE} s")


def post(url, content):
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
