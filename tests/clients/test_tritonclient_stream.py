"""Unmodified tritonclient over a stream of infer calls: order, errors, cancellation, the bound in flight; and the end
of the server with requests in flight, by grpc itself."""

import queue
import threading

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from conftest import run_server

PATIENCE = 60


def rows(count, value=0.5):
    tensor = triton.InferInput("input", [count, 29], "FP32")
    tensor.set_data_from_numpy(np.full((count, 29), value, np.float32))
    return [tensor]


@pytest.fixture
def stream(server):
    """A client with an open stream, and the queue of its results and errors."""
    replies = queue.Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: replies.put((result, error)))
        yield client, replies
        client.stop_stream(cancel_requests=True)


def test_replies_come_in_the_order_of_requests(stream):
    client, replies = stream
    # Far more than the limit of requests in flight.
    sizes = [1 + place % 7 for place in range(300)]
    for place, size in enumerate(sizes):
        # Requests of different kinds do not share batches, and complete out of order.
        wanted = [triton.InferRequestedOutput(name) for name in ["output", "contribs"][: 1 + place % 2]]
        client.async_stream_infer("small", rows(size), outputs=wanted, request_id=str(place))
    for place, size in enumerate(sizes):
        result, error = replies.get(timeout=PATIENCE)
        assert error is None
        assert result.get_response().id == str(place)
        assert result.as_numpy("output").shape[0] == size


def test_results_are_those_of_single_calls(stream):
    client, replies = stream
    wanted = [triton.InferRequestedOutput(name) for name in ["margin", "contribs"]]
    single = client.infer("small", rows(5, 0.25), outputs=wanted)
    client.async_stream_infer("small", rows(5, 0.25), outputs=wanted, enable_empty_final_response=True)
    result, error = replies.get(timeout=PATIENCE)
    assert error is None
    for name in ["margin", "contribs"]:
        assert result.as_numpy(name).tobytes() == single.as_numpy(name).tobytes()
    assert result.get_response().parameters["triton_final_response"].bool_param


def test_an_error_of_a_request_does_not_end_the_stream(stream):
    client, replies = stream
    nothing = [triton.InferRequestedOutput("nothing")]
    client.async_stream_infer("small", rows(1), request_id="good")
    client.async_stream_infer("nobody", rows(1), request_id="unknown")
    client.async_stream_infer("small", rows(1), outputs=nothing, request_id="bad")
    client.async_stream_infer("small", rows(1), timeout=1, request_id="late")
    client.async_stream_infer("small", rows(1), request_id="good again")
    outcomes = [replies.get(timeout=PATIENCE) for _ in range(5)]
    assert outcomes[0][1] is None and outcomes[4][1] is None
    assert outcomes[4][0].get_response().id == "good again"
    for (result, error), said in zip(outcomes[1:4], ["not served here", "is unknown", "time"], strict=True):
        assert result is None and isinstance(error, InferenceServerException)
        assert said in error.message()


def call(server):
    channel = grpc.insecure_channel(server.grpc)
    return channel, service_pb2_grpc.GRPCInferenceServiceStub(channel)


def message(request_id, model="small"):
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    tensor = request.inputs.add(name="input", datatype="FP32", shape=[1, 29])
    tensor.contents.fp32_contents.extend([0.5] * 29)
    return request


def test_an_error_names_its_request(server):
    channel, stub = call(server)
    with channel:
        replies = list(stub.ModelStreamInfer(iter([message("a", "nobody"), message("b")])))
    assert [reply.infer_response.id for reply in replies] == ["a", "b"]
    assert "not served here" in replies[0].error_message and not replies[1].error_message
    # The contents of a reply are typed if those of its request are.
    assert len(replies[1].infer_response.outputs[0].contents.fp32_contents) == 1


def test_a_client_cancels_a_stream_and_the_server_goes_on(server):
    for _ in range(3):
        replies = queue.Queue()
        with triton.InferenceServerClient(server.grpc) as client:
            client.start_stream(lambda result, error, replies=replies: replies.put((result, error)))
            for _ in range(50):
                client.async_stream_infer("small", rows(512))
            client.stop_stream(cancel_requests=True)
            assert client.infer("small", rows(1)).as_numpy("output").shape == (1,)
    # The queue contains none of the canceled requests.
    for _ in range(600):
        text = requests.get(f"http://{server.http}/metrics").text
        [line] = [line for line in text.splitlines() if line.startswith("albacore_queue_rows ")]
        if float(line.split()[1]) == 0:
            return
    pytest.fail(line)


