"""Models that were trained on categories of pandas and saved by mlflow: their texts in /invocations, against the predictions
of the libraries on data frames with categories. mlflow's own server refuses them: its frames have no categories."""

import json
import urllib.error
import urllib.request

import lightgbm as lgb
import mlflow
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from conftest import run_program

RANDOM = np.random.default_rng(7)
CITIES = ["Rio", "St. Paul, MN", "NA", 'the "Hague"', "[x]", "Oslo"]


def frame(n):
    made = pd.DataFrame({
        "city": pd.Categorical(RANDOM.choice(CITIES, n), categories=CITIES),
        "amount": RANDOM.random(n, dtype="f4").astype("f8"),
        "day": pd.Categorical(RANDOM.choice([7, 3, 5], n)),
    })
    made.loc[RANDOM.random(n) < 0.05, "city"] = None
    return made


FRAME = frame(2000)
LABEL = FRAME.city.cat.codes.map(dict(enumerate([2.0, -1.0, 4.0, 0.0, -3.0, 1.0, 7.0], -1))) * FRAME.amount + FRAME.day.astype(int)
ROWS = frame(50)


def matrix(frame, label=None):
    return xgb.DMatrix(frame, label, enable_categorical=True)


BOOSTED = xgb.train({"max_depth": 4, "max_cat_to_onehot": 1}, matrix(FRAME, LABEL), 10)
SKLEARN = xgb.XGBRegressor(n_estimators=10, enable_categorical=True).fit(FRAME, LABEL)
LIGHT = lgb.train({"verbose": -1, "min_data_per_group": 10}, lgb.Dataset(FRAME, LABEL), 10)
MODELS = {
    "xgboost": (mlflow.xgboost, BOOSTED, lambda rows: BOOSTED.predict(matrix(rows))),
    "regressor": (mlflow.xgboost, SKLEARN, SKLEARN.predict),
    "lightgbm": (mlflow.lightgbm, LIGHT, LIGHT.predict),
}


@pytest.fixture(scope="module", params=MODELS)
def served(request, tmp_path_factory):
    flavor, model, predict = MODELS[request.param]
    folder = tmp_path_factory.mktemp("model") / "m"
    flavor.save_model(model, str(folder), pip_requirements=[])
    with run_program(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--model", f"m={folder}"]) as server:
        yield server, predict


def post(server, body, content_type="application/json"):
    request = urllib.request.Request(f"http://{server.http}/invocations", body.encode(), {"Content-Type": content_type})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["predictions"]


def texts(frame):
    """The frame as sent by clients: categories are strings, also if they are numbers."""
    made = frame.astype({"city": object, "day": str})
    return made.where(frame.notna(), None)


def bodies(frame):
    split = texts(frame).to_dict(orient="split", index=False)
    records = texts(frame).to_dict(orient="records")
    columns = {name: list(values) for name, values in texts(frame).items()}
    return {
        "split": {"dataframe_split": split},
        "records": {"dataframe_records": records},
        "inputs": {"inputs": columns},
        "instances": {"instances": records},
    }


def as_json(values):
    return json.dumps(values, default=str).replace("NaN", "null")


@pytest.mark.parametrize("form", ["split", "records", "inputs", "instances"])
@pytest.mark.parametrize("order", [["city", "amount", "day"], ["day", "city", "amount"]])
def test_texts_in_json_are_categories(served, form, order):
    server, predict = served
    have = post(server, as_json(bodies(ROWS[order])[form]))
    np.testing.assert_allclose(have, predict(ROWS), rtol=1e-6)


@pytest.mark.parametrize("order", [["city", "amount", "day"], ["day", "city", "amount"]])
def test_texts_in_csv_are_categories(served, order):
    server, predict = served
    # The days are numbers and are sent as codes.
    sent = texts(ROWS).assign(day=ROWS.day.cat.codes)[order].to_csv(index=False)
    np.testing.assert_allclose(post(server, sent, "text/csv"), predict(ROWS), rtol=1e-6)


def test_a_number_that_is_a_category_is_refused_in_csv(served):
    server, _ = served
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, texts(ROWS).to_csv(index=False), "text/csv")
    assert caught.value.code == 400
    assert "is a category and a number, which would be a code" in caught.value.read().decode()


def test_texts_that_training_did_not_see(served):
    server, predict = served
    rows = ROWS.assign(city=pd.Categorical(["zzz"] * len(ROWS)))
    body = as_json(bodies(rows)["split"])
    if predict == LIGHT.predict:
        np.testing.assert_allclose(post(server, body), predict(rows), rtol=1e-6)
        return
    with pytest.raises((ValueError, xgb.core.XGBoostError), match="not in the training set"):
        predict(rows)
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, body)
    said = caught.value.read().decode()
    assert caught.value.code == 400
    assert 'column \\"city\\": \\"zzz\\" is not one of the categories' in said, said
