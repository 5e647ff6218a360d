"""Typed and raw contents of every datatype over gRPC, by the messages of unmodified tritonclient: inputs, and classes of
outputs."""

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

from conftest import ZOO, Sample, run_program

ROWS = np.random.default_rng(3).integers(0, 2, (7, 29))

# Datatype: its field in a message, and its numpy type.
TYPED = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "i1"),
    "INT16": ("int_contents", "i2"),
    "INT32": ("int_contents", "i4"),
    "INT64": ("int64_contents", "i8"),
    "UINT8": ("uint_contents", "u1"),
    "UINT16": ("uint_contents", "u2"),
    "UINT32": ("uint_contents", "u4"),
    "UINT64": ("uint64_contents", "u8"),
    "FP32": ("fp32_contents", "f4"),
    "FP64": ("fp64_contents", "f8"),
}
# The protocol has no typed field for them.
RAW_ALONE = {"FP16": "f2"}


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(datatype, rows, model="multi", output="margin", class_count=0):
    """A request without contents."""
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="input", datatype=datatype, shape=rows.shape)
    wanted = made.outputs.add(name=output)
    if class_count:
        wanted.parameters["classification"].int64_param = class_count
    return made


def raw(datatype, rows, dtype, **options):
    made = request(datatype, rows, **options)
    made.raw_input_contents.append(rows.astype(dtype).tobytes())
    return made


def typed(datatype, rows, **options):
    made = request(datatype, rows, **options)
    name, dtype = TYPED[datatype]
    getattr(made.inputs[0].contents, name).extend(rows.astype(dtype).ravel().tolist())
    return made


def numbers(reply):
    """The values of the only output, from its typed or raw contents."""
    [output] = reply.outputs
    assert output.datatype == "FP32"
    if reply.raw_output_contents:
        return np.frombuffer(reply.raw_output_contents[0], "f4").reshape(output.shape)
    return np.array(output.contents.fp32_contents, "f4").reshape(output.shape)


def texts(reply):
    [output] = reply.outputs
    assert output.datatype == "BYTES"
    if not reply.raw_output_contents:
        return [text.decode() for text in output.contents.bytes_contents]
    result = triton.InferResult(reply).as_numpy(output.name)
    return [text.decode() for text in result.ravel()]


def features(model):
    return Sample(model).rows.shape[1]


@pytest.fixture(scope="module")
def wanted(server):
    """The margins of the rows, which are ones and zeros, for one datatype."""
    rows = ROWS[:, : features("multi")]
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        margins = numbers(stub.ModelInfer(raw("FP32", rows, "f4")))
    assert len(np.unique(margins)) > 3
    return rows, margins


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_and_raw_contents_give_the_same_values(stub, wanted, datatype):
    rows, margins = wanted
    from_typed = stub.ModelInfer(typed(datatype, rows))
    assert not from_typed.raw_output_contents
    from_raw = stub.ModelInfer(raw(datatype, rows, TYPED[datatype][1]))
    assert from_raw.raw_output_contents
    for reply in (from_typed, from_raw):
        assert numbers(reply).tobytes() == margins.tobytes()


@pytest.mark.parametrize("datatype", TYPED)
def test_classes_of_typed_and_raw_contents(stub, wanted, datatype):
    rows, margins = wanted
    places = np.argsort(-margins, axis=1, kind="stable")[:, :2]
    for made in (
        typed(datatype, rows, class_count=2),
        raw(datatype, rows, TYPED[datatype][1], class_count=2),
    ):
        reply = stub.ModelInfer(made)
        assert list(reply.outputs[0].shape) == [len(rows), 2]
        pairs = [text.split(":") for text in texts(reply)]
        assert [int(place) for _, place in pairs] == places.ravel().tolist()
        values = np.array([value for value, _ in pairs], "f4")
        assert values.tolist() == np.take_along_axis(margins, places, axis=1).ravel().tolist()


