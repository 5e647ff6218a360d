"""String columns: the results equal those of the libraries on data frames with categories (tests/data/categories)."""

import json
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from conftest import ZOO, run_program

FOLDER = ZOO.parent / "categories"
DATA = json.loads((FOLDER / "rows.json").read_text())
COLUMNS = DATA["columns"]
FILES = {"json": "xgboost.json", "ubj": "xgboost.ubj", "light": "lightgbm.txt"}
# Other names of the colors, in the same order.
NAMES = [f"color {index}" for index in range(len(DATA["colors"]))]


def rows(colors=DATA["colors"]):
    """Rows with sizes as strings and these color names."""
    names = dict(zip([None] + DATA["colors"], [None] + colors))
    text = lambda size: None if size is None else str(size)
    return [[amount, names[color], age, text(size)] for amount, color, age, size in DATA["rows"]]


def wanted(model):
    return np.array(DATA["lightgbm" if model == "light" else "xgboost"])


def assert_close(have, model, want=None):
    """Asserts the library's prediction: f32 exactly, f64 up to rounding from the order of summation."""
    want = wanted(model) if want is None else np.array(want)
    have = np.asarray(have, dtype=float).reshape(-1)
    assert have.shape == want.shape
    if model == "light":
        np.testing.assert_allclose(have, want, rtol=1e-12)
    else:
        assert have.astype("f4").tobytes() == want.astype("f4").tobytes()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = [{"name": name, "path": str(FOLDER / file)} for name, file in FILES.items()]
    categories = {"color": NAMES}
    models.append({"name": "mapped", "path": str(FOLDER / "xgboost.ubj"), "categories": categories})
    models.append({"name": "numbers", "path": str(ZOO / "main_small_d6.ubj")})
    file = tmp_path_factory.mktemp("settings") / "settings.yaml"
    file.write_text(json.dumps({"models": models}))
    command = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--settings", str(file)]
    with run_program(command + ["--workers", "1", "--threads", "1"]) as server:
        yield server


def inputs(client, order, colors=DATA["colors"]):
    """One input per column; strings as BYTES, with an empty string for a missing value."""
    columns = dict(zip(COLUMNS, zip(*rows(colors))))
    made = []
    for name in order:
        if name in ("color", "size"):
            datatype = "BYTES"
            values = np.array([(value or "").encode() for value in columns[name]], dtype=object)
        else:
            datatype = "FP64"
            values = np.array([np.nan if value is None else value for value in columns[name]])
        tensor = client.InferInput(name, [len(values), 1], datatype)
        tensor.set_data_from_numpy(values.reshape(-1, 1))
        made.append(tensor)
    return made


ORDERS = [COLUMNS, ["size", "age", "color", "amount"]]


@pytest.mark.parametrize("model", FILES)
@pytest.mark.parametrize("order", ORDERS)
def test_tritonclient_sends_texts_as_binary_data(server, model, order):
    with httpclient.InferenceServerClient(server.http) as client:
        result = client.infer(model, inputs(httpclient, order))
    assert_close(result.as_numpy("output"), model)


@pytest.mark.parametrize("model", FILES)
@pytest.mark.parametrize("order", ORDERS)
def test_tritonclient_sends_texts_over_grpc(server, model, order):
    with grpcclient.InferenceServerClient(server.grpc) as client:
        result = client.infer(model, inputs(grpcclient, order))
    assert_close(result.as_numpy("output"), model)


@pytest.mark.parametrize("model", FILES)
def test_tritonclient_sends_texts_as_json(server, model):
    whole = [place for place, row in enumerate(rows()) if None not in row]
    made = []
    for name, values in zip(COLUMNS, zip(*(rows()[place] for place in whole))):
        datatype = "BYTES" if name in ("color", "size") else "FP32"
        made.append(httpclient.InferInput(name, [len(whole)], datatype))
        values = np.array(values, dtype=object if datatype == "BYTES" else "f4")
        made[-1].set_data_from_numpy(values, binary_data=False)
    with httpclient.InferenceServerClient(server.http) as client:
        have = client.infer(model, made).as_numpy("output")
    want = wanted(model)[whole]
    # LightGBM's reference predictions were computed with doubles.
    np.testing.assert_allclose(have, want, rtol=0 if model != "light" else 1e-12)


@pytest.mark.parametrize("model", FILES)
@pytest.mark.parametrize("order", ORDERS)
def test_texts_as_json_may_be_null(server, model, order):
    columns = dict(zip(COLUMNS, zip(*rows())))
    datatype = lambda name: "BYTES" if name in ("color", "size") else "FP64"
    made = [{"name": name, "shape": [len(rows()), 1], "datatype": datatype(name), "data": columns[name]} for name in order]
    have = post(server, f"/v2/models/{model}/infer", {"inputs": made})
    assert_close(have["outputs"][0]["data"], model)


