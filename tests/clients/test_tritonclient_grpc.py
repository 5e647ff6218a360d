"""Unmodified tritonclient over gRPC: raw tensors, metadata, packed messages, errors, deadlines."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from conftest import assert_same_bits, texts


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


def given(sample):
    tensor = triton.InferInput("input", list(sample.rows.shape), sample.datatype)
    tensor.set_data_from_numpy(sample.rows)
    return [tensor]


def test_health_and_metadata(client, sample):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(sample.model)
    assert client.get_server_metadata().name == "albacore-server"
    metadata = client.get_model_metadata(sample.model)
    assert list(metadata.inputs[0].shape) == [-1, sample.rows.shape[1]]
    assert metadata.outputs[0].name == "output"


def test_margins_have_the_library_bits(client, sample):
    wanted = [triton.InferRequestedOutput(name) for name in ["margin", "leaf"]]
    result = client.infer(sample.model, given(sample), outputs=wanted, request_id="an id")
    assert result.get_response().id == "an id"
    assert_same_bits(result.as_numpy("margin"), sample.margin)
    np.testing.assert_array_equal(result.as_numpy("leaf"), sample.leaf)


def test_the_value_is_given_when_nothing_is_asked_for(client, sample):
    result = client.infer(sample.model, given(sample))
    np.testing.assert_allclose(result.as_numpy("output"), sample.value, rtol=1e-6)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_packed_messages(client, sample, coding):
    wanted = [triton.InferRequestedOutput("margin")]
    result = client.infer(sample.model, given(sample), outputs=wanted, compression_algorithm=coding)
    assert_same_bits(result.as_numpy("margin"), sample.margin)


def test_async_calls(client, sample):
    done = queue.Queue()
    for _ in range(20):
        client.async_infer(
            sample.model, given(sample), lambda result, error: done.put((result, error))
        )
    for _ in range(20):
        result, error = done.get(timeout=60)
        assert error is None
        np.testing.assert_allclose(result.as_numpy("output"), sample.value, rtol=1e-6)


def test_errors_have_their_code_and_sentence(client):
    tensor = triton.InferInput("input", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 3), np.float32))
    with pytest.raises(InferenceServerException, match=r"takes \[rows, 29\]") as caught:
        client.infer("small", [tensor])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException, match="not served here") as caught:
        client.infer("nobody", [tensor])
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_labels_are_given_beside_probabilities(labeled):
    with triton.InferenceServerClient(labeled.server.grpc) as client:
        tensor = triton.InferInput("input", list(labeled.rows.shape), "FP32")
        tensor.set_data_from_numpy(labeled.rows)
        result = client.infer("labeled", [tensor])
        assert texts(result.as_numpy("label")) == labeled.labels
        config = client.get_model_config("labeled", as_json=True)["config"]
        assert config["output"][1]["data_type"] == "TYPE_STRING"
