"""A pre-fork XGBoost server: gunicorn workers, each with an OpenMP pool of OMP_NUM_THREADS threads.

POST /predict   body: float32 rows, row-major, little-endian; reply: JSON with predictions
POST /explain   the same, with SHAP contributions
The Server-Timing header says how long the handler ran.
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


def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/health":
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    begin = time.perf_counter()
    rows = np.frombuffer(body, dtype=np.float32).reshape(-1, FEATURES)
    matrix = xgboost.DMatrix(rows)
    value = BOOSTER.predict(matrix)
    reply = {"pid": os.getpid(), "rows": len(rows), "mean": float(value.mean())}
    if path == "/explain":
        contribs = BOOSTER.predict(matrix, pred_contribs=True)
        reply["bias"] = float(contribs[0, -1])
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    text = json.dumps(reply).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(text))),
        ("Server-Timing", f"run;dur={elapsed_ms:.3f}"),
    ]
    start_response("200 OK", headers)
    return [text]
