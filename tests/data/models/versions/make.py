"""Trains a small model of every kind with the XGBoost or LightGBM of this Python and packs models, rows and what the
library predicts into LIBRARY-VERSION.zip beside this file. `make.sh` runs it for every version. With `few` behind the
library, models are smaller and asked for margins, values and leaves of a few rows only."""

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
FEATURES = 5
ROUNDS = 4
# SHAP values are only checked on these rows, because there are many per row.
EXPLAINED = 6
FLT_MAX = np.finfo(np.float32).max
# For versions between those that are tested completely.
IS_FEW = sys.argv[2:] == ["few"]


class Archive:
    """A zip file with reproducible content."""

    def __init__(self, name):
        self.zip = zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.names = []

    def put(self, path, data):
        info = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)

    def array(self, path, array):
        array = np.asarray(array)
        # The format version that the tests' reader supports; row-major.
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0))
        self.put(path, buffer.getvalue())

    def close(self):
        self.put("index.json", json.dumps(self.names))
        self.zip.close()


def training_rows(rng, n=240):
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    x[:, 1] = np.round(x[:, 1] * 2) / 2
    x[rng.random((n, FEATURES)) < 0.1] = np.nan
    return x


def test_rows(rng, thresholds, dtype):
    """Plain rows, missing values, extreme values, and split thresholds with adjacent values."""
    rows = [rng.normal(size=FEATURES) for _ in range(6)]
    rows += [np.where(rng.random(FEATURES) < 0.4, np.nan, row) for row in rows[:2]]
    for value in (np.nan, 0.0, -0.0, 1e-45, 1e-36, 1e-35, -1e-35, FLT_MAX, -FLT_MAX):
        rows.append(np.full(FEATURES, value))
    thresholds = [t for t in thresholds if np.isfinite(t)]
    for index in range(8):
        if not thresholds:
            break
        pick = np.array([thresholds[(index * 7 + k * 3) % len(thresholds)] for k in range(FEATURES)], dtype=dtype)
        toward = [pick, np.nextafter(pick, dtype(np.inf)), np.nextafter(pick, dtype(-np.inf))][index % 3]
        rows.append(toward)
    return np.array(rows, dtype=dtype)


def categories(rng, n, count):
    x = training_rows(rng, n)
    x[:, 0] = rng.integers(0, count, n)
    x[rng.random(n) < 0.05, 0] = np.nan
    return x


# XGBoost


