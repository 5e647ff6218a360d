#!/usr/bin/env bash
# Runs unmodified Python clients (tritonclient, kserve) against albacore-server. Argument: the server's binary,
# target/debug/albacore-server if there is none. The packages are installed once, under ~/.cache/albacore.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
server=${1:-${CARGO_TARGET_DIR:-$root/target}/debug/albacore-server}
if [ ! -x "$server" ]; then
    echo "$server: not there; run \`cargo build -p albacore-server\`, or name the binary" >&2
    exit 1
fi
python=$("$here/../python-env.sh" "$here/requirements.txt")/bin/python
export ALBACORE_SERVER=$server PYTHONDONTWRITEBYTECODE=1
# A process for each client: tritonclient and kserve bring two protobuf files that define the same messages.
for test in "$here"/test_*.py; do
    "$python" -m pytest -p no:cacheprovider -q --tb=short "$test"
done
