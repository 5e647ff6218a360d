#!/usr/bin/env python3
"""Writes a fitted scikit-learn tree model as the JSON that Albacore reads.

    python3 sklearn_to_json.py model.joblib model.json

Run it in the Python that trained the model: it opens the file with joblib (or pickle, or skops), so only give it files
that you trust. From a program: `from sklearn_to_json import convert; json.dump(convert(estimator), file)`.

Taken: DecisionTree, ExtraTree, RandomForest, ExtraTrees, GradientBoosting and HistGradientBoosting, classifiers and
regressors, binary, multi-class and (forests) multi-output regression; LGBMClassifier and LGBMRegressor. Anything else
is refused by name. The output is what `predict` gives for a regressor, and for a classifier what `predict_proba` gives
(of two classes: forests give both columns, boosting the second alone); margins are `decision_function`'s.

Numbers are written with all their digits. Tried with scikit-learn 1.0.2, 1.5.2, 1.8.0 and 1.9.1, LightGBM 4.7.0; needs
nothing beside them.
"""

import json
import sys
import zipfile

import numpy as np


class NotConvertible(ValueError):
    """The estimator cannot be converted; the message contains its type and the reason."""


def _name(estimator):
    return type(estimator).__name__


def _shares(values):
    """Class shares of each node, normalized as in predict_proba of a tree, if its version has not done so already."""
    sums = values.sum(axis=1, keepdims=True)
    return values if np.allclose(sums, 1.0, rtol=0, atol=1e-9) else values / np.where(sums == 0, 1.0, sums)


def _table(tree, value):
    """Columns of a tree of sklearn.tree; `value` has one entry per node, or one per node and group."""
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count))
    is_leaf = tree.children_left == -1
    return {
        "left": tree.children_left.tolist(),
        "right": tree.children_right.tolist(),
        "feature": np.where(is_leaf, 0, tree.feature).tolist(),
        "missing_left": np.asarray(missing).astype(int).tolist(),
        "threshold": np.where(is_leaf, 0.0, tree.threshold).tolist(),
        "cover": tree.weighted_n_node_samples.tolist(),
        "value": np.asarray(value, dtype=np.float64).ravel().tolist(),
    }


def _forest(estimator, members):
    """A forest: mean over trees of values or class shares."""
    is_classifier = hasattr(estimator, "classes_")
    if is_classifier and isinstance(estimator.classes_, list):
        raise NotConvertible(f"{_name(estimator)} of several outputs: convert a classifier for each")
    trees = []
    for member in members:
        tree = member.tree_
        value = tree.value[:, 0, :] if is_classifier else tree.value[:, :, 0]
        trees.append(_table(tree, _shares(value) if is_classifier else value))
    groups = len(estimator.classes_) if is_classifier else members[0].n_outputs_
    if getattr(estimator, "monotonic_cst", None) is not None:
        raise NotConvertible(f"{_name(estimator)} with monotonic constraints: its leaves are clipped when it predicts")
    return {"trees": trees, "groups": groups, "step": 1, "base": [0.0] * groups, "transform": "identity"}


def _boosting(estimator):
    """Gradient boosting: a constant plus the sum of the trees, scaled by the learning rate."""
    loss = estimator.loss
    is_classifier = hasattr(estimator, "classes_")
    init = estimator.init_
    if estimator.init not in (None, "zero"):
        raise NotConvertible(f"{_name(estimator)} with init={estimator.init!r}: only the constant ones are trees")
    groups = estimator.estimators_.shape[1]
    row = np.zeros((1, estimator.n_features_in_), dtype=np.float32)
    base = estimator._raw_predict_init(row)[0] if init != "zero" else np.zeros(groups)
    trees = []
    for stage in estimator.estimators_:
        for member in stage:
            tree = member.tree_
            trees.append(_table(tree, estimator.learning_rate * tree.value[:, 0, 0]))
    transform = "identity"
    if is_classifier:
        transform = "half_logistic" if loss == "exponential" else "logistic" if groups == 1 else "softmax"
    return {"trees": trees, "groups": groups, "step": groups, "base": np.ravel(base).tolist(), "transform": transform}