def xgboost_cases(rng, version):
    """(name, parameters, label, rows, what DMatrix takes more, what train takes more)."""
    n = 240
    x = training_rows(rng, n)
    clean = np.nan_to_num(x)
    score = clean[:, 0] + 0.5 * clean[:, 1] * clean[:, 2] + 0.3 * rng.normal(size=n)
    positive = np.exp(0.4 * score).astype(np.float32)
    binary = (score > 0.2).astype(np.float32)
    classes = np.digitize(score, [-0.5, 0.6]).astype(np.float32)
    labels = np.stack([binary, (clean[:, 3] > 0).astype(np.float32)], axis=1)
    targets = np.stack([score, clean[:, 1] - score, positive], axis=1)
    plain = [
        ("squarederror", "reg:squarederror", score),
        ("squaredlogerror", "reg:squaredlogerror", positive),
        ("reg_logistic", "reg:logistic", binary),
        ("pseudohuber", "reg:pseudohubererror", score),
        ("absoluteerror", "reg:absoluteerror", score),
        ("gamma", "reg:gamma", positive),
        ("tweedie", "reg:tweedie", positive),
        ("logistic", "binary:logistic", binary),
        ("logitraw", "binary:logitraw", binary),
        ("hinge", "binary:hinge", binary),
        ("poisson", "count:poisson", np.round(positive)),
        ("cox", "survival:cox", np.where(rng.random(n) < 0.3, -positive, positive)),
    ]
    for name, objective, label in plain:
        yield name, {"objective": objective}, label, x, {}, {}
    for name, objective in [("softmax", "multi:softmax"), ("softprob", "multi:softprob")]:
        yield name, {"objective": objective, "num_class": 3}, classes, x, {}, {}
    for name in ("pairwise", "ndcg", "map"):
        label = binary if name == "map" else classes
        yield f"rank_{name}", {"objective": f"rank:{name}"}, label, x, {"group": [24] * 10}, {}
    aft = {"label_lower_bound": positive, "label_upper_bound": np.where(rng.random(n) < 0.3, np.inf, positive)}
    yield "aft", {"objective": "survival:aft"}, None, x, aft, {}
    # User-defined base scores.
    for name, objective, label in plain:
        given = 0.3 if name in ("reg_logistic", "logistic", "logitraw") else 1.7
        if name in ("logistic", "gamma", "tweedie", "poisson", "squarederror", "absoluteerror", "hinge", "cox", "logitraw"):
            yield f"{name}_base", {"objective": objective, "base_score": given}, label, x, {}, {}
    yield "softprob_base", {"objective": "multi:softprob", "num_class": 3, "base_score": 0.9}, classes, x, {}, {}
    yield "aft_base", {"objective": "survival:aft", "base_score": 2.5}, None, x, aft, {}
    # Boosters and tree growth methods.
    dart = {"booster": "dart", "rate_drop": 0.5, "one_drop": 1, "seed": 3}
    yield "dart", {**dart, "objective": "reg:squarederror"}, score, x, {}, {}
    yield "dart_logistic", {**dart, "objective": "binary:logistic", "normalize_type": "forest"}, binary, x, {}, {}
    yield "dart_softprob", {**dart, "objective": "multi:softprob", "num_class": 3}, classes, x, {}, {}
    yield "dart_forest", {**dart, "num_parallel_tree": 2, "subsample": 0.6}, score, x, {}, {}
    for method in ("exact", "approx"):
        yield method, {"tree_method": method, "objective": "reg:squarederror"}, score, x, {}, {}
    yield "lossguide", {"tree_method": "hist", "grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0}, score, x, {}, {}
    forest = {"num_parallel_tree": 3, "subsample": 0.6, "colsample_bynode": 0.6}
    yield "forest", {**forest, "objective": "reg:squarederror"}, score, x, {}, {}
    yield "forest_softprob", {**forest, "objective": "multi:softprob", "num_class": 3}, classes, x, {}, {}
    yield "stump", {"max_depth": 1}, score, x, {}, {}
    yield "pruned", {"gamma": 1e6, "objective": "reg:squarederror"}, score, x, {}, {}
    yield "pruned_later", {"gamma": 2.0, "max_depth": 4, "tree_method": "exact"}, score, x, {}, {}
    yield "dart_stump", {**dart, "max_depth": 1, "objective": "count:poisson"}, np.round(positive), x, {}, {}
    for name, limit in (("onehot", 100), ("partition", 1)):
        kinds = {"feature_types": ["c"] + ["q"] * (FEATURES - 1), "enable_categorical": True}
        rows = categories(rng, n, 40)
        parameters = {"tree_method": "hist", "max_cat_to_onehot": limit, "objective": "binary:logistic"}
        yield f"cat_{name}", parameters, (np.nan_to_num(rows[:, 0]) % 3 == 1).astype(np.float32), rows, kinds, {}
    # Multiple outputs.
    yield "multi_label", {"objective": "binary:logistic"}, labels, x, {}, {}
    yield "multi_target", {"objective": "reg:squarederror"}, targets, x, {}, {}
    if version >= (2, 0):
        vector = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
        yield "vector_target", {**vector, "objective": "reg:squarederror"}, targets, x, {}, {}
        yield "vector_label", {**vector, "objective": "binary:logistic"}, labels, x, {}, {}
        yield "vector_softprob", {**vector, "objective": "multi:softprob", "num_class": 3}, classes, x, {}, {}
        yield "vector_forest", {**vector, **forest, "objective": "reg:squarederror"}, targets, x, {}, {}
        yield "vector_dart", {**vector, **dart, "objective": "reg:squarederror"}, targets, x, {}, {}
        yield "quantile", {"objective": "reg:quantileerror", "quantile_alpha": 0.7}, score, x, {}, {}
        yield "quantiles", {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.5, 0.9]}, score, x, {}, {}
    if version >= (3, 1):
        yield "expectile", {"objective": "reg:expectileerror", "expectile_alpha": 0.7}, score, x, {}, {}
        yield "expectiles", {"objective": "reg:expectileerror", "expectile_alpha": [0.2, 0.8]}, score, x, {}, {}
        vector = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
        yield "vector_quantiles", {**vector, "objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.9]}, score, x, {}, {}
    # Training: early stopping, custom objective, feature names.
    yield "early_stop", {"objective": "binary:logistic", "eta": 1.5}, binary, x, {}, {"early": True}
    custom = lambda margin, d: (margin.reshape(d.get_label().shape) - d.get_label(), np.ones_like(d.get_label()))  # noqa: E731
    yield "custom", {}, score, x, {}, {"obj": custom}
    yield "names", {"objective": "reg:squarederror"}, score, x, {"feature_names": list("abcde")}, {}
    yield "margin_trained", {"objective": "binary:logistic"}, binary, x, {"base_margin": clean[:, 4]}, {}
    yield "gblinear", {"booster": "gblinear", "objective": "reg:squarederror"}, score, x, {}, {}


def xgboost_thresholds(json_text):
    booster = json.loads(json_text)["learner"]["gradient_booster"]
    model = booster.get("model") or booster.get("gbtree", {}).get("model", {})
    found = []
    for tree in model.get("trees", []):
        for condition, left in zip(tree["split_conditions"], tree["left_children"]):
            if left != -1:
                found.append(np.float32(condition))
    return found


def xgboost_case(xgb, archive, case, rng):
    name, parameters, label, x, more, training = case
    parameters = {"max_depth": 2 if IS_FEW else 3, "verbosity": 0, "nthread": 1, **parameters}
    early = training.get("early")
    matrix = xgb.DMatrix(x, label=label, **{k: v for k, v in more.items() if not k.startswith("label_")})
    for bound in [k for k in more if k.startswith("label_")]:
        matrix.set_float_info(bound, more[bound])
    options = {"obj": training["obj"]} if "obj" in training else {}
    if early:
        options.update(evals=[(xgb.DMatrix(x[:60], label=1 - label[:60]), "v")], early_stopping_rounds=2, verbose_eval=False)
    booster = xgb.train(parameters, matrix, num_boost_round=12 if early else 2 if IS_FEW else ROUNDS, **options)
    facts = {"objective": parameters.get("objective"), "booster": parameters.get("booster", "gbtree"), "errors": {}}
    if early:
        facts["best_iteration"] = booster.best_iteration
    # Both formats have the same fields: both are kept for the oldest and the newest version.
    kept = ("json", "ubj") if xgb.__version__.startswith(("1.7", "3.4")) and not IS_FEW else ("ubj",)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("json", "ubj"):
            booster.save_model(f"{folder}/m.{kind}")
            if kind in kept:
                archive.put(f"{name}/model.{kind}", Path(f"{folder}/m.{kind}").read_bytes())
        text = Path(f"{folder}/m.json").read_text()
    archive.names.append(name)
    if parameters.get("booster") == "gblinear":
        archive.put(f"{name}/facts.json", json.dumps(facts))
        return
    rows = test_rows(rng, xgboost_thresholds(text), np.float32)
    if name.startswith("cat_"):
        rows[:, 0] = rng.integers(0, 44, len(rows))
        rows[:4, 0] = [np.nan, 0, 39, 43]
    kept = {k: v for k, v in more.items() if k in ("feature_types", "enable_categorical", "feature_names")}
    if IS_FEW:
        rows = rows[[0, 6, 8, 15, *range(17, len(rows))]]
    archive.array(f"{name}/X.npy", rows)

    def put(array, call):
        try:
            archive.array(f"{name}/{array}.npy", call())
        except Exception as error:  # noqa: BLE001: whatever the library refuses is a fact
            facts["errors"][array] = str(error).split("\n")[0][-160:]

    whole = xgb.DMatrix(rows, **kept)
    few = xgb.DMatrix(rows[:EXPLAINED], **kept)
    put("margin", lambda: booster.predict(whole, output_margin=True))
    put("pred", lambda: booster.predict(whole))
    put("leaf", lambda: booster.predict(whole, pred_leaf=True))
    if early:
        best = (0, booster.best_iteration + 1)
        put("pred_best", lambda: booster.predict(whole, iteration_range=best))
    if IS_FEW:
        archive.put(f"{name}/facts.json", json.dumps(facts))
        return
    put("margin_range_1_3", lambda: booster.predict(whole, output_margin=True, iteration_range=(1, 3)))
    put("pred_range_0_2", lambda: booster.predict(whole, iteration_range=(0, 2)))
    put("leaf_range_1_3", lambda: booster.predict(whole, pred_leaf=True, iteration_range=(1, 3)))
    put("contribs", lambda: booster.predict(few, pred_contribs=True))
    put("contribs_range_1_3", lambda: booster.predict(few, pred_contribs=True, iteration_range=(1, 3)))
    put("approx_contribs", lambda: booster.predict(whole, pred_contribs=True, approx_contribs=True))
    put("interactions", lambda: booster.predict(few, pred_interactions=True))
    put("approx_interactions", lambda: booster.predict(few, pred_interactions=True, approx_contribs=True))
    margin = booster.predict(whole, output_margin=True, strict_shape=True)
    given = rng.normal(size=margin.shape).astype(np.float32)
    archive.array(f"{name}/base_margin_in.npy", given)
    based = xgb.DMatrix(rows, base_margin=given, **kept)
    put("margin_with_base_margin", lambda: booster.predict(based, output_margin=True))
    put("pred_with_base_margin", lambda: booster.predict(based))
    based = xgb.DMatrix(rows[:EXPLAINED], base_margin=given[:EXPLAINED], **kept)
    put("contribs_with_base_margin", lambda: booster.predict(based, pred_contribs=True))
    infinite = rows[:EXPLAINED].copy()
    infinite[::2, ::2] = np.inf
    infinite[1::2, 1::2] = -np.inf
    archive.array(f"{name}/X_inf.npy", infinite)
    put("inf_margin_inplace", lambda: booster.inplace_predict(infinite, predict_type="margin", missing=np.nan))
    archive.put(f"{name}/facts.json", json.dumps(facts))


def xgboost():
    import xgboost as xgb

    archive = Archive(f"xgboost-{xgb.__version__}")
    version = tuple(int(part) for part in xgb.__version__.split(".")[:2])
    rng = np.random.default_rng(7)
    failed = []
    for case in xgboost_cases(rng, version):
        try:
            xgboost_case(xgb, archive, case, rng)
        except Exception as error:  # noqa: BLE001: not every version trains every kind
            failed.append((case[0], str(error).split("\n")[0][:120]))
    archive.close()
    print(archive.zip.filename, len(archive.names), "models; not trained:", failed)


# LightGBM


def lightgbm_cases(rng):
    n = 240
    x = training_rows(rng, n).astype(np.float64)
    clean = np.nan_to_num(x)
    score = clean[:, 0] + 0.5 * clean[:, 1] * clean[:, 2] + 0.3 * rng.normal(size=n)
    positive = np.exp(0.4 * score)
    binary = (score > 0.2).astype(float)
    classes = np.digitize(score, [-0.5, 0.6]).astype(float)
    share = 1 / (1 + np.exp(-score))
    for objective, label in [
        ("regression", score), ("regression_l1", score), ("huber", score), ("fair", score), ("quantile", score),
        ("mape", positive), ("poisson", np.round(positive)), ("gamma", positive), ("tweedie", positive),
        ("binary", binary), ("cross_entropy", share), ("cross_entropy_lambda", share),
    ]:
        yield objective, {"objective": objective}, label, x, {}
    for objective in ("multiclass", "multiclassova"):
        yield objective, {"objective": objective, "num_class": 3}, classes, x, {}
    for objective in ("lambdarank", "rank_xendcg"):
        yield objective, {"objective": objective}, classes, x, {"group": [24] * 10}
    yield "binary_sigmoid", {"objective": "binary", "sigmoid": 2.7}, binary, x, {}
    yield "ova_sigmoid", {"objective": "multiclassova", "num_class": 3, "sigmoid": 0.6}, classes, x, {}
    yield "regression_sqrt", {"objective": "regression", "reg_sqrt": True}, score, x, {}
    yield "l1_sqrt", {"objective": "regression_l1", "reg_sqrt": True}, score, x, {}
    rf = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.7}
    yield "rf", {**rf, "objective": "regression"}, score, x, {}
    yield "rf_binary", {**rf, "objective": "binary"}, binary, x, {}
    yield "rf_multiclass", {**rf, "objective": "multiclass", "num_class": 3}, classes, x, {}
    dart = {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}
    yield "dart", {**dart, "objective": "regression"}, score, x, {}
    yield "dart_multiclass", {**dart, "objective": "multiclass", "num_class": 3}, classes, x, {}
    yield "goss", {"boosting": "goss", "learning_rate": 0.6}, score, x, {}
    yield "zero_as_missing", {"zero_as_missing": True}, score, np.where(rng.random(x.shape) < 0.2, 0.0, x), {}
    yield "no_missing", {"use_missing": False}, score, x, {}
    yield "never_missing", {}, score, clean, {}
    for name, limit, count in (("cat_onehot", 100, 12), ("cat", 1, 90)):
        rows = categories(rng, n, count).astype(np.float64)
        label = (np.nan_to_num(rows[:, 0]) % 3 == 1).astype(float)
        settings = {"objective": "binary", "max_cat_to_onehot": limit, "min_data_per_group": 1, "cat_smooth": 1, "cat_l2": 1}
        yield name, settings, label, rows, {"categorical_feature": [0]}
    yield "no_average", {"objective": "poisson", "boost_from_average": False}, np.round(positive), x, {}
    yield "one_leaf", {"min_data_in_leaf": 1000}, score, x, {}
    yield "custom", {"objective": None}, score, x, {}
    yield "extra_trees", {"extra_trees": True}, score, x, {}
    # Thresholds that differ only in double precision.
    yield "doubles", {"min_data_in_bin": 1, "max_bin": 500}, score, 1 + clean * 1e-12, {}
    yield "linear", {"linear_tree": True}, score, clean, {}