def test_the_client_asks_for_classes_of_every_datatype(server, wanted):
    rows, margins = wanted
    best = np.argmax(margins, axis=1)
    with triton.InferenceServerClient(server.grpc) as client:
        for datatype, dtype in [*((name, dtype) for name, (_, dtype) in TYPED.items()), *RAW_ALONE.items()]:
            tensor = triton.InferInput("input", list(rows.shape), datatype)
            tensor.set_data_from_numpy(rows.astype(dtype))
            asked = [triton.InferRequestedOutput("margin", class_count=1)]
            found = client.infer("multi", [tensor], outputs=asked).as_numpy("margin")
            assert [int(text.decode().split(":")[1]) for text in found.ravel()] == best.tolist()


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_is_taken_raw_and_refused_typed(stub, wanted, datatype):
    rows, margins = wanted
    halves = rows.astype("f2").tobytes() if datatype == "FP16" else (rows.astype("f4").view("u4") >> 16).astype("u2").tobytes()
    made = request(datatype, rows)
    made.raw_input_contents.append(halves)
    assert numbers(stub.ModelInfer(made)).tobytes() == margins.tobytes()
    refused = request(datatype, rows)
    refused.inputs[0].contents.fp32_contents.extend(rows.ravel().tolist())
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(refused)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert datatype in caught.value.details(), caught.value.details()


@pytest.mark.parametrize("datatype", TYPED)
def test_values_in_the_list_of_another_datatype_are_refused_by_name(stub, wanted, datatype):
    rows, _ = wanted
    name = TYPED[datatype][0]
    other = "fp32_contents" if name != "fp32_contents" else "fp64_contents"
    made = request(datatype, rows)
    getattr(made.inputs[0].contents, other).extend(rows.ravel().tolist())
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(made)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert datatype in caught.value.details() and name in caught.value.details()


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT16", "UINT16"])
def test_numbers_beyond_a_small_datatype(stub, wanted, datatype):
    """int_contents and uint_contents are wider than the datatype: values out of range are rejected."""
    rows, _ = wanted
    made = typed(datatype, rows)
    getattr(made.inputs[0].contents, TYPED[datatype][0])[0] = 1 << 20
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(made)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert datatype in caught.value.details()


@pytest.fixture(scope="module")
def categories(tmp_path_factory):
    """A server with a model whose first column contains strings."""
    settings = tmp_path_factory.mktemp("settings") / "settings.yaml"
    model = f'{{name: m, path: {ZOO / "lgb_multiclass.txt"}, categories: {{"0": [blue, green, red]}}}}'
    settings.write_text(f"models: [{model}]\n")
    arguments = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--settings", str(settings)]
    with run_program(arguments + ["--workers", "1", "--threads", "1"]) as server:
        yield server


def test_texts_of_categories_typed_and_raw(categories):
    width = np.load(ZOO / "lgb_multiclass.npz")["X"].shape[1]
    colors = [b"red", b"blue", b"green", b"red"]
    codes = np.array([2, 0, 1, 2], "f8")
    rest = np.random.default_rng(5).random((4, width - 1))
    columns = [("0", "BYTES", None), *((str(place + 1), "FP64", rest[:, place]) for place in range(width - 1))]
    with grpc.insecure_channel(categories.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        numeric = request("FP64", np.column_stack([codes, rest]), model="m", output="margin")
        numeric.inputs[0].contents.fp64_contents.extend(np.column_stack([codes, rest]).ravel().tolist())
        margins = stub.ModelInfer(numeric).outputs[0].contents.fp64_contents
        for count in (0, 2):
            replies = []
            for is_raw in (False, True):
                made = service_pb2.ModelInferRequest(model_name="m")
                for name, datatype, values in columns:
                    tensor = made.inputs.add(name=name, datatype=datatype, shape=[4, 1])
                    if is_raw:
                        text = b"".join(len(color).to_bytes(4, "little") + color for color in colors)
                        made.raw_input_contents.append(text if values is None else values.tobytes())
                    elif values is None:
                        tensor.contents.bytes_contents.extend(colors)
                    else:
                        tensor.contents.fp64_contents.extend(values.tolist())
                asked = made.outputs.add(name="margin")
                if count:
                    asked.parameters["classification"].int64_param = count
                replies.append(stub.ModelInfer(made))
            if count:
                assert texts(replies[0]) == texts(replies[1])
                best = np.argsort(-np.reshape(margins, (4, -1)), axis=1, kind="stable")[:, :2]
                assert [int(text.split(":")[1]) for text in texts(replies[0])] == best.ravel().tolist()
            else:
                assert list(replies[0].outputs[0].contents.fp64_contents) == list(margins)
                assert replies[1].raw_output_contents[0] == np.array(margins, "f8").tobytes()
