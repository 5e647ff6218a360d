"""Writes the models and rows beside this file: models trained on categories of pandas, rows with their texts, and what
the libraries predict for them.

    $(tests/python-env.sh tests/clients/mlflow.txt)/bin/python tests/data/categories/make.py
"""

import json
import pathlib

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb

HERE = pathlib.Path(__file__).resolve().parent
# Neither the alphabet's order nor that of the columns of texts is that of the codes.
COLORS = ["red", "a, b", "blue", "[x]", 'q"\\', "green"]
SIZES = [10, 30, 20]
COLUMNS = ["amount", "color", "age", "size"]
N = 3000


def frame(rng, n):
    frame = pd.DataFrame({
        "amount": rng.normal(size=n).round(3),
        "color": pd.Categorical(rng.choice(COLORS, n), categories=COLORS),
        "age": rng.integers(18, 90, n).astype(float),
        "size": pd.Categorical(rng.choice(SIZES, n), categories=SIZES),
    })
    for column in COLUMNS:
        frame.loc[rng.random(n) < 0.05, column] = None
    return frame


def label(frame, rng):
    color = frame.color.cat.codes.map(dict(enumerate([3.0, -2.0, 1.0, 5.0, -4.0, 0.5, 0.0], -1)))
    size = frame["size"].cat.codes.map({-1: 0.3, 0: 1.0, 1: -1.0, 2: 2.0})
    return color * size + frame.amount.fillna(0) + frame.age.fillna(30) / 30 + rng.normal(size=len(frame)) * 0.1


def main():
    rng = np.random.default_rng(26)
    rows = frame(rng, N)
    target = label(rows, rng)
    boosted = xgb.train({"max_depth": 4, "max_cat_to_onehot": 2}, xgb.DMatrix(rows, target, enable_categorical=True), 12)
    light = lgb.train({"verbose": -1, "num_leaves": 15, "min_data_per_group": 20}, lgb.Dataset(rows, target), 12)
    boosted.save_model(HERE / "xgboost.json")
    boosted.save_model(HERE / "xgboost.ubj")
    light.save_model(HERE / "lightgbm.txt")

    sample = frame(rng, 64)
    # LightGBM treats an unseen category as a missing value; XGBoost rejects it.
    unseen = sample.copy()
    unseen["color"] = pd.Categorical(["purple"] * len(sample))
    sent = sample.astype(object).where(sample.notna(), None)
    (HERE / "rows.json").write_text(json.dumps({
        "columns": COLUMNS,
        "colors": COLORS,
        "sizes": [str(size) for size in SIZES],
        "rows": sent.values.tolist(),
        "xgboost": boosted.predict(xgb.DMatrix(sample, enable_categorical=True)).tolist(),
        "lightgbm": light.predict(sample).tolist(),
        "lightgbm_purple": light.predict(unseen).tolist(),
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
