#!/usr/bin/env bash
# Creates the Python environment of the tests and benchmarks (pinned packages from PyPI; the
# argument is another list) and prints its folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=${1:-$here/requirements.txt}
# shellcheck source=tests/cached-build.sh
source "$here/cached-build.sh"
build() {
    "$here/../scripts/setup.sh" python
    echo "installing the Python packages of $requirements into $folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements"
}
cached_build python "$requirements"
echo "$folder"
