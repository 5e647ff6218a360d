"""Triton's classification of outputs by unmodified tritonclient: both protocols, and JSON by hand."""

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import Sample


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    module = triton_http if request.param == "http" else triton_grpc
    with module.InferenceServerClient(getattr(server, request.param)) as client:
        client.module = module
        yield client


def classes(client, sample, output, count, **options):
    tensor = client.module.InferInput("input", list(sample.rows.shape), sample.datatype)
    tensor.set_data_from_numpy(sample.rows)
    wanted = [client.module.InferRequestedOutput(output, class_count=count, **options)]
    return client.infer(sample.model, [tensor], outputs=wanted).as_numpy(output)


def wanted(values, count):
    """Expected strings, computed with numpy: in descending order, ties by index."""
    values = values.reshape(len(values), -1)
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    return [[(float(row[place]), int(place)) for place in places] for row, places in zip(values, order, strict=True)]


def parsed(texts):
    pairs = [[text.decode().split(":") for text in row] for row in texts]
    return [[(float(value), int(place)) for value, place in row] for row in pairs]


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_the_largest_come_first(client, count):
    sample = Sample("multi")
    have = classes(client, sample, "margin", count)
    assert have.shape == (len(sample.rows), min(count, sample.margin.shape[1]))
    assert [[(np.float32(value), place) for value, place in row] for row in parsed(have)] == [
        [(np.float32(value), place) for value, place in row] for row in wanted(sample.margin, count)
    ]


def test_other_outputs_count_as_the_list_of_their_numbers(client):
    sample = Sample("small")
    # An output with one number per row has one class.
    values = classes(client, sample, "output", 3)
    assert values.shape == (len(sample.rows), 1)
    assert all(place == 0 for [(_, place)] in parsed(values))
    leaves = classes(client, sample, "leaf", 2)
    assert parsed(leaves) == wanted(sample.leaf.astype(np.float64), 2)
    contribs = classes(client, sample, "contribs", 4)
    assert contribs.shape == (len(sample.rows), 4)
    assert [row[0][1] for row in parsed(contribs)] == list(np.argmax(sample.contribs, axis=1))


def test_json_and_other_outputs_beside_it(server):
    rows = Sample("multi").rows[:2]
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP32", "data": np.nan_to_num(rows).ravel().tolist()}
    outputs = [{"name": "margin", "parameters": {"classification": 1}}, {"name": "leaf"}]
    reply = requests.post(f"http://{server.http}/v2/models/multi/infer", json={"inputs": [tensor], "outputs": outputs})
    top, leaf = reply.json()["outputs"]
    assert (top["name"], top["datatype"], top["shape"]) == ("margin", "BYTES", [2, 1])
    assert len(top["data"]) == 2 and all(text.count(":") == 1 for text in top["data"])
    assert leaf["datatype"] == "INT32" or leaf["datatype"].startswith("FP")


def test_text_over_http(server):
    sample = Sample("multi")
    with triton_http.InferenceServerClient(server.http) as client:
        client.module = triton_http
        binary = classes(client, sample, "margin", 2)
        text = classes(client, sample, "margin", 2, binary_data=False)
    assert [[value.decode() for value in row] for row in binary] == text.tolist()


@pytest.mark.parametrize("count", [-1, "two", 1.5, True])
def test_what_is_no_number_of_classes_is_refused_by_name(server, count):
    tensor = {"name": "input", "shape": [1, 29], "datatype": "FP32", "data": [0.5] * 29}
    outputs = [{"name": "output", "parameters": {"classification": count}}]
    reply = requests.post(f"http://{server.http}/v2/models/small/infer", json={"inputs": [tensor], "outputs": outputs})
    assert reply.status_code == 400
    assert 'output "output": parameter "classification" is not a number of classes' in reply.json()["error"]


def test_zero_is_refused_and_negative_numbers_over_grpc(server):
    tensor = {"name": "input", "shape": [1, 29], "datatype": "FP32", "data": [0.5] * 29}
    outputs = [{"name": "output", "parameters": {"classification": 0}}]
    reply = requests.post(f"http://{server.http}/v2/models/small/infer", json={"inputs": [tensor], "outputs": outputs})
    assert reply.status_code == 400 and "from 1" in reply.json()["error"]
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.module = triton_grpc
        with pytest.raises(InferenceServerException, match="not a number of classes") as caught:
            classes(client, Sample("small"), "output", -3)
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
