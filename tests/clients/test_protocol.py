"""The Open Inference Protocol v2 to the letter, by plain requests and gRPC stubs: every call, every data type in every
form, what may be left out, what may be there besides, and the codes of what is wrong."""

import gzip
import json
import zlib

import grpc
import numpy as np
import pytest
import requests
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

FEATURES = 29
# Data type: numpy type, field of typed contents, and whether JSON can represent it.
DATATYPES = {
    "BOOL": (np.bool_, "bool_contents", True),
    "UINT8": (np.uint8, "uint_contents", True),
    "UINT16": (np.uint16, "uint_contents", True),
    "UINT32": (np.uint32, "uint_contents", True),
    "UINT64": (np.uint64, "uint64_contents", True),
    "INT8": (np.int8, "int_contents", True),
    "INT16": (np.int16, "int_contents", True),
    "INT32": (np.int32, "int_contents", True),
    "INT64": (np.int64, "int64_contents", True),
    "FP16": (np.float16, None, False),
    "BF16": (None, None, False),
    "FP32": (np.float32, "fp32_contents", True),
    "FP64": (np.float64, "fp64_contents", True),
}


@pytest.fixture(scope="module")
def http(server):
    with requests.Session() as session:
        session.base = f"http://{server.http}/v2"
        yield session


