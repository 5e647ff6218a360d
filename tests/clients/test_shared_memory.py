"""Tensors in system shared memory by unmodified tritonclient and its utilities, over both protocols; what is refused."""

import os
import queue
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from conftest import Sample, assert_same_bits, run_server

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def sharing():
    with run_server(["--workers", "1", "--threads", "1", "--shared-memory-bytes-max", str(LIMIT)]) as server:
        yield server


def connect(protocol, server):
    module = triton_http if protocol == "http" else triton_grpc
    client = module.InferenceServerClient(getattr(server, protocol))
    client.module = module
    client.as_json = {"as_json": True} if protocol == "grpc" else {}
    return client


@pytest.fixture(params=["http", "grpc"])
def client(request, sharing):
    client = connect(request.param, sharing)
    yield client
    client.unregister_system_shared_memory()
    client.close()


@pytest.fixture
def region():
    """Creates shared memory objects, and removes them afterwards."""
    handles = []

    def make(name, size):
        key = f"albacore-test-{os.getpid()}-{name}"
        handles.append(shm.create_shared_memory_region(name, key, size, create_only=True))
        return handles[-1], key

    yield make
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


def status(client):
    regions = client.get_system_shared_memory_status(**client.as_json)
    if isinstance(regions, dict):
        regions = regions.get("regions", {}).values()
    return {region["name"]: (region["key"], int(region.get("offset", 0)), int(region["byte_size"])) for region in regions}


def test_tensors_are_read_from_and_written_to_regions(client, region):
    sample = Sample("small")
    size = sample.rows.nbytes
    given, given_key = region("given", size + 64)
    results, results_key = region("results", 1 << 19)
    # The input is at an offset, both in the object and in the region.
    shm.set_shared_memory_region(given, [sample.rows], offset=48)
    client.register_system_shared_memory("given", given_key, size + 32, offset=32)
    client.register_system_shared_memory("results", f"/{results_key}", 1 << 19)
    assert status(client) == {"given": (given_key, 32, size + 32), "results": (f"/{results_key}", 0, 1 << 19)}

    tensor = client.module.InferInput("input", list(sample.rows.shape), sample.datatype)
    tensor.set_shared_memory("given", size, offset=16)
    margin, contribs, leaf = (client.module.InferRequestedOutput(name) for name in ["margin", "contribs", "leaf"])
    margin.set_shared_memory("results", sample.margin.nbytes)
    contribs.set_shared_memory("results", sample.contribs.nbytes, offset=1024)
    reply = client.infer("small", [tensor], outputs=[margin, leaf, contribs])
    # One output is part of the reply.
    np.testing.assert_array_equal(reply.as_numpy("leaf"), sample.leaf)
    assert_same_bits(shm.get_contents_as_numpy(results, np.float32, sample.margin.shape).copy(), sample.margin)
    written = shm.get_contents_as_numpy(results, np.float32, sample.contribs.shape, offset=1024)
    plain = client.module.InferInput("input", list(sample.rows.shape), sample.datatype)
    plain.set_data_from_numpy(sample.rows)
    wanted = [client.module.InferRequestedOutput("contribs")]
    assert_same_bits(written.copy(), client.infer("small", [plain], outputs=wanted).as_numpy("contribs"))
    # Over gRPC tritonclient returns a protobuf message instead of JSON.
    output = reply.get_output("contribs")
    if client.as_json:
        assert output.parameters["shared_memory_region"].string_param == "results"
        assert output.parameters["shared_memory_offset"].int64_param == 1024
        assert list(output.shape) == list(sample.contribs.shape)
    else:
        # tritonclient in C++ interprets all parameters as those of binary data.
        assert output == {"name": "contribs", "datatype": "FP32", "shape": list(sample.contribs.shape)}

    client.unregister_system_shared_memory("given")
    assert list(status(client)) == ["results"]
    with pytest.raises(InferenceServerException, match='"given" is not registered; registered are \\["results"\\]'):
        client.infer("small", [tensor])
    client.unregister_system_shared_memory()
    assert status(client) == {}


