#!/usr/bin/env bash
# Writes foreign.zip beside this file anew: files that are no models for Albacore, written by the libraries that users
# have. Needs Python 3.11 (PYTHON311) and PyPI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/foreign
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
[ -f "$folder/complete" ] || {
    rm -rf "$folder"
    "${PYTHON311:-python3.11}" -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check numpy==1.26.4 scipy==1.13.1 scikit-learn==1.5.2 joblib==1.4.2 \
        pandas skl2onnx onnxmltools treelite nyoka skops six narwhals
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps numpy==1.26.4 catboost xgboost-cpu==2.1.4 lightgbm==4.7.0
    touch "$folder/complete"
}
"$folder/bin/python" "$here/make.py"
