"""Trains models with early stopping by the XGBoost or LightGBM of this Python, saves them as their users do, and packs
what the user's own object predicts into LIBRARY-VERSION.zip beside this file. `make.sh` runs it for each version.

`pred`, `margin`, `leaf`, `contribs` and `interactions` are of the object that saved the file, `*_best` up to the best
iteration, `*_range_1_3` of iterations 1 and 2 (of XGBoost's sliced model where the library takes no range)."""

import io
import json
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent
ROWS = 8


class Archive:
    """A zip file with reproducible content."""

    def __init__(self, name):
        self.zip = zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.names = []

    def put(self, path, data):
        info = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)

    def case(self, name, files, facts, arrays):
        self.names.append(name)
        for file in files:
            self.put(f"{name}/{Path(file).name}", Path(file).read_bytes())
        self.put(f"{name}/facts.json", json.dumps(facts))
        for array, values in arrays.items():
            buffer = io.BytesIO()
            values = np.ascontiguousarray(values)
            values = values.astype(np.int32) if array.startswith("leaf") else values
            np.lib.format.write_array(buffer, values, version=(1, 0))
            self.put(f"{name}/{array}.npy", buffer.getvalue())

    def close(self):
        self.put("index.json", json.dumps(self.names))
        self.zip.close()


def data(rng, rows, dtype):
    x = rng.normal(size=(rows, 4)).astype(dtype)
    x[rng.random(x.shape) < 0.05] = np.nan
    score = np.nan_to_num(x[:, 0]) + 0.5 * np.nan_to_num(x[:, 1]) + 1.2 * rng.normal(size=rows)
    return x, score


def xgboost(folder):
    import xgboost as xgb

    version = tuple(int(part) for part in xgb.__version__.split(".")[:2])
    archive = Archive(f"xgboost-{xgb.__version__}")
    rng = np.random.default_rng(5)
    (x, score), (seen, seen_score) = data(rng, 300, np.float32), data(rng, 200, np.float32)
    rows = seen[:ROWS]
    classes, seen_classes = (np.digitize(s, [-1, 1]) for s in (score, seen_score))
    common = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.3, "n_jobs": 1, "early_stopping_rounds": 3}
    common["random_state"] = 1
    dart = {"booster": "dart", "rate_drop": 0.3, "one_drop": True}
    forest = {"num_parallel_tree": 2, "subsample": 0.5}
    cases = [
        ("binary", xgb.XGBClassifier(**common), score > 0, seen_score > 0),
        ("multi", xgb.XGBClassifier(**common), classes, seen_classes),
        ("forest", xgb.XGBClassifier(**{**common, **forest}), classes, seen_classes),
        ("dart", xgb.XGBRegressor(**{**common, **dart}), score, seen_score),
    ]
    for name, model, label, seen_label in cases:
        label, seen_label = label.astype(np.float32), seen_label.astype(np.float32)
        model.fit(x, label, eval_set=[(seen, seen_label)], verbose=False)
        booster, best = model.get_booster(), int(model.best_iteration)
        matrix = xgb.DMatrix(rows)
        count = booster.num_boosted_rounds()
        assert 2 <= best < count - 1, (name, best, count)
        classifies = hasattr(model, "predict_proba")
        upto = {"iteration_range": (0, best + 1)}
        facts = {"best": best, "iterations": count, "trees": len(booster.get_dump()), "is_saved_by_sklearn": True}
        arrays = {
            "X": rows,
            "margin": model.predict(rows, output_margin=True),
            "leaf": model.apply(rows),
            "contribs": booster.predict(matrix, pred_contribs=True, **upto),
            "interactions": booster.predict(matrix, pred_interactions=True, **upto),
            "margin_range_1_3": booster.predict(matrix, output_margin=True, iteration_range=(1, 3)),
        }
        # A binary classifier returns both probabilities; the objective yields that of class 1.
        pred = model.predict_proba(rows) if classifies else model.predict(rows)
        arrays["pred"] = pred[:, 1] if name == "binary" else pred
        if name == "dart":
            # The class predicts in place, where DART sums in another order, so the last bits
            # differ.
            for array, kind in (("margin", {"output_margin": True}), ("pred", {})):
                exact = booster.predict(matrix, **kind, **upto)
                assert np.allclose(arrays[array], exact, rtol=1e-6, atol=1e-6)
                arrays[array] = exact
        if name != "dart" or version >= (2, 0):
            part = booster[1:3]
            arrays["leaf_range_1_3"] = part.predict(matrix, pred_leaf=True)
            arrays["contribs_range_1_3"] = part.predict(matrix, pred_contribs=True)
            arrays["interactions_range_1_3"] = part.predict(matrix, pred_interactions=True)
        files = [folder / "model.json", folder / "model.ubj"]
        for file in files:
            model.save_model(file)
        archive.case(name, files, facts, arrays)
        if name not in ("multi", "dart"):
            continue
        for file in files:
            booster.save_model(file)
        arrays = {
            "X": rows,
            "margin": booster.predict(matrix, output_margin=True),
            "pred": booster.predict(matrix),
            "leaf": booster.predict(matrix, pred_leaf=True),
            "contribs": booster.predict(matrix, pred_contribs=True),
            "interactions": booster.predict(matrix, pred_interactions=True),
            "margin_best": booster.predict(matrix, output_margin=True, **upto),
            "pred_best": booster.predict(matrix, **upto),
            "leaf_best": booster.predict(matrix, pred_leaf=True, **upto),
            "contribs_best": booster.predict(matrix, pred_contribs=True, **upto),
        }
        archive.case(f"{name}_booster", files, {**facts, "is_saved_by_sklearn": False}, arrays)
    archive.close()


