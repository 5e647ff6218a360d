#!/usr/bin/env bash
# Builds istiod from its Go module and prints the folder with the program `pilot-discovery` and the
# file `crds.yaml`, its resource definitions. It lies under ~/.cache/albacore, named after what it
# is made from. The module has no tagged versions: go.mod names a commit of the branch 1.31.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=istio.io/istio
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
mkdir -p "$cache"
key=$(cat "$here"/{go.mod,go.sum} "$0" | sha256sum | cut -c1-12)
folder=$cache/istio-$key
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    PATH=$("$here/../../go-env.sh")
    echo "building istiod into $folder (minutes, once)" >&2
    cd "$here"
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags "-s -w" \
        -o "$folder/pilot-discovery" "$module/pilot/cmd/pilot-discovery" >&2
    source=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")
    cp --no-preserve=mode "$source/manifests/charts/base/files/crd-all.gen.yaml" "$folder/crds.yaml"
    touch "$folder/complete"
fi
echo "$folder"