def test_some_columns_are_in_shared_memory(client, region):
    """Inputs by column name, every second one in a shared memory region: only the others have raw contents."""
    sample = Sample("light")
    names = [f"Column_{place}" for place in range(sample.rows.shape[1])]
    handle, key = region("columns", sample.rows.nbytes)
    column_bytes = sample.rows.nbytes // len(names)
    client.register_system_shared_memory("columns", key, sample.rows.nbytes)
    tensors = []
    for place, name in enumerate(names):
        column = np.ascontiguousarray(sample.rows[:, place])
        tensor = client.module.InferInput(name, list(column.shape), sample.datatype)
        if place % 2:
            shm.set_shared_memory_region(handle, [column], offset=place * column_bytes)
            tensor.set_shared_memory("columns", column_bytes, offset=place * column_bytes)
        else:
            tensor.set_data_from_numpy(column)
        tensors.append(tensor)
    wanted = [client.module.InferRequestedOutput("margin")]
    assert_same_bits(client.infer(sample.model, tensors, outputs=wanted).as_numpy("margin"), sample.margin)


def test_a_stream_takes_tensors_in_shared_memory(sharing, region):
    sample, replies = Sample("multi"), queue.Queue()
    given, key = region("stream", sample.rows.nbytes)
    shm.set_shared_memory_region(given, [sample.rows])
    with connect("grpc", sharing) as client:
        client.register_system_shared_memory("stream", key, sample.rows.nbytes)
        tensor = triton_grpc.InferInput("input", list(sample.rows.shape), sample.datatype)
        tensor.set_shared_memory("stream", sample.rows.nbytes)
        client.start_stream(lambda result, error: replies.put((result, error)))
        client.async_stream_infer("multi", [tensor], outputs=[triton_grpc.InferRequestedOutput("margin")])
        result, error = replies.get(timeout=60)
        client.stop_stream()
        client.unregister_system_shared_memory("stream")
    assert error is None
    assert_same_bits(result.as_numpy("margin"), sample.margin)


def test_a_region_is_common_to_both_protocols_and_all_connections(sharing, region):
    sample = Sample("multi")
    handle, key = region("common", sample.rows.nbytes)
    shm.set_shared_memory_region(handle, [sample.rows])
    with connect("http", sharing) as http, connect("grpc", sharing) as grpc:
        http.register_system_shared_memory("common", key, sample.rows.nbytes)
        assert "common" in status(grpc)
        tensor = triton_grpc.InferInput("input", list(sample.rows.shape), "FP32")
        tensor.set_shared_memory("common", sample.rows.nbytes)
        wanted = [triton_grpc.InferRequestedOutput("margin")]
        assert_same_bits(grpc.infer("multi", [tensor], outputs=wanted).as_numpy("margin"), sample.margin)
        grpc.unregister_system_shared_memory("common")
        assert "common" not in status(http)


def test_a_truncated_object_is_an_error_and_the_server_goes_on(client, region, sharing):
    size = 4096 * 29 * 4
    _, key = region("cut", size)
    client.register_system_shared_memory("cut", key, size)
    tensor = client.module.InferInput("input", [4096, 29], "FP32")
    tensor.set_shared_memory("cut", size)
    assert client.infer("small", [tensor]).as_numpy("output").shape == (4096,)
    os.truncate(f"/dev/shm/{key}", 5000)
    with pytest.raises(InferenceServerException, match=f"needs {size} bytes of object .*, which has 5000"):
        client.infer("small", [tensor])
    small = client.module.InferInput("input", [1, 29], "FP32")
    small.set_shared_memory("cut", 29 * 4)
    result = client.module.InferRequestedOutput("contribs")
    result.set_shared_memory("cut", 30 * 4, offset=8000)
    with pytest.raises(InferenceServerException, match="which has 5000"):
        client.infer("small", [small], outputs=[result])
    assert os.stat(f"/dev/shm/{key}").st_size == 5000
    assert client.infer("small", [small]).as_numpy("output").shape == (1,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "../etc/passwd"}, "is not the name of a shared memory object"),
        ({"key": "//x"}, "is not the name of a shared memory object"),
        ({"key": "nothing-of-this-name"}, "cannot be opened"),
        ({"byte_size": 4097}, "needs 4097 bytes"),
        ({"offset": 4096}, "needs 8192 bytes"),
        ({"byte_size": 0}, "is 0"),
        ({"name": "n" * 254}, "1 to 253 bytes"),
    ],
)
def test_what_cannot_be_registered(client, region, change, said):
    _, key = region("r", 4096)
    part = {"name": "r", "key": key, "byte_size": 4096, "offset": 0, **change}
    with pytest.raises(InferenceServerException, match=said) as caught:
        client.register_system_shared_memory(**part)
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert status(client) == {}


