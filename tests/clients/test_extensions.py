"""Triton's extensions by unmodified clients: configuration, statistics, repository index, tritonclient.http.aio, and
perf_analyzer over both protocols; and /metrics by the parsers of prometheus_client in both formats."""

import asyncio
import csv
import os
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_aio
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from tritonclient.utils import InferenceServerException

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain; version=0.0.4"


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    if request.param == "http":
        with triton_http.InferenceServerClient(server.http) as client:
            yield client
    else:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            # The same dictionaries as over HTTP; 64-bit numbers are strings in protobuf's JSON.
            client.as_json = {"as_json": True}
            yield client


def asked(client, call, *arguments):
    return getattr(client, call)(*arguments, **getattr(client, "as_json", {}))


def one_row(name="input", module=triton_http):
    tensor = module.InferInput(name, [1, 29], "FP32")
    tensor.set_data_from_numpy(np.full((1, 29), 0.5, np.float32))
    return [tensor]


def test_the_configuration_fits_the_metadata(client):
    config = asked(client, "get_model_config", "small", "1")
    config = config.get("config", config)
    assert (config["name"], config["backend"], config["platform"]) == ("small", "albacore", "xgboost_ubj")
    assert config["max_batch_size"] == 1024
    [tensor] = config["input"]
    assert (tensor["name"], tensor["data_type"]) == ("input", "TYPE_FP32")
    assert [int(size) for size in tensor["dims"]] == [29]
    assert [output["name"] for output in config["output"]] == ["output"]
    assert config["instance_group"][0]["count"] == 2
    metadata = asked(client, "get_model_metadata", "small")
    assert [output["name"] for output in metadata["outputs"]] == ["output"]
    with pytest.raises(InferenceServerException, match="not served here"):
        client.get_model_config("nobody")
    extensions = asked(client, "get_server_metadata")["extensions"]
    assert {"model_configuration", "statistics", "model_repository"} <= set(extensions)


def figures(client, name):
    [model] = asked(client, "get_inference_statistics", name)["model_stats"]
    phases = model["inference_stats"]
    numbers = {phase: int(phases[phase].get("count", 0)) for phase in phases}
    times = {phase: int(phases[phase].get("ns", 0)) for phase in phases}
    batches = {int(batch["batch_size"]): int(batch["compute_infer"]["count"]) for batch in model.get("batch_stats", [])}
    rows, executions = int(model.get("inference_count", 0)), int(model.get("execution_count", 0))
    return numbers, times, batches, rows, executions


def test_statistics_count_what_happened(client):
    module = triton_grpc if isinstance(client, triton_grpc.InferenceServerClient) else triton_http
    numbers, times, batches, rows, executions = figures(client, "small")
    for _ in range(3):
        client.infer("small", one_row(module=module))
    with pytest.raises(InferenceServerException):
        client.infer("small", one_row(module=module), outputs=[module.InferRequestedOutput("nothing")])
    now_numbers, now_times, now_batches, now_rows, now_executions = figures(client, "small")
    for phase in ["success", "queue", "compute_input", "compute_infer", "compute_output"]:
        assert now_numbers[phase] == numbers.get(phase, 0) + 3, phase
        # On an idle server no request waits.
        assert phase == "queue" or now_times[phase] > times.get(phase, 0), phase
    assert now_numbers["fail"] == numbers.get("fail", 0) + 1
    assert now_rows == rows + 3
    assert now_executions == executions + 3
    assert now_batches[1] == batches.get(1, 0) + 3
    parts = sum(now_times[phase] for phase in now_times if phase not in ("success", "fail"))
    assert parts <= now_times["success"]
    models = asked(client, "get_inference_statistics")["model_stats"]
    assert {model["name"] for model in models} == {"small", "multi", "light"}
    with pytest.raises(InferenceServerException, match="not served here"):
        client.get_inference_statistics("nobody")


def test_the_index_lists_models_and_loading_by_call_is_refused(client):
    index = asked(client, "get_model_repository_index")
    models = index.get("models", []) if isinstance(index, dict) else index
    assert {(model["name"], model["version"], model["state"]) for model in models} == {
        (name, "1", "READY") for name in ["small", "multi", "light"]
    }
    for call in [client.load_model, client.unload_model]:
        with pytest.raises(InferenceServerException, match="edit spec.models"):
            call("small")


def test_any_name_of_the_one_input_is_taken(client):
    module = triton_grpc if isinstance(client, triton_grpc.InferenceServerClient) else triton_http
    named = client.infer("small", one_row("float_input", module)).as_numpy("output")
    assert named.tobytes() == client.infer("small", one_row(module=module)).as_numpy("output").tobytes()


