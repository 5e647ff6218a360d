"""Unmodified tritonclient loads and unloads models and asks for the index, over HTTP, over gRPC, and with asyncio."""

import asyncio

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

from conftest import run_server


@pytest.fixture(scope="module")
def controlled():
    with run_server(["--workers", "2", "--threads", "1", "--model-control", "explicit"]) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def client(controlled, request):
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    with module.InferenceServerClient(getattr(controlled, request.param)) as client:
        client.module = module
        yield client
        client.load_model("small")


def infer(client):
    tensor = client.module.InferInput("input", [2, 29], "FP32")
    tensor.set_data_from_numpy(np.full((2, 29), 0.5, np.float32))
    return client.infer("small", [tensor]).as_numpy("output")


def states(client):
    """State and reason of each model, by name."""
    if client.module is tritonclient.grpc:
        entries = client.get_model_repository_index(as_json=True)["models"]
    else:
        entries = client.get_model_repository_index()
    return {entry["name"]: (entry["state"], entry.get("reason", "")) for entry in entries}


def test_a_model_is_unloaded_and_loaded(client):
    before = infer(client)
    assert states(client)["small"] == ("READY", "")
    client.unload_model("small")
    assert states(client)["small"] == ("UNAVAILABLE", "unloaded")
    assert states(client)["multi"] == ("READY", "")
    assert not client.is_model_ready("small")
    assert client.is_server_ready() and client.is_model_ready("multi")
    with pytest.raises(InferenceServerException, match='model "small" is unloaded; load it first'):
        infer(client)
    client.unload_model("small", unload_dependents=True)
    client.load_model("small")
    assert client.is_model_ready("small")
    assert infer(client).tobytes() == before.tobytes()
    # Loading a loaded model fetches it again.
    client.load_model("small")
    assert infer(client).tobytes() == before.tobytes()


def test_sources_and_configurations_of_clients_are_refused(client):
    for arguments in [{"config": "{}"}, {"config": "{}", "files": {"file:1/model.ubj": b"x"}}]:
        with pytest.raises(InferenceServerException, match="is refused"):
            client.load_model("small", **arguments)
    for call in [client.load_model, client.unload_model]:
        with pytest.raises(InferenceServerException, match="not in the settings"):
            call("nobody")
    assert infer(client).shape == (2,)


def test_asyncio(controlled):
    async def swap():
        async with tritonclient.http.aio.InferenceServerClient(controlled.http) as client:
            await client.unload_model("light")
            assert not await client.is_model_ready("light")
            await client.load_model("light")
            assert await client.is_model_ready("light")

    asyncio.run(swap())


def test_a_server_without_the_option_refuses(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        for call in [client.load_model, client.unload_model]:
            with pytest.raises(InferenceServerException, match="--model-control explicit") as refused:
                call("small")
            assert "UNIMPLEMENTED" in refused.value.status()
        assert client.is_model_ready("small")