def _histogram(estimator):
    """Histogram gradient boosting: its own thresholds, and rows without conversion."""
    is_classifier = hasattr(estimator, "classes_")
    trees = []
    for stage in estimator._predictors:
        for predictor in stage:
            nodes = predictor.nodes
            if "is_categorical" in nodes.dtype.names and nodes["is_categorical"].any():
                raise NotConvertible(f"{_name(estimator)} with categorical splits")
            is_leaf = nodes["is_leaf"].astype(bool)
            trees.append({
                "left": np.where(is_leaf, -1, nodes["left"].astype(np.int64)).tolist(),
                "right": np.where(is_leaf, -1, nodes["right"].astype(np.int64)).tolist(),
                "feature": np.where(is_leaf, 0, nodes["feature_idx"]).tolist(),
                "missing_left": nodes["missing_go_to_left"].astype(int).tolist(),
                "threshold": np.where(is_leaf, 0.0, nodes["num_threshold"]).tolist(),
                "cover": nodes["count"].astype(np.float64).tolist(),
                "value": nodes["value"].astype(np.float64).tolist(),
            })
    groups = estimator.n_trees_per_iteration_
    base = np.ravel(np.asarray(estimator._baseline_prediction, dtype=np.float64)).tolist()
    transform = "identity"
    if is_classifier:
        transform = "logistic" if groups == 1 else "softmax"
    elif estimator.loss in ("poisson", "gamma"):
        transform = "exp"
    return {"trees": trees, "groups": groups, "step": groups, "base": base, "transform": transform}


def _label(label):
    """A class label as JSON, as returned by `predict` over MLflow."""
    return json.dumps(label.item() if isinstance(label, np.generic) else label)


def _lightgbm(estimator):
    """The text of the booster, up to the best iteration."""
    text = estimator.booster_.model_to_string()
    lines = text.splitlines()
    objective = next((line[len("objective="):].split()[0] for line in lines if line.startswith("objective=")), "custom")
    # With other objectives `predict` of a classifier returns margins, or rounds values.
    if hasattr(estimator, "classes_") and objective not in ("binary", "multiclass", "multiclassova"):
        raise NotConvertible(f"{_name(estimator)} with the objective {objective}: only binary, multiclass and multiclassova")
    return text


def _classes(estimator):
    return {"classes": [_label(label) for label in estimator.classes_]} if hasattr(estimator, "classes_") else {}


def convert(estimator):
    """Converts the estimator to a dictionary of plain lists."""
    import sklearn

    if _name(estimator) == "Pipeline":
        *before, (_, estimator) = estimator.steps
        for step, transformer in before:
            if transformer is not None and transformer != "passthrough":
                raise NotConvertible(
                    f"Pipeline with step {step!r} ({_name(transformer)}) before the trees: apply it before the request, "
                    "and convert the last step alone"
                )
    name = _name(estimator)
    # The first key identifies the format of the file.
    head = {"scikit_learn": sklearn.__version__, "estimator": name}
    if name in ("LGBMClassifier", "LGBMRegressor"):
        return {**head, **_classes(estimator), "lightgbm": _lightgbm(estimator)}
    if name in ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"):
        parts, is_rounded, is_averaged = _forest(estimator, [estimator]), True, False
    elif name in ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor"):
        parts, is_rounded, is_averaged = _forest(estimator, estimator.estimators_), True, True
    elif name in ("GradientBoostingClassifier", "GradientBoostingRegressor"):
        parts, is_rounded, is_averaged = _boosting(estimator), True, False
    elif name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        parts, is_rounded, is_averaged = _histogram(estimator), False, False
    elif name.startswith("XGB"):
        raise NotConvertible(f"{name} saves itself: load it in Python and call save_model(\"model.ubj\")")
    else:
        raise NotConvertible(f"{name} is none of the tree models that can be converted")
    return {
        **head,
        "transform": parts["transform"],
        "counts": [estimator.n_features_in_, parts["groups"], parts["step"], int(is_rounded), int(is_averaged)],
        "base": parts["base"],
        "feature_names": [str(name) for name in getattr(estimator, "feature_names_in_", [])],
        **_classes(estimator),
        "trees": parts["trees"],
    }


def _load(path):
    if zipfile.is_zipfile(path):
        import skops.io

        return skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    try:
        import joblib

        return joblib.load(path)
    except ImportError:
        import pickle

        with open(path, "rb") as file:
            return pickle.load(file)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: sklearn_to_json.py MODEL.joblib|MODEL.pkl|MODEL.skops OUTPUT.json")
    estimator = _load(sys.argv[1])
    try:
        model = convert(estimator)
    except NotConvertible as reason:
        sys.exit(f"{sys.argv[1]}: {reason}")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(model, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
