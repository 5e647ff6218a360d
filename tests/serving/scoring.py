"""Requests a second of albacore-server and of `mlflow models serve`, on the same folder that mlflow saved and the same
bodies: one row as dataframe_split, in a closed loop over several connections.

    python tests/serving/scoring.py FOLDER SERVER [--seconds 5] [--connections 8]

Run it in the environment of tests/clients/mlflow.txt with uvicorn. FOLDER is a model folder of mlflow, SERVER the binary
of albacore-server. The client is this program: it takes a share of the cpus, by which the faster server loses more.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import time

import mlflow

START_TIME_MAX = 120


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def request_of(folder):
    names = mlflow.xgboost.load_model(str(folder))
    names = getattr(names, "get_booster", lambda: names)().feature_names
    frame = {"columns": names, "data": [[0.25 + place / 100 for place in range(len(names))]]}
    body = json.dumps({"dataframe_split": frame})
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def exchange(connection, request):
    """Sends a request and reads the whole answer."""
    connection.sendall(request)
    answer = b""
    while True:
        answer += connection.recv(65536)
        head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            if len(body) == int(length.split(b":")[1]):
                break
    status = int(answer.split(b" ", 2)[1])
    assert status == 200, answer
    return body


def ask(port, request, seconds, counts):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            exchange(connection, request)
            count += 1
    counts.put(count)


def measure(command, port, request, args):
    # mlflow looks up uvicorn in PATH.
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + START_TIME_MAX
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    answer = exchange(connection, request)
                break
            except (OSError, AssertionError):
                assert time.monotonic() < end and server.poll() is None, "the server does not start"
                time.sleep(0.1)
        counts = multiprocessing.Queue()
        clients = [multiprocessing.Process(target=ask, args=(port, request, args.seconds, counts)) for _ in range(args.connections)]
        for client in clients:
            client.start()
        total = sum(counts.get(timeout=args.seconds + 30) for _ in clients)
        for client in clients:
            client.join()
        return total / args.seconds, answer
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, 15)
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("server")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=8)
    args = parser.parse_args()
    request = request_of(args.folder)
    rates = {}
    for name in ("mlflow", "albacore", "mlflow", "albacore"):
        port = free_port()
        commands = {
            "mlflow": [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(args.folder), "--port", str(port),
                       "--env-manager", "local", "--workers", "2"],
            "albacore": [args.server, "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0", "--workers", "2",
                         "--model", f"model={args.folder}"],
        }
        rate, answer = measure(commands[name], port, request, args)
        rates.setdefault(name, []).append(rate)
        print(f"{name}: {rate:.0f} requests/s, {answer.decode()}", flush=True)
    print(f"ratio of the best: {max(rates['albacore']) / max(rates['mlflow']):.0f}")


if __name__ == "__main__":
    main()
