#!/usr/bin/env bash
# Regenerates foreign.zip in this folder: files that are not models for Albacore, written by common
# libraries. Needs Python 3.11 (PYTHON311) and PyPI.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/foreign
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
[ -f "$folder/complete" ] || {
    rm -rf "$folder"
    "${PYTHON311:-python3.11}" -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6 scipy==1.13.1 scikit-learn==1.5.2 joblib==1.6.0 \
        pandas==3.1.1 skl2onnx==1.20.0 onnxmltools==1.16.0 treelite==4.8.1 nyoka==5.5.0 skops==0.16.0 six==1.17.0 narwhals==2.29.0
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps catboost==1.2.10 xgboost-cpu==2.1.4 lightgbm==4.7.0
    touch "$folder/complete"
}
"$folder/bin/python" "$here/make.py"
