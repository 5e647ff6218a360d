#!/usr/bin/env bash
# Builds Envoy Gateway from its Go module and prints the folder with the program `envoy-gateway` and
# the folder `crds`, its resource definitions and those of Gateway API.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=github.com/envoyproxy/gateway
# shellcheck source=tests/cached-build.sh
source "$here/../../cached-build.sh"
build() {
    PATH=$("$here/../../go-env.sh")
    echo "building Envoy Gateway into $folder (minutes, once)"
    cd "$here"
    build_go_program envoy-gateway "$module/cmd/envoy-gateway"
    charts=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")/charts
    cp -r --no-preserve=mode "$charts/gateway-helm/charts/crds/crds" "$folder/crds"
}
cached_build gateway "$here"/{go.mod,go.sum}
echo "$folder"
