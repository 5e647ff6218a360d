"""One albacore-server for all client tests, and the expected outputs of the model zoo."""

import contextlib
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

ZOO = pathlib.Path(__file__).resolve().parent.parent / "data" / "models"
MODELS = {
    "small": "main_small_d6.ubj",
    "multi": "xgb_multi_softmax.ubj",
    "light": "lgb_binary.txt",
}


class Server:
    """Addresses and workers of a running server."""

    def __init__(self, http, grpc, workers, stop):
        self.http = http
        self.grpc = grpc
        self.workers = workers
        self.stop = stop


@contextlib.contextmanager
def run_server(arguments):
    """Runs a separate server until the end of the block."""
    command = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    for name, file in MODELS.items():
        command += ["--model", f"{name}={ZOO / file}"]
    with run_program(command + arguments) as server:
        yield server


@contextlib.contextmanager
def run_program(arguments):
    """Runs a server with only these arguments."""
    command = [os.environ["ALBACORE_SERVER"]] + arguments
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        seen, workers = {}, []
        for line in process.stdout:
            event = json.loads(line)
            seen[event["event"]] = event
            if event["event"] == "worker_started":
                workers.append(event["pid"])
            if event["event"] == "ready":
                break
        assert "ready" in seen, "the server ended before it was ready"
        yield Server(seen["listening"]["http"], seen["listening"]["grpc"], workers, process.terminate)
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def server():
    with run_server(["--workers", "2", "--threads", "1"]) as server:
        yield server


class Labeled:
    """A server with a model with named classes, its rows, and the class names from XGBoost."""

    names = np.array(["legit", "fraud"])

    def __init__(self, server):
        arrays = np.load(ZOO / "xgb_binary_logistic.npz")
        self.server = server
        self.rows = arrays["X"]
        self.labels = self.labels_of(arrays["pred"])
        assert set(self.labels) == set(self.names)

    def labels_of(self, values):
        return self.names[(values > 0.5).astype(int)].tolist()


@pytest.fixture(scope="session")
def labeled(tmp_path_factory):
    model = {"name": "labeled", "path": str(ZOO / "xgb_binary_logistic.ubj")}
    model["classes"] = Labeled.names.tolist()
    file = tmp_path_factory.mktemp("settings") / "settings.yaml"
    file.write_text(json.dumps({"models": [model]}))
    command = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--settings", str(file)]
    with run_program(command + ["--workers", "1", "--threads", "1"]) as server:
        yield Labeled(server)


class Sample:
    """A model of the zoo: its rows and the reference outputs of its library."""

    def __init__(self, model):
        arrays = np.load(ZOO / (MODELS[model].rsplit(".", 1)[0] + ".npz"))
        self.model = model
        self.rows = arrays["X"]
        self.datatype = "FP64" if self.rows.dtype == np.float64 else "FP32"
        self.margin = arrays["margin"]
        self.value = arrays["pred"]
        self.leaf = arrays["leaf"]
        self.contribs = arrays["contribs"]


@pytest.fixture(params=sorted(MODELS))
def sample(request):
    return Sample(request.param)


def assert_same_bits(have, want):
    """Asserts equal shape, type and bits."""
    assert have.shape == want.shape
    assert have.dtype == want.dtype
    assert have.tobytes() == want.tobytes()


def texts(array):
    """The strings of a tensor; clients do not decode those of JSON."""
    values = array.reshape(-1).tolist()
    return [text.decode() if isinstance(text, bytes) else text for text in values]
