#!/usr/bin/env bash
# Compares the tree engine with others; see bench.py, whose options it takes. Needs network once:
# the peers are installed from PyPI, and Python 3.12 with uv if there is none.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/bench-trees-$(sha256sum "$here/requirements.txt" | cut -c1-12)
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if [ ! -f "$folder/complete" ]; then
    echo "installing the peers of $here/requirements.txt into $folder" >&2
    python3 -m venv "$folder/uv" >&2
    "$folder/uv/bin/pip" install --quiet --disable-pip-version-check uv >&2
    # An installed Python, on the path or from pyenv; otherwise uv installs one.
    python=3.12
    for found in python3.1{2,3,4} python3 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3; do
        if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            python=$(command -v "$found")
            break
        fi
    done
    "$folder/uv/bin/uv" venv --quiet --clear --seed --python "$python" "$folder/python" >&2
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/python" --requirement "$here/requirements.txt" >&2
    touch "$folder/complete"
fi
exec "$folder/python/bin/python" "$here/bench.py" "$folder/models" "$@"
