"""One model behind the infer call of the Open Inference Protocol v2, as people serve XGBoost with gunicorn and with
FastAPI: the peers of bench.py. Environment: MODEL, the model's file.

The WSGI application `wsgi` and the ASGI application `asgi` share everything but the framework.
"""
import json
import os

import numpy as np
import xgboost

xgboost.set_config(nthread=1)
BOOSTER = xgboost.Booster(model_file=os.environ["MODEL"])
BOOSTER.set_param({"nthread": 1})


def infer(request):
    tensor = request["inputs"][0]
    rows = np.asarray(tensor["data"], dtype=np.float32).reshape(tensor["shape"])
    name = request.get("outputs", [{"name": "output"}])[0]["name"]
    if name == "contribs":
        result = BOOSTER.predict(xgboost.DMatrix(rows, nthread=1), pred_contribs=True)
    else:
        result = BOOSTER.inplace_predict(rows)
    output = {"name": name, "datatype": "FP32", "shape": list(result.shape), "data": result.ravel().tolist()}
    return {"model_name": "model", "outputs": [output]}


def wsgi(environ, start_response):
    if environ["REQUEST_METHOD"] == "GET":
        start_response("200 OK", [("Content-Length", "2"), ("Content-Type", "application/json")])
        return [b"{}"]
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    answer = json.dumps(infer(json.loads(body))).encode()
    start_response("200 OK", [("Content-Length", str(len(answer))), ("Content-Type", "application/json")])
    return [answer]


def asgi():
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    app = FastAPI()

    @app.get("/v2/health/ready")
    async def ready():
        return {}

    @app.post("/v2/models/model/infer")
    async def call(request: Request):
        return JSONResponse(infer(await request.json()))

    return app