def test_a_client_that_does_not_read_is_not_read_from(server):
    """The limit of requests in flight blocks a sender that does not read its replies, but no other client."""
    sent, stop = [], threading.Event()
    wide = message("wide")
    wide.inputs[0].shape[0] = 512
    wide.inputs[0].contents.fp32_contents.extend([0.5] * 511 * 29)
    wide.outputs.add(name="contribs")

    def endless():
        while not stop.is_set():
            sent.append(1)
            yield wide

    # 64 in flight, plus as many of about 60 KB as fit into the windows of the connection and the
    # buffers of the client.
    ahead = 64 + (4 << 20) // 59_000 + 200
    channel, stub = call(server)
    with channel:
        replies = stub.ModelStreamInfer(endless())
        for place in range(300):
            assert not next(replies).error_message
            assert len(sent) - place < ahead
            if place == 0:
                # Other connections are served.
                other, other_stub = call(server)
                with other:
                    assert other_stub.ModelInfer(message("other")).id == "other"
        replies.cancel()
        stop.set()


def test_a_stopping_server_ends_its_streams():
    with run_server(["--workers", "1", "--threads", "1"]) as server:
        channel, stub = call(server)
        left = queue.Queue()
        replies = stub.ModelStreamInfer(iter(left.get, None))
        for place in range(20):
            left.put(message(str(place)))
        for place in range(20):
            assert next(replies).infer_response.id == str(place)
        server.stop()
        with pytest.raises(grpc.RpcError) as caught:
            next(replies)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in caught.value.details()
        left.put(None)
        channel.close()


def test_a_stream_without_a_request_is_ended_and_one_with_a_request_in_flight_is_not():
    # A request waits in the queue for longer than the idle timeout of a stream.
    waits = ["--policy", "timeout", "--max-delay", "9s", "--stream-idle-max", "1s"]
    with run_server(["--workers", "1", "--threads", "1", *waits]) as server:
        replies = queue.Queue()
        with triton.InferenceServerClient(server.grpc) as client:
            client.start_stream(lambda result, error: replies.put((result, error)))
            client.async_stream_infer("small", rows(1), request_id="first")
            with pytest.raises(queue.Empty):
                replies.get(timeout=3)
            client.async_stream_infer("small", rows(1), request_id="second")
            for wanted in ["first", "second"]:
                result, error = replies.get(timeout=PATIENCE)
                assert error is None and result.get_response().id == wanted
            _, error = replies.get(timeout=PATIENCE)
            assert error.status() == "StatusCode.UNAVAILABLE"
            assert "no request arrived for 1s: open another stream" in error.message()
            client.stop_stream(cancel_requests=True)
        with triton.InferenceServerClient(server.grpc) as client:
            client.start_stream(lambda result, error: replies.put((result, error)))
            result, error = replies.get(timeout=PATIENCE)
            assert result is None and error.status() == "StatusCode.UNAVAILABLE"


def test_a_message_that_is_no_request_is_an_error_of_its_own(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stream = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=lambda content: content,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        replies = list(stream(iter([b"\xff\xff", message("b").SerializeToString()])))
        assert "not a valid protobuf message" in replies[0].error_message
        assert replies[1].infer_response.id == "b"


def test_a_message_above_the_limit_ends_the_stream(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stream = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=lambda content: content,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        replies = stream(iter([message("a").SerializeToString(), bytes((64 << 20) + 1)]))
        assert next(replies).infer_response.id == "a"
        with pytest.raises(grpc.RpcError, match="more than the limit") as caught:
            next(replies)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_compressed_stream(server):
    replies = queue.Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: replies.put((result, error)), compression_algorithm="gzip")
        client.async_stream_infer("small", rows(100))
        client.stop_stream()
    result, error = replies.get(timeout=PATIENCE)
    assert error is None and result.as_numpy("output").shape == (100,)
