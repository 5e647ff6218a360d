"""Unmodified kserve clients, REST (protocols v1 and v2) and gRPC."""

import asyncio

import httpx
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.errors import UnsupportedProtocol
from kserve.protocol.infer_type import RequestedOutput

from conftest import assert_same_bits, texts


def run(call):
    """Runs a coroutine function in an event loop, as is usual for both clients."""
    return asyncio.run(call())


def rest():
    return InferenceRESTClient(RESTConfig(protocol="v2"))


def request(sample, binary, outputs=("margin",)):
    tensor = InferInput("input", list(sample.rows.shape), sample.datatype)
    rows = sample.rows
    if not binary:
        rows = np.where(np.isfinite(rows), rows, np.asarray(0.5, rows.dtype))
    tensor.set_data_from_numpy(rows, binary_data=binary)
    wanted = [RequestedOutput(name, {"binary_data": binary}) for name in outputs]
    return InferRequest(sample.model, [tensor], request_outputs=wanted)


def as_numpy(response, name, want):
    return response.get_output_by_name(name).as_numpy().reshape(want.shape)


def test_rest_health(server, sample):
    async def call():
        client = rest()
        base = f"http://{server.http}"
        assert await client.is_server_live(base) is True
        assert await client.is_server_ready(base) is True
        assert await client.is_model_ready(base, sample.model) is True
        assert await client.is_model_ready(base, "nobody") is False

    run(call)


def test_rest_binary_margins_have_the_library_bits(server, sample):
    async def call():
        response = await rest().infer(
            f"http://{server.http}", request(sample, binary=True), model_name=sample.model
        )
        assert_same_bits(as_numpy(response, "margin", sample.margin), sample.margin)

    run(call)


def test_rest_json_gives_the_same_bits_as_binary(server, sample):
    async def call():
        text = await rest().infer(
            f"http://{server.http}", request(sample, binary=False), model_name=sample.model
        )
        finite = request(sample, binary=True)
        rows = np.where(np.isfinite(sample.rows), sample.rows, np.asarray(0.5, sample.rows.dtype))
        finite.inputs[0].set_data_from_numpy(rows, binary_data=True)
        binary = await rest().infer(f"http://{server.http}", finite, model_name=sample.model)
        assert_same_bits(
            as_numpy(text, "margin", sample.margin), as_numpy(binary, "margin", sample.margin)
        )

    run(call)


def test_rest_plain_dictionaries_with_null_for_missing(server):
    async def call():
        data = {
            "inputs": [
                {"name": "input", "shape": [1, 29], "datatype": "FP32", "data": [[None] * 29]}
            ]
        }
        response = await rest().infer(f"http://{server.http}", data, model_name="small")
        assert response.outputs[0].name == "output"
        assert 0 < response.outputs[0].data[0] < 1

    run(call)


def test_rest_errors_carry_the_sentence(server):
    async def call():
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            await rest().infer(f"http://{server.http}", {"inputs": []}, model_name="small")
        with pytest.raises(UnsupportedProtocol):
            await rest().explain(f"http://{server.http}", "small", {})

    run(call)


def test_v1_predictions_and_explanations_are_those_of_the_library(server, sample):
    async def call():
        client, base = InferenceRESTClient(RESTConfig(protocol="v1")), f"http://{server.http}"
        assert await client.is_server_live(base) is True
        assert await client.is_model_ready(base, sample.model) is True
        # JSON has no infinities.
        kept = ~np.isinf(sample.rows).any(axis=1)
        rows = sample.rows[kept].astype(object)
        rows = np.where(np.isnan(sample.rows[kept]), None, rows).tolist()
        answer = await client.infer(base, {"instances": rows}, model_name=sample.model)
        value = np.array(answer["predictions"])
        assert value.shape == sample.value[kept].shape
        np.testing.assert_allclose(value, sample.value[kept], rtol=1e-6)
        answer = await client.explain(base, sample.model, {"instances": rows})
        contribs = np.array(answer["explanations"])
        assert contribs.shape == sample.contribs[kept].shape
        np.testing.assert_allclose(contribs, sample.contribs[kept], rtol=1e-4, atol=1e-5)

    run(call)


def test_v1_instances_by_column_names(server):
    async def call():
        client, base = InferenceRESTClient(RESTConfig(protocol="v1")), f"http://{server.http}"
        row = [0.1 * column for column in range(10)]
        named = {f"Column_{column}": row[column] for column in reversed(range(10))}
        lists = await client.infer(base, {"instances": [row]}, model_name="light")
        assert await client.infer(base, {"instances": [named]}, model_name="light") == lists
        del named["Column_3"]
        with pytest.raises(httpx.HTTPStatusError, match="Column_3.* is missing.*400"):
            await client.infer(base, {"instances": [named]}, model_name="light")
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.is_model_ready(base, "nobody")

    run(call)


def test_grpc(server, sample):
    async def call():
        client = InferenceGRPCClient(server.grpc)
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready(sample.model) is True
        response = await client.infer(request(sample, binary=True))
        assert_same_bits(as_numpy(response, "margin", sample.margin), sample.margin)
        typed = await client.infer(request(sample, binary=False))
        assert as_numpy(typed, "margin", sample.margin).shape == sample.margin.shape
        await client.close()

    run(call)


@pytest.mark.parametrize("binary", [True, False])
def test_labels_are_given_beside_probabilities(labeled, binary):
    async def call():
        tensor = InferInput("input", list(labeled.rows.shape), "FP32")
        rows = labeled.rows
        rows = rows if binary else np.where(np.isfinite(rows), rows, np.float32(0.5))
        tensor.set_data_from_numpy(rows, binary_data=binary)
        response = await rest().infer(
            f"http://{labeled.server.http}",
            InferRequest("labeled", [tensor]),
            model_name="labeled",
        )
        values = response.get_output_by_name("output").as_numpy().reshape(-1)
        labels = texts(response.get_output_by_name("label").as_numpy())
        assert labels == labeled.labels_of(values)
        assert len(set(labels)) == 2

    run(call)


def test_labels_are_given_over_grpc(labeled):
    async def call():
        tensor = InferInput("input", list(labeled.rows.shape), "FP32")
        tensor.set_data_from_numpy(labeled.rows, binary_data=True)
        client = InferenceGRPCClient(labeled.server.grpc)
        response = await client.infer(InferRequest("labeled", [tensor]))
        assert texts(response.get_output_by_name("label").as_numpy()) == labeled.labels
        await client.close()

    run(call)