def test_bounds(client, region):
    _, key = region("r", LIMIT + 1)
    with pytest.raises(InferenceServerException, match="--shared-memory-bytes-max"):
        client.register_system_shared_memory("r", key, LIMIT + 1)
    client.register_system_shared_memory("r", key, 1000)
    with pytest.raises(InferenceServerException, match="registered already"):
        client.register_system_shared_memory("r", key, 1000)

    def refused(size, at, said, **output):
        tensor = client.module.InferInput("input", [1, 29], "FP32")
        tensor.set_shared_memory("r", size, offset=at)
        wanted = client.module.InferRequestedOutput("contribs")
        if output:
            wanted.set_shared_memory("r", **output)
        with pytest.raises(InferenceServerException, match=said):
            client.infer("small", [tensor], outputs=[wanted])

    refused(116, 885, "outside of shared memory region")
    refused(115, 0, "an input needs 116 bytes for its shape")
    refused(116, 0, 'output "contribs" of 1 rows has 120 bytes', byte_size=119)
    refused(116, 0, "outside of shared memory region", byte_size=120, offset=881)


def test_a_link_is_not_followed_and_no_object_is_the_servers(client):
    link = f"/dev/shm/albacore-test-link-{os.getpid()}"
    os.symlink("/etc/hostname", link)
    try:
        with pytest.raises(InferenceServerException, match="cannot be opened"):
            client.register_system_shared_memory("link", os.path.basename(link), 1)
    finally:
        os.unlink(link)


def test_the_servers_own_memory_is_not_there():
    """Rows, results and models are in unnamed memory files (memfd)."""
    before = set(os.listdir("/dev/shm"))
    with run_server(["--workers", "2", "--threads", "1"]) as server:
        with triton_http.InferenceServerClient(server.http) as client:
            assert client.is_server_ready()
        assert set(os.listdir("/dev/shm")) - before == set()
        for pid in server.workers:
            maps = open(f"/proc/{pid}/maps").read()
            assert "/memfd:" in maps and "/dev/shm/" not in maps


def test_it_is_off_by_default_and_others_are_refused_by_name(server):
    for protocol in ["http", "grpc"]:
        with connect(protocol, server) as client:
            for call in [
                client.get_system_shared_memory_status,
                client.unregister_system_shared_memory,
                lambda client=client: client.register_system_shared_memory("r", "r", 1),
            ]:
                with pytest.raises(InferenceServerException, match="--shared-memory-bytes-max") as caught:
                    call()
                assert caught.value.status() in ("501", "StatusCode.UNIMPLEMENTED")
            extensions = client.get_server_metadata(**client.as_json)["extensions"]
            assert "classification" in extensions and "system_shared_memory" not in extensions
            for call, said in [
                (client.get_cuda_shared_memory_status, "CUDA shared memory is not supported"),
                (client.unregister_cuda_shared_memory, "CUDA shared memory is not supported"),
                (lambda client=client: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 1), "CUDA shared memory"),
                (client.get_trace_settings, "trace settings are not supported"),
                (lambda client=client: client.get_trace_settings("small"), "trace settings are not supported"),
                (lambda client=client: client.update_trace_settings(settings={}), "trace settings are not supported"),
                (client.get_log_settings, "log settings are not supported"),
                (lambda client=client: client.update_log_settings({"log_info": True}), "log settings are not supported"),
            ]:
                with pytest.raises(InferenceServerException, match=said) as caught:
                    call()
                assert caught.value.status() in ("501", "StatusCode.UNIMPLEMENTED")
    tensor = {"name": "input", "shape": [1, 29], "datatype": "FP32"}
    tensor["parameters"] = {"shared_memory_region": "r", "shared_memory_byte_size": 116}
    reply = requests.post(f"http://{server.http}/v2/models/small/infer", json={"inputs": [tensor]})
    assert reply.status_code == 501 and "--shared-memory-bytes-max" in reply.json()["error"]


@pytest.mark.parametrize(
    ("protocol", "more"),
    [("http", ["--shared-memory", "system"]), ("grpc", ["--shared-memory", "system"]), ("grpc", ["--streaming"])],
)
def test_perf_analyzer_runs_unmodified(sharing, protocol, more):
    command = [os.environ["PERF_ANALYZER"], "-m", "small", "-i", protocol, "-u", getattr(sharing, protocol), *more]
    # A fixed number of requests, because a busy machine would miss a time limit.
    command += ["--request-count", "200", "--concurrency-range", "2", "-b", "4"]
    command += ["--output-shared-memory-size", "4096"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Request count: 0" not in ended.stdout


def test_extensions_that_are_on_are_listed(client):
    extensions = client.get_server_metadata(**client.as_json)["extensions"]
    assert {"classification", "system_shared_memory"} <= set(extensions)
