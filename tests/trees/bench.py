"""Puts the tree engine beside others, interleaved on one core, and writes the table of ratios, worst cell first.

Models are trained here on synthetic data, always the same, and kept. Each engine is a process of its own that speaks
the protocol of `albacore bench engine`: Albacore, XGBoost, LightGBM and tl2cgen through C (`peer.c`), oneDAL through
its Python module (this file with `onedal`). Outputs are compared before anything is measured; a peer whose outputs
are wrong, or that cannot do something, has no figure there. Figures are ns a row: the smallest over rounds of the
median call, or of the mean CPU time where that is smaller (a call that another program interrupts counts in full).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROWS = 1024
# A call that takes longer is measured once: interruptions by other programs hardly affect it.
SLOW_NS = 3e8
# Features, rows to train on, trees to grow, depth of the leaves.
MODELS = {
    "small_d6": ("small", 100, 6),
    "medium_d6": ("medium", 100, 6),
    "large_d6": ("large", 100, 6),
    "small_heavy": ("small", 1000, 8),
    "medium_heavy": ("medium", 1000, 8),
    "large_heavy": ("large", 1000, 6),
}


# Measured batch sizes.
KINDS = {"predict": (1, 10, 100, 500, 1000), "contribs": (1, 10, 100), "interactions": (1,)}


def data(kind):
    """Features, labels and classes: plain numbers; numbers of all scales with missing values; images of ten classes."""
    rng = np.random.default_rng({"small": 1, "medium": 2, "large": 3}[kind])
    if kind == "small":
        x = rng.normal(size=(20_000, 29))
        y = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + x[:, 3:9].sum(1) > rng.normal(size=len(x)) * 0.4
        return x.astype(np.float32), y.astype(int), 2
    if kind == "medium":
        x = rng.normal(size=(8_000, 155))
        y = x[:, :40] @ rng.normal(size=40) + 3 * x[:, 0] * x[:, 1] > 8 * rng.normal(size=len(x))
        x *= 10.0 ** rng.integers(-2, 5, size=155)
        x[rng.random(x.shape) < 0.12] = np.nan
        return x.astype(np.float32), y.astype(int), 2
    y = rng.integers(10, size=4_000)
    along = np.arange(28)
    center = rng.uniform(6, 22, size=(10, 5, 2))
    bump = np.exp(-((along[None, None, :, None] - center[..., :1, None]) ** 2 + (along - center[..., 1:, None]) ** 2) / 12)
    picture = bump.sum(1).reshape(10, 784)
    x = 200 * picture[y] * rng.uniform(0.5, 1.3, size=(len(y), 1)) + rng.normal(size=(len(y), 784)) * 40
    return np.where(x > 60, np.minimum(x, 255), 0).astype(int).astype(np.float32), y, 10


def train(folder, names):
    """Trains the models that do not exist yet: XGBoost's, and LightGBM's of the same size."""
    import lightgbm
    import xgboost

    for name in names:
        kind, trees, depth = MODELS[name]
        paths = [folder / f"{name}.{end}" for end in ("ubj", "txt", "f32")]
        if all(path.exists() for path in paths):
            continue
        print(f"training {name}", file=sys.stderr)
        x, y, classes = data(kind)
        rounds = trees // (classes if classes > 2 else 1)
        own = {"objective": "multi:softprob", "num_class": classes} if classes > 2 else {"objective": "binary:logistic"}
        common = {"max_depth": depth, "eta": 0.1, "nthread": 1, "tree_method": "hist"}
        booster = xgboost.train({**own, **common}, xgboost.DMatrix(x, label=y), rounds)
        booster.save_model(paths[0])
        own = {"objective": "multiclass", "num_class": classes} if classes > 2 else {"objective": "binary"}
        common = {"max_depth": depth, "num_leaves": 2**depth, "learning_rate": 0.1, "num_threads": 1, "verbose": -1}
        lightgbm.train({**own, **common}, lightgbm.Dataset(x, label=y), rounds).save_model(paths[1])
        x[:ROWS].tofile(paths[2])


def compile_tl2cgen(folder, name):
    """Compiles the model as C; heavy ones take minutes."""
    import tl2cgen
    import treelite

    out = folder / f"{name}.so"
    if not out.exists():
        print(f"compiling {name} with tl2cgen", file=sys.stderr)
        model = treelite.frontend.load_xgboost_model(folder / f"{name}.ubj", format_choice="use_suffix")
        tl2cgen.export_lib(model, toolchain="gcc", libpath=str(out), params={"parallel_comp": 8}, nthread=1)
    return out


def onedal():
    """A worker around oneDAL: `daal4py.mb.convert_model`."""
    import daal4py

    model, rows = None, None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "load":
                if words[1].endswith(".ubj"):
                    import xgboost

                    booster = xgboost.Booster(model_file=words[1])
                else:
                    import lightgbm

                    booster = lightgbm.Booster(model_file=words[1])
                model = daal4py.mb.convert_model(booster)
                classes = getattr(model, "n_classes_", 2)
                rows = np.fromfile(words[2], "<f4").reshape(-1, int(words[3]))
                daal4py.daalinit(int(words[4]))
                print("ok", flush=True)
                continue
            explain = {"predict": {}, "contribs": {"pred_contribs": True}, "interactions": {"pred_interactions": True}}
            options = explain[words[1]]

            def call(x):
                if options or classes <= 1:
                    return model.predict(x, **options)
                return model.predict_proba(x)

            if words[0] == "check":
                result = np.asarray(call(rows[: int(words[2])]))
                if not options and result.ndim == 2 and result.shape[1] == 2:
                    result = result[:, 1]
                result.astype("<f4").tofile(words[3])
                print("ok", flush=True)
                continue
            batch, target, calls = int(words[2]), float(words[3]) / 1e3, int(words[4])
            call(rows[:batch])
            times, first, start, cpu = [], 0, time.perf_counter(), time.thread_time_ns()
            while len(times) < calls or time.perf_counter() - start < target:
                window = rows[first : first + batch]
                before = time.perf_counter_ns()
                call(window)
                times.append((time.perf_counter_ns() - before) / batch)
                first = 0 if first + 2 * batch > len(rows) else first + batch
            cpu = (time.thread_time_ns() - cpu) / batch / len(times)
            figures = {"med": float(np.median(times)), "min": min(times), "mean": float(np.mean(times)), "cpu": cpu}
            print(json.dumps({**figures, "calls": len(times)}), flush=True)
        except Exception as error:  # noqa: BLE001: whatever it is, the peer cannot do this
            print("error", str(error).replace("\n", " ")[:200], flush=True)


class Worker:
    """A process that answers each line with a line."""

    def __init__(self, name, command, cpu):
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        self.process = subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], **pipes)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip() or "error ended"
        except BrokenPipeError:
            return "error ended"

    def end(self):
        self.process.communicate()


def workers(folder, name, is_lightgbm, options):
    """Albacore first, then the peers that support the model."""
    site = pathlib.Path(np.__file__).parents[1]
    yield Worker("Albacore", options.engine, options.cpu)
    peer = folder / "peer"
    if is_lightgbm:
        yield Worker("LightGBM", [peer, "lightgbm", site / "lightgbm/lib/lib_lightgbm.so"], options.cpu)
    else:
        yield Worker("XGBoost", [peer, "xgboost", site / "xgboost/lib/libxgboost.so"], options.cpu)
        if not name.endswith("heavy") or options.all:
            yield Worker("tl2cgen", [peer, "tl2cgen", compile_tl2cgen(folder, name)], options.cpu)
    yield Worker("oneDAL", [sys.executable, __file__, "onedal"], options.cpu)


def agrees(kind, expected, found):
    """Whether the output has the expected shape and values."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return False
    return bool(np.abs(found - expected).max() <= (1e-5 if kind == "predict" else 1e-3))


