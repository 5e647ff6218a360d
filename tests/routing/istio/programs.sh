#!/usr/bin/env bash
# Builds istiod from its Go module and prints the folder with the program `pilot-discovery` and the
# file `crds.yaml`, its resource definitions. The module has no tagged versions: go.mod names a
# commit of the branch 1.31.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
module=istio.io/istio
# shellcheck source=tests/cached-build.sh
source "$here/../../cached-build.sh"
build() {
    PATH=$("$here/../../go-env.sh")
    echo "building istiod into $folder (minutes, once)"
    cd "$here"
    build_go_program pilot-discovery "$module/pilot/cmd/pilot-discovery"
    source=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")
    cp --no-preserve=mode "$source/manifests/charts/base/files/crd-all.gen.yaml" "$folder/crds.yaml"
}
cached_build istio "$here"/{go.mod,go.sum}
echo "$folder"
