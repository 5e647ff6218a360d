"""Unmodified tritonclient over HTTP: JSON and binary tensors, packed bodies, metadata, errors."""

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from conftest import assert_same_bits, texts


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.http) as client:
        yield client


def given(sample, binary=True):
    tensor = triton.InferInput("input", list(sample.rows.shape), sample.datatype)
    rows = sample.rows
    if not binary:  # JSON has no NaN; tritonclient cannot send null, so those rows stay away
        rows = np.where(np.isfinite(rows), rows, np.asarray(0.5, rows.dtype))
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return [tensor]


def test_health_and_metadata(client, sample):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(sample.model)
    assert client.is_model_ready(sample.model, "1")
    assert not client.is_model_ready("nobody")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata(sample.model)
    [described] = metadata["inputs"]
    # Names and types of columns, if the file has them.
    names = described.pop("parameters", {}).get("feature_names", [])
    assert described == {
        "name": "input", "datatype": sample.datatype, "shape": [-1, sample.rows.shape[1]]
    }
    assert len(names) in (0, sample.rows.shape[1])
    assert metadata["outputs"][0]["name"] == "output"


def test_binary_margins_have_the_library_bits(client, sample):
    wanted = [triton.InferRequestedOutput(name) for name in ["margin", "leaf", "contribs"]]
    result = client.infer(sample.model, given(sample), outputs=wanted, request_id="an id")
    assert result.get_response()["id"] == "an id"
    assert_same_bits(result.as_numpy("margin"), sample.margin)
    np.testing.assert_array_equal(result.as_numpy("leaf"), sample.leaf)
    np.testing.assert_allclose(
        result.as_numpy("contribs").reshape(sample.contribs.shape), sample.contribs, 1e-3, 1e-4
    )


def test_the_value_is_given_when_nothing_is_asked_for(client, sample):
    result = client.infer(sample.model, given(sample))
    assert [output["name"] for output in result.get_response()["outputs"]] == ["output"]
    value = result.as_numpy("output")
    assert value.shape == sample.value.shape
    np.testing.assert_allclose(value, sample.value, rtol=1e-6)


def test_json_and_binary_give_the_same_bits(client, sample):
    wanted = [triton.InferRequestedOutput("margin", binary_data=False)]
    text = client.infer(sample.model, given(sample, binary=False), outputs=wanted)
    assert "data" in text.get_response()["outputs"][0]
    tensor = triton.InferInput("input", list(sample.rows.shape), sample.datatype)
    tensor.set_data_from_numpy(np.where(np.isfinite(sample.rows), sample.rows, np.asarray(0.5, sample.rows.dtype)))
    binary = client.infer(sample.model, [tensor], outputs=[triton.InferRequestedOutput("margin")])
    assert_same_bits(text.as_numpy("margin"), binary.as_numpy("margin"))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_packed_bodies(client, sample, coding):
    result = client.infer(
        sample.model,
        given(sample),
        outputs=[triton.InferRequestedOutput("margin")],
        request_compression_algorithm=coding,
        response_compression_algorithm=coding,
    )
    assert_same_bits(result.as_numpy("margin"), sample.margin)


def test_integers_and_halves_are_widened(client):
    for datatype, kind in [("INT64", np.int64), ("UINT8", np.uint8), ("BOOL", bool), ("FP16", np.float16)]:
        rows = (np.arange(58) % 2).reshape(2, 29).astype(kind)
        wide = triton.InferInput("input", [2, 29], "FP32")
        wide.set_data_from_numpy(rows.astype(np.float32))
        narrow = triton.InferInput("input", [2, 29], datatype)
        narrow.set_data_from_numpy(rows)
        have = client.infer("small", [narrow]).as_numpy("output")
        assert_same_bits(have, client.infer("small", [wide]).as_numpy("output"))


def test_async_calls(client, sample):
    calls = [client.async_infer(sample.model, given(sample)) for _ in range(20)]
    first = calls[0].get_result().as_numpy("output")
    for call in calls[1:]:
        assert_same_bits(call.get_result().as_numpy("output"), first)


def test_errors_have_their_status_and_sentence(client):
    tensor = triton.InferInput("input", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 3), np.float32))
    with pytest.raises(InferenceServerException, match=r"takes \[rows, 29\]") as caught:
        client.infer("small", [tensor])
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match="not served here") as caught:
        client.infer("nobody", [tensor])
    assert caught.value.status() == "404"


@pytest.mark.parametrize("binary", [True, False])
def test_labels_are_given_beside_probabilities(labeled, binary):
    with triton.InferenceServerClient(labeled.server.http) as client:
        metadata = client.get_model_metadata("labeled")
        assert metadata["parameters"]["classes"] == labeled.names.tolist()
        tensor = triton.InferInput("input", list(labeled.rows.shape), "FP32")
        tensor.set_data_from_numpy(labeled.rows)
        outputs = [
            triton.InferRequestedOutput(output["name"], binary_data=binary)
            for output in metadata["outputs"]
        ]
        result = client.infer("labeled", [tensor], outputs=outputs)
        assert texts(result.as_numpy("label")) == labeled.labels
        result = client.infer("labeled", [tensor])
        assert texts(result.as_numpy("label")) == labeled.labels
