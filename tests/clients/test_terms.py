"""`priority` and `timeout` as tritonclient sends them, and the codes of overload and of time that is over."""

import os
import queue
import signal
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from conftest import run_server

CLIENTS = [tritonclient.http, tritonclient.grpc]
OVERLOADED = {tritonclient.http: "429", tritonclient.grpc: "StatusCode.RESOURCE_EXHAUSTED"}
OVER = {tritonclient.http: "504", tritonclient.grpc: "StatusCode.DEADLINE_EXCEEDED"}


def address(server, triton):
    return server.http if triton is tritonclient.http else server.grpc


def rows(triton, count=1):
    tensor = triton.InferInput("input", [count, 29], "FP32")
    tensor.set_data_from_numpy(np.zeros((count, 29), np.float32))
    return [tensor]


@pytest.mark.parametrize("triton", CLIENTS)
def test_priority_and_timeout_are_taken(server, triton):
    with triton.InferenceServerClient(address(server, triton)) as client:
        for terms in [{"priority": 1}, {"priority": 7}, {"timeout": 60_000_000}, {"priority": 2, "timeout": 60_000_000}]:
            assert client.infer("small", rows(triton), **terms).as_numpy("output").shape == (1,)


@pytest.mark.parametrize("triton", CLIENTS)
def test_time_that_is_over_has_its_code(server, triton):
    with triton.InferenceServerClient(address(server, triton)) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("small", rows(triton), timeout=1)  # a microsecond
        assert caught.value.status() == OVER[triton]


@pytest.mark.parametrize("triton", CLIENTS)
def test_a_full_queue_and_a_wait_beyond_ones_time_have_their_codes(triton):
    arguments = ["--workers", "1", "--threads", "1", "--queue-rows", "4"]
    with run_server(arguments) as server:
        os.kill(server.workers[0], signal.SIGSTOP)
        more = {"concurrency": 8} if triton is tritonclient.http else {}
        with triton.InferenceServerClient(address(server, triton), **more) as client:
            # Accepted, but not computed.
            with pytest.raises(InferenceServerException) as caught:
                client.infer("small", rows(triton), timeout=100_000)
            assert caught.value.status() == OVER[triton]
            outcomes = queue.Queue()
            if triton is tritonclient.grpc:
                for _ in range(4):
                    client.async_infer("small", rows(triton, 3), lambda result, error: outcomes.put(error))
                first = outcomes.get(timeout=60)
                os.kill(server.workers[0], signal.SIGCONT)
                rest = [outcomes.get(timeout=60) for _ in range(3)]
            else:
                calls = [client.async_infer("small", rows(triton, 3)) for _ in range(4)]
                first, rest = None, []
                wait_for_refusal(server)
                os.kill(server.workers[0], signal.SIGCONT)
                for call in calls:
                    try:
                        call.get_result()
                        rest.append(None)
                    except InferenceServerException as error:
                        first = first or error
            assert first.status() == OVERLOADED[triton]
            assert None in rest


def wait_for_refusal(server):
    """Waits until the server has refused a request."""
    for _ in range(600):
        metrics = urllib.request.urlopen(f"http://{server.http}/metrics").read().decode()
        if 'code="429"} ' in metrics:
            return
        time.sleep(0.1)
    raise AssertionError("nothing is refused")