def measure(folder, name, is_lightgbm, options):
    """Ratios of the cells of a model."""
    path = folder / f"{name}.{'txt' if is_lightgbm else 'ubj'}"
    columns = {"small": 29, "medium": 155, "large": 784}[MODELS[name][0]]
    loaded = []
    for worker in workers(folder, name, is_lightgbm, options):
        answer = worker.ask(f"load {path} {folder / name}.f32 {columns} 1")
        if answer == "ok":
            loaded.append(worker)
        else:
            print(f"{path.name}: {worker.name}: {answer}", file=sys.stderr)
    cells = [(kind, batch) for kind in options.kinds for batch in KINDS[kind]]
    # Interactions of 784 features take megabytes per row.
    cells = [cell for cell in cells if cell[0] != "interactions" or columns <= 200]
    for kind, batch in cells:
        outputs, able = {}, []
        for worker in loaded:
            out = folder / f"out.{worker.name}"
            answer = worker.ask(f"check {kind} 16 {out}")
            if answer != "ok":
                continue
            outputs[worker.name] = np.fromfile(out, "<f4")
            # The library that trained the model is the second one and serves as the reference.
            able.append(worker)
        truth = outputs.get("LightGBM" if is_lightgbm else "XGBoost", outputs["Albacore"])
        for worker in [worker for worker in able if not agrees(kind, truth, outputs[worker.name])]:
            print(f"{path.name} {kind}: {worker.name} is wrong", file=sys.stderr)
            able.remove(worker)
        best, slow = {}, set()
        for _ in range(options.rounds):
            for worker in [worker for worker in able if worker.name not in slow]:
                # One call first: calls that take seconds are not repeated.
                answer = worker.ask(f"run {kind} {batch} 0 1")
                if answer.startswith("{") and json.loads(answer)["min"] * batch < SLOW_NS:
                    answer = worker.ask(f"run {kind} {batch} 25 3")
                else:
                    slow.add(worker.name)
                if answer.startswith("{"):
                    figures = json.loads(answer)
                    # The kernel may account CPU time late: no call takes less than the shortest
                    # one.
                    figure = min(figures["med"], max(figures["cpu"], figures["min"]))
                    best[worker.name] = min(figure, best.get(worker.name, figure))
        own = best.pop("Albacore", None)
        if own and best:
            peer = min(best, key=best.get)
            yield best[peer] / own, path.name, kind, batch, own, peer, best[peer], best
    for worker in loaded:
        worker.end()


