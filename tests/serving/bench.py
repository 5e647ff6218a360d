"""Goodput of albacore-server and of other servers of XGBoost models, side by side on the same cpus in one run.

Every server has two workers of one compute thread, is asked by `albacore bench serve` over HTTP in JSON, and is searched
for the highest rate at which 99 % of the answers come within the objective. Then each is asked at a tenth of the rate
that it reached, and ours at the same rates. Prints a table in Markdown; ratios are what should be quoted, not figures.
With --footprint each is started, and its start time, memory and size are printed in place of that.

    tests/serving/bench.sh [--only NAME,...] [--models small,medium] [--file MODEL] [--length 3s] [--rounds 1] [--overload [MIX,...]] [--apart]
                           [--footprint] [--bin DIR]

The generator shares the cpus with the servers, as the aims of the project have it: what it takes is taken from all.
With --apart (only with --overload) it shares the last cpu with the server's front, and the workers have the others: what
refusing takes is then not taken from who computes, as on a machine that has a cpu for the front.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import footprint

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = {"small": "main_small_d6.ubj", "medium": "main_medium_d6.ubj"}
CLASSES = {"1 row": "1", "SHAP, 10 rows": "contribs:10"}
# Requests whose computation costs far more than sending: ten times their capacity can still be sent
# from the same cpus.
OVERLOADS = "interactions:10,contribs:100"
# Connections of these runs: always the same number, so that memory can be compared, and so many
# that no request waits for one in the generator, where no server can see it.
OVERLOAD_CONNECTIONS = "1024"
START_TIME_MAX = 120
READY_POLL = 0.02
CPUS = sorted(os.sched_getaffinity(0))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def peers(name):
    """The Python environment of a peer, created by bench.sh."""
    own = {"MLServer": "mlserver", "KServe": "kserve"}
    return pathlib.Path(os.environ["BENCH_PEERS"]) / own.get(name, "app")


def gunicorn(model, port, _folder, _args):
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--worker-class", "gthread", "--threads", "4",
               "--keep-alive", "75", "--bind", f"127.0.0.1:{port}", "--log-level", "error", "app:wsgi"]
    return command, {"MODEL": model}


def fastapi(model, port, _folder, _args):
    command = [sys.executable, "-m", "uvicorn", "--workers", "2", "--host", "127.0.0.1", "--port", str(port),
               "--log-level", "error", "--no-access-log", "--factory", "app:asgi"]
    return command, {"MODEL": model}


def mlserver(model, port, folder, args):
    (folder / "settings.json").write_text(json.dumps({
        "debug": False, "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port(),
        "parallel_workers": 2, "metrics_dir": str(folder), "logging_settings": {"version": 1, "disable_existing_loggers": True}}))
    (folder / "model-settings.json").write_text(json.dumps({
        "name": "model", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": str(model)}}))
    return [str(peers("MLServer") / "bin/mlserver"), "start", str(folder)], {}


def kserve(model, port, folder, _args):
    (folder / "model").mkdir()
    (folder / "model/model.ubj").symlink_to(model)
    # Without a log line per request, like all others.
    command = [str(peers("KServe") / "bin/python"), "-m", "xgbserver", "--model_name", "model", "--model_dir", str(folder / "model"),
               "--http_port", str(port), "--grpc_port", str(free_port()), "--workers", "2", "--configure_logging", "false",
               "--enable_latency_logging", "false"]
    return command, {}


def albacore(model, port, _folder, args):
    workers = len(CPUS) - 1 if args.apart else 2
    command = [f"{args.bin}/albacore-server", "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0", "--workers", str(workers),
               "--threads", "1", "--slo", args.objective, "--model", f"model={model}"]
    return command, {}


SERVERS = {"albacore": albacore, "gunicorn": gunicorn, "FastAPI": fastapi, "MLServer": mlserver, "KServe": kserve}
# Their XGBoost servers do not return SHAP values.
VALUES_ONLY = {"MLServer", "KServe"}


class NotStarted(Exception):
    """A server does not start; contains the end of its output."""


class Running:
    """A running server; stopped with all of its child processes."""

    def __init__(self, name, model, args):
        self.folder = tempfile.TemporaryDirectory()
        self.name, self.port, self.args = name, free_port(), args
        folder = pathlib.Path(self.folder.name)
        command, environment = SERVERS[name](model, self.port, folder, args)
        environment = os.environ | environment | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        log = open(folder / "log", "wb")
        start = time.monotonic()
        self.process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log, start_new_session=True)
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > start + START_TIME_MAX:
                text = (folder / "log").read_text()[-2000:]
                self.__exit__()
                raise NotStarted(f"{name} does not start:\n{text}")
            time.sleep(READY_POLL)
        self.start_seconds = time.monotonic() - start
        meta = model.with_suffix(".meta.json")
        self.features = json.loads(meta.read_text())["num_feature"] if meta.exists() else self.told_features()

    def told_features(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/models/model", timeout=2) as answer:
            return json.load(answer)["inputs"][0]["shape"][-1]

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, mix, *more):
        url = f"http://127.0.0.1:{self.port}"
        command = [f"{self.args.bin}/albacore", "bench", "serve", url, "--model", "model", "--features", str(self.features), "--input", "input",
                   "--objective", self.args.objective, "--length", self.args.length, "--mix", mix, "--output", "json",
                   "--pid", str(self.process.pid), *more]
        if self.args.overload and not self.args.apart:
            # A generator that waits for a cpu used by the server's threads would measure itself.
            command = ["nice", "-n", "-15", *command]
        if self.args.apart:
            command = ["taskset", "-c", str(CPUS[-1]), *command]
        ran = subprocess.run(command, capture_output=True, text=True)
        if not ran.stdout:
            return {"error": ran.stderr.strip()}
        return json.loads(ran.stdout)

    def set_apart(self):
        """Pins workers to all cpus except the last one; pins the front, or a single-process server, to the last one."""
        others = ",".join(map(str, CPUS[:-1]))
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [pid for file in children for pid in file.read_text().split()]
        fronts = {pid for pid in children if b"\0front\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()}
        pids = [(pid, str(CPUS[-1])) for pid in [self.process.pid, *fronts]]
        pids += [(pid, others) for pid in children if pid not in fronts]
        for pid, cpus in pids:
            subprocess.run(["taskset", "-a", "-p", "-c", cpus, str(pid)], check=True, stdout=subprocess.DEVNULL)

    def memory(self):
        """Proportional set size of its processes, in bytes."""
        total = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == self.process.pid:  # its session
                    rollup = (stat.parent / "smaps_rollup").read_text()
                    total += next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
            except (OSError, StopIteration):
                continue  # gone by now
        return total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever is left of its group
        except ProcessLookupError:
            pass
        self.folder.cleanup()


def search(server, mix, found):
    """Adds the result of one search to those of the server."""
    said = server.ask(mix, "--search")
    if "error" in said:
        print(f"<!-- {server.name}: {said['error']} -->", flush=True)
        return
    found["rates"].append(said["highest"]["goodput"])
    within = [run for run in said["runs"] if run["rate"] <= said["highest"]["rate"]]
    if within:
        found["cpu"].append(within[-1]["cpu_seconds_per_1000_rows"])
    rate = max(1.0, said["highest"]["rate"] / 10)
    light = server.ask(mix, "--rate", f"{rate:.1f}")
    found["light"] = (rate, light["runs"][0]["p50_ms"])


def compare(model, mix, args):
    """By server: goodputs, CPU-seconds, and p50 at a tenth of the rate with ours beside it. A peer that does not start
    is left out, and said."""
    asked = [name for name in args.only if name not in VALUES_ONLY or "contribs" not in mix]
    found = {name: {"rates": [], "cpu": []} for name in asked}
    for _ in range(args.rounds):
        for name in asked:
            try:
                with Running(name, model, args) as server:
                    search(server, mix, found[name])
            except NotStarted as error:
                if name == "albacore":
                    raise
                print(f"<!-- {error} -->", flush=True)
    for name, of in found.items():
        if name != "albacore" and "light" in of and "albacore" in found:
            with Running("albacore", model, args) as server:
                light = server.ask(mix, "--rate", f"{of['light'][0]:.1f}")
                of["ours"] = light["runs"][0]["p50_ms"]
    return found


def overload(model, mix, args):
    """Runs ten times the highest rate twice: goodput relative to the highest rate, memory relative to the first run."""
    with Running("albacore", model, args) as server:
        if args.apart:
            server.set_apart()
        connections = ["--connections", OVERLOAD_CONNECTIONS]
        said = server.ask(mix, "--search", *connections)["highest"]
        at_peak = server.memory()
        server.ask(mix, "--rate", str(said["rate"] * 10), *connections)
        before = server.memory()
        over = server.ask(mix, "--rate", str(said["rate"] * 10), *connections)["runs"][0]
        after = server.memory()
        good = over["goodput"] / said["goodput"]
        print(f"| {mix} | {said['goodput']:.0f} | {over['rate']:.0f} | {over['goodput']:.0f} | {good:.2f} | {over['shed']} | "
              f"{over['late']} | {over['failed'] + over['unavailable'] + over['unanswered']} | {over['p99_ms']:.1f} | "
              f"{over['lag_p99_ms']:.1f} | {at_peak / 2**20:.1f}, {before / 2**20:.1f} -> {after / 2**20:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SERVERS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--file", type=pathlib.Path, help="another model, in place of --models")
    parser.add_argument("--length", default="3s")
    parser.add_argument("--objective", default="25ms")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--overload", nargs="?", const=OVERLOADS)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--footprint", action="store_true")
    parser.add_argument("--bin", default=f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release")
    args = parser.parse_args()
    if args.apart and (len(CPUS) < 2 or not args.overload):
        parser.error("--apart needs --overload and two cpus")
    args.only = args.only.split(",")
    models = {name: ROOT / "tests/data/models" / MODELS[name] for name in args.models.split(",")}
    if args.file:
        models = {args.file.stem: args.file.resolve()}
    load = os.getloadavg()[0]
    workers = len(CPUS) - 1 if args.apart else 2
    print(f"W={workers}, T=1, objective {args.objective} for 99 %, Poisson, {args.length} a run, generator on the same "
          f"{os.cpu_count()} cpus; load average before: {load:.1f}\n")
    if args.footprint:
        for name, model in models.items():
            print(f"Model {name}:\n")
            footprint.table(lambda server: Running(server, model, args), args, peers)
        return
    if args.overload:
        print("| asked for | peak/s | offered/s | good/s | of the peak | shed | late | failed | p99 ms | lag ms | memory MiB: peak, x 10 twice |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for model in models.values():
            for mix in args.overload.split(","):
                overload(model, mix, args)
        return
    print("| model | asked for | server | good/s | ours is times | cpu s/1,000 rows | p50 ms at 10 % | ours there |")
    print("|---|---|---|---|---|---|---|---|")
    for name, model in models.items():
        for label, mix in CLASSES.items():
            found = compare(model, mix, args)
            ours = statistics.median(found.get("albacore", {}).get("rates") or [0])
            for server, of in found.items():
                if not of["rates"]:
                    continue
                good = statistics.median(of["rates"])
                times = f"{ours / good:.1f}" if good else "-"
                cpu = f"{statistics.median(of['cpu']):.3f}" if of["cpu"] else "-"
                light = f"{of['light'][1]:.2f}" if "light" in of else "-"
                beside = f"{of['ours']:.2f}" if "ours" in of else "-"
                print(f"| {name} | {label} | {server} | {good:.0f} | {times} | {cpu} | {light} | {beside} |", flush=True)


if __name__ == "__main__":
    main()
