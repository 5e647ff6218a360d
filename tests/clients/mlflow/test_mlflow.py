"""Models saved by mlflow and served by albacore-server: its responses equal those of mlflow's own scoring server.

mlflow's server runs in this process (FastAPI's test client), on the same folders and the same bodies.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
import warnings

import lightgbm as lgb
import mlflow
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from fastapi.testclient import TestClient
from mlflow.pyfunc import scoring_server
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conftest import ZOO, run_program

warnings.filterwarnings("ignore")
SCRIPT = ZOO.parent.parent.parent / "scripts" / "sklearn_to_json.py"
NAMES = ["age", "amount", "rate", "days"]
RANDOM = np.random.default_rng(26)
FRAME = pd.DataFrame(RANDOM.random((300, 4), dtype="f4"), columns=NAMES)
BINARY = (FRAME.age + FRAME.rate > 1).astype(int)
CLASSES = (FRAME.age * 3).astype(int)
TEXTS = np.array(["low", "mid", "high"])[CLASSES]


def train(params, label, rounds=8):
    return xgb.train({"max_depth": 3, **params}, xgb.DMatrix(FRAME, label=label), rounds)


def light(objective, label, **params):
    data = lgb.Dataset(FRAME, label)
    return lgb.train({"objective": objective, "verbose": -1, **params}, data, 8)


# By name: the flavor that saves the model, and a function that trains one in a supported format.
MODELS = {
    "booster": (mlflow.xgboost, lambda: train({"objective": "binary:logistic"}, BINARY)),
    "regression": (mlflow.xgboost, lambda: train({}, FRAME.amount)),
    "softprob": (mlflow.xgboost, lambda: train({"objective": "multi:softprob", "num_class": 3}, CLASSES)),
    "softmax": (mlflow.xgboost, lambda: train({"objective": "multi:softmax", "num_class": 3}, CLASSES)),
    "classifier": (mlflow.xgboost, lambda: xgb.XGBClassifier(n_estimators=8).fit(FRAME, BINARY)),
    "multi": (mlflow.xgboost, lambda: xgb.XGBClassifier(n_estimators=8).fit(FRAME, CLASSES)),
    "regressor": (mlflow.xgboost, lambda: xgb.XGBRegressor(n_estimators=8).fit(FRAME, FRAME.rate)),
    "light": (mlflow.lightgbm, lambda: light("binary", BINARY)),
    "light_multi": (mlflow.lightgbm, lambda: light("multiclass", CLASSES, num_class=3)),
}
PICKLED = {
    "forest": RandomForestClassifier(8, random_state=1).fit(FRAME, BINARY),
    "texts": RandomForestClassifier(8, random_state=1).fit(FRAME, TEXTS),
    "boosting": GradientBoostingClassifier(n_estimators=8).fit(FRAME, BINARY),
    "trees": RandomForestRegressor(8, random_state=1).fit(FRAME, FRAME.amount),
}


def light_classifier(label, **params):
    return lgb.LGBMClassifier(n_estimators=8, verbose=-1, **params).fit(FRAME, label)


def stopped_early(estimator, **further):
    """An early-stopped model: it has more iterations than it predicts with."""
    label = (FRAME.age + RANDOM.random(300) > 1).astype(int)
    estimator.fit(FRAME[:150], label[:150], eval_set=[(FRAME[150:], label[150:])], **further)
    return estimator


# LightGBM models with scikit-learn's interface, which mlflow saves with skops or as pickles.
LIGHT = {
    "binary": light_classifier(BINARY),
    "several": light_classifier(CLASSES),
    "texts": light_classifier(TEXTS),
    "one_against_all": light_classifier(TEXTS, objective="multiclassova"),
    "regressor": lgb.LGBMRegressor(n_estimators=8, verbose=-1).fit(FRAME, FRAME.amount),
    "stopped_early": stopped_early(lgb.LGBMClassifier(n_estimators=80, verbose=-1, early_stopping_round=2)),
}
XGB_STOPPED = stopped_early(xgb.XGBClassifier(n_estimators=80, early_stopping_rounds=2), verbose=False)


def save(flavor, model, folder, **further):
    flavor.save_model(model, str(folder), pip_requirements=[], **further)
    return folder


def convert(folder, file):
    command = [sys.executable, str(SCRIPT), str(folder / file), str(folder / "model.json")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return folder


def save_pickle(name, folder, **further):
    """A folder of mlflow with the pickle and its conversion."""
    save(mlflow.sklearn, PICKLED[name], folder, serialization_format="cloudpickle", **further)
    return convert(folder, "model.pkl")


def start(folder):
    return run_program(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--model", f"m={folder}"])


def post(server, body, kind="application/json", path="/invocations"):
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.http}{path}", data, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def bodies(frame):
    """The request in every format of mlflow's protocol, with the columns in the model's order."""
    return [
        ("application/json", json.dumps({"dataframe_split": frame.to_dict(orient="split")})),
        ("application/json", json.dumps({"dataframe_records": frame.to_dict(orient="records")})),
        ("text/csv", frame.to_csv(index=False)),
    ]


def assert_same(own, theirs):
    """Asserts equal shape and types, and numbers within the precision of a binary32 text."""
    own, theirs = np.array(own), np.array(theirs)
    assert own.shape == theirs.shape
    assert own.dtype.kind == theirs.dtype.kind
    if own.dtype.kind == "f":
        np.testing.assert_allclose(own, theirs, rtol=1e-6, atol=1e-7)
    else:
        assert own.tolist() == theirs.tolist()


def check(folder):
    theirs = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(folder))))
    with start(folder) as server:
        for kind, body in bodies(FRAME.astype("f8").head(50)):
            wanted = theirs.post("/invocations", content=body, headers={"Content-Type": kind})
            assert wanted.status_code == 200, wanted.text
            status, answer = post(server, body, kind)
            assert status == 200, answer
            assert_same(answer["predictions"], wanted.json()["predictions"])
            # The server accepts columns in any order.
            turned = FRAME.astype("f8").head(50)[NAMES[::-1]]
        for kind, body in bodies(turned):
            assert_same(post(server, body, kind)[1]["predictions"], wanted.json()["predictions"])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_boosters_answer_as_mlflow(tmp_path, name):
    flavor, make = MODELS[name]
    check(save(flavor, make(), tmp_path / "model"))


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_both_formats_of_xgboost_are_found(tmp_path, form):
    check(save(mlflow.xgboost, MODELS["classifier"][1](), tmp_path / "model", model_format=form))


@pytest.mark.parametrize("name", sorted(PICKLED))
def test_converted_models_of_scikit_learn_answer_as_mlflow(tmp_path, name):
    check(save_pickle(name, tmp_path / "model"))


@pytest.mark.parametrize("name", ["forest", "texts", "boosting"])
def test_the_function_of_the_folder_answers_as_mlflow(tmp_path, name):
    folder = save_pickle(name, tmp_path / "model", pyfunc_predict_fn="predict_proba")
    check(folder)
    rows = FRAME.head(20).astype("f8")
    body = {"dataframe_split": rows.to_dict(orient="split"), "params": {"predict_fn": "predict"}}
    with start(folder) as server:
        assert_same(post(server, body)[1]["predictions"], PICKLED[name].predict(FRAME.head(20)))


def test_an_edit_of_the_function_is_noticed(tmp_path):
    folder = save_pickle("forest", tmp_path / "model")
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({"models": [{"name": "m", "path": str(folder)}]}))
    rows = FRAME.head(5).astype("f8")
    body = {"dataframe_split": rows.to_dict(orient="split")}
    wanted = PICKLED["forest"].predict_proba(FRAME.head(5)).tolist()
    arguments = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--settings", str(settings)]
    with run_program(arguments) as server:
        assert_same(post(server, body)[1]["predictions"], PICKLED["forest"].predict(FRAME.head(5)))
        described = (folder / "MLmodel").read_text()
        (folder / "MLmodel").write_text(described.replace("predict_fn: predict", "predict_fn: predict_proba"))
        deadline = time.monotonic() + 120
        while post(server, body)[1]["predictions"] != wanted:
            assert time.monotonic() < deadline, "MLmodel was edited, the answer is the old one"
            time.sleep(0.2)


@pytest.mark.parametrize("function", ["predict_log_proba", "score"])
def test_other_functions_of_the_folder_are_refused_by_name(tmp_path, function):
    said = refusal(save_pickle("forest", tmp_path / "model", pyfunc_predict_fn=function))
    assert f'predict_fn "{function}"' in said, said
    assert 'pyfunc_predict_fn="predict" or "predict_proba"' in said


def test_probabilities_that_the_model_does_not_have_are_refused(tmp_path):
    """A regressor: mlflow saves its folder without python_function, which is added here."""
    folder = save_pickle("trees", tmp_path / "model")
    described = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_text(described.replace("predict_fn: predict", "predict_fn: predict_proba"))
    said = refusal(folder)
    assert 'predict_fn "predict_proba"' in said and "no such function" in said, said


@pytest.mark.parametrize("name", sorted(LIGHT))
@pytest.mark.parametrize("form", ["skops", "cloudpickle"])
def test_converted_estimators_of_lightgbm_answer_as_mlflow(tmp_path, name, form):
    folder = save(mlflow.lightgbm, LIGHT[name], tmp_path / "model", serialization_format=form)
    check(convert(folder, "model.skops" if form == "skops" else "model.pkl"))


@pytest.mark.parametrize("function", ["predict", "predict_proba"])
def test_estimators_of_lightgbm_in_the_flavor_of_scikit_learn_answer_as_mlflow(tmp_path, function):
    for name in ("binary", "one_against_all"):
        form = {"serialization_format": "cloudpickle", "pyfunc_predict_fn": function}
        check(convert(save(mlflow.sklearn, LIGHT[name], tmp_path / name, **form), "model.pkl"))


def test_a_booster_beside_a_classifier_of_lightgbm_is_refused(tmp_path):
    """mlflow returns classes instead of probabilities, and the model text contains no classes."""
    for flavor in (mlflow.lightgbm, mlflow.sklearn):
        folder = save(flavor, LIGHT["texts"], tmp_path / flavor.__name__, serialization_format="cloudpickle")
        said = refusal(folder)
        assert "pickle" in said and "scripts/sklearn_to_json.py FILE model.json" in said, said
        LIGHT["texts"].booster_.save_model(str(folder / "model.txt"))
        said = refusal(folder)
        assert "does not have the class labels that MLflow returns" in said, said
        assert "scripts/sklearn_to_json.py" in said


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_a_classifier_that_stopped_early_and_its_booster_answer_as_mlflow(tmp_path, form):
    assert XGB_STOPPED.best_iteration + 1 < XGB_STOPPED.get_booster().num_boosted_rounds()
    folder = save(mlflow.xgboost, XGB_STOPPED, tmp_path / "classifier", model_format=form)
    check(folder)
    # The file of the booster still states that a classifier saved it; MLmodel states otherwise.
    booster = xgb.Booster(model_file=str(folder / f"model.{form}"))
    check(save(mlflow.xgboost, booster, tmp_path / "booster", model_format=form))


def test_a_classifier_of_which_the_objective_gives_classes_answers_as_mlflow(tmp_path):
    model = xgb.XGBClassifier(n_estimators=8, objective="multi:softmax").fit(FRAME, CLASSES)
    check(save(mlflow.xgboost, model, tmp_path / "model"))


def test_a_class_of_its_own_is_refused_by_name(tmp_path):
    folder = save(mlflow.xgboost, MODELS["classifier"][1](), tmp_path / "model")
    described = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_text(described.replace("xgboost.sklearn.XGBClassifier", "own.Classifier"))
    assert 'model_class "own.Classifier"' in refusal(folder)


def test_arrays_answer_as_mlflow(tmp_path):
    """Rows without column names, for a model without feature names."""
    data = xgb.DMatrix(FRAME.to_numpy(), label=BINARY)
    booster = xgb.train({"objective": "binary:logistic", "max_depth": 3}, data, 8)
    folder = save(mlflow.xgboost, booster, tmp_path / "model")
    theirs = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(folder))))
    rows = FRAME.head(20).to_numpy().tolist()
    with start(folder) as server:
        for key in ("inputs", "instances"):
            wanted = theirs.post("/invocations", json={key: rows}).json()["predictions"]
            assert_same(post(server, {key: rows})[1]["predictions"], wanted)
        names = {str(place): name for place, name in enumerate(NAMES)}
        lines = "\n".join(",".join(map(str, row)) for row in rows)
        assert_same(post(server, lines, "text/csv")[1]["predictions"], wanted)
        assert post(server, {"inputs": dict.fromkeys(names.values(), [1])})[0] == 400


def test_probabilities_of_classifiers_are_those_of_predict_proba(tmp_path):
    rows = FRAME.head(20).astype("f8")
    body = {"dataframe_split": rows.to_dict(orient="split"), "params": {"predict_fn": "predict_proba"}}
    for name in ("classifier", "multi"):
        model = MODELS[name][1]()
        with start(save(mlflow.xgboost, model, tmp_path / name)) as server:
            assert_same(post(server, body)[1]["predictions"], model.predict_proba(FRAME.head(20)))
    for name in ("forest", "boosting"):
        with start(save_pickle(name, tmp_path / name)) as server:
            assert_same(post(server, body)[1]["predictions"], PICKLED[name].predict_proba(FRAME.head(20)))


def test_errors_and_health_have_the_form_of_mlflow(tmp_path):
    folder = save(mlflow.xgboost, MODELS["booster"][1](), tmp_path / "model")
    theirs = TestClient(scoring_server.init(mlflow.pyfunc.load_model(str(folder))))
    with start(folder) as server:
        for body in ("{}", "nonsense", '{"inputs": [[1, 2, 3, 4]], "instances": [[1, 2, 3, 4]]}'):
            wanted = theirs.post("/invocations", content=body, headers={"Content-Type": "application/json"})
            status, answer = post(server, body)
            assert status == wanted.status_code == 400
            assert answer["error_code"] == wanted.json()["error_code"] == "BAD_REQUEST"
            assert answer["message"]
        for path in ("/ping", "/health"):
            wanted = theirs.get(path)
            with urllib.request.urlopen(f"http://{server.http}{path}") as answer:
                assert (answer.status, answer.read()) == (wanted.status_code, wanted.content)


def refusal(folder):
    """Error message of a server that does not start."""
    command = [os.environ["ALBACORE_SERVER"], "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    ended = subprocess.run(command + ["--model", f"m={folder}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    return ended.stderr


def test_pickles_and_pipelines_are_refused_with_the_way_out(tmp_path):
    forest, pipeline = tmp_path / "forest", tmp_path / "pipeline"
    for protocol in ("pickle", "cloudpickle"):
        folder = save(mlflow.sklearn, PICKLED["forest"], forest / protocol, serialization_format=protocol)
        said = refusal(folder)
        assert "pickle of a scikit-learn model" in said.replace("(pickle.dump or joblib.dump) ", "")
        assert "sklearn_to_json.py" in said
    model = make_pipeline(StandardScaler(), RandomForestClassifier(3)).fit(FRAME, BINARY)
    folder = save(mlflow.sklearn, model, pipeline, serialization_format="cloudpickle")
    said = refusal(folder)
    assert "first step is standardscaler (StandardScaler)" in said, said
    command = [sys.executable, str(SCRIPT), str(folder / "model.pkl"), str(tmp_path / "out.json")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "step 'standardscaler' (StandardScaler) before the trees" in ended.stderr