@pytest.fixture(scope="module")
def stub(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def body(values, datatype="FP32", rows=2, **more):
    tensor = {"name": "input", "shape": [rows, FEATURES], "datatype": datatype, "data": values}
    return {"inputs": [tensor], **more}


def zeros(rows=2):
    return [0.0] * rows * FEATURES


def margins(reply):
    assert reply.status_code == 200, reply.text
    return np.array(reply.json()["outputs"][0]["data"])


def post(http, document, path="/models/small/infer", **more):
    return http.post(http.base + path, json=document, **more)


def values_of(datatype):
    """Two rows of values of the data type, including its extremes, and their bytes."""
    kind = DATATYPES[datatype][0]
    if datatype == "BF16":
        values = np.linspace(-4, 4, 2 * FEATURES).astype(np.float32)
        bits = values.view(np.uint32) >> 16
        return (bits << 16).astype(np.uint32).view(np.float32), bits.astype("<u2").tobytes()
    if kind is np.bool_:
        values = np.arange(2 * FEATURES) % 3 == 0
    elif np.issubdtype(kind, np.integer):
        ends = np.iinfo(kind)
        values = (np.arange(2 * FEATURES) % 120).astype(kind)
        values[0], values[1] = max(ends.min, -(2**53)), min(ends.max, 2**53)
    else:
        values = np.linspace(-4, 4, 2 * FEATURES).astype(kind)
    return values, values.tobytes()


def wide(http, values):
    """The result for the same values as FP64, which represents all of them exactly."""
    wanted = body([float(value) for value in values], "FP64", outputs=[{"name": "margin"}])
    return margins(post(http, wanted))


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_data_type_is_widened_exactly_in_every_form(http, stub, datatype):
    values, raw = values_of(datatype)
    want = wide(http, values)
    _, typed, in_json = DATATYPES[datatype]
    if in_json:
        document = body(values.tolist(), datatype, outputs=[{"name": "margin"}])
        np.testing.assert_array_equal(margins(post(http, document)), want)
        nested = values.reshape(2, FEATURES).tolist()
        document["inputs"][0]["data"] = nested
        np.testing.assert_array_equal(margins(post(http, document)), want)
    else:
        refused = post(http, body(values.tolist(), datatype))
        assert refused.status_code == 400 and datatype in refused.json()["error"]
    # Binary input, JSON output.
    document = body(None, datatype, outputs=[{"name": "margin", "parameters": {"binary_data": False}}])
    del document["inputs"][0]["data"]
    document["inputs"][0]["parameters"] = {"binary_data_size": len(raw)}
    head = json.dumps(document).encode()
    reply = http.post(
        f"{http.base}/models/small/infer",
        data=head + raw,
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    np.testing.assert_array_equal(margins(reply), want)
    # gRPC, raw and typed.
    tensor = pb.ModelInferRequest.InferInputTensor(name="input", shape=[2, FEATURES], datatype=datatype)
    wanted = pb.ModelInferRequest.InferRequestedOutputTensor(name="margin")
    request = pb.ModelInferRequest(model_name="small", inputs=[tensor], outputs=[wanted])
    request.raw_input_contents.append(raw)
    reply = stub.ModelInfer(request)
    have = np.frombuffer(reply.raw_output_contents[0], "<f4")
    np.testing.assert_array_equal(have, want.astype(np.float32))
    del request.raw_input_contents[:]
    if typed:
        getattr(request.inputs[0].contents, typed).extend(values.tolist())
        have = stub.ModelInfer(request).outputs[0].contents.fp32_contents
        np.testing.assert_array_equal(have, want.astype(np.float32))
    else:
        request.inputs[0].contents.fp32_contents.extend(values.astype(np.float32).tolist())
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_text_is_refused_by_name(http, stub):
    refused = post(http, body(["a"] * 2 * FEATURES, "BYTES"))
    assert refused.status_code == 400 and "BYTES" in refused.json()["error"]
    tensor = pb.ModelInferRequest.InferInputTensor(name="input", shape=[2, FEATURES], datatype="BYTES")
    tensor.contents.bytes_contents.extend([b"a"] * 2 * FEATURES)
    with pytest.raises(grpc.RpcError, match="BYTES") as caught:
        stub.ModelInfer(pb.ModelInferRequest(model_name="small", inputs=[tensor]))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_every_call_has_its_keys(http, stub):
    assert http.get(f"{http.base}/health/live").json() == {"live": True}
    assert http.get(f"{http.base}/health/ready").json()["ready"] is True
    for path in ["", "/"]:
        server = http.get(http.base + path).json()
        assert set(server) >= {"name", "version", "extensions"}
    for path in ["", "/versions/1"]:
        assert http.get(f"{http.base}/models/small{path}/ready").json() == {"name": "small", "ready": True}
        model = http.get(f"{http.base}/models/small{path}").json()
        assert model["name"] == "small" and model["versions"] == ["1"] and model["platform"]
        for tensor in model["inputs"] + model["outputs"]:
            assert set(tensor) == {"name", "datatype", "shape"}
        reply = post(http, body(zeros(), id="7"), f"/models/small{path}/infer").json()
        assert (reply["model_name"], reply["model_version"], reply["id"]) == ("small", "1", "7")
        assert set(reply["outputs"][0]) == {"name", "datatype", "shape", "data"}
    assert "id" not in post(http, body(zeros())).json()
    assert stub.ServerLive(pb.ServerLiveRequest()).live
    assert stub.ServerReady(pb.ServerReadyRequest()).ready
    for version in ["", "1"]:
        assert stub.ModelReady(pb.ModelReadyRequest(name="small", version=version)).ready
        model = stub.ModelMetadata(pb.ModelMetadataRequest(name="small", version=version))
        assert list(model.versions) == ["1"]
    assert list(stub.ServerMetadata(pb.ServerMetadataRequest()).extensions) == server["extensions"]


def test_keys_that_are_not_known_are_passed_over(http):
    document = body(zeros(), model_name="other", parameters={"content_type": "np", "x": [1, {}]}, later={"a": [[]]})
    document["inputs"][0] |= {"parameters": {"content_type": "np"}, "more": None}
    document["outputs"] = [{"name": "output", "parameters": {"content_type": "np"}, "more": 1}]
    assert post(http, document).status_code == 200


def test_what_is_not_there_or_wrong_has_its_code(http, stub):
    for path in ["/models/nobody", "/models/small/versions/2"]:
        for call in ["", "/ready"]:
            assert http.get(http.base + path + call).status_code == 404
        refused = post(http, body(zeros()), path + "/infer")
        assert refused.status_code == 404 and refused.json()["error"]
    for change in [{"name": None}, {"shape": [FEATURES]}, {"shape": [2, 3]}, {"shape": [-1, FEATURES]}, {"data": [1.0]}]:
        document = body(zeros())
        document["inputs"][0] |= change
        refused = post(http, document)
        assert refused.status_code == 400 and refused.json()["error"], change
    assert post(http, body(zeros(), outputs=[{"name": "x"}])).status_code == 400
    assert http.delete(http.base).status_code == 405
    for name, version, code in [("nobody", "", "NOT_FOUND"), ("small", "2", "NOT_FOUND")]:
        calls = [
            (stub.ModelReady, pb.ModelReadyRequest(name=name, version=version)),
            (stub.ModelMetadata, pb.ModelMetadataRequest(name=name, version=version)),
            (stub.ModelInfer, pb.ModelInferRequest(model_name=name, model_version=version)),
        ]
        for call, request in calls:
            with pytest.raises(grpc.RpcError) as caught:
                call(request)
            assert caught.value.code().name == code
    with pytest.raises(grpc.RpcError) as caught:  # a call of Triton's own
        stub.TraceSetting(pb.TraceSettingRequest())
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_binary_is_chosen_by_output_before_by_request(http):
    document = body(zeros(), parameters={"binary_data_output": True})
    document["outputs"] = [{"name": "output"}, {"name": "leaf", "parameters": {"binary_data": False}}, {"name": "margin"}]
    reply = post(http, document)
    length = int(reply.headers["Inference-Header-Content-Length"])
    head = json.loads(reply.content[:length])
    value, leaf, margin = head["outputs"]
    assert "data" in leaf and "data" not in value and "data" not in margin
    sizes = [output["parameters"]["binary_data_size"] for output in [value, margin]]
    assert sizes == [8, 8] and len(reply.content) == length + 16
    assert int(reply.headers["Content-Length"]) == len(reply.content)


def test_bodies_come_packed_in_pieces_and_after_a_wait(http):
    document = json.dumps(body(zeros(100), rows=100)).encode()
    want = post(http, body(zeros(100), rows=100)).content
    url = f"{http.base}/models/small/infer"
    for coding, pack in [("gzip", gzip.compress), ("deflate", zlib.compress)]:
        headers = {"Content-Encoding": coding, "Accept-Encoding": coding}
        reply = http.post(url, data=pack(document), headers=headers)
        assert reply.headers["Content-Encoding"] == coding and reply.content == want
    pieces = (document[at : at + 1000] for at in range(0, len(document), 1000))
    assert http.post(url, data=pieces).content == want
    reply = http.post(url, data=document, headers={"Expect": "100-continue"})
    assert reply.content == want


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_come_packed(stub, coding):
    tensor = pb.ModelInferRequest.InferInputTensor(name="input", shape=[2, FEATURES], datatype="FP32")
    request = pb.ModelInferRequest(model_name="small", id="7", inputs=[tensor])
    request.raw_input_contents.append(bytes(2 * FEATURES * 4))
    reply = stub.ModelInfer(request, compression=coding)
    assert reply.id == "7" and len(reply.raw_output_contents[0]) == 8