def lightgbm(folder):
    import lightgbm as lgb

    archive = Archive(f"lightgbm-{lgb.__version__}")
    rng = np.random.default_rng(5)
    (x, score), (seen, seen_score) = data(rng, 300, np.float64), data(rng, 200, np.float64)
    rows = seen[:ROWS]
    classes, seen_classes = (np.digitize(s, [-1, 1]) for s in (score, seen_score))
    common = {"num_leaves": 7, "learning_rate": 0.6, "verbose": -1, "num_threads": 1, "seed": 1}
    multi = {**common, "objective": "multiclass", "num_class": 3}
    forest = {**common, "objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}
    cases = [("multi", multi, classes, seen_classes), ("rf", forest, score > 0, seen_score > 0)]
    for name, parameters, label, seen_label in cases:
        train = lgb.Dataset(x, label.astype(float))
        booster = lgb.train(
            parameters,
            train,
            40,
            valid_sets=[lgb.Dataset(seen, seen_label.astype(float), reference=train)],
            callbacks=[lgb.early_stopping(3, verbose=False)],
            keep_training_booster=True,
        )
        best, count = booster.best_iteration, booster.current_iteration()
        assert 2 < best < count, (name, best, count)
        # As saved by the library, and with the iterations after the best one.
        for case, how in ((name, {}), (f"{name}_all", {"num_iteration": -1})):
            file = folder / "model.txt"
            booster.save_model(file, **how)
            saved = lgb.Booster(model_file=str(file))
            in_file = saved.current_iteration()
            assert in_file == (count if how else best) and saved.best_iteration <= 0
            part = {"start_iteration": 1, "num_iteration": 2}
            arrays = {"X": rows}
            for array, kind in (("margin", "raw_score"), ("leaf", "pred_leaf"), ("contribs", "pred_contrib")):
                arrays[array] = saved.predict(rows, **{kind: True})
                arrays[f"{array}_range_1_3"] = saved.predict(rows, **{kind: True}, **part)
            arrays["pred"] = saved.predict(rows)
            arrays["pred_range_1_3"] = saved.predict(rows, **part)
            facts = {"iterations": in_file, "trees": saved.num_trees(), "is_saved_by_sklearn": False}
            archive.case(case, [file], facts, arrays)
        # The predictions of the user's object equal those of the file that it saves.
        own = booster.predict(rows, raw_score=True)
        booster.save_model(folder / "model.txt")
        assert np.array_equal(own, lgb.Booster(model_file=str(folder / "model.txt")).predict(rows, raw_score=True))
    archive.close()


with tempfile.TemporaryDirectory() as scratch:
    {"xgboost": xgboost, "lightgbm": lightgbm}[sys.argv[1]](Path(scratch))