def readable(ns):
    """Formats a time with three digits and a unit."""
    for unit, size in (("ns", 1), ("us", 1e3), ("ms", 1e6)):
        if ns < 1000 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where models are kept")
    parser.add_argument("table", type=pathlib.Path, help="where the table goes")
    parser.add_argument("--engine", nargs="+", default=["target/release/albacore", "bench", "engine"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--cpu", type=int, default=os.cpu_count() - 1)
    parser.add_argument("--all", action="store_true", help="tl2cgen on the heavy models too: minutes of gcc")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    train(options.folder, options.models)
    subprocess.run(["gcc", "-O2", "-o", options.folder / "peer", HERE / "peer.c", "-ldl"], check=True)
    cells = []
    for name in options.models:
        for is_lightgbm in (False, True):
            for cell in measure(options.folder, name, is_lightgbm, options):
                cells.append(cell)
                print(*cell, file=sys.stderr, flush=True)
            # The table so far is kept if a later model aborts the run.
            write_table(cells, options)
    print(options.table.read_text(), end="")


def write_table(cells, options):
    """Writes machine, versions and cells, worst cell first."""
    cells = sorted(cells, key=lambda cell: cell[0])
    processor = next(line.split(": ")[1] for line in open("/proc/cpuinfo") if line.startswith("model name")).strip()
    versions = json.loads(subprocess.run([sys.executable, "-m", "pip", "list", "--format", "json"], capture_output=True).stdout or "[]")
    wanted = ("xgboost", "lightgbm", "tl2cgen", "daal", "scikit-learn-intelex")
    versions = ", ".join(f"{it['name']} {it['version']}" for it in versions if it["name"].startswith(wanted))
    lines = [f"{processor}, {os.cpu_count()} CPUs, one thread; {versions}.", ""]
    lines += ["| model | kind | rows | Albacore | best peer | ratio |", "|---|---|---|---|---|---|"]
    for ratio, model, kind, batch, own, peer, best, _ in cells:
        lines.append(f"| {model} | {kind} | {batch} | {readable(own)} | {peer} {readable(best)} | {ratio:.2f}x |")
    options.table.write_text("\n".join(lines) + "\n")


if sys.argv[1:] == ["onedal"]:
    onedal()
elif __name__ == "__main__":
    main()
