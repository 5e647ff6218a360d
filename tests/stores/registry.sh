#!/usr/bin/env bash
# Builds the registry of the tests (the distribution project, from the Go module proxy) and prints
# its program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cached-build.sh
source "$here/../cached-build.sh"
build() {
    PATH=$("$here/../go-env.sh")
    echo "building the registry into $folder"
    cd "$here"
    build_go_program registry ./registry
}
cached_build stores "$here"/{go.mod,go.sum} "$here"/registry/*.go
echo "$folder/registry"
