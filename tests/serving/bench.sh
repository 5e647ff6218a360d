#!/usr/bin/env bash
# Compares albacore-server with gunicorn, FastAPI, MLServer and KServe's XGBoost server; see
# bench.py, whose options it takes. Needs network once: the peers are installed from PyPI and
# GitHub, and Python 3.12 with uv if there is none. KSERVE_SOURCE may name a folder with KServe's
# source. Release builds of `albacore` and `albacore-server` must exist.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kserve_version=0.20.0
hash=$(cat "$here"/*.txt | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/bench-serving-$hash
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if [ ! -f "$folder/complete" ]; then
    echo "installing the peers of $here/*.txt into $folder" >&2
    python3 -m venv "$folder/uv" >&2
    "$folder/uv/bin/pip" install --quiet --disable-pip-version-check uv >&2
    uv=$folder/uv/bin/uv
    # An installed Python 3.12, on the path or from pyenv; otherwise uv installs one.
    python=3.12
    for found in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3; do
        if "$found" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
            python=$(command -v "$found")
            break
        fi
    done
    # One environment each, because their sizes are compared.
    for peer in app mlserver kserve; do
        "$uv" venv --quiet --clear --python "$python" "$folder/$peer" >&2
        "$uv" pip install --quiet --python "$folder/$peer" --requirement "$here/$peer.txt" >&2
    done
    # Without dependencies, which include another build of XGBoost.
    "$uv" pip install --quiet --python "$folder/mlserver" --no-deps mlserver-xgboost==1.7.1 >&2
    source=${KSERVE_SOURCE:-}
    if [ -z "$source" ]; then
        source=$folder/kserve-$kserve_version
        "$folder/uv/bin/python" -c 'import sys, urllib.request as u; sys.stdout.buffer.write(u.urlopen(sys.argv[1]).read())' \
            "https://codeload.github.com/kserve/kserve/tar.gz/refs/tags/v$kserve_version" |
            tar xz -C "$folder" "kserve-$kserve_version/python/xgbserver"
    fi
    cp -r "$source/python/xgbserver/xgbserver" "$("$folder/kserve/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
    touch "$folder/complete"
fi
export BENCH_PEERS=$folder
exec "$folder/app/bin/python" "$here/bench.py" "$@"
