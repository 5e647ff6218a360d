"""gunicorn + XGBoost for tests: the application is imported once (--preload) and each worker makes its OpenMP team at start.

Used as `gunicorn --config tests/servers/preload_app.py --preload preload_app:app`, so that a respawned worker is whole again
within a fraction of a second and a test can kill a hundred of them. Environment: MODEL (path), OMP_NUM_THREADS,
IMPORT_SECONDS (how much longer than it takes the import shall last).
"""
import os
import time

import numpy as np
import xgboost

time.sleep(float(os.environ.get("IMPORT_SECONDS", "0")))

THREADS = int(os.environ["OMP_NUM_THREADS"])
BOOSTER = None


def post_worker_init(worker):
    """gunicorn's hook in the new worker: nothing of OpenMP may be used before the fork."""
    import preload_app as served  # gunicorn runs this file a second time, as its configuration

    booster = xgboost.Booster({"nthread": THREADS})
    booster.load_model(os.environ["MODEL"])
    booster.set_param({"nthread": THREADS})
    rows = np.zeros((64 * THREADS, booster.num_features()), dtype=np.float32)
    booster.predict(xgboost.DMatrix(rows, nthread=THREADS), pred_contribs=True)
    served.BOOSTER = booster


def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    rows = np.frombuffer(body, dtype=np.float32).reshape(-1, BOOSTER.num_features())
    value = BOOSTER.predict(xgboost.DMatrix(rows, nthread=THREADS))
    text = ",".join(f"{v:.9g}" for v in value).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]
