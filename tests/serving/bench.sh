#!/usr/bin/env bash
# Measures albacore-server beside gunicorn, FastAPI and MLServer with XGBoost; see bench.py, whose
# options it takes. Needs network once: the peers come from PyPI, and Python 3.12 through uv if
# there is none. Release builds of `albacore` and `albacore-server` must be there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
hash=$(sha256sum "$here/requirements.txt" | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/bench-serving-$hash
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if [ ! -f "$folder/complete" ]; then
    echo "installing the peers of $here/requirements.txt into $folder" >&2
    python3 -m venv "$folder/uv" >&2
    "$folder/uv/bin/pip" install --quiet --disable-pip-version-check uv >&2
    # A Python 3.12 that is there, on the path or pyenv's; else uv brings one.
    python=3.12
    for found in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3; do
        if "$found" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
            python=$(command -v "$found")
            break
        fi
    done
    "$folder/uv/bin/uv" venv --quiet --clear --seed --python "$python" "$folder/python" >&2
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/python" --requirement "$here/requirements.txt" >&2
    # Without what it depends on: it would bring another build of XGBoost.
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/python" --no-deps mlserver-xgboost==1.7.1 >&2
    touch "$folder/complete"
fi
exec "$folder/python/bin/python" "$here/bench.py" "$@"