def lightgbm_thresholds(text):
    found = []
    for line in text.splitlines():
        if line.startswith("threshold="):
            found += [float(part) for part in line[10:].split()]
    return found


def lightgbm_case(lgb, archive, case, rng):
    name, parameters, label, x, more = case
    parameters = {"num_leaves": 7, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 5, **parameters}
    objective = parameters.get("objective", "regression")
    if objective is None:
        gradient = lambda margin, data: (margin - data.get_label(), np.ones_like(margin))  # noqa: E731
        parameters["objective"] = gradient
    data = lgb.Dataset(x, label=label, params={"verbosity": -1}, **more)
    booster = lgb.train(parameters, data, num_boost_round=ROUNDS)
    text = booster.model_to_string()
    archive.put(f"{name}/model.txt", text)
    archive.names.append(name)
    facts = {"objective": objective, "booster": parameters.get("boosting", "gbdt"), "errors": {}}
    if name == "linear":
        facts["linear"] = True
        archive.put(f"{name}/facts.json", json.dumps(facts))
        return
    rows = test_rows(rng, lightgbm_thresholds(text), np.float64)
    if name.startswith("cat"):
        rows[:, 0] = rng.integers(-3, 95, len(rows))
        rows[:8, 0] = [np.nan, 0, 11, -0.5, 0.9, -1.0, 1e9, 89]
    archive.array(f"{name}/X.npy", rows)

    def put(array, call):
        try:
            archive.array(f"{name}/{array}.npy", call())
        except Exception as error:  # noqa: BLE001: whatever the library refuses is a fact
            facts["errors"][array] = str(error).split("\n")[0][-160:]

    put("margin", lambda: booster.predict(rows, raw_score=True))
    put("pred", lambda: booster.predict(rows))
    put("leaf", lambda: booster.predict(rows, pred_leaf=True))
    put("contribs", lambda: booster.predict(rows[:EXPLAINED], pred_contrib=True))
    put("margin_range_1_3", lambda: booster.predict(rows, raw_score=True, start_iteration=1, num_iteration=2))
    put("pred_range_0_2", lambda: booster.predict(rows, start_iteration=0, num_iteration=2))
    put("leaf_range_1_3", lambda: booster.predict(rows, pred_leaf=True, start_iteration=1, num_iteration=2))
    infinite = rows[:EXPLAINED].copy()
    infinite[::2, ::2] = np.inf
    infinite[1::2, 1::2] = -np.inf
    archive.array(f"{name}/X_inf.npy", infinite)
    put("inf_margin_inplace", lambda: booster.predict(infinite, raw_score=True))
    archive.put(f"{name}/facts.json", json.dumps(facts))


