"""A gRPC client with the service config of docs/operate/retries.md: a refusal is retried once on another
server, and what no server can answer is not retried."""

import json
import os
import pathlib
import re
import signal
import time
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from conftest import run_server

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate" / "retries.md"
PATIENCE = 60


def documented():
    return json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.S).group(1))


def client(servers, config):
    """A stub with a connection to every server."""
    # A list of addresses is not a valid authority; a DNS name is.
    options = [("grpc.service_config", json.dumps(config)), ("grpc.default_authority", "small")]
    addresses = ",".join(server.grpc for server in servers)
    channel = grpc.insecure_channel(f"ipv4:{addresses}", options=options)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    # A channel is ready with its first connection; a retry would then use the same server again.
    deadline = time.monotonic() + PATIENCE
    while any(calls(server) == 0 for server in servers):
        assert time.monotonic() < deadline, "a server is not connected"
        stub.ModelInfer(request(), timeout=PATIENCE)
    return stub


def request(rows=1, **parameters):
    call = service_pb2.ModelInferRequest(model_name="small")
    tensor = call.inputs.add(name="input", datatype="FP32", shape=[rows, 29])
    tensor.contents.fp32_contents.extend([0.5] * (29 * rows))
    for name, value in parameters.items():
        call.parameters[name].int64_param = value
    return call


def metric(server, name):
    """The sum of a metric over its labels."""
    page = urllib.request.urlopen(f"http://{server.http}/metrics").read().decode()
    lines = [line for line in page.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def calls(server):
    """Number of answered infer calls, including refusals."""
    return metric(server, "albacore_requests_total")


def fill(server):
    """Stops the worker of a server, gives it a batch and fills the queue; returns the calls."""
    os.kill(server.workers[0], signal.SIGSTOP)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(server.grpc))
    before = metric(server, "albacore_accepted_requests_total")
    waiting = []
    for queued in [0, 4]:
        waiting.append(stub.ModelInfer.future(request(rows=4)))
        deadline = time.monotonic() + PATIENCE
        while (
            metric(server, "albacore_accepted_requests_total") < before + len(waiting)
            or metric(server, "albacore_queue_rows") != queued
        ):
            assert time.monotonic() < deadline, "the request is not accepted"
            time.sleep(0.01)
    return waiting


def small():
    return run_server(["--workers", "1", "--threads", "1", "--queue-rows", "4"])


def test_a_refusal_is_retried_once_elsewhere():
    with small() as full, small() as other:
        stub = client([full, other], documented())
        waiting = fill(full)
        before = (calls(full), calls(other))
        count = 40
        for _ in range(count):
            stub.ModelInfer(request(), timeout=PATIENCE)
        assert calls(other) - before[1] == count, "each is answered by the server that can"
        assert calls(full) - before[0] >= count / 4, "round robin asks the full one, too"
        # Both are full: two attempts, without a delay requested by the servers.
        also_waiting = fill(other)
        before = (calls(full), calls(other))
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request(), timeout=PATIENCE)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (calls(full), calls(other)) == (before[0] + 1, before[1] + 1)
        for server in [full, other]:
            os.kill(server.workers[0], signal.SIGCONT)
        for call in waiting + also_waiting:
            call.result(PATIENCE)


def test_a_request_whose_time_is_over_is_not_retried():
    config = documented()
    policy = config["methodConfig"][0]["retryPolicy"]
    policy["retryableStatusCodes"] += ["DEADLINE_EXCEEDED", "INTERNAL"]
    with small() as one, small() as other:
        stub = client([one, other], config)
        before = calls(one) + calls(other)
        for attempt in range(1, 5):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(request(timeout=1), timeout=PATIENCE)  # a microsecond
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert calls(one) + calls(other) == before + attempt
