"""Writes foreign.zip: what a user may hand over instead of a model file, by its real writers. `make.sh` runs it."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path

import catboost
import joblib
import lightgbm
import numpy as np
import onnxmltools
import skl2onnx
import skops.io
import treelite
import xgboost
from nyoka import skl_to_pmml
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

warnings.filterwarnings("ignore")
# This prefix suffices to identify a file; archives are also identified by their ends.
MOST = 3000
rng = np.random.default_rng(0)
x = rng.normal(size=(40, 3))
y = (x[:, 0] > 0).astype(int)
forest = RandomForestClassifier(n_estimators=2, max_depth=2, random_state=0).fit(x, y)
classifier = xgboost.XGBClassifier(n_estimators=2, max_depth=2).fit(x, y)
booster = classifier.get_booster()
light = lightgbm.LGBMClassifier(n_estimators=2, num_leaves=4, min_child_samples=2, verbosity=-1).fit(x, y)
cat = catboost.CatBoostClassifier(iterations=2, depth=2, verbose=0, allow_writing_files=False).fit(x, y)
pipeline = Pipeline([("tree", DecisionTreeClassifier(max_depth=2))]).fit(x, y)

zip_file = zipfile.ZipFile(Path(__file__).parent / "foreign.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9)
folder = Path(tempfile.mkdtemp())


def put(name, data):
    data = data.encode() if isinstance(data, str) else bytes(data)
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    zip_file.writestr(info, data if data.startswith(b"PK") else data[:MOST])


def written(name, write):
    write(str(folder / name))
    put(name, (folder / name).read_bytes())


for protocol in range(6):
    # The first protocols are also identified by their last byte.
    model = forest if protocol > 1 else xgboost.XGBClassifier()
    put(f"protocol{protocol}.pkl", pickle.dumps(model, protocol=protocol))
written("sklearn.joblib", lambda path: joblib.dump(forest, path))
for method in ("zlib", "gzip", "bz2", "xz", "lzma"):
    written(f"{method}.joblib", lambda path: joblib.dump(forest, path, compress=(method, 3)))
for name, model in [("xgboost", classifier), ("booster", booster), ("lightgbm", light), ("lightgbm_booster", light.booster_),
                    ("catboost", cat)]:
    put(f"{name}.pkl", pickle.dumps(model))
written("xgboost.joblib", lambda path: joblib.dump(classifier, path))
put("list.pkl", pickle.dumps([1, 2, 3]))
put("save_config.json", booster.save_config())
put("serialized.ubj", booster.__getstate__()["handle"])
put("deprecated.model", booster.save_raw("deprecated"))
# Versions before 1.0 write the same format without its magic number.
put("first.model", booster.save_raw("deprecated")[4:])
written("dump_model.txt", booster.dump_model)
written("dump_model.json", lambda path: booster.dump_model(path, dump_format="json"))
put("lightgbm_dump_model.json", json.dumps(light.booster_.dump_model()))
for kind, ending in [("cbm", "cbm"), ("json", "json"), ("python", "py"), ("cpp", "cpp"), ("onnx", "onnx"), ("pmml", "pmml")]:
    written(f"catboost.{ending}", lambda path: cat.save_model(path, format=kind))
put("sklearn.onnx", skl2onnx.to_onnx(forest, x[:1].astype(np.float32)).SerializeToString())
types = [("input", FloatTensorType([None, 3]))]
put("xgboost.onnx", onnxmltools.convert_xgboost(classifier, initial_types=types).SerializeToString())
written("sklearn.treelite", lambda path: treelite.sklearn.import_model(forest).serialize(path))
put("treelite.json", treelite.sklearn.import_model(forest).dump_as_json())
written("sklearn.pmml", lambda path: skl_to_pmml(pipeline, ["a", "b", "c"], "y", path))
buffer = io.BytesIO()
np.savez(buffer, x=x[:2])
put("rows.npz", buffer.getvalue())
buffer = io.BytesIO()
np.save(buffer, x[:2])
put("rows.npy", buffer.getvalue())
small = skops.io.dumps(DecisionTreeClassifier(max_depth=1).fit(x, y))
put("sklearn.skops", small)
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as inner:
    inner.writestr(zipfile.ZipInfo("model.ubj", (2026, 1, 1, 0, 0, 0)), bytes(booster.save_raw("ubj"))[:40])
put("model.zip", buffer.getvalue())
raw = bytes(booster.save_raw("ubj"))
for name, data in [("gz", gzip.compress(raw, mtime=0)), ("bz2", bz2.compress(raw)), ("xz", lzma.compress(raw)),
                   ("zlib", zlib.compress(raw))]:
    put(f"model.ubj.{name}", data)
put("empty.ubj", b"")
put("zeros.ubj", bytes(4096))
put("blank.txt", "\n\n")
put("plain.txt", "404: Not Found\n")
put("rows.csv", "a,b,c\n1,2,3\n")
put("answer.json", '{"message": "Not Found", "status": "404"}')
put("page.html", "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n")
put("error.xml", '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code><Key>model.ubj</Key></Error>\n')
put("lfs.ubj", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d7a" * 16 + "\nsize 12345\n")
zip_file.close()
