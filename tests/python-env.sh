#!/usr/bin/env bash
# Creates the Python environment of the tests and benchmarks (pinned packages from PyPI; the
# argument is another list) and prints its folder. It is below ~/.cache/albacore, named after a hash
# of the requirements, so that a change creates a new one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=${1:-$here/requirements.txt}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/albacore/python-$(sha256sum "$requirements" | cut -c1-12)
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same environment
if [ ! -f "$folder/complete" ]; then
    "$here/../scripts/setup.sh" python
    echo "installing the Python packages of $requirements into $folder" >&2
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements" >&2
    touch "$folder/complete"
fi
echo "$folder"
