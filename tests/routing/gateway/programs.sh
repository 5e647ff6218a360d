#!/usr/bin/env bash
# Builds Envoy Gateway from its Go module and prints the folder with the program `envoy-gateway` and
# the folder `crds`, its resource definitions and those of Gateway API. It lies under
# ~/.cache/albacore, named after what it is made from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=github.com/envoyproxy/gateway
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
mkdir -p "$cache"
key=$(cat "$here"/{go.mod,go.sum} "$0" | sha256sum | cut -c1-12)
folder=$cache/gateway-$key
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    PATH=$("$here/../../go-env.sh")
    echo "building Envoy Gateway into $folder (minutes, once)" >&2
    cd "$here"
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags "-s -w" \
        -o "$folder/envoy-gateway" "$module/cmd/envoy-gateway" >&2
    charts=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")/charts
    cp -r --no-preserve=mode "$charts/gateway-helm/charts/crds/crds" "$folder/crds"
    touch "$folder/complete"
fi
echo "$folder"