@pytest.mark.parametrize("model", FILES)
def test_typed_texts_over_grpc(server, model):
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, values in zip(COLUMNS, zip(*rows())):
        tensor = request.inputs.add(name=name, shape=[len(values)])
        if name in ("color", "size"):
            tensor.datatype = "BYTES"
            tensor.contents.bytes_contents.extend((value or "").encode() for value in values)
        else:
            tensor.datatype = "FP64"
            tensor.contents.fp64_contents.extend(np.nan if it is None else it for it in values)
    with grpc.insecure_channel(server.grpc) as channel:
        reply = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    contents = reply.outputs[0].contents
    assert_close(contents.fp32_contents or contents.fp64_contents, model)


def post(server, path, body, content_type="application/json"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.http}{path}", body, {"Content-Type": content_type})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def refused(server, path, body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, path, body)
    assert caught.value.code == 400
    return json.load(caught.value)["error"]


@pytest.mark.parametrize("model", FILES)
def test_protocol_v1_takes_texts_in_lists_and_objects(server, model):
    path = f"/v1/models/{model}:predict"
    assert_close(post(server, path, {"instances": rows()})["predictions"], model)
    reverse = [dict(reversed(list(zip(COLUMNS, row)))) for row in rows()]
    assert_close(post(server, path, {"instances": reverse})["predictions"], model)


def test_a_map_of_the_settings_is_in_place_of_the_file(server):
    with httpclient.InferenceServerClient(server.http) as client:
        result = client.infer("mapped", inputs(httpclient, COLUMNS, colors=NAMES))
    assert_close(result.as_numpy("output"), "mapped")
    said = refused(server, "/v1/models/mapped:predict", {"instances": rows()})
    assert 'column "color"' in said and '"color 0", "color 1"' in said


def test_unknown_texts_are_refused_or_missing_as_in_the_libraries(server):
    purple = rows()
    for row in purple:
        row[1] = "purple"
    have = post(server, "/v1/models/light:predict", {"instances": purple})["predictions"]
    assert_close(have, "light", DATA["lightgbm_purple"])
    said = refused(server, "/v1/models/ubj:predict", {"instances": purple})
    for part in ['column "color"', '"purple" is not one of the categories "red", "a, b", "blue"', "1 more"]:
        assert part in said, said
    with grpcclient.InferenceServerClient(server.grpc) as client:
        made = inputs(grpcclient, COLUMNS)
        made[1].set_data_from_numpy(np.full((len(purple), 1), b"purple", dtype=object))
        with pytest.raises(InferenceServerException, match="INVALID_ARGUMENT.*") as caught:
            client.infer("ubj", made)
        for part in ['column "color": value 0', '"purple" is not one of the categories']:
            assert part in str(caught.value), caught.value


def test_texts_where_there_are_no_categories_are_refused_with_the_way_out(server):
    body = {"inputs": [{"name": "0", "shape": [1], "datatype": "BYTES", "data": ["red"]}]}
    features = len(np.load(ZOO / "main_small_d6.npz")["X"][0])
    numbers = [{"name": str(it), "shape": [1], "datatype": "FP32", "data": [1]} for it in range(1, features)]
    said = refused(server, "/v2/models/numbers/infer", {"inputs": body["inputs"] + numbers})
    assert 'column "0" has datatype "BYTES", but the model has no categories' in said, said
    assert '"categories" of the model' in said
    body = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "BYTES", "data": ["1", "red", "1", "10"]}]}
    said = refused(server, "/v2/models/ubj/infer", body)
    assert "one for each column" in said, said
    body = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, "red", 1, 0]}]}
    assert "datatype BYTES and named as the column" in refused(server, "/v2/models/ubj/infer", body)


def test_codes_are_taken_as_before(server):
    numbers = {"color": DATA["colors"], "size": DATA["sizes"]}
    code = lambda name, it: np.nan if it is None else numbers[name].index(it) if name in numbers else it
    codes = np.array([[code(name, it) for name, it in zip(COLUMNS, row)] for row in rows()])
    for model, datatype in [("json", "FP32"), ("ubj", "FP64"), ("light", "FP64")]:
        tensor = httpclient.InferInput("input", list(codes.shape), datatype)
        tensor.set_data_from_numpy(codes.astype("f4" if datatype == "FP32" else "f8"))
        with httpclient.InferenceServerClient(server.http) as client:
            assert_close(client.infer(model, [tensor]).as_numpy("output"), model)