def lightgbm():
    import lightgbm as lgb

    archive = Archive(f"lightgbm-{lgb.__version__}")
    rng = np.random.default_rng(7)
    failed = []
    for case in lightgbm_cases(rng):
        try:
            lightgbm_case(lgb, archive, case, rng)
        except Exception as error:  # noqa: BLE001: not every version trains every kind
            failed.append((case[0], str(error).split("\n")[0][:120]))
    archive.close()
    print(archive.zip.filename, len(archive.names), "models; not trained:", failed)


# scikit-learn


def sklearn_cases(rng):
    """(name, estimator, label, whether rows have missing values)."""
    from sklearn import ensemble, tree

    n = 240
    x = training_rows(rng, n)
    clean = np.nan_to_num(x)
    score = clean[:, 0] + 0.5 * clean[:, 1] * clean[:, 2] + 0.3 * rng.normal(size=n)
    binary = (score > 0.2).astype(int)
    classes = np.digitize(score, [-0.5, 0.6])
    targets = np.stack([score, clean[:, 1] - score], axis=1)
    small = {"max_depth": 4, "random_state": 3}
    forest = {"n_estimators": 5, **small}
    yield "tree", tree.DecisionTreeRegressor(**small), score, clean
    yield "tree_classes", tree.DecisionTreeClassifier(**small), classes, clean
    yield "forest", ensemble.RandomForestRegressor(**forest), score, clean
    yield "forest_missing", ensemble.RandomForestRegressor(**forest), score, x
    yield "forest_binary", ensemble.RandomForestClassifier(**forest), binary, clean
    yield "forest_classes", ensemble.RandomForestClassifier(**forest), classes, x
    yield "forest_targets", ensemble.RandomForestRegressor(**forest), targets, clean
    yield "extra", ensemble.ExtraTreesRegressor(**forest), score, clean
    yield "extra_classes", ensemble.ExtraTreesClassifier(**forest), classes, clean
    boosting = {"n_estimators": 5, **small}
    yield "boosting", ensemble.GradientBoostingRegressor(**boosting), score, clean
    yield "boosting_huber", ensemble.GradientBoostingRegressor(loss="huber", **boosting), score, clean
    yield "boosting_zero", ensemble.GradientBoostingRegressor(init="zero", **boosting), score, clean
    yield "boosting_binary", ensemble.GradientBoostingClassifier(**boosting), binary, clean
    yield "boosting_exponential", ensemble.GradientBoostingClassifier(loss="exponential", **boosting), binary, clean
    yield "boosting_classes", ensemble.GradientBoostingClassifier(**boosting), classes, clean
    hist = {"max_iter": 5, "max_leaf_nodes": 8, "min_samples_leaf": 5, "random_state": 3}
    yield "hist", ensemble.HistGradientBoostingRegressor(**hist), score, x
    yield "hist_poisson", ensemble.HistGradientBoostingRegressor(loss="poisson", **hist), np.exp(score), x
    yield "hist_binary", ensemble.HistGradientBoostingClassifier(**hist), binary, x
    yield "hist_classes", ensemble.HistGradientBoostingClassifier(**hist), classes, x


