#!/usr/bin/env bash
# Runs unmodified clients (tritonclient, kserve, perf_analyzer, mlflow) against albacore-server.
# Argument: path of the server, by default target/debug/albacore-server. The packages are installed
# once, under ~/.cache/albacore.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
server=${1:-${CARGO_TARGET_DIR:-$root/target}/debug/albacore-server}
if [ ! -x "$server" ]; then
    echo "$server: not there; run \`cargo build -p albacore-server\`, or name the binary" >&2
    exit 1
fi
python=$("$here/../python-env.sh" "$here/requirements.txt")/bin/python
# perf_analyzer is part of an older wheel of tritonclient; it needs two libraries that may be
# missing on the system.
perf=$("$here/../python-env.sh" "$here/perf_analyzer.txt")
ldconfig -p | grep -q libb64.so.0d || {
    echo "installing libb64-0d (apt-get)" >&2
    apt-get update -qq >&2 && apt-get install -y -qq libb64-0d >&2
}
cudart=$(find "$perf" -name libcudart.so.12 -print -quit)
# A wrapper script, so that only this program sees the libraries.
perf_analyzer=$(mktemp)
trap 'rm -f "$perf_analyzer"' EXIT
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/bin/perf_analyzer "$@"\n' "${cudart%/*}" "$perf" >"$perf_analyzer"
chmod +x "$perf_analyzer"
export PERF_ANALYZER=$perf_analyzer ALBACORE_SERVER=$server PYTHONDONTWRITEBYTECODE=1
# One process per client: tritonclient and kserve contain two protobuf files that define the same
# messages.
for test in "$here"/test_*.py; do
    "$python" -m pytest -p no:cacheprovider -q --tb=short "$test"
done
# mlflow's own scoring server, with the libraries of the models that it saves.
mlflow=$("$here/../python-env.sh" "$here/mlflow.txt")/bin/python
"$mlflow" -m pytest -p no:cacheprovider -q --tb=short "$here/mlflow"