def test_the_asynchronous_client_sends_json(server):
    async def ask():
        async with triton_aio.InferenceServerClient(server.http) as client:
            tensor = triton_aio.InferInput("input", [1, 29], "FP32")
            tensor.set_data_from_numpy(np.full((1, 29), 0.5, np.float32), binary_data=False)
            wanted = [triton_aio.InferRequestedOutput("margin", binary_data=False)]
            text = await client.infer("small", [tensor], outputs=wanted)
            tensor.set_data_from_numpy(np.full((1, 29), 0.5, np.float32), binary_data=True)
            binary = await client.infer("small", [tensor], outputs=[triton_aio.InferRequestedOutput("margin")])
            return text.as_numpy("margin"), binary.as_numpy("margin")

    text, binary = asyncio.run(ask())
    assert text.tobytes() == binary.tobytes()
    # Sets its content type explicitly.
    document = '{"inputs":[{"name":"input","shape":[1,29],"datatype":"FP32","data":[%s]}]}' % ",".join(["0.5"] * 29)
    octets = {"Content-Type": "application/octet-stream"}
    reply = requests.post(f"http://{server.http}/v2/models/small/infer", data=document, headers=octets)
    assert reply.status_code == 200, reply.text


def test_a_refusal_names_the_field_and_the_limit(server):
    def refusal(**changed):
        tensor = {"name": "input", "shape": [1, 29], "datatype": "FP32", "data": [0.5] * 29, **changed}
        reply = requests.post(f"http://{server.http}/v2/models/small/infer", json={"inputs": [tensor]})
        assert reply.status_code == 400
        return reply.json()["error"]

    assert "inputs[0].shape: at most 8 entries are allowed, got 17" in refusal(shape=[1] * 17)
    assert "inputs[0].shape[1]: invalid type: string" in refusal(shape=[1, "29"])
    assert "inputs[0].datatype: invalid type: integer" in refusal(datatype=1)

    def refused_list(**changed):
        tensor = {"name": "input", "shape": [1, 29], "datatype": "FP32", "data": [0.5] * 29}
        body = {"inputs": [tensor], **changed}
        reply = requests.post(f"http://{server.http}/v2/models/small/infer", json=body)
        assert reply.status_code == 400
        assert " line 1 " not in reply.json()["error"]
        return reply.json()["error"]

    assert "outputs: at most 16 entries are allowed, got 20" in refused_list(outputs=[{"name": "value"}] * 20)
    # A column may be passed as an input.
    columns = [{"name": "0", "shape": [1], "datatype": "FP32", "data": []}] * 65537
    assert "inputs: at most 65536 entries are allowed, got 65537" in refused_list(inputs=columns)


def scrape(server, accept):
    headers = {"Accept": accept} if accept else {"Accept": None}
    reply = requests.get(f"http://{server.http}/metrics", headers=headers)
    assert reply.status_code == 200 and reply.headers["Cache-Control"] == "no-store"
    return reply.headers["Content-Type"].split(";")[0], reply.text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/plain"),
        ("*/*", "text/plain"),
        (TEXT, "text/plain"),
        (OPEN_METRICS, "application/openmetrics-text"),
        (f"{OPEN_METRICS};q=0.5,{TEXT};q=0.3,*/*;q=0.2", "application/openmetrics-text"),
        (f"{OPEN_METRICS};q=0.2,{TEXT};q=0.3", "text/plain"),
    ],
)
def test_metrics_are_what_the_scraper_accepts(server, accept, kind):
    requests.get(f"http://{server.http}/v2/health/live")
    with triton_http.InferenceServerClient(server.http) as client:
        client.infer("small", one_row())
    given, text = scrape(server, accept)
    assert given == kind
    if kind == "text/plain":
        assert "# EOF" not in text and "# UNIT" not in text
        families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        # The parser of the text format strips the suffix of counter names.
        assert "# TYPE albacore_requests_total counter" in text
    else:
        assert text.endswith("# EOF\n")
        families = {family.name: family for family in openmetrics_parser.text_string_to_metric_families(text)}
    for family in families.values():
        assert family.documentation, f"{family.name} has no help"
        assert family.type in ("counter", "gauge", "histogram"), family
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_start_time_seconds"]:
        [sample] = families[name].samples
        assert sample.value > 0, name
    assert families["process_cpu_seconds"].samples[0].name == "process_cpu_seconds_total"
    for name in ["albacore_worker_batches", "albacore_worker_busy_seconds", "albacore_worker_restarts"]:
        assert {sample.labels["worker"] for sample in families[name].samples} == {"0", "1"}, name
    batches = sum(sample.value for sample in families["albacore_worker_batches"].samples)
    busy = sum(sample.value for sample in families["albacore_worker_busy_seconds"].samples)
    assert batches >= 1 and busy > 0


@pytest.mark.parametrize("path", ["v2/health/live", "v2/health/ready", "v2/models/small/ready", "albacore/v1/state"])
def test_what_holds_for_the_moment_is_not_cached(server, path):
    assert requests.get(f"http://{server.http}/{path}").headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_runs_unmodified(server, protocol, tmp_path):
    report = tmp_path / "report.csv"
    command = [os.environ["PERF_ANALYZER"], "-m", "small", "-i", protocol, "-u", getattr(server, protocol)]
    # A fixed number of requests, because a busy machine would miss a time limit.
    command += ["--request-count", "200", "--concurrency-range", "2", "-b", "4", "-f", str(report)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [row] = list(csv.DictReader(report.open()))
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Compute Infer"]) >= 0
    assert "Successful request count: 0" not in ended.stdout
