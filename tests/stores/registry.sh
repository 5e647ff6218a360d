#!/usr/bin/env bash
# Builds the registry of the tests (the distribution project, from the Go module proxy) and prints
# its program. It lies under ~/.cache/albacore, named after what it is made from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
mkdir -p "$cache"
key=$(cat "$here"/{go.mod,go.sum} "$here"/registry/*.go "$0" | sha256sum | cut -c1-12)
folder=$cache/stores-$key
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same program
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    PATH=$("$here/../go-env.sh")
    echo "building the registry into $folder" >&2
    cd "$here"
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags "-s -w" \
        -o "$folder/registry" ./registry >&2
    touch "$folder/complete"
fi
echo "$folder/registry"
