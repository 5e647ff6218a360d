#!/usr/bin/env bash
# Regenerates the archives in this folder, with the libraries installed by ../versions/make.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
old=${PYTHON311:-python3.11}
new=${PYTHON312:-python3.12}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/versions
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

for library in xgboost==1.7.6 xgboost-cpu==2.1.4 xgboost-cpu==3.0.5 xgboost-cpu==3.2.0 lightgbm==3.3.5 lightgbm==4.7.0; do
    PYTHONPATH=$folder/$library:$folder/base-old "$old" "$here/make.py" "$(grep -o 'xgboost\|lightgbm' <<<"$library")"
done
PYTHONPATH=$folder/xgboost-cpu==3.4.1:$folder/base-new "$new" "$here/make.py" xgboost