def sklearn_case(archive, case, rng):
    from sklearn_to_json import convert

    name, estimator, label, x = case
    estimator.fit(x, label)
    model = convert(estimator)
    archive.put(f"{name}/model.json", json.dumps(model, separators=(",", ":")))
    archive.names.append(name)
    thresholds = [t for tree in model["trees"] for t, left in zip(tree["threshold"], tree["left"]) if left != -1]
    rows = test_rows(rng, thresholds, np.float64)
    # Forests reject values outside of the range of float32.
    rows = np.clip(rows, -FLT_MAX, FLT_MAX)
    if not np.isnan(x).any():
        rows = np.nan_to_num(rows, nan=0.5)
    archive.array(f"{name}/X.npy", rows)
    if hasattr(estimator, "predict_proba"):
        value = estimator.predict_proba(rows)
        value = value[:, 1] if value.shape[1] == 2 and model["counts"][1] == 1 else value
    else:
        value = estimator.predict(rows)
    archive.array(f"{name}/pred.npy", value)
    margin = None
    if hasattr(estimator, "decision_function"):
        margin = estimator.decision_function(rows)
    elif hasattr(estimator, "_raw_predict"):
        dtype = np.float64 if name.startswith("hist") else np.float32
        margin = np.squeeze(estimator._raw_predict(np.ascontiguousarray(rows, dtype=dtype)), axis=1)
    if margin is not None:
        archive.array(f"{name}/margin.npy", margin)
    archive.put(f"{name}/facts.json", json.dumps({"booster": type(estimator).__name__, "errors": {}}))


def sklearn():
    import sklearn as library

    sys.path.insert(0, str(HERE.parents[3] / "scripts"))
    archive = Archive(f"sklearn-{library.__version__}")
    rng = np.random.default_rng(7)
    failed = []
    for case in sklearn_cases(rng):
        try:
            sklearn_case(archive, case, rng)
        except Exception as error:  # noqa: BLE001: not every version trains every kind
            failed.append((case[0], str(error).split("\n")[0][:120]))
    archive.close()
    print(archive.zip.filename, len(archive.names), "models; not trained:", failed)


if __name__ == "__main__":
    {"xgboost": xgboost, "lightgbm": lightgbm, "sklearn": sklearn}[sys.argv[1]]()
