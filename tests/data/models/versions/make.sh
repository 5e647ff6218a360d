#!/usr/bin/env bash
# Regenerates the archives in this folder and in ../edges: installs every version of the libraries
# (from PyPI, without optional dependencies) into ~/.cache/albacore/versions and runs make.py and
# edges.py with each. Needs Python 3.11 and 3.12 or newer: PYTHON311, PYTHON312.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
old=${PYTHON311:-python3.11}
new=${PYTHON312:-python3.12}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/versions
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

# need PYTHON FOLDER PACKAGE...
need() {
    local python=$1 target=$folder/$2
    shift 2
    [ -f "$target/complete" ] || {
        rm -rf "$target"
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$target" "$@"
        touch "$target/complete"
    }
}

need "$old" base-old numpy==1.26.4 scipy==1.13.1 packaging==24.2 scikit-learn==1.5.2 joblib==1.4.2 threadpoolctl==3.5.0 narwhals==2.29.0
need "$new" base-new numpy==2.3.5 scipy==1.16.3 packaging==25.0 scikit-learn==1.8.0 joblib==1.5.2 threadpoolctl==3.6.0
for library in xgboost==1.7.6 xgboost-cpu==2.1.4 xgboost-cpu==3.0.5 xgboost-cpu==3.2.0 lightgbm==3.3.5 lightgbm==4.7.0; do
    need "$old" "$library" "$library"
    PYTHONPATH=$folder/$library:$folder/base-old "$old" "$here/make.py" "$(grep -o 'xgboost\|lightgbm' <<<"$library")"
done
for library in xgboost==2.0.3 xgboost-cpu==3.1.3; do
    need "$old" "$library" "$library"
    PYTHONPATH=$folder/$library:$folder/base-old "$old" "$here/make.py" xgboost few
done
for library in xgboost-cpu==3.3.0 xgboost-cpu==3.4.0; do
    need "$new" "$library" "$library"
    PYTHONPATH=$folder/$library:$folder/base-new "$new" "$here/make.py" xgboost few
done
need "$new" xgboost-cpu==3.4.1 xgboost-cpu==3.4.1
PYTHONPATH=$folder/xgboost-cpu==3.4.1:$folder/base-new "$new" "$here/make.py" xgboost
PYTHONPATH=$folder/base-old "$old" "$here/make.py" sklearn
PYTHONPATH=$folder/base-new "$new" "$here/make.py" sklearn

# edges PYTHON BASE LIBRARY: models at the limits of what the version trains and loads.
edges() {
    need "$1" "$3" "$3"
    PYTHONPATH=$folder/$3:$folder/$2 "$1" "$here/edges.py" "$(grep -o 'xgboost\|lightgbm' <<<"$3")"
}
for library in xgboost==1.2.1 xgboost==1.6.2 xgboost==1.7.2 xgboost==1.7.6 xgboost==2.0.3 xgboost-cpu==2.1.4 \
    xgboost-cpu==3.0.5 xgboost-cpu==3.1.3 xgboost-cpu==3.2.0 lightgbm==3.3.5 lightgbm==4.7.0; do
    edges "$old" base-old "$library"
done
for library in xgboost-cpu==3.3.0 xgboost-cpu==3.4.1; do
    edges "$new" base-new "$library"
done
