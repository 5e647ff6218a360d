"""A pre-fork XGBoost server: gunicorn workers, each with an OpenMP pool of OMP_NUM_THREADS threads.

POST /predict   body: float32 rows, row-major, little-endian; reply: JSON with predictions
POST /explain   the same, with SHAP contributions
The Server-Timing header says how long each stage took, and `run` how long all of them.
Environment: MODEL (path), OMP_NUM_THREADS (set by Albacore).
"""
import json
import os
import time

import numpy as np
import xgboost

# Set nthread explicitly. Without it libgomp counts the cpus in the mask of the calling thread, so a
# main thread that is pinned to one cpu would compute alone.
BOOSTER = xgboost.Booster({"nthread": int(os.environ["OMP_NUM_THREADS"])})
BOOSTER.load_model(os.environ["MODEL"])
BOOSTER.set_param({"nthread": int(os.environ["OMP_NUM_THREADS"])})
FEATURES = BOOSTER.num_features()


class Stages:
    """Times between calls, as the value of a Server-Timing header."""

    def __init__(self):
        self.begin = self.last = time.perf_counter()
        self.metrics = []

    def end(self, name):
        now = time.perf_counter()
        self.metrics.append(f"{name};dur={(now - self.last) * 1e3:.3f}")
        self.last = now

    def header(self):
        run = f"run;dur={(self.last - self.begin) * 1e3:.3f}"
        return ", ".join([*self.metrics, run])


def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/health":
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    stages = Stages()
    values = np.frombuffer(body, dtype=np.float32)
    stages.end("deserialize")
    rows = np.ascontiguousarray(values.reshape(-1, FEATURES))
    stages.end("convert")
    matrix = xgboost.DMatrix(rows)
    stages.end("dmatrix")
    value = BOOSTER.predict(matrix)
    stages.end("predict")
    reply = {"pid": os.getpid(), "rows": len(rows), "mean": float(value.mean())}
    if path == "/explain":
        contribs = BOOSTER.predict(matrix, pred_contribs=True)
        reply["bias"] = float(contribs[0, -1])
        stages.end("shap")
    text = json.dumps(reply).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(text))),
        ("Server-Timing", stages.header()),
    ]
    start_response("200 OK", headers)
    return [text]
