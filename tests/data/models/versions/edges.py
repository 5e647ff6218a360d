"""Writes ../edges/LIBRARY-VERSION.zip with the XGBoost or LightGBM of this Python: models of degenerate data (labels that
are all equal, one class, one row, no trees), base scores at the boundary of each objective, and, of versions that read
their files otherwise than later ones, what differs. One member, edges.json: models as text, and for each case the model,
a base score to put into it, rows, and what the library answers or that it refuses. `make.sh` runs it for every version."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from make import Archive

warnings.filterwarnings("ignore")
FEATURES = 3


def numbers(array):
    """Numbers as text with full precision, because JSON only supports finite numbers."""
    return " ".join(repr(float(x)) for x in np.asarray(array, dtype=np.float64).ravel())


class Edges:
    def __init__(self):
        self.models, self.cases = {}, []

    def case(self, name, model, rows, answer, base_score=None):
        """`answer` gives a name to each array, or fails where the library refuses."""
        case = {"name": name, "model": model, "features": rows.shape[1], "rows": numbers(rows)}
        if base_score is not None:
            case["base_score"] = base_score
        try:
            case.update({key: numbers(array) for key, array in answer().items()})
        except Exception as error:  # noqa: BLE001: that the library refuses is the fact
            case["error"] = [line for line in str(error).split("\n") if line.strip()][0][-120:]
        self.cases.append(case)

    def write(self, name):
        archive = Archive(f"../edges/{name}")
        archive.put("edges.json", json.dumps({"models": self.models, "cases": self.cases}, separators=(",", ":")))
        archive.zip.close()
        print(archive.zip.filename, len(self.models), "models", len(self.cases), "cases", os.path.getsize(archive.zip.filename))


# XGBoost


def xgboost_trainings(rng, version):
    """(name, parameters, label, rounds)"""
    n = 24
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    binary = (x[:, 0] > 0).astype(np.float32)
    positive = np.exp(x[:, 0]).astype(np.float32)
    classes = np.digitize(x[:, 0], [-0.5, 0.5]).astype(np.float32)
    zero = np.zeros(n, np.float32)
    objectives = [
        ("binary:logistic", binary), ("reg:logistic", binary), ("binary:logitraw", binary), ("binary:hinge", binary),
        ("count:poisson", np.round(positive)), ("reg:gamma", positive), ("reg:tweedie", positive),
        ("survival:cox", positive), ("reg:squarederror", positive), ("rank:pairwise", binary),
    ]
    for objective, label in objectives:
        name, parameters = objective.replace(":", "_"), {"objective": objective}
        yield name, parameters, x, label, 2
        yield f"{name}-no_trees", parameters, x, label, 0
        yield f"{name}-no_trees_base", {**parameters, "base_score": 0.3}, x, label, 0
    softprob = {"objective": "multi:softprob", "num_class": 3}
    yield "softprob", softprob, x, classes, 2
    yield "softprob-no_trees", softprob, x, classes, 0
    for objective, label in [
        ("binary:logistic", zero), ("binary:logistic", zero + 1), ("reg:logistic", zero), ("reg:logistic", zero + 1),
        ("binary:logitraw", zero), ("binary:hinge", zero), ("binary:hinge", zero + 1), ("count:poisson", zero),
        ("reg:gamma", zero + 3), ("reg:tweedie", zero), ("survival:cox", zero + 1), ("reg:squarederror", zero + 3),
        ("reg:absoluteerror", zero + 3), ("reg:pseudohubererror", zero), ("rank:pairwise", zero),
    ]:
        yield f"{objective.replace(':', '_')}-all_{label[0]:.0f}", {"objective": objective}, x, label, 2
    yield "softprob-one_class", softprob, x, zero, 2
    yield "softprob-of_one", {"objective": "multi:softprob", "num_class": 1}, x, zero, 2
    yield "labels-empty", {"objective": "binary:logistic"}, x, np.stack([binary, zero, zero + 1], axis=1), 2
    for objective, label in [("binary:logistic", 0), ("binary:logistic", 1), ("count:poisson", 0), ("count:poisson", 2),
                             ("reg:squarederror", 3), ("reg:gamma", 2)]:
        yield f"{objective.replace(':', '_')}-one_row_{label}", {"objective": objective}, x[:1], np.float32([label]), 2
    if version >= (3, 1):
        yield "expectiles-no_trees", {"objective": "reg:expectileerror", "expectile_alpha": [0.2, 0.8]}, x, positive, 0


# Base scores that are written into the file of a trained model.
BOUNDARIES = {
    "binary_logistic": ["0", "1", "-0", "1E-7", "9.999999E-1", "1E-6", "9.99999E-1", "1E-39", "-1", "2"],
    "reg_logistic": ["0", "1", "1E-7"],
    "labels-empty": ["0", "1E-7", "1"],
    "binary_logitraw": ["0", "1", "-1", "1E-7"],
    "binary_hinge": ["0", "1"],
    "count_poisson": ["0", "1E-39", "-1"],
    "reg_gamma": ["0", "1E-39", "-1"],
    "reg_tweedie": ["0", "-1"],
    "survival_cox": ["0", "-1"],
    "reg_squarederror": ["3E38", "-1"],
    "softprob": ["0", "-1"],
}


def xgboost_answers(xgb, path, rows, more):
    booster = xgb.Booster(model_file=path)
    booster.set_param({"nthread": 1})
    matrix = xgb.DMatrix(rows, **more)
    answers = {"margin": booster.predict(matrix, output_margin=True), "value": booster.predict(matrix)}
    return {**answers, "contribs": booster.predict(matrix, pred_contribs=True)}


def xgboost():
    import xgboost as xgb

    version = tuple(int(part) for part in xgb.__version__.split(".")[:3])
    rng = np.random.default_rng(11)
    edges = Edges()
    test = rng.normal(size=(3, FEATURES)).astype(np.float32)
    small = {"max_depth": 2, "verbosity": 0, "nthread": 1}
    not_trained = []

    def train(name, parameters, rows, label, rounds, more):
        with tempfile.TemporaryDirectory() as folder:
            try:
                matrix = xgb.DMatrix(rows, label=label, **more)
                if "rank" in name:
                    matrix.set_group([len(rows)])
                xgb.train({**small, **parameters}, matrix, rounds).save_model(f"{folder}/m.json")
                edges.models[name] = Path(f"{folder}/m.json").read_text()
            except Exception as error:  # noqa: BLE001: not every version trains every kind
                not_trained.append((name, [line for line in str(error).split("\n") if line.strip()][0][-60:]))
        return edges.models.get(name)

    def ask(case, model, rows, more, base_score=None):
        with tempfile.TemporaryDirectory() as folder:
            text = edges.models[model]
            if base_score is not None:
                parsed = json.loads(text)
                parsed["learner"]["learner_model_param"]["base_score"] = base_score
                text = json.dumps(parsed)
            Path(f"{folder}/m.json").write_text(text)
            edges.case(case, model, rows, lambda: xgboost_answers(xgb, f"{folder}/m.json", rows, more), base_score)

    if version >= (1, 7, 6):
        for name, parameters, rows, label, rounds in xgboost_trainings(rng, version):
            model = train(name, parameters, rows, label, rounds, {})
            if model is None:
                continue
            ask(name, name, test, {})
            old = json.loads(model)["learner"]["learner_model_param"]["base_score"]
            for score in BOUNDARIES.get(name, []):
                listed = f"[{','.join([score] * (old.count(',') + 1))}]" if old.startswith("[") else score
                ask(f"{name}={score}", name, test, {}, listed)
    else:
        x = rng.normal(size=(120, FEATURES)).astype(np.float32)
        label = (x[:, 0] > 0.2).astype(np.float32)
        for objective in ("binary:logitraw", "binary:logistic", "reg:squarederror"):
            for given in (None, 0.3):
                name = objective.replace(":", "_") + ("" if given is None else "-base")
                parameters = {"objective": objective, **({} if given is None else {"base_score": given})}
                if train(name, parameters, x, label, 3, {}):
                    ask(name, name, test, {})
        for count, limit in ((8, 100), (40, 1), (70, 100)):
            name = f"categories_{count}_{limit}"
            rows = x.copy()
            rows[:, 0] = rng.integers(0, count, len(rows))
            rows[rng.random(len(rows)) < 0.05, 0] = np.nan
            kinds = {"feature_types": ["c"] + ["q"] * (FEATURES - 1), "enable_categorical": True}
            parameters = {"objective": "binary:logistic", "tree_method": "hist", "max_cat_to_onehot": limit}
            asked = np.repeat(test, 7, axis=0)
            asked[:, 0] = [np.nan, 0, 1, 5, 7, 31, 32, 33, 39, 40, 63, 64, 69, 70, 95, 96, 500, -1, -0.5, 1.5, 1e8]
            if version >= (1, 6, 0) and train(name, parameters, rows, (rows[:, 0] % 3 == 1).astype(np.float32), 3, kinds):
                ask(name, name, asked, kinds)
    edges.write(f"xgboost-{xgb.__version__}")
    print("not trained:", not_trained)


# LightGBM


def lightgbm_trainings(rng):
    """(name, parameters, rows, label, rounds)"""
    n = 60
    x = rng.normal(size=(n, FEATURES))
    binary = (x[:, 0] > 0).astype(float)
    zero = np.zeros(n)
    classes = np.digitize(x[:, 0], [-0.5, 0.5]).astype(float)
    for objective, labels in [
        ("regression", [zero, zero + 3]), ("regression_l1", [zero + 3]), ("huber", [zero + 3]), ("quantile", [zero + 3]),
        ("mape", [zero + 3]), ("poisson", [zero, zero + 3]), ("gamma", [zero + 3]), ("tweedie", [zero, zero + 3]),
        ("binary", [zero, zero + 1]), ("cross_entropy", [zero, zero + 1, zero + 0.3]),
        ("cross_entropy_lambda", [zero, zero + 1, zero + 0.3]),
    ]:
        for label in labels:
            yield f"{objective}-all_{label[0]:g}", {"objective": objective}, x, label, 2
    for objective in ("multiclass", "multiclassova"):
        yield f"{objective}-one_class", {"objective": objective, "num_class": 3}, x, zero, 2
        yield f"{objective}-two_of_three", {"objective": objective, "num_class": 3}, x, 2 * binary, 2
        yield f"{objective}-no_trees", {"objective": objective, "num_class": 3}, x, classes, 0
    for objective, label in [("regression", zero + 3), ("binary", binary), ("poisson", zero + 2)]:
        yield f"{objective}-no_trees", {"objective": objective}, x, label, 0
    for objective, label in [("regression", 3.0), ("binary", 0.0), ("binary", 1.0), ("poisson", 2.0)]:
        yield f"{objective}-one_row_{label:g}", {"objective": objective}, x[:1], np.array([label]), 2
    yield "rf-all_1", {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}, x, zero + 1, 2
    yield "lambdarank-all_0", {"objective": "lambdarank"}, x, zero, 2


def lightgbm():
    import lightgbm as lgb

    rng = np.random.default_rng(11)
    edges = Edges()
    test = rng.normal(size=(3, FEATURES))
    not_trained = []
    for name, parameters, rows, label, rounds in lightgbm_trainings(rng):
        parameters = {"num_leaves": 4, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 5, **parameters}
        try:
            group = {"group": [len(rows)]} if "rank" in name else {}
            data = lgb.Dataset(rows, label=label, params={"verbosity": -1, "min_data_in_leaf": 5}, **group)
            if rounds == 0:
                booster = lgb.Booster(params=parameters, train_set=data)
            else:
                booster = lgb.train(parameters, data, num_boost_round=rounds)
            edges.models[name] = booster.model_to_string()
        except Exception as error:  # noqa: BLE001: not every version trains every kind
            not_trained.append((name, str(error)[:80]))
            continue
        loaded = lgb.Booster(model_str=edges.models[name])

        def answers(loaded=loaded):
            found = {"margin": loaded.predict(test, raw_score=True), "value": loaded.predict(test)}
            try:
                return {**found, "contribs": loaded.predict(test, pred_contrib=True)}
            except Exception:  # noqa: BLE001: it explains no model without trees
                return found

        edges.case(name, name, test, answers)
    edges.write(f"lightgbm-{lgb.__version__}")
    print("not trained:", not_trained)


if __name__ == "__main__":
    {"xgboost": xgboost, "lightgbm": lightgbm}[sys.argv[1]]()
